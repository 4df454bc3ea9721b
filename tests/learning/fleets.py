"""Small fleets on a city of square blocks, counted one step after the other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._arrays import Floats, Singles
from geoblanket._tables import write_table
from geoblanket._training import Unit
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.estimating import normalised
from geoblanket.learning.noise import BOUND
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.places import choose_places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, steps_of_bins
from tests.roads.graphs import grid_graph

GRAPH = grid_graph(6, 8, step_deg=0.004)
"""48 places, 330 to 440 m apart: in 30 s one can reach some of them, not all."""
PLACES = choose_places(GRAPH)
ABOUT = {"roads": GRAPH.identity, "spacing_m": 0.0, "interval_s": 30.0, "method": "hmm"}
ORDERS = (1, 2, 3)
DAY = datetime(2024, 7, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Walk:
    """What a vehicle drove without a gap; a trip may have several."""

    vehicle: str | None
    trip: int
    places: Sequence[int]
    hour: int = 0
    speed_m_s: float = 10.0


@cache
def cells_of(order: int) -> ChainCells:
    return ChainCells(learn_motion(GRAPH, PLACES, order=order))


@cache
def truth_of(order: int) -> MotionModel:
    """The road's chain with all its probabilities changed at random, by a factor of 2 or so."""
    road, rng = cells_of(order).road, np.random.default_rng(order)
    state = np.repeat(np.arange(len(road)), np.diff(road.offsets))
    chances = normalised(road.chances * rng.gamma(2.0, size=len(state)), state, len(road))
    start = road.start * rng.gamma(2.0, size=road.place_count)[road.present]
    return replace(
        road,
        chances=chances.astype(np.float32),
        start=(start / start.sum()).astype(np.float32),
        hours=rng.dirichlet(np.ones(24)).astype(np.float32),
        lengths=rng.dirichlet(np.ones(18)).astype(np.float32),
    )


def frame_of(fleet: Sequence[Walk]) -> pl.DataFrame:
    """The walks as a table; they are numbered with gaps, as where some were left out."""
    steps = [(3 * number, walk, step) for number, walk in enumerate(fleet) for step in range(len(walk.places))]
    return pl.DataFrame(
        {
            "walk": [number for number, *_ in steps],
            "vehicle": [walk.vehicle for _, walk, _ in steps],
            "trip": [walk.trip for _, walk, _ in steps],
            "step": [step for *_, step in steps],
            "time": [DAY + timedelta(hours=walk.hour, minutes=59, seconds=30 * step) for _, walk, step in steps],
            "place": [walk.places[step] for _, walk, step in steps],
            "speed_m_s": [None if step == 0 else walk.speed_m_s for _, walk, step in steps],
        },
        schema=WALKS_SCHEMA,
    )


def save_fleet(path: Path, fleet: Sequence[Walk]) -> Path:
    write_table(frame_of(fleet), path, kind="walks", about=ABOUT)
    return path


def cell_runs(cells: ChainCells) -> dict[str, list[tuple[int, ...]]]:
    """The places of each cell, the earliest first, as the arrays of the road's chain tell them."""
    road = cells.road
    runs: dict[str, list[tuple[int, ...]]] = {"runs": [], "long runs": []}
    for state in range(len(road)):
        past = [int(place) for place in road.states[state] if place >= 0][::-1]
        for move in range(int(road.offsets[state]), int(road.offsets[state + 1])):
            run = (*past, int(road.states[road.targets[move], 0]))
            runs.setdefault({2: "moves", 3: "runs", 4: "long runs"}[len(run)], []).append(run)
    if road.memory > 1:
        runs["moves"] = [(int(state[1]), int(state[0])) for state in road.states if (state >= 0).sum() == 2]
    return runs


def _numbers(cells: ChainCells) -> Iterator[tuple[str, dict[tuple[int, ...], int]]]:
    """The numbers of cells, by what they are cells of."""
    yield "hours", {(hour,): hour for hour in range(24)}
    yield "places", {(place,): place for place in range(cells.places)}
    for name, runs in cell_runs(cells).items():
        yield name, {run: number for number, run in enumerate(runs)}


def slow_sums(fleet: Sequence[Walk], cells: ChainCells, unit: Unit) -> dict[str, dict[int, int]]:
    """What `counted` should find for all kinds: one step after the other, in exact arithmetic."""
    numbers = dict(_numbers(cells))
    squares = {f"{across} × {across}": region for across, region in regions(cells.road.xy_m).items()}
    often: defaultdict[str, defaultdict[object, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for walk in fleet:
        whose = walk.vehicle if unit == "vehicle" else (walk.vehicle, walk.trip)
        often["units"][whose][0] += 1
        often["hours"][whose][walk.hour] += 1
        often["lengths"][whose][_length_bin(len(walk.places))] += 1
        visited = [("starts", walk.places[0]), *(("places", place) for place in walk.places)]
        for name, place in visited:
            often[name][whose][place] += 1
            for size, region in squares.items():
                often[f"{name} in {size} squares"][whose][int(region[place])] += 1
        for name, length in (("moves", 2), ("runs", 3), ("long runs", 4)):
            for end in range(length, len(walk.places) + 1):
                number = numbers[name].get(tuple(walk.places[end - length : end]))
                if number is not None:
                    often[name][whose][number] += 1
                    if name == ("runs" if cells.runs else "moves"):
                        often["turns"][whose][int(cells.turn[number])] += 1
    return {name: _scaled(of_units) for name, of_units in often.items()}


def _scaled(of_units: dict[object, Counter[int]]) -> dict[int, int]:
    """Each unit's counts divided by their Euclidean length, in units of a hair less than 1/BOUND, rounded down."""
    sums: Counter[int] = Counter()
    for counts in of_units.values():
        square = sum(count**2 for count in counts.values())
        for cell, count in counts.items():
            sums[cell] += math.isqrt(math.floor((count * BOUND * (1 - Fraction(1, 10**12))) ** 2 / square))
    return dict(sums)


def _length_bin(steps: int) -> int:
    least, most = steps_of_bins(np.arange(18))
    return max(0, next((number for number in range(18) if steps <= most[number]), 17)) if steps >= least[0] else 0


def drawn_fleet(
    model: MotionModel, *, vehicles: int, trips: int, steps: int, seed: int, lost: float = 0.0
) -> list[Walk]:
    """Trips drawn from a chain, state after state; some steps may lead anywhere."""
    rng = np.random.default_rng(seed)
    fleet = []
    for trip in range(trips):
        state = int(rng.choice(len(model), p=_whole(model.start)))
        places = [int(model.present[state])]
        while len(places) < steps:
            first, last = model.offsets[state], model.offsets[state + 1]
            state = int(model.targets[first + rng.choice(last - first, p=_whole(model.chances[first:last]))])
            if rng.random() < lost:
                state = int(rng.integers(len(model)))
            places.append(int(model.present[state]))
        fleet.append(Walk(f"v{trip % vehicles}", trip, places, hour=int(rng.integers(24))))
    return fleet


def usually(model: MotionModel, *, steps: int = 1000) -> Floats:
    """How often each state is visited in the long run: one step after the other."""
    states = model.start.astype(np.float64)
    for _ in range(steps):
        states = np.asarray(model.moves.T @ states, np.float64)
    result: Floats = states / states.sum()
    return result


def by_place(model: MotionModel, states: Floats | Singles) -> Floats:
    """Shares of states added up by their present places."""
    return np.bincount(model.present, states, model.place_count).astype(np.float64)


def off(model: MotionModel, truth: MotionModel) -> float:
    """Total variation of the next place, in the mean over where the truth usually is."""
    state = np.repeat(np.arange(len(truth)), np.diff(truth.offsets))
    return float((usually(truth)[state] * np.abs(model.chances.astype(np.float64) - truth.chances)).sum() / 2)


def _whole(chances: Singles) -> Floats:
    shares: Floats = chances.astype(np.float64) / chances.sum(dtype=np.float64)
    return shares
