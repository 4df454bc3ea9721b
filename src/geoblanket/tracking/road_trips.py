"""Trips that nobody drove: fastest ways between points of a road network, at speeds that vary.

A motion model needs to know how vehicles move. Where there are no traces, the map tells most of it: main roads carry
more traffic, vehicles go on rather than turn back, and how far one gets in an interval depends on the road. Trips from
random origins to destinations that become rarer with the distance, each along the fastest way, have all of that. Their
speeds are free-flow speeds times a factor of the driver's and one of each stretch of road, both log-normal: half of
all stretches are driven slower than signposted, and some much slower, as at traffic lights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse.csgraph import dijkstra

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.roads.distances import weight_matrix
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places

__all__ = ["RoadTrips", "count_steps", "drive", "trips_for"]

_TYPICAL_TRIP_M: Final = 3000.0
"""Destinations become rarer by a factor e over this distance."""
_SHORTEST_TRIP_M: Final = 300.0
_DRIVER_SPREAD: Final = 0.5
_ROAD_SPREAD: Final = 1.0
"""Standard deviations of the logarithm of a driver's and of a stretch's speed."""
_TRIPS_PER_ORIGIN: Final = 100
_TRIPS_PER_PLACE: Final = 100
_FEWEST_TRIPS, _MOST_TRIPS = 20_000, 200_000
_ORIGINS_AT_A_TIME: Final = 50
_LEAST_STEPS: Final = 3


@dataclass(frozen=True, eq=False)
class RoadTrips:
    """Places of vehicles at equal intervals, trip after trip."""

    place: Indices
    """Shape (steps,)."""
    step: Ints
    """How many steps of the trip came before, shape (steps,)."""

    @property
    def lengths(self) -> Ints:
        """Steps of each trip, shape (trips,)."""
        return np.diff(np.append(np.flatnonzero(self.step == 0), len(self.step)))


def trips_for(places: int) -> int:
    """Return how many trips tell enough about so many places: 100 for each, from 20,000 to 200,000."""
    return min(max(_TRIPS_PER_PLACE * places, _FEWEST_TRIPS), _MOST_TRIPS)


def drive(
    graph: RoadGraph,
    places: Places,
    *,
    interval_s: float,
    trips: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> RoadTrips:
    """Drive trips over a road network.

    Parameters
    ----------
    graph, places
        The roads, and the places that stand for their points.
    interval_s
        Seconds from one step to the next.
    trips
        How many; by default 100 for each place, from 20,000 to 200,000.
    seed
        The same seed gives the same trips.

    Raises
    ------
    InputError
        If no trip of three steps or more is possible.
    """
    trips = trips_for(len(places)) if trips is None else trips
    rng = np.random.default_rng(seed)
    near, _ = places.nearest(graph.lat, graph.lon)
    origins = rng.integers(graph.node_count, size=-(-trips // _TRIPS_PER_ORIGIN))
    matrix = weight_matrix(graph, weight="time")
    network = _Network(graph, near, interval_s)
    parts: list[tuple[Indices, Ints]] = []
    for start in range(0, len(origins), _ORIGINS_AT_A_TIME):
        some = origins[start : start + _ORIGINS_AT_A_TIME]
        seconds, previous = dijkstra(matrix, indices=some, return_predecessors=True)
        for row, origin in enumerate(some.tolist()):
            parts.extend(network.trips_from(origin, seconds[row], previous[row], rng))
        progress("driving trips over the roads", start + len(some), len(origins))
    if not parts:
        raise InputError(
            "the roads are too short for trips of three intervals", hint="Take more of the map, or a shorter interval"
        )
    return RoadTrips(np.concatenate([place for place, _ in parts]), np.concatenate([step for _, step in parts]))


@dataclass(frozen=True, eq=False)
class _Network:
    graph: RoadGraph
    near: Indices
    """The place of each node."""
    interval_s: float

    def trips_from(
        self, origin: int, seconds: Floats, previous: Indices, rng: np.random.Generator
    ) -> Iterator[tuple[Indices, Ints]]:
        """Yield places and step numbers of the trips from one origin, together."""
        away_m = haversine_m(self.graph.lat[origin], self.graph.lon[origin], self.graph.lat, self.graph.lon)
        chance = np.where(np.isfinite(seconds) & (away_m >= _SHORTEST_TRIP_M), np.exp(-away_m / _TYPICAL_TRIP_M), 0.0)
        if not chance.any():
            return
        ends = rng.choice(self.graph.node_count, _TRIPS_PER_ORIGIN, p=chance / chance.sum())
        nodes, length = _ways(origin, ends, previous)
        free_s = np.diff(seconds[nodes], axis=1)
        slower = np.exp(-_DRIVER_SPREAD * rng.standard_normal((len(ends), 1)))
        slower = slower * np.exp(_ROAD_SPREAD * rng.standard_normal(free_s.shape))
        at_s = np.concatenate([np.zeros((len(ends), 1)), np.cumsum(free_s * slower, axis=1)], axis=1)
        first_s = rng.random(len(ends)) * self.interval_s
        total_s = at_s[np.arange(len(ends)), length - 1]
        steps = np.maximum(np.floor((total_s - first_s) / self.interval_s).astype(np.int64) + 1, 0)
        steps[steps < _LEAST_STEPS] = 0
        if not steps.any():
            return
        trip = np.repeat(np.arange(len(ends)), steps)
        step = np.arange(len(trip)) - np.repeat(np.cumsum(steps) - steps, steps)
        time_s = first_s[trip] + step * self.interval_s
        # One sorted list of all times: each trip is lifted above the one before.
        lift = np.arange(len(ends)) * (at_s.max() + 1.0)
        flat = (at_s + lift[:, None]).ravel()
        after = np.searchsorted(flat, time_s + lift[trip]).clip(1, flat.size - 1)
        nearer = np.where(flat[after] - time_s - lift[trip] < time_s + lift[trip] - flat[after - 1], after, after - 1)
        nearer = np.clip(nearer, trip * at_s.shape[1], trip * at_s.shape[1] + length[trip] - 1)
        yield self.near[nodes.ravel()[nearer]], step


def _ways(origin: int, ends: Ints, previous: Indices) -> tuple[Ints, Ints]:
    """Return the nodes of the ways from an origin, the last one repeated, shape (ways, longest), and their lengths."""
    columns = [ends]
    while (columns[-1] != origin).any():
        now = columns[-1]
        columns.append(np.where(now == origin, origin, previous[now]))
    backwards = np.stack(columns[::-1], axis=1)
    length = len(columns) - (backwards == origin).sum(axis=1) + 1
    # The origin stands in front as often as the way is shorter than the longest: it is moved behind, as the last node.
    position = np.minimum(np.arange(len(columns)) + (len(columns) - length)[:, None], len(columns) - 1)
    return np.take_along_axis(backwards, position, axis=1), length


def count_steps(trips: RoadTrips, *, largest: int) -> HistoryCounts:
    """Count the histories of trips as `mobility.histories.count_histories` does those of walks, with a delay of 1."""
    now = np.flatnonzero(np.append(trips.step[1:] == trips.step[:-1] + 1, False))
    lag = np.minimum(np.arange(largest + 1), trips.step[now, None])
    steps = Steps(
        histories=trips.place[now[:, None] - lag],
        depth=np.minimum(trips.step[now], largest).astype(np.uint8),
        regime=np.zeros(len(now), np.uint8),
        next_place=trips.place[now + 1],
        vehicle=np.zeros(len(now), np.int32),
    )
    return HistoryCounts.of([steps])
