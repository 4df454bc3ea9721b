"""Row distances: the smallest distance between the histories that use two rows.

*All* histories count that the public rule can be asked about, whether the table lists them or not: every present place
of the zone, and every place of the city at every earlier lag. So how much two rows may differ is decided by the two
histories of theirs that are nearest to each other, whichever these are, and the promise holds for every pair.

The rule is a tree (`HistoryTable`): which place a history holds at one lag does not restrict those at others, given the
node. So the distance of two leaves is the sum, over lags, of the distance of their two cells, and the distance of two
rows the smallest between their leaves. Between the cells of one node and all others it is found in two steps: from each
place to the nearest member of each cell, then over the places of the other cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.history_rule.history_table import HistoryTable
from geoblanket.mechanism.problem import NEVER_MM

__all__ = ["NEAR_PAIRS", "row_distance_mm", "whole_mm"]

NEAR_PAIRS: Final = 1 << 20
"""Pairs of places whose distance is looked at; in cities of more than about 1,000 places, only near ones are."""

_DEGREE_E7: Final = 1e-7
_BLOCK_CELLS: Final = 1 << 22
_FLOAT_ERROR_MM: Final = 1e-3
"""A thousand times what floats are off by: what is rounded down by it is never too large."""


def whole_mm(distance_mm: Floats) -> Ints:
    """Return distances in whole millimetres, rounded down such that they are never too large; `NEVER_MM` for `inf`."""
    finite = np.isfinite(distance_mm)
    rounded = np.floor(np.where(finite, distance_mm, 0.0) - _FLOAT_ERROR_MM).astype(np.int64)
    return np.where(finite, np.maximum(rounded, 0), NEVER_MM)


def row_distance_mm(
    places_e7: Indices, histories: Indices, history_rows: Indices, weights_micro: Sequence[int]
) -> Floats:
    """Return the distances of rows in millimetres, the smallest between all their histories; `inf` for none.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2): a past can hold any of them.
    histories
        The place at t, t − 1, ... of each history of the table, −1 for any, shape (N, 1 + Γ).
    history_rows
        The row that each history uses, shape (N,); every row has one or more.
    weights_micro
        What each earlier place counts, in millionths, Γ values; `NEVER_MM` for a past that is known (differing pasts
        are infinitely far apart).
    """
    table = HistoryTable(places_e7, histories, history_rows)
    near = _NearPairs.of(places_e7) if weights_micro else None
    order = np.argsort(table.rows, kind="stable")
    rows = table.rows[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    lat, lon = (places_e7[table.present] * _DEGREE_E7).T
    present = haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000
    lags = [
        _Lag(table, lag, _weight(weight), near) for lag, weight in enumerate(weights_micro, start=1) if near is not None
    ]
    result = np.full((len(starts), len(starts)), np.inf)
    for leaves in _slices(table.paths[0], max(1, _BLOCK_CELLS // len(rows))):
        distance = present[table.paths[0][leaves]].take(table.paths[0][order], axis=1)
        for lag in lags:
            distance += lag.between(table.paths[lag.lag][leaves], table.paths[lag.lag][order])
        distance = np.minimum.reduceat(distance, starts, axis=1)
        for leaf, row in enumerate(table.rows[leaves].tolist()):
            np.minimum(result[row], distance[leaf], out=result[row])
    # From a cell without places nothing is near, but to it something may be: what is smaller is safe.
    symmetric: Floats = np.minimum(result, result.T)
    return symmetric


def _weight(micro: int) -> float:
    return np.inf if micro == NEVER_MM else micro / 1e6


def _slices(node_of_leaf: Ints, most: int) -> list[slice]:
    """Cut leaves into slices that lie below one present place each, of at most so many leaves."""
    first = np.flatnonzero(np.diff(node_of_leaf, prepend=-1)).tolist()
    ends = [*first[1:], len(node_of_leaf)]
    return [
        slice(start, min(start + most, end))
        for begin, end in zip(first, ends, strict=True)
        for start in range(begin, end, most)
    ]


@dataclass(frozen=True, eq=False)
class _NearPairs:
    """Pairs of places in order of falling distance; those that are left out are at least `beyond_mm` apart."""

    place_count: int
    place: Ints
    other: Ints
    distance_mm: Floats
    beyond_mm: float

    @classmethod
    def of(cls, places_e7: Indices) -> _NearPairs:
        lat, lon = (places_e7 * _DEGREE_E7).T
        count = len(places_e7)
        step = max(1, _BLOCK_CELLS // count)

        def block(start: int) -> Floats:
            part = slice(start, start + step)
            return haversine_m(lat[part, None], lon[part, None], lat, lon) * 1000

        beyond, neighbours = np.inf, NEAR_PAIRS // count
        if neighbours < count:
            for start in range(0, count, step):
                beyond = min(beyond, float(np.partition(block(start), neighbours, axis=1)[:, neighbours].min()))
        parts = []
        for start in range(0, count, step):
            distance = block(start)
            place, other = np.nonzero(distance < beyond)
            parts.append((place + start, other, distance[place, other]))
        place, other, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(-distance, kind="stable")
        return cls(count, place[order], other[order], distance[order], beyond)


class _Lag:
    """Weighted distances between the nodes of one lag: between their cells."""

    def __init__(self, table: HistoryTable, lag: int, weight: float, near: _NearPairs) -> None:
        self.lag, self._weight, self._near = lag, weight, near
        self._first = table.children(lag)
        self._cells = dict(table.cells(lag))
        cell = np.concatenate([*self._cells.values(), np.empty(0, np.int64)])
        order = np.argsort(cell, kind="stable")
        self._place_of_member = order % near.place_count
        self._cell_numbers, self._starts = np.unique(cell[order], return_index=True)
        self._any = np.ones(int(self._first[-1]), np.bool_)
        for node in self._cells:
            self._any[self._first[node] : self._first[node + 1]] = False
        self._made: tuple[int, Floats] = (-1, np.empty((0, 0)))

    def between(self, nodes: Ints, others: Ints) -> Floats:
        """Return the distances from some nodes (ascending) to others, shape (nodes, others)."""
        different, position = np.unique(nodes, return_inverse=True)
        result = np.zeros((len(different), len(self._any)))
        parents = np.searchsorted(self._first, different, side="right") - 1
        for parent in np.unique(parents).tolist():
            if parent in self._cells:
                positions = np.flatnonzero(parents == parent)
                result[positions] = self._from_cells(parent)[different[positions] - self._first[parent]]
        return result[position].take(others, axis=1)

    def _from_cells(self, parent: int) -> Floats:
        """Return the weighted distance from each child of a node to all nodes of the lag."""
        if self._made[0] == parent:
            return self._made[1]
        near = self._near
        children = int(self._first[parent + 1] - self._first[parent])
        to_cell = np.full((children, near.place_count), near.beyond_mm)
        # Of several that are assigned to the same place the last stays, and so the nearest.
        to_cell[self._cells[parent][near.place] - self._first[parent], near.other] = near.distance_mm
        result = np.full((children, len(self._any)), np.inf)
        step = max(1, _BLOCK_CELLS // len(self._place_of_member))
        for start in range(0, children, step):
            to_members = to_cell[start : start + step].take(self._place_of_member, axis=1)
            result[start : start + step, self._cell_numbers] = np.minimum.reduceat(to_members, self._starts, axis=1)
        result[:, self._any] = 0.0
        if self._weight == np.inf:
            result[result > 0] = np.inf
        else:
            result[np.isfinite(result)] *= self._weight
        self._made = (parent, result)
        return result
