"""From noisy counts of a chain's cells to its probabilities; see `private` for which counts there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Ints, Singles
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.counted_parts import RUNS, in_squares
from geoblanket.learning.shrinking import normalised, raked, shrunk, summed
from geoblanket.tracking.motion_model import MotionModel, TripShape

__all__ = ["NoisyCounts", "estimated"]

_UNSEEN: Final = 0.01
"""Of the shares of places, what all have alike: no place is impossible because the trips on roads missed it."""
_ENOUGH: Final = 1e6
"""Trips that shares stand for, so that they are not smoothed again."""
_TINY: Final = 1e-12


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Counts as they came out, with noise."""

    counts: Floats
    sigma: float


def estimated(cells: ChainCells, told: dict[str, NoisyCounts]) -> MotionModel:
    """Return the model of the roads, changed as the noisy counts tell."""
    road = cells.road
    on_road = summed(cells.flow, cells.target, cells.places)
    visits = _by_places(cells, told, "places", on_road)
    # Where vehicles are more often than roads let one expect, more trips start, too.
    starts = summed(road.start.astype(np.float64), road.present, cells.places) * visits / np.maximum(on_road, _TINY)
    flow = raked(cells.flow, cells.source, cells.target, visits)
    if not cells.runs:
        flow = _by_group(flow, cells.turn, told["turns"])
    flow = _shrunk(flow, told.get("moves"))
    # Of each run of places, how often it is expected; and how probable its last place is on roads, by those before.
    often, on_roads = flow, normalised(cells.flow, cells.source, cells.places)
    chances = normalised(flow, cells.source, cells.places) if not cells.runs else np.empty(len(road.chances))
    for name, runs in zip(RUNS, cells.runs, strict=False):
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
        start=_start(cells, flow, _by_places(cells, told, "starts", starts)),
        hours=shape.hours,
        lengths=shape.lengths,
    )


def _shrunk(expected: Floats, told: NoisyCounts | None) -> Floats:
    return expected if told is None else shrunk(told.counts, expected, told.sigma)


def _by_group(expected: Floats, group: Ints, told: NoisyCounts) -> Floats:
    """Return what is expected after counts of groups of cells."""
    together = summed(expected, group, len(told.counts))
    factor = shrunk(told.counts, together, told.sigma) / np.maximum(together, _TINY)
    result: Floats = expected * factor[group]
    return result


def _by_places(cells: ChainCells, told: dict[str, NoisyCounts], name: str, expected: Floats) -> Floats:
    """Return the share of each place: after counts of squares, from large to small, and of single places."""
    shares: Floats = (expected + _UNSEEN * expected.mean()) / (expected.sum() * (1 + _UNSEEN))
    for squares, region in regions(cells.road.xy_m).items():
        shares = _by_group(shares, region, told[in_squares(name, squares)])
    return _shrunk(shares, told[name])


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
