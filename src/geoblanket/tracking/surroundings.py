"""The surroundings of a map: cells of a coarse grid, for vehicles that leave the roads of a motion model.

A motion model knows its own places only. A filter that believes in nothing else takes a vehicle that left the map for
one at its border, and its circles are too small. So the tracker of a lattice adds square cells around the places, and
wherever a square holds none. A cell is a place without roads: from there a vehicle walks at random.

The walk
--------
A vehicle whose mean speed along an axis is u crosses the edges of cells of side s at a rate of u/s. In a step of t
seconds it moves on to the next column with probability p = min(2/3, u·t/s), to either side alike, and to the next row
likewise. A move to a square with places enters the map at one of them, all alike. The moves out of a square with places
are the same, times the share of such crossings that leave the map.

u, that share and the share of trips that start outside were chosen by Porto's training vehicles, and hardly matter.
With half the share that leaves, twice the share that starts outside, or 7 instead of 10 m/s, errors over all trips
change by less than 2 %. After a few reports their likelihood outweighs all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket.tracking.motion_model import MotionModel, Singles, SparseRows

_MARGIN_M: Final = 6000.0
"""How far cells reach beyond the outermost places; also beyond the frame, whose edge stands for all beyond it."""
_CELL_EPSILON_M: Final = 2000.0
_LEAST_CELL_M: Final = 600.0
"""A cell is as wide as the mean error of a report, 2/ε km, or 600 m at least."""
_LEAST_CELLS: Final = 500
"""Cells are so wide that there are no more of them than places, or than this."""
_SPEED_M_S: Final = 10.0
"""Mean speed outside the map along an axis."""
_LEAVING: Final = 0.4
"""The share of crossings from a square with places to one without that leave the map."""
_STARTING: Final = 0.1
"""The share of vehicles that are outside when their first report comes."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SurroundedModel(MotionModel):
    """A motion model whose last places are cells around its map. Made by `surrounded`; it is never stored."""

    cells: int
    """The number of cells."""
    cell_m: float
    """Side of a cell, metres."""

    @property
    def map_places(self) -> int:
        """The number of places that are not cells."""
        return self.place_count - self.cells

    @cached_property
    def spreads_m(self) -> Singles:
        """Root mean square distance of a vehicle from each place, metres, shape (P,)."""
        return np.repeat(np.array([self.spread_m, self.cell_m / 6**0.5], np.float32), [self.map_places, self.cells])


def surrounded(model: MotionModel, *, epsilon: float) -> SurroundedModel:
    """Return a model with cells around its places.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre: it says how fine the cells must be.
    """
    low, high = model.xy_m.min(axis=0) - _MARGIN_M, model.xy_m.max(axis=0) + _MARGIN_M
    finest_m = np.sqrt(np.prod(high - low) / max(model.place_count, _LEAST_CELLS))
    side_m = max(_CELL_EPSILON_M / epsilon, _LEAST_CELL_M, float(finest_m))
    across = np.ceil((high - low) / side_m).astype(np.int64)
    low = (low + high - across * side_m) / 2
    square = ((model.xy_m - low) // side_m).astype(np.int64)
    places_in = np.zeros(across, np.int64)
    np.add.at(places_in, tuple(square.T), 1)
    cells = np.argwhere(places_in == 0)
    # The number of each cell; −1 for squares with places, and for a rim around the grid.
    number = np.full(across + 2, -1)
    number[1:-1, 1:-1][places_in == 0] = np.arange(len(cells))
    rows, targets, chances = _moves(model, square, cells, number, side_m=side_m, share=1 / places_in[tuple(square.T)])
    count = len(model) + len(cells)
    moves = SparseRows.of_entries(chances, rows, targets, (count, count))
    lat, lon = model.to_degrees(low + (cells + 0.5) * side_m)
    states = np.pad(model.states, ((0, len(cells)), (0, 0)), constant_values=-1)
    states[len(model) :, 0] = model.place_count + np.arange(len(cells))
    outside = np.full(len(cells), _STARTING / len(cells), np.float32)
    changed = {
        "places_e7": np.append(model.places_e7, np.rint(np.column_stack([lat, lon]) * 1e7).astype(np.int32), axis=0),
        "states": states,
        "start": np.append(model.start * np.float32(1 - _STARTING), outside),
        "offsets": moves.indptr,
        "targets": moves.indices,
        "chances": moves.data,
    }
    kept = {each.name: getattr(model, each.name) for each in fields(model)}
    return SurroundedModel(**{**kept, **changed}, cells=len(cells), cell_m=side_m)


def _moves(
    model: MotionModel, square: Ints, cells: Ints, number: Ints, *, side_m: float, share: Floats
) -> tuple[Ints, Ints, Singles]:
    """Return the state that each move leaves, the state that it leads to, and its probability."""
    crossing = min(2 / 3, _SPEED_M_S * model.interval_s / side_m)
    along = (crossing / 2, 1 - crossing, crossing / 2)
    # A vehicle enters the map in the likeliest state of a place.
    by_chance = np.argsort(model.start, kind="stable")
    entered = np.full(model.place_count, -1)
    entered[model.present[by_chance]] = by_chance
    first = len(model)
    leaving = np.zeros(first)
    moves: list[tuple[Ints, Ints, Floats]] = []
    for step in np.ndindex(3, 3):
        chance = along[step[0]] * along[step[1]]
        # `number` has a rim, so a step of 1 stays. From cell to cell, from the map to a cell, and from there back.
        after, beside = (number[tuple((squares + step).T)] for squares in (cells, square))
        walked, into = np.flatnonzero(after >= 0), np.flatnonzero((beside >= 0) & (entered >= 0))
        out = np.flatnonzero(beside[model.present] >= 0)
        leaving[out] += _LEAVING * chance
        moves += [
            (first + walked, first + after[walked], np.full(len(walked), chance)),
            (out, first + beside[model.present[out]], np.full(len(out), _LEAVING * chance)),
            (first + beside[into], entered[into], chance * share[into]),
        ]
    state = np.repeat(np.arange(first), np.diff(model.offsets))
    moves.append((state, model.targets.astype(np.int64), model.chances * (1 - leaving[state])))
    rows, targets, chances = (np.concatenate(part) for part in zip(*moves, strict=True))
    # At the rim of the grid some moves are missing.
    return rows, targets, (chances / np.bincount(rows, chances)[rows]).astype(np.float32)
