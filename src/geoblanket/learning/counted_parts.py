"""Which numbers are counted for a model, and what each may cost.

The road network gives the cells. The number of vehicles, declared or noisy, ε and δ decide which of them a fleet can
carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from geoblanket._training import UNITS
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.unit_counts import Kind
from geoblanket.tracking.motion_model import HOURS, LENGTH_BINS

__all__ = ["RUNS", "UNITS_SHARE", "in_squares", "kinds_of", "split_budget"]

RUNS: Final = ("runs", "long runs")
"""Runs of three places, and of four."""
UNITS_SHARE: Final = 0.02
"""Of the budget, what it costs to count the units where their number is not declared."""
_FINE_SHARE: Final = 0.5
"""Of what places cost, the share of single places; the squares have the rest."""
_COARSE_WEIGHTS: Final = {"hours": 0.02, "lengths": 0.02, "starts": 0.3, "places": 0.15, "turns": 0.15}
_FINE_WEIGHTS: Final = {"moves": 0.12, "runs": 0.3, "long runs": 0.2}
_COARSE_LESS: Final = 0.7
"""By how much a fleet that carries single moves needs less for the rest: counts of many vehicles are large."""
_SMALL_FLEET, _LARGE_FLEET = 50.0, 500.0
"""Units over the noise of a single count: from where on, and from where on fully, single moves can be told."""


def in_squares(name: str, across: int) -> str:
    """Return the name of places counted by so many squares along each side of the city."""
    return f"{name} in {across} × {across} squares"


def kinds_of(cells: ChainCells) -> Iterator[tuple[str, Kind]]:
    """Yield all numbers that could be counted, by name."""
    yield UNITS, Kind(UNITS, 1)
    yield "hours", Kind("hours", HOURS)
    yield "lengths", Kind("lengths", LENGTH_BINS)
    for name in ("starts", "places"):
        for across, region in regions(cells.road.xy_m).items():
            yield in_squares(name, across), Kind(name, int(region.max()) + 1, region)
        yield name, Kind(name, cells.places)
    yield "moves", Kind("moves", cells.move_count)
    yield "turns", Kind("runs" if cells.runs else "moves", int(cells.turn.max()) + 1, cells.turn)
    for name, runs in zip(RUNS, cells.runs, strict=False):
        yield name, Kind(name, len(runs))


def split_budget(rho: float, units: int, kinds: dict[str, Kind]) -> dict[str, float]:
    """Return what each kind of numbers may cost; kinds that such a fleet cannot carry are left out, and so are `UNITS`.

    Parameters
    ----------
    rho
        What all may cost together.
    units
        How many vehicles or trips there are: a public number, declared or noisy.
    """
    carried = np.log(units * np.sqrt(2 * rho) / _SMALL_FLEET) / np.log(_LARGE_FLEET / _SMALL_FLEET)
    fine = float(np.clip(carried, 0.0, 1.0))
    weights = {}
    for name in kinds:
        kind = name.split(" in ")[0]
        weight = (1 - _COARSE_LESS * fine) * _COARSE_WEIGHTS.get(kind, 0.0) + fine * _FINE_WEIGHTS.get(kind, 0.0)
        squares = sum(other.startswith(f"{kind} in ") for other in kinds)
        if squares:
            weight *= _FINE_SHARE if name == kind else (1 - _FINE_SHARE) / squares
        if weight > 0:
            weights[name] = weight
    total = sum(weights.values()) * (1 + 1e-12)  # a hair less than all, so that no sum of roundings is above it
    return {name: rho * weight / total for name, weight in weights.items()}
