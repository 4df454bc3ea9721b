"""Map matching: which edge each GPS point was recorded on, by a hidden Markov model.

After Newson and Krumm (2009): the hidden state is the edge, a point lies near its edge (Gaussian), and the route
between the edges of two consecutive points is about as long as the straight line between them (exponential). The
most probable sequence of edges is found by Viterbi's algorithm, for many trips at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mobility.edge_index import Candidates, EdgeIndex
from geoblanket.mobility.routes import RouteFinder
from geoblanket.mobility.stretches import begins_by_gap
from geoblanket.mobility.viterbi import Sequences, cheapest_states
from geoblanket.roads.graph import RoadGraph

__all__ = ["MapMatcher", "MatchOptions", "MatchedPoints"]

_MOST_CANDIDATES = 100
"""A state is kept in a byte."""
_BLOCK_TRANSITIONS = 1 << 19
"""Transitions weighed at once: bounds memory, and stays near the processor's cache."""
_OVER_JUNCTION_M = 60.0
"""Backing over a junction costs as much as if it were so much farther: otherwise a vehicle that stands at a junction
would seem to be in any of its roads."""
_DETOUR, _DETOUR_M = 2.0, 500.0
"""A route longer than _DETOUR times the straight line plus _DETOUR_M metres is not considered."""


@dataclass(frozen=True)
class MatchOptions:
    """The hidden Markov model's parameters."""

    radius_m: float = 50.0
    """A point farther than this from every edge is unmatched."""
    candidates: int = 8
    """How many edges near a point are considered; the two directions of a road are two edges."""
    sigma_m: float = 8.0
    """Standard deviation of GPS positions."""
    beta_m: float = 15.0
    """Mean difference between the route and the straight line from one point to the next."""
    jitter_m: float = 30.0
    """A move backwards of at most this, on an edge or to the edge before, is GPS noise of a vehicle that stands."""
    max_speed_m_s: float = 50.0
    """Routes that need a higher speed are impossible."""
    max_gap_s: float = 180.0
    """A longer time without a matched point ends a stretch."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value > 0):
                raise ParameterError(f"The '{field.name}' option must be a positive number. Got {value} instead.")
        if self.candidates > _MOST_CANDIDATES:
            raise ParameterError(
                f"The 'candidates' option must be at most {_MOST_CANDIDATES}. Got {self.candidates} instead."
            )


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
        # Enough for points every 20 s at the highest speed; what is longer is searched on demand.
        self.routes = RouteFinder(graph, near_m=20 * self.options.max_speed_m_s + 2 * self.options.radius_m)

    def match(self, trip: Ints, time_us: Ints, lat: Floats, lon: Floats) -> MatchedPoints:
        """Match the points of one or many trips.

        A point that no edge is near is unmatched, and so is one from which no route leads to a neighbour; the points
        around it are matched without it.

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
        points = _Points(trip, time_us, lat, lon, near)
        result = MatchedPoints.unmatched(len(trip))
        todo = np.flatnonzero(near.edge[:, 0] >= 0)
        lone = self._match_into(result, points, todo)
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
        """Return where one is `beyond_m` metres after the end of edge `first`, on the shortest way to `last`."""
        offsets, edges = self.routes.paths(
            self.graph.targets[first].astype(np.int64),
            self.graph.sources[last].astype(np.int64),
            limit_m=limit_m + 1.0,
        )
        length = self.graph.length_m[edges]
        ends = np.cumsum(length)
        base = np.append(0.0, ends)[offsets[:-1]]
        at = np.clip(np.searchsorted(ends, base + beyond_m), offsets[:-1], offsets[1:] - 1)
        return edges[at], np.clip(base + beyond_m - (ends - length)[at], 0.0, length[at])

    def _match_into(self, result: MatchedPoints, points: _Points, which: Positions) -> Positions:
        """Match some of the points; return those that a missing route isolates in their stretch."""
        if not len(which):
            return which
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
        target = which[sequences.order]
        row = np.arange(len(target))
        result.edge[target] = ordered.near.edge[row, state]
        result.offset_m[target] = ordered.near.offset_m[row, state]
        result.distance_m[target] = ordered.near.distance_m[row, state]
        result.begins[target] = begins
        result.route_m[which] = self._chosen_routes(result, points, which)
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
        straight, limit_m = self._straight_and_limit(points, before, after)
        edge_a, edge_b = near.edge[before], near.edge[after]
        size = near.edge.shape[1]
        flat = np.flatnonzero((edge_a >= 0)[:, :, None] & (edge_b >= 0)[:, None, :])
        row = flat // (size * size)
        a, b = flat // size, row * size + flat % size
        route = self._route_lengths(
            edge_a.ravel()[a],
            near.offset_m[before].ravel()[a],
            edge_b.ravel()[b],
            near.offset_m[after].ravel()[b],
            limit_m[row],
        )
        costs = np.full((len(before), size, size), np.inf)
        costs.ravel()[flat] = np.abs(route - straight[row]) / self.options.beta_m
        return costs

    def _route_lengths(
        self,
        edge_a: Indices,
        offset_a: Floats,
        edge_b: Indices,
        offset_b: Floats,
        limit_m: Floats,
    ) -> Floats:
        """Return the length of the route from position a to position b, metres; infinite above the limit.

        A small move backwards has a negative length, so that it costs more than to stand.
        """
        graph, routes = self.graph, self.routes
        source, target = graph.targets[edge_a].astype(np.int64), graph.sources[edge_b].astype(np.int64)
        between = routes.near(source, target).astype(np.float64)
        far = np.flatnonzero((limit_m > routes.near_m) & np.isinf(between))
        between[far] = routes.far(source[far], target[far], limit_m=limit_m[far])
        route = graph.length_m[edge_a] - offset_a + between + offset_b
        same, touching = edge_a == edge_b, graph.targets[edge_b] == graph.sources[edge_a]
        back = np.where(same, offset_a - offset_b, offset_a + graph.length_m[edge_b] - offset_b)
        backed = np.where(same, -back, -back - _OVER_JUNCTION_M)
        route = np.where((same | touching) & (back <= self.options.jitter_m), backed, route)
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
