"""Map matching: the edge on which each GPS point was recorded, by a hidden Markov model.

After Newson and Krumm (2009): the hidden state is the edge, a point lies near its edge (Gaussian), and the route
between the edges of two consecutive points is about as long as the straight line between them (exponential). Viterbi's
algorithm finds the most probable sequence of edges, for many trips at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, options_repr, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mobility.edge_index import Candidates, EdgeIndex
from geoblanket.mobility.routes import RouteFinder
from geoblanket.roads.graph import RoadGraph

_MOST_CANDIDATES = 100
"""A candidate's number is kept in a signed byte."""
_BLOCK_TRANSITIONS = 1 << 19
"""Transitions weighed at once: bounds memory, and stays near the processor's cache."""
_OVER_JUNCTION_M = 60.0
"""Backing over a junction counts as this much farther, metres. Otherwise a vehicle that stands at a junction would
seem to move between its roads."""
_DETOUR, _DETOUR_M = 2.0, 500.0
"""A route longer than _DETOUR times the straight line plus _DETOUR_M metres is not considered."""

Method = Literal["hmm", "nearest"]
"""`hmm`: a hidden Markov model finds the route; `nearest`: each position goes to its nearest place, without roads."""


@checked
@dataclass(frozen=True)
class MatchOptions:
    """How points are matched: the method, and the parameters of the hidden Markov model.

    Examples
    --------
    >>> from geoblanket import MatchOptions, match_traces
    >>> options = MatchOptions(method="nearest", max_gap_s=60)
    >>> match_traces("traces.parquet", "city.roads", "near.parquet", options=options).trips
    150
    """

    method: Method = "hmm"
    """hmm: a hidden Markov model over routes. nearest: the place nearest to each point."""
    radius_m: float = 50.0
    """A point farther than this from every edge is unmatched."""
    candidates: int = 8
    """How many edges near a point are considered; the two directions of a road are two edges."""
    sigma_m: float = 8.0
    """Standard deviation of GPS positions."""
    beta_m: float = 15.0
    """Mean difference between the route and the straight line from one point to the next."""
    jitter_m: float = 30.0
    """A move backwards of at most this, on an edge or to the edge before, is taken for GPS noise at a standstill."""
    max_speed_m_s: float = 50.0
    """Routes that need a higher speed are impossible."""
    max_gap_s: float = 180.0
    """A longer time without a matched point ends a stretch; for both methods."""
    snap_m: float = 200.0
    """By `nearest`, a point farther than this plus the spacing from every place is unmatched."""

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ParameterError(f"The 'method' option must be one of {', '.join(get_args(Method))}.")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"The '{field.name}' option must be a positive number. Got {value} instead.")
        if self.candidates > _MOST_CANDIDATES:
            raise ParameterError(
                f"The 'candidates' option must be at most {_MOST_CANDIDATES}. Got {self.candidates} instead."
            )

    def __repr__(self) -> str:
        return options_repr(self)


@dataclass(frozen=True, eq=False)
class MatchedPoints:
    """Where on the roads each point was, in the order of the points given."""

    edge: Indices
    """Edge of each point; -1 if unmatched."""
    offset_m: Floats
    """Metres from the edge's source along the road; NaN if unmatched."""
    distance_m: Floats
    """Metres from the point to its position on the road; NaN if unmatched."""
    begins: Bools
    """Whether a stretch begins at the point: a run of matched points of one trip that one route connects."""
    route_m: Floats
    """Length of the route from the stretch's previous point, metres; 0 where a stretch begins, NaN if unmatched."""

    @classmethod
    def unmatched(cls, count: int) -> MatchedPoints:
        """Return `count` unmatched points."""
        edge = np.full(count, -1, np.int32)
        offset_m, distance_m, route_m = (np.full(count, np.nan) for _ in range(3))
        return cls(edge, offset_m, distance_m, np.zeros(count, dtype=bool), route_m)

    @property
    def matched(self) -> Bools:
        """Which points are matched."""
        return self.edge >= 0


class MapMatcher:
    """A map matcher for one road graph. It keeps its index and its table of routes between calls.

    Parameters
    ----------
    graph
        The roads.
    options
        The model's parameters.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket import MapMatcher, scan_traces
    >>> points = scan_traces("traces.parquet").head(10).collect()
    >>> time_us = points["time"].to_physical().to_numpy()
    >>> matcher = MapMatcher(graph)
    >>> matched = matcher.match(points["trip"].to_numpy(), time_us, *points["lat", "lon"].to_numpy().T)
    >>> int(matched.matched.sum())
    10
    """

    @checked
    def __init__(self, graph: RoadGraph, options: MatchOptions | None = None) -> None:
        self.graph = graph
        self.options = options or MatchOptions()
        self.index = EdgeIndex(graph, radius_m=self.options.radius_m)
        self.routes = RouteFinder(graph)

    def match(self, trip: Ints, time_us: Ints, lat: Floats, lon: Floats) -> MatchedPoints:
        """Match the points of one or many trips.

        A point is unmatched if no edge is near, or if no route leads from it to the points before and after it. The
        points around it are then matched without it.

        Parameters
        ----------
        trip
            Trip of each point; the points of a trip follow each other.
        time_us
            Time of each point, microseconds, not decreasing within a trip.
        lat, lon
            Degrees WGS84.
        """
        near = self.index.nearest(lat, lon, count=self.options.candidates)
        # Unused candidates repeat the first one, infinitely far away: no routes are searched for them.
        near = replace(near, edge=np.where(near.edge < 0, near.edge[:, :1], near.edge))
        points = _Points(trip, time_us, lat, lon, near)
        result = MatchedPoints.unmatched(len(trip))
        todo = np.flatnonzero(near.edge[:, 0] >= 0)
        lone = self._match_into(result, points, todo)
        # A point without routes to its neighbours breaks its trip: match such trips once more without it.
        if len(lone):
            again = todo[np.isin(trip[todo], trip[lone]) & ~np.isin(todo, lone)]
            result.edge[lone] = -1
            self._match_into(result, points, again)
        unmatched = ~result.matched
        for values in (result.offset_m, result.distance_m, result.route_m):
            values[unmatched] = np.nan
        result.begins[unmatched] = False
        return result

    def positions_on_route(
        self,
        points: MatchedPoints,
        before: Positions,
        after: Positions,
        *,
        travelled_m: Floats,
    ) -> tuple[Indices, Floats]:
        """Return edge and offset (metres) after travelling along the route from one matched point to the next.

        Parameters
        ----------
        before, after
            Indices of consecutive points of a stretch.
        travelled_m
            Metres from the point before, at most the length of the route.
        """
        edge, offset = points.edge[before].copy(), points.offset_m[before] + travelled_m
        last, to_go = points.edge[after], points.route_m[after] - travelled_m
        beyond = offset - self.graph.length_m[edge]
        # A route that stays on one edge ends where its offset says; any other leaves the first edge at its end.
        stays = (edge == last) & (points.offset_m[after] >= points.offset_m[before] - self.options.jitter_m)
        # On the last edge the position is counted back from the second point; what is left lies on edges between.
        on_last = ~stays & (beyond > 0) & (to_go <= points.offset_m[after])
        edge[on_last], offset[on_last] = last[on_last], (points.offset_m[after] - to_go)[on_last]
        between = np.flatnonzero(~stays & (beyond > 0) & ~on_last)
        edge[between], offset[between] = self._positions_between(
            edge[between], last[between], beyond[between], points.route_m[after][between]
        )
        return edge, offset

    def _positions_between(
        self, first: Indices, last: Indices, beyond_m: Floats, limit_m: Floats
    ) -> tuple[Indices, Floats]:
        """Return the position `beyond_m` metres after the end of edge `first`, on the shortest way to edge `last`."""
        offsets, edges = self.routes.paths(
            self.graph.targets[first].astype(np.int64),
            self.graph.sources[last].astype(np.int64),
            limit_m=limit_m + 1.0,
        )
        # All routes laid end to end make one axis, on which one search finds every position.
        length = self.graph.length_m[edges]
        ends = np.cumsum(length)
        base = np.append(0.0, ends)[offsets[:-1]]
        at = np.clip(np.searchsorted(ends, base + beyond_m), offsets[:-1], offsets[1:] - 1)
        return edges[at], np.clip(base + beyond_m - (ends - length)[at], 0.0, length[at])

    def _match_into(self, result: MatchedPoints, points: _Points, which: Positions) -> Positions:
        """Match some of the points; return the points that missing routes isolate."""
        if not len(which):
            return which
        # Long gaps in time cut trips into sequences, which are laid out side by side for Viterbi's algorithm.
        trip, time_us = points.trip[which], points.time_us[which]
        cut = begins_by_gap(trip, time_us, max_gap_s=self.options.max_gap_s)
        sequences = Sequences.from_starts(cut)
        ordered = points.take(which[sequences.order])
        state, begins = cheapest_states(
            0.5 * (ordered.near.distance_m / self.options.sigma_m) ** 2,
            sequences,
            lambda before, after: self._transition_costs(ordered, before, after),
            block_items=max(1, _BLOCK_TRANSITIONS // self.options.candidates**2),
        )
        # Write the chosen candidates back in the order of the points.
        target = which[sequences.order]
        row = np.arange(len(target))
        result.edge[target] = ordered.near.edge[row, state]
        result.offset_m[target] = ordered.near.offset_m[row, state]
        result.distance_m[target] = ordered.near.distance_m[row, state]
        result.begins[target] = begins
        result.route_m[which] = self._chosen_routes(result, points, which)
        # A point between two breaks, at least one of them for lack of a route, is probably wrong: it is left out.
        begins = np.append(result.begins[which], True)
        broken = begins & np.append(~cut, False)
        lone: Positions = which[begins[:-1] & begins[1:] & (broken[:-1] | broken[1:])]
        return lone

    def _chosen_routes(self, result: MatchedPoints, points: _Points, which: Positions) -> Floats:
        """Return the length of the route to each of the points from the one before."""
        goes_on = np.flatnonzero(~result.begins[which])
        before, after = which[goes_on - 1], which[goes_on]
        _, limit_m = self._straight_and_limit(points, before, after)
        route_m = np.zeros(len(which))
        route_m[goes_on] = self._route_lengths(
            result.edge[before], result.offset_m[before], result.edge[after], result.offset_m[after], limit_m
        )
        return np.maximum(route_m, 0.0)

    def _straight_and_limit(self, points: _Points, before: Positions, after: Positions) -> tuple[Floats, Floats]:
        """Return the straight distance between points, and how long a route between them may be, metres."""
        options = self.options
        straight = haversine_m(points.lat[before], points.lon[before], points.lat[after], points.lon[after])
        seconds = (points.time_us[after] - points.time_us[before]) / 1e6
        by_speed = options.max_speed_m_s * seconds
        return straight, np.minimum(by_speed, _DETOUR * straight + _DETOUR_M) + 2 * options.radius_m

    def _transition_costs(self, points: _Points, before: Positions, after: Positions) -> Floats:
        """Return the cost of each move from a candidate of one point to a candidate of the next, shape (n, K, K)."""
        near = points.near
        straight, limit_m = (values[:, None, None] for values in self._straight_and_limit(points, before, after))
        edge_a, edge_b = near.edge[before][:, :, None], near.edge[after][:, None, :]
        offset_a, offset_b = near.offset_m[before][:, :, None], near.offset_m[after][:, None, :]
        route_m = self._route_lengths(edge_a, offset_a, edge_b, offset_b, limit_m)
        return np.abs(route_m - straight) / self.options.beta_m

    def _route_lengths(
        self,
        edge_a: Indices,
        offset_a: Floats,
        edge_b: Indices,
        offset_b: Floats,
        limit_m: Floats,
    ) -> Floats:
        """Return the length of the route from position a to position b, metres; infinite above the limit.

        A small move backwards has a negative length, so that it costs more than a standstill. Shapes are broadcast.
        """
        graph = self.graph
        source, target = graph.targets[edge_a], graph.sources[edge_b]
        # To the end of the first edge, along the shortest way, and into the second edge.
        route = self.routes.lengths(source, target, limit_m=limit_m) + (graph.length_m[edge_a] - offset_a)
        route += offset_b
        # Moves on one edge, and small moves backwards on it or over a junction, need no route around.
        same, touching = edge_a == edge_b, graph.targets[edge_b] == graph.sources[edge_a]
        some = np.nonzero(same | touching)
        length_b = np.broadcast_to(graph.length_m[edge_b], route.shape)[some]
        back = (offset_a - offset_b)[some] + np.where(same[some], 0.0, length_b)
        backed = np.where(same[some], -back, -back - _OVER_JUNCTION_M)
        route[some] = np.where(back <= self.options.jitter_m, backed, route[some])
        route[route > limit_m] = np.inf
        return route

    def __repr__(self) -> str:
        edges = counted(self.graph.edge_count, "edge")
        return short_repr(self, edges, f"GPS points up to {self.options.radius_m:g} m from a road")


@dataclass(frozen=True, eq=False)
class _Points:
    trip: Ints
    time_us: Ints
    lat: Floats
    lon: Floats
    near: Candidates

    def take(self, which: Positions) -> _Points:
        near = Candidates(self.near.edge[which], self.near.offset_m[which], self.near.distance_m[which])
        return _Points(self.trip[which], self.time_us[which], self.lat[which], self.lon[which], near)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences laid out by step: the first items of all sequences, then the second items, and so on.

    Within a step longer sequences come first, so the items of a step and the items before them are two slices.
    """

    order: Ints
    """Item of the input at each position of the layout, shape (P,)."""
    starts: Ints
    """Where each step starts in the layout, shape (steps + 1,)."""

    @classmethod
    def from_starts(cls, begins: Bools) -> Sequences:
        """Lay out consecutive items, given which of them begin a sequence; the first item must."""
        first = np.flatnonzero(begins)
        lengths = np.diff(np.append(first, len(begins)))
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(-lengths, kind="stable")] = np.arange(len(first))
        step = np.arange(len(begins)) - np.repeat(first, lengths)
        starts = np.concatenate([[0], np.cumsum(np.bincount(step))]).astype(np.int64)
        order = np.empty(len(begins), np.int64)
        order[starts[step] + np.repeat(rank, lengths)] = np.arange(len(begins))
        return cls(order, starts)

    def previous(self, first_step: int, last_step: int) -> Ints:
        """Return the position one step before each position of steps `first_step` (at least 1) to `last_step` - 1."""
        starts = self.starts
        shift = np.repeat(np.diff(starts)[first_step - 1 : last_step - 1], np.diff(starts)[first_step:last_step])
        positions: Ints = np.arange(starts[first_step], starts[last_step]) - shift
        return positions

    def blocks(self, items: int) -> list[tuple[int, int]]:
        """Cut the steps from 1 on into ranges that hold about `items` positions each, at least one step."""
        cuts, steps = [1], len(self.starts) - 1
        while cuts[-1] < steps:
            reach = int(np.searchsorted(self.starts, self.starts[cuts[-1]] + items, side="right")) - 1
            cuts.append(min(max(reach, cuts[-1] + 1), steps))
        return list(pairwise(cuts))


def cheapest_states(
    emission: Floats,
    sequences: Sequences,
    transition: Callable[[Ints, Ints], Floats],
    *,
    block_items: int,
) -> tuple[npt.NDArray[np.int8], Bools]:
    """Find the states with the least sum of costs (Viterbi); start anew where no transition is possible.

    Parameters
    ----------
    emission
        Cost of each state at each position of the layout, shape (P, K); infinite where there is no such state. Every
        position has at least one.
    transition
        Given positions and those before them (each of shape (n,): before, after), the cost of moving from state i to
        state j as an array [:, i, j] of shape (n, K, K).
    block_items
        How many positions to ask `transition` for at once.

    Returns
    -------
    state, begins
        The state at each position, and whether a sequence or a new start begins there.
    """
    starts = sequences.starts
    # `back`: the state one step before on the cheapest way to each state; `best`: the cheapest state at each position.
    back = np.full(emission.shape, -1, np.int8)
    best = np.zeros(len(emission), np.int8)
    begins = np.zeros(len(emission), dtype=bool)
    begins[: starts[1]] = True
    score = emission[: starts[1]]
    best[: starts[1]] = score.argmin(axis=1)
    for first, last in sequences.blocks(block_items):
        before = sequences.previous(first, last)
        cost = transition(before, np.arange(starts[first], starts[last]))
        for step in range(first, last):
            here = slice(starts[step], starts[step + 1])
            count = here.stop - here.start
            # For each state here, the cheapest way to it over all states one step before.
            total = score[:count, :, None] + cost[here.start - starts[first] : here.stop - starts[first]]
            came_from = total.argmin(axis=1)
            score = np.take_along_axis(total, came_from[:, None, :], axis=1)[:, 0] + emission[here]
            # Where no state can be reached, the sequence breaks and starts anew.
            broken = ~np.isfinite(score).any(axis=1)
            came_from[broken] = -1
            score[broken] = emission[here][broken]
            begins[here] = broken
            back[here] = came_from
            best[here] = score.argmin(axis=1)
    return _trace_back(back, best, starts), begins


def _trace_back(back: npt.NDArray[np.int8], best: npt.NDArray[np.int8], starts: Ints) -> npt.NDArray[np.int8]:
    """Follow the pointers from the last step to the first; a sequence or stretch ends in its `best` state."""
    state = best.copy()
    for step in range(len(starts) - 2, 0, -1):
        here = slice(starts[step], starts[step + 1])
        before = slice(starts[step - 1], starts[step - 1] + here.stop - here.start)
        came_from = np.take_along_axis(back[here], state[here, None].astype(np.intp), axis=1)[:, 0]
        state[before] = np.where(came_from >= 0, came_from, best[before])
    return state


def begins_by_gap(trip: Ints, time_us: Ints, *, max_gap_s: float) -> Bools:
    """Return which points are the first of their trip, or follow a long gap in time."""
    begins = np.ones(len(trip), dtype=bool)
    begins[1:] = (np.diff(trip) != 0) | (np.diff(time_us) > 1e6 * max_gap_s)
    return begins
