"""A motion model that tells nothing of any single vehicle: few numbers, counted with noise, over a model of the roads.

From coarse to fine, each count shrunk to what roads and coarser counts let one expect (`shrinking`):

    where trips start, when, and how long they are          regions of the city, then places
    where vehicles are                                      regions, then places
    moves from place to place                               for fleets that can carry it
    turns: how far and how sharp, all over the city
    runs of three places (and of four at order 3)           for fleets that can carry it

How the budget is split depends on public numbers alone: the units, ε and δ.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket._progress import Progress, silent
from geoblanket._training import PrivatePart, TrainingPromise, Unit
from geoblanket.errors import ParameterError
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.noise import BOUND, Budget, noisy
from geoblanket.learning.shrinking import normalised, raked, shrunk, summed
from geoblanket.learning.spending import TrainingLedger
from geoblanket.learning.unit_counts import Kind, UnitWalks, counted
from geoblanket.learning.units import count_units
from geoblanket.mobility.histories import check_walks
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import LONGEST_MEMORY, MotionModel, Singles
from geoblanket.tracking.trip_shape import HOURS, LENGTH_BINS, TripShape

__all__ = ["learn_privately", "split_budget"]

_FINE_SHARE: Final = 0.5
"""Of what places cost, the share of single places; the squares have the rest."""
_COARSE_WEIGHTS: Final = {"hours": 0.02, "lengths": 0.02, "starts": 0.3, "places": 0.15, "turns": 0.15}
_FINE_WEIGHTS: Final = {"moves": 0.12, "runs": 0.3, "long runs": 0.2}
_RUNS: Final = ("runs", "long runs")
_UNSEEN: Final = 0.01
"""Of the shares of places, what all have alike: no place is impossible because the trips on roads missed it."""
_ENOUGH: Final = 1e6
"""Trips that shares stand for, so that they are not smoothed again."""
_TINY: Final = 1e-12
_SMALL_FLEET, _LARGE_FLEET = 50.0, 500.0
"""Units over the noise of a single count: from where on, and from where on fully, single moves can be told."""


def learn_privately(
    graph: RoadGraph,
    places: Places,
    walks: str | Path,
    *,
    budget: Budget,
    unit: Unit = "vehicle",
    order: int = 2,
    ledger: TrainingLedger | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> MotionModel:
    """Learn how vehicles move, with differential privacy for those who drove.

    Parameters
    ----------
    graph, places
        The roads, and the places between which vehicles move.
    walks
        A table written by `geoblanket match`.
    budget
        ε and δ of the promise to each unit.
    unit
        Whose presence is hidden: a vehicle with all its trips, or a trip. Without names of vehicles it is the trip.
    order
        How many of the last places matter, 1 to 3, everywhere: a rule that does not look at walks.
    ledger
        Where the cost is written before anything is drawn; None: nobody keeps count.
    seed
        Of the trips driven over the roads. The noise has none.

    Raises
    ------
    InputError
        If only some walks have a vehicle.
    ParameterError
        If there are fewer than two units, or if δ is not below one over their number.
    BudgetError
        If the ledger has not enough left.
    MismatchError
        If the walks were matched to other places.
    """
    if not 1 <= order <= LONGEST_MEMORY:
        raise ParameterError(f"The order of a motion model is 1 to {LONGEST_MEMORY}. Got {order} instead.")
    frame, about = scan_walks(walks)
    check_walks(walks, about, places)
    units = count_units(walks, unit=unit)
    units.check_delta(budget.delta)
    whose = UnitWalks.read(frame, path=walks, unit=units.unit)
    road = learn_motion(graph, places, order=order, interval_s=float(about["interval_s"]), seed=seed, progress=progress)
    cells = ChainCells(road)
    kinds = dict(_kinds(cells))
    shares = split_budget(budget.rho, units.count, kinds)
    kinds = {name: kind for name, kind in kinds.items() if name in shares}
    sums = counted(frame, whose, cells, kinds, path=walks, progress=progress)
    rho_before = 0.0
    if ledger is not None:
        rho_before = ledger.spend(walks, budget, unit=units.unit, purpose=f"a motion model of order {order}").rho_before
    told: dict[str, _Told] = {}
    parts: list[PrivatePart] = []
    for name, total in sums.items():
        drawn, part = noisy(total, name=name, rho=shares[name], progress=progress)
        told[name] = _Told(drawn / BOUND, part.scale / BOUND)
        parts.append(part)
    promise = TrainingPromise(
        unit=units.unit,
        units=units.count,
        epsilon=budget.epsilon,
        delta=budget.delta,
        parts=tuple(parts),
        rule=f"the last {order} places matter everywhere" if order > 1 else "only the present place matters",
        rho_before=rho_before,
        noise_id=secrets.token_hex(8),
    )
    learned: dict[str, Any] = {**road.learned, "from": "private", "promise": promise.as_json()}
    learned |= {name: about[name] for name in ("training",) if name in about}
    return replace(_estimated(cells, told), learned=learned)


def _kinds(cells: ChainCells) -> Iterator[tuple[str, Kind]]:
    """Yield all numbers that could be counted, by name."""
    yield "hours", Kind("hours", HOURS)
    yield "lengths", Kind("lengths", LENGTH_BINS)
    for name in ("starts", "places"):
        for across, region in regions(cells.road.xy_m).items():
            yield _in_squares(name, across), Kind(name, int(region.max()) + 1, region)
        yield name, Kind(name, cells.places)
    yield "moves", Kind("moves", cells.move_count)
    yield "turns", Kind("runs" if cells.runs else "moves", int(cells.turn.max()) + 1, cells.turn)
    for name, runs in zip(_RUNS, cells.runs, strict=False):
        yield name, Kind(name, len(runs))


def split_budget(rho: float, units: int, kinds: dict[str, Kind]) -> dict[str, float]:
    """Return what each kind of numbers may cost; kinds that such a fleet cannot carry are left out.

    Parameters
    ----------
    rho
        What all may cost together.
    units
        How many vehicles or trips there are: a public number.
    """
    carried = np.log(units * np.sqrt(2 * rho) / _SMALL_FLEET) / np.log(_LARGE_FLEET / _SMALL_FLEET)
    fine = float(np.clip(carried, 0.0, 1.0))
    weights = {}
    for name in kinds:
        kind = name.split(" in ")[0]
        weight = _COARSE_WEIGHTS.get(kind, 0.0) + fine * _FINE_WEIGHTS.get(kind, 0.0)
        squares = sum(other.startswith(f"{kind} in ") for other in kinds)
        if squares:
            weight *= _FINE_SHARE if name == kind else (1 - _FINE_SHARE) / squares
        if weight > 0:
            weights[name] = weight
    total = sum(weights.values()) * (1 + 1e-12)  # a hair less than all, so that no sum of roundings is above it
    return {name: rho * weight / total for name, weight in weights.items()}


@dataclass(frozen=True, eq=False)
class _Told:
    """Counts as they came out, with noise."""

    counts: Floats
    sigma: float


def _estimated(cells: ChainCells, told: dict[str, _Told]) -> MotionModel:
    """Return the model of the roads, changed as the noisy counts tell."""
    road = cells.road
    visits = _by_places(cells, told, "places", summed(cells.flow, cells.target, cells.places))
    flow = raked(cells.flow, cells.source, cells.target, visits)
    if not cells.runs:
        flow = _by_group(flow, cells.turn, told["turns"])
    flow = _shrunk(flow, told.get("moves"))
    # Of each run of places, how often it is expected; and how probable its last place is on roads, by those before.
    often, on_roads = flow, normalised(cells.flow, cells.source, cells.places)
    chances = normalised(flow, cells.source, cells.places) if not cells.runs else np.empty(len(road.chances))
    for name, runs in zip(_RUNS, cells.runs, strict=False):
        own = road.chances[runs.first : runs.last].astype(np.float64)
        # Roads tell by how much a place further back changes the next one; the counts so far, how often each is next.
        next_place = often[runs.suffix] * own / np.maximum(on_roads[runs.suffix], _TINY)
        expected = often[runs.prefix] * normalised(next_place, runs.state, len(road))
        if name == "runs":
            expected = _by_group(expected, cells.turn, told["turns"])
        often, on_roads = _shrunk(expected, told.get(name)), own
        chances[runs.first : runs.last] = normalised(often, runs.state, len(road))
    shape = TripShape.of_counts(
        *(_ENOUGH * _shrunk(np.ones(len(told[name].counts)), told[name]) for name in ("hours", "lengths"))
    )
    return replace(
        road,
        chances=chances.astype(np.float32),
        start=_start(cells, flow, _by_places(cells, told, "starts", visits)),
        hours=shape.hours,
        lengths=shape.lengths,
    )


def _shrunk(expected: Floats, told: _Told | None) -> Floats:
    return expected if told is None else shrunk(told.counts, expected, told.sigma)


def _by_group(expected: Floats, group: Ints, told: _Told) -> Floats:
    """Return what is expected after counts of groups of cells."""
    together = summed(expected, group, len(told.counts))
    factor = shrunk(told.counts, together, told.sigma) / np.maximum(together, _TINY)
    result: Floats = expected * factor[group]
    return result


def _by_places(cells: ChainCells, told: dict[str, _Told], name: str, expected: Floats) -> Floats:
    """Return the share of each place: after counts of squares, from large to small, and of single places."""
    shares: Floats = (expected + _UNSEEN * expected.mean()) / (expected.sum() * (1 + _UNSEEN))
    for squares, region in regions(cells.road.xy_m).items():
        shares = _by_group(shares, region, told[_in_squares(name, squares)])
    return _shrunk(shares, told[name])


def _in_squares(name: str, across: int) -> str:
    return f"{name} in {across} × {across} squares"


def _start(cells: ChainCells, flow: Floats, starts: Floats) -> Singles:
    """Return the belief at the start of a trip: what came before is as usual."""
    road = cells.road
    if not cells.runs:
        belief = starts[road.present]
    else:
        into = summed(flow, cells.target, cells.places)
        belief = np.zeros(len(road))
        belief[: cells.move_count] = flow / np.maximum(into, _TINY)[cells.target] * starts[cells.target]
    result: Singles = (belief / belief.sum()).astype(np.float32)
    return result
