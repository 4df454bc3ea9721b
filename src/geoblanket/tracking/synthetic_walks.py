"""Synthetic walks: over the roads of a map, or drawn from a motion model.

`drive` follows the fastest ways between points of a road network, at varying speeds. Without traces, the map tells most
of how vehicles move: main roads carry more traffic, vehicles rarely turn back, and the road decides how far they get in
an interval. Trips from random origins, along the fastest way, to destinations that become rarer with the distance have
all of that. A speed is the free-flow speed times a factor of the driver and a factor of the stretch of road, both
log-normal. So half of all stretches are driven slower than signposted, and some much slower, as at traffic lights.

`draw_walks` draws from a motion model, and writes the same table as matched walks. Drawing is post-processing: walks
drawn from a privately learned model keep its promise, whatever is built from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from scipy.sparse.csgraph import dijkstra

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints, Singles
from geoblanket._display import Progress, silent
from geoblanket._files import check_output
from geoblanket._geodesy import haversine_m
from geoblanket._tables import lazy_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.distances import weight_matrix
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.tracking.motion_model import DAY_S, MotionModel

_TYPICAL_TRIP_M: Final = 3000.0
"""Destinations become rarer by a factor e over this distance."""
_SHORTEST_TRIP_M: Final = 300.0
_DRIVER_SPREAD: Final = 0.5
_ROAD_SPREAD: Final = 1.0
"""Standard deviations of the logarithm of a driver's and of a stretch's speed."""
_TRIPS_PER_ORIGIN: Final = 100
_TRIPS_PER_PLACE: Final = 100
_FEWEST_ROAD_TRIPS, _MOST_ROAD_TRIPS = 20_000, 200_000
_ORIGINS_AT_A_TIME: Final = 50
_LEAST_STEPS: Final = 3
DRAWN: Final = "drawn from a motion model"
"""The `method` in the description of drawn walks."""
_VEHICLES: Final = 200
_MOST_TRIPS: Final = 1 << 30
_STEPS_AT_A_TIME: Final = 1_000_000
_FIRST_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)
_MOST_DAYS: Final = 2_900_000
"""Until shortly before the year 10,000."""


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
    """Return how many trips to make for a number of places: 100 for each, from 20,000 to 200,000."""
    return min(max(_TRIPS_PER_PLACE * places, _FEWEST_ROAD_TRIPS), _MOST_ROAD_TRIPS)


def drive(
    graph: RoadGraph,
    places: Places,
    *,
    interval_s: float,
    trips: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> RoadTrips:
    """Simulate trips over a road network.

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
        """Yield places and step numbers of all trips from one origin, in one piece."""
        # Destinations: reachable, not too near, and rarer with the distance.
        away_m = haversine_m(self.graph.lat[origin], self.graph.lon[origin], self.graph.lat, self.graph.lon)
        chance = np.where(np.isfinite(seconds) & (away_m >= _SHORTEST_TRIP_M), np.exp(-away_m / _TYPICAL_TRIP_M), 0.0)
        if not chance.any():
            return
        ends = rng.choice(self.graph.node_count, _TRIPS_PER_ORIGIN, p=chance / chance.sum())
        nodes, length = _ways(origin, ends, previous)
        # When each trip passes each node, by factors of the driver and of each stretch of road.
        free_s = np.diff(seconds[nodes], axis=1)
        slower = np.exp(-_DRIVER_SPREAD * rng.standard_normal((len(ends), 1)))
        slower = slower * np.exp(_ROAD_SPREAD * rng.standard_normal(free_s.shape))
        at_s = np.concatenate([np.zeros((len(ends), 1)), np.cumsum(free_s * slower, axis=1)], axis=1)
        # Steps are equally far apart in time, and the first comes at random within the first interval.
        first_s = rng.random(len(ends)) * self.interval_s
        total_s = at_s[np.arange(len(ends)), length - 1]
        steps = np.maximum(np.floor((total_s - first_s) / self.interval_s).astype(np.int64) + 1, 0)
        steps[steps < _LEAST_STEPS] = 0
        if not steps.any():
            return
        trip = np.repeat(np.arange(len(ends)), steps)
        step = np.arange(len(trip)) - np.repeat(np.cumsum(steps) - steps, steps)
        time_s = first_s[trip] + step * self.interval_s
        # The node nearest in time to each step. Each trip is lifted above the one before, so that all times are one
        # sorted list and one search serves all trips.
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
    # Shorter ways begin with repeated origins. Moving them to the left drops these, and repeats the last node.
    position = np.minimum(np.arange(len(columns)) + (len(columns) - length)[:, None], len(columns) - 1)
    return np.take_along_axis(backwards, position, axis=1), length


def count_steps(trips: RoadTrips, *, largest: int) -> HistoryCounts:
    """Count the histories of trips, as `mobility.histories.count_histories` does for walks, with a delay of 1."""
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


@dataclass(frozen=True)
class DrawnWalks:
    """Counts of drawn walks.

    Examples
    --------
    >>> from geoblanket.tracking import DrawnWalks
    >>> DrawnWalks(vehicles=50, trips=2000, steps=31_000)
    DrawnWalks(vehicles=50, trips=2000, steps=31000)
    """

    vehicles: int
    trips: int
    steps: int


class PlaceDrawer:
    """Draws trips from a motion model, many at a time."""

    def __init__(self, model: MotionModel) -> None:
        self._model = model
        self._cumulated = np.cumsum(model.chances, dtype=np.float64)
        self._before = np.append(0.0, self._cumulated)[model.offsets]
        self._start: Floats = np.cumsum(_whole(model.start))

    def places(self, steps: Ints, rng: np.random.Generator) -> Indices:
        """Draw the places of trips with these numbers of steps, trip after trip."""
        model = self._model
        first = np.cumsum(steps) - steps
        place = np.empty(int(steps.sum()), np.int32)
        # The longest trips come first, so the trips that go on are always the first ones.
        order = np.argsort(-steps, kind="stable")
        first, going_on = first[order], np.searchsorted(np.sort(steps), np.arange(steps.max(initial=0)), side="right")
        state = np.searchsorted(self._start / self._start[-1], rng.random(len(steps)), side="right")
        for step, ended in enumerate(going_on.tolist()):
            left = len(steps) - ended
            state = state[:left] if step == 0 else self._moved(state[:left], rng)
            place[first[:left] + step] = model.present[state]
        return place

    def _moved(self, state: Ints, rng: np.random.Generator) -> Ints:
        # One search in the probabilities of all moves, summed up over all states, draws a move for every trip.
        low, high = self._before[state], self._before[state + 1]
        move = np.searchsorted(self._cumulated, low + rng.random(len(state)) * (high - low), side="right")
        offsets = self._model.offsets
        moved: Ints = self._model.targets[np.clip(move, offsets[state], offsets[state + 1] - 1)].astype(np.int64)
        return moved


@checked
def places_of_model(model: MotionModel, graph: RoadGraph) -> Places:
    """Return the places of a road graph that a motion model is for.

    Raises
    ------
    MismatchError
        If the model is for other roads, or does not name the spacing of its places.

    Examples
    --------
    >>> from geoblanket import MotionModel, RoadGraph
    >>> from geoblanket.tracking import places_of_model
    >>> places_of_model(MotionModel.load("city.model"), RoadGraph.load("city.roads")).spacing_m
    500.0
    """
    spacing_m: Any = model.learned.get("spacing_m")
    if spacing_m is None:
        raise MismatchError(
            "The motion model does not name the spacing of its places, so no walks can be drawn from it. Make it from "
            "roads (`geoblanket model`)."
        )
    places = choose_places(graph, spacing_m=spacing_m)
    _check_places(model, places)
    return places


@checked
def draw_walks(
    model: MotionModel,
    places: Places,
    out: str | Path,
    *,
    trips: int | None = None,
    vehicles: int = _VEHICLES,
    seed: int = 0,
    progress: Progress = silent,
) -> DrawnWalks:
    """Draw walks from a motion model and write them as `match_traces` does, in bounded memory.

    The model gives the place, the hour and the length of trips. A vehicle makes one trip after the other, on as many
    days as that takes; its trips are otherwise independent.

    Parameters
    ----------
    model
        How vehicles move.
    places
        The places of the model; see `places_of_model`.
    out
        The table of walks to write (`WALKS_SCHEMA`), completely or not at all.
    trips
        Number of trips; by default 100 for each place, from 20,000 to 200,000.
    vehicles
        Number of vehicles that make them.
    seed
        The same seed gives the same walks.

    Raises
    ------
    MismatchError
        If the model is for other places.
    ParameterError
        If there are no trips, or more vehicles than trips.

    Examples
    --------
    >>> from geoblanket import MotionModel, RoadGraph, draw_walks
    >>> from geoblanket.tracking import places_of_model
    >>> model = MotionModel.load("city.model")
    >>> places = places_of_model(model, RoadGraph.load("city.roads"))
    >>> draw_walks(model, places, "drawn.parquet", trips=2000, vehicles=50).vehicles
    50
    """
    _check_places(model, places)
    trips = trips_for(len(places)) if trips is None else trips
    if not 1 <= trips <= _MOST_TRIPS:
        raise ParameterError(f"There must be 1 to {_MOST_TRIPS:,} trips. Got {trips:,} instead.")
    if not 1 <= vehicles <= trips:
        raise ParameterError(f"There must be 1 to {trips:,} vehicles, no more than trips. Got {vehicles:,} instead.")
    check_output(out)
    rng = np.random.default_rng(seed)
    start_s, steps = model.trips.draw(trips, rng)
    table = _Table(
        drawer=PlaceDrawer(model),
        interval_s=model.interval_s,
        lat=model.lat,
        lon=model.lon,
        names=pl.Series([f"drawn {number:0{len(str(vehicles - 1))}}" for number in range(vehicles)], dtype=pl.String),
        start_us=_start_us(start_s, steps, vehicles, model.interval_s),
        steps=steps,
    )
    drawn = DrawnWalks(vehicles, trips, int(steps.sum()))
    about: dict[str, Any] = {
        "roads": places.roads_identity,
        "spacing_m": places.spacing_m,
        "interval_s": model.interval_s,
        "method": DRAWN,
        "model": model.identity,
        "seed": seed,
        "training": model.training.as_json(),
        "counts": asdict(drawn),
    }
    batches = lazy_batches(table.batches(rng, progress), schema=WALKS_SCHEMA)
    write_table(batches, out, kind="walks", about=about, private=False)
    return drawn


@dataclass(frozen=True, eq=False)
class _Table:
    """The rows of drawn walks, made as they are written."""

    drawer: PlaceDrawer
    interval_s: float
    lat: Floats
    lon: Floats
    names: pl.Series
    start_us: Ints
    steps: Ints

    def batches(self, rng: np.random.Generator, progress: Progress) -> Iterator[pl.DataFrame]:
        """Yield whole trips, about a million steps at a time."""
        ends = np.cumsum(self.steps)
        first = done = 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, done + _STEPS_AT_A_TIME, side="right")))
            yield self._rows(first, last, rng)
            first, done = last, int(ends[last - 1])
            progress("drawing walks", done, int(ends[-1]))

    def _rows(self, first: int, last: int, rng: np.random.Generator) -> pl.DataFrame:
        steps = self.steps[first:last]
        trip = np.repeat(np.arange(first, last), steps)
        step = np.arange(len(trip)) - np.repeat(np.cumsum(steps) - steps, steps)
        place = self.drawer.places(steps, rng)
        moved_m = haversine_m(self.lat[place[:-1]], self.lon[place[:-1]], self.lat[place[1:]], self.lon[place[1:]])
        speed_m_s = np.append(np.nan, moved_m / self.interval_s).astype(np.float32)
        speed_m_s[step == 0] = np.nan
        time_us = self.start_us[trip] + step * round(self.interval_s * 1e6)
        return pl.DataFrame(
            {
                "walk": trip,
                "vehicle": self.names.gather(trip % len(self.names)),
                "trip": trip,
                "step": step.astype(np.int32),
                "time": pl.Series(time_us).cast(WALKS_SCHEMA["time"]),
                "place": place,
                "speed_m_s": pl.Series(speed_m_s, nan_to_null=True),
            },
            schema=WALKS_SCHEMA,
        )


def _start_us(start_s: Ints, steps: Ints, vehicles: int, interval_s: float) -> Ints:
    """Return when each trip starts, microseconds: at its time of the day, on the first day that its vehicle is free.

    Trip n belongs to vehicle n modulo `vehicles`. A trip is over an interval after its last step.
    """
    # Row r holds the r-th trip of every vehicle; each trip waits whole days until the one above it is over.
    rounds = -(-len(steps) // vehicles)
    start, end = np.zeros((2, rounds * vehicles))
    start[: len(steps)] = start_s
    end[: len(steps)] = start_s + steps * interval_s
    start, end = start.reshape(rounds, vehicles), end.reshape(rounds, vehicles)
    days_on = np.maximum(np.ceil((end[:-1] - start[1:]) / DAY_S), 0.0)
    days = np.concatenate([np.zeros((1, vehicles)), np.cumsum(days_on, axis=0)]).ravel()[: len(steps)]
    if days.max() > _MOST_DAYS:
        raise ParameterError(
            f"{len(steps):,} trips would keep {vehicles:,} vehicles busy for more than 8,000 years. Take more vehicles."
        )
    first_us = int(_FIRST_DAY.timestamp()) * 1_000_000
    result: Ints = first_us + (days.astype(np.int64) * DAY_S + start_s) * 1_000_000
    return result


def _check_places(model: MotionModel, places: Places) -> None:
    if model.places_identity != places.identity:
        raise MismatchError(
            "The motion model is for other roads or places than these. Give the roads that it was learned on."
        )


def _whole(chances: Singles) -> Floats:
    shares: Floats = chances.astype(np.float64) / chances.sum(dtype=np.float64)
    return shares
