"""The public rule from histories to rows, and the distances between rows that follow from it.

The rule is a table of histories; any other history uses the row of the nearest one in it.

The table is all there is to the rule, and a bundle holds it, so that a device needs nothing else. Every history has a
row: whatever places it holds, at each lag those of the table compete, and the nearest wins. So the histories of a row
are a product of *cells*, one for each lag: all places that are nearer to its listed place than to the others that the
table lists there.

All machines agree on which place is nearest. A degree of longitude counts as many degrees of latitude as the cosine of
the asked place's latitude, rounded to 2^-20. What follows are sums and products of whole numbers of 1e-7 degrees, which
floats hold exactly within nine degrees, and round in the same way everywhere beyond. Of equally near places the first
one counts.

Row distances
-------------
The distance of two rows is the smallest between the histories that use them. *All* histories count that the rule can be
asked about, listed or not: every present place of the zone, and every place of the city at every earlier lag. So the
promise holds for every pair of histories.

The rule is a tree: given the node, the place at one lag does not restrict those at others. So the distance of two
leaves is the sum, over lags, of the distance of their two cells. The distance of two rows is the smallest between their
leaves. From the cells of one node to all others it is found in two steps: from each place to the nearest member of each
cell, then over the places of the other cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import NEVER_MM

__all__ = [
    "COSINE_UNIT",
    "HALF_TURN_E7",
    "NEAR_PAIRS",
    "NOWHERE_E7",
    "HistoryTable",
    "cosine",
    "row_distance_mm",
    "squared_distance",
    "whole_mm",
]

_BLOCK: Final = 1 << 20
"""Distances of places to listed ones that are computed at a time."""
COSINE_UNIT: Final = 2.0**-20
"""What cosines are rounded to."""
HALF_TURN_E7: Final = 1_800_000_000
"""Half a turn of longitude."""
NOWHERE_E7: Final = 1e15
"""A latitude that fills up lists of places: further from everything than any place."""
_TURN_E7: Final = 2 * HALF_TURN_E7
NEAR_PAIRS: Final = 1 << 20
"""Pairs of places whose distance is looked at; in cities of more than about 1,000 places, only near ones are."""
_DEGREE_E7: Final = 1e-7
_BLOCK_CELLS: Final = 1 << 22
"""Distances between leaves that are computed at a time."""
_FLOAT_ERROR_MM: Final = 1e-3
"""A thousand times what floats are off by: what is rounded down by it is never too large."""


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes of the tree at one lag: the different beginnings of histories up to it.

    Nodes are numbered such that the children of a node come one after the other, by their places.
    """

    first: Ints
    """The first child of each node of the level above."""
    lat: Floats
    """Latitudes of the places that these children list, 1e-7 degrees, shape (nodes above, most children)."""
    lon: Floats


class HistoryTable:
    """Which row a history uses.

    The present place decides first, then the one before it, and so on. Of the histories of the table that agree so far,
    those with the nearest place count (of equally near ones, the first); where they list −1, any place will do.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    histories
        The place at t, t − 1, ... of each history, −1 for any, shape (N, 1 + Γ); no two are the same.
    rows
        The row that each of them uses, shape (N,).
    """

    def __init__(self, places_e7: Indices, histories: Indices, rows: Indices) -> None:
        order = np.lexsort(histories.T[::-1])
        histories = histories[order]
        self.rows: Indices = rows[order]
        """The row of each leaf: each history of the table, in order of its places, shape (N,)."""
        self._lat, self._lon = (np.ascontiguousarray(column) for column in places_e7.astype(np.float64).T)
        self._cosine = cosine(self._lat)
        self._around = bool(np.ptp(self._lon) > HALF_TURN_E7)
        starts = [_starts(histories[:, : lag + 1]) for lag in range(histories.shape[1])]
        self.paths: list[Ints] = [start.cumsum() - 1 for start in starts]
        """For each lag the node that each leaf lies below, ascending, shape (N,)."""
        self.present: Indices = histories[starts[0], 0]
        """The present place of each node of lag 0."""
        self._node_of_present = np.full(len(places_e7), -1, np.int64)
        self._node_of_present[self.present] = np.arange(len(self.present))
        self._present_list: list[int] = self._node_of_present.tolist()
        self._levels = [
            self._level(histories[starts[lag], lag], self.paths[lag - 1][starts[lag]])
            for lag in range(1, histories.shape[1])
        ]

    def _level(self, places: Indices, parents: Ints) -> _Level:
        first = np.flatnonzero(np.diff(parents, prepend=-1))
        children = np.diff(first, append=len(parents))
        position = np.arange(len(parents)) - first[parents]
        lat = np.full((len(first), int(children.max())), NOWHERE_E7)
        lon = np.zeros(lat.shape)
        known = np.where(places >= 0, places, 0)
        lat[parents, position], lon[parents, position] = self._lat[known], self._lon[known]
        return _Level(first, lat, lon)

    def row_of(self, histories: npt.ArrayLike) -> Indices:
        """Return the rows of many histories.

        Parameters
        ----------
        histories
            Places at t, t − 1, ..., shape (n, 1 + at least 0). Earlier places that are missing, or −1, are taken as
            the oldest one that is known; older ones than the table looks at do not matter.

        Raises
        ------
        ParameterError
            If a present place is not one of the zone, or an earlier one not a place at all.
        """
        filled = self._filled(np.asarray(histories))
        node = self._node_of_present[filled[:, 0]]
        if filled.size and (min(node.min(), filled[:, 0].min()) < 0):
            raise ParameterError("Some histories are not in the zone at present, so that it has no row for them.")
        for level, places in zip(self._levels, filled.T[1:], strict=True):
            pairs, position = np.unique(node * len(self._lat) + places, return_inverse=True)
            node = self._nearest(level, pairs // len(self._lat), pairs % len(self._lat))[position]
        return self.rows[node]

    def row_of_one(self, history: Sequence[int]) -> int:
        """Return the row of one history, as `row_of` does, within microseconds.

        The work is the same for every history: the time does not tell whether the table lists it.

        Parameters
        ----------
        history
            The present place, which must be one of the zone, and as many earlier ones as are known.
        """
        place = history[0]
        node = self._present_list[place]
        if node < 0:
            raise ParameterError("The history is not in the zone at present, so that it has no row for it.")
        for lag, level in enumerate(self._levels, start=1):
            place = history[lag] if lag < len(history) else place
            squared = squared_distance(
                level.lat[node] - self._lat[place],
                level.lon[node] - self._lon[place],
                self._cosine[place],
                around=self._around,
            )
            node = int(level.first[node]) + int(squared.argmin())
        return int(self.rows[node])

    def cells(self, lag: int) -> Iterator[tuple[int, Ints]]:
        """Yield the nodes of lag − 1 below which places are told apart, each with the child of every place, shape (P,).

        Nodes with a single child are left out: all places belong to it.
        """
        level = self._levels[lag - 1]
        places = np.arange(len(self._lat))
        for node in np.flatnonzero(level.lat[:, 1:2] != NOWHERE_E7).tolist() if level.lat.shape[1] > 1 else ():
            yield node, self._nearest(level, np.full(len(places), node), places)

    def children(self, lag: int) -> Ints:
        """Return the first child of each node of lag − 1 among the nodes of `lag`, and after them how many there are.

        Shape (nodes of lag − 1, plus 1).
        """
        return np.append(self._levels[lag - 1].first, self.paths[lag][-1] + 1)

    def _nearest(self, level: _Level, nodes: Ints, places: Ints) -> Ints:
        """Return the child, of each of many nodes of the level above, that is nearest to a place."""
        result = np.empty(len(nodes), np.int64)
        step = max(1, _BLOCK // level.lat.shape[1])
        for start in range(0, len(nodes), step):
            block = slice(start, start + step)
            node, place = nodes[block], places[block, None]
            squared = squared_distance(
                level.lat[node] - self._lat[place], level.lon[node] - self._lon[place], self._cosine[place]
            )
            result[block] = level.first[node] + squared.argmin(axis=1)
        return result

    def _filled(self, asked: npt.NDArray[np.integer]) -> Ints:
        if asked.ndim != 2 or not asked.shape[1] or not np.issubdtype(asked.dtype, np.integer):
            raise ParameterError("Histories must be a table of whole numbers, one history a row.")
        if asked.size and (asked.max() >= len(self._lat) or asked.min() < -1):
            raise ParameterError("Some histories hold places that do not exist.")
        width = 1 + len(self._levels)
        filled = np.full((len(asked), width), -1, np.int64)
        filled[:, : asked.shape[1]] = asked[:, :width]
        for lag in range(1, width):
            filled[:, lag] = np.where(filled[:, lag] < 0, filled[:, lag - 1], filled[:, lag])
        return filled


def _starts(histories: Indices) -> Bools:
    """Return which histories, in order, differ from the one before."""
    starts = np.ones(len(histories), np.bool_)
    starts[1:] = (histories[1:] != histories[:-1]).any(axis=1)
    return starts


def cosine(lat_e7: Floats | float) -> Floats:
    """Return what a degree of longitude counts at latitudes in 1e-7 degrees."""
    rounded: Floats = np.rint(np.cos(np.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
    return rounded


def squared_distance(north_e7: Floats, east_e7: Floats, cosine_at: Floats | float, *, around: bool = True) -> Floats:
    """Return squared distances, for comparison only; overwrites its arguments.

    Parameters
    ----------
    north_e7, east_e7
        Differences of latitude and longitude in 1e-7 degrees.
    cosine_at
        The `cosine` at the asked place.
    around
        Whether some may be more than half a turn apart, so that the way around the Earth is shorter. The result is the
        same for those that are not, and comes sooner without.
    """
    if around:
        east_e7 -= np.rint(east_e7 / _TURN_E7) * _TURN_E7
    east_e7 *= cosine_at
    east_e7 *= east_e7
    north_e7 *= north_e7
    north_e7 += east_e7
    return north_e7


def whole_mm(distance_mm: Floats) -> Ints:
    """Return distances in whole millimetres, rounded down, never too large; `NEVER_MM` for `inf`."""
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
    """Cut leaves into slices of at most `most` leaves, each below one present place."""
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
