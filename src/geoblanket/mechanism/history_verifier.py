"""Whether row distances hold for every history that a device can be asked about.

A mechanism is verified between rows, at the distances that its file states. This module decides whether these are
right: whether no two histories that the public rule sends to two rows are nearer to each other than stated. It shares
nothing with the code that computes distances for a build but constants and the rounded cosine, and reads the rule from
the file by itself.

What is decided
---------------
Let X be the present places that the zone serves (its own, and those in no zone that count as one of its own), and P all
places of the file. For all x, x' in X and all pasts z, z' in P^Γ, with r, r' the rows that the rule gives to (x, z) and
(x', z'):

    stated(r, r') ≤ d(x, x') + Σ w_τ·d(z_τ, z'_τ).

Why it is enough to look at cells
---------------------------------
The rule goes down a tree: at each lag it takes, of the places listed below the node it has reached, the one nearest to
the place asked about. Which children exist depends on the node alone, so the histories that end in a leaf are exactly
the product, over lags, of *cells*: the places nearer to the leaf's listed place than to its siblings. The right side is
a sum over lags, so its least value over two leaves is the sum of the least values over their two cells. Missing earlier
places count as the oldest one known, which is one of the pasts in P^Γ.

How it is computed
------------------
All numbers are whole nanometres. The distance of two places is rounded down by more than floats can be off, and after
that there are only sums, minima and comparisons of whole numbers.

From a place to a cell: list all places by their distance from it. The first in the list that belongs to the cell is the
nearest of the cell. So it is enough to count how many come before, and one walk along the lists of all places serves
all cells at once. From a cell to another: the least of these distances over the places of the other. Distances are
symmetric, so each pair of leaves is looked at once.

In large cities the lists end at some radius, the same for all places: what is further away counts as that far, which is
less than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices, Ints
from geoblanket._geodesy import EARTH_RADIUS_M, unit_vectors
from geoblanket.mechanism.history_table import cosine
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.row_distances import NEAR_PAIRS

_TURN_E7: Final = 3_600_000_000
_BLOCK: Final = 1 << 20
"""Numbers in memory at a time."""
_MOST_MEMBERS: Final = 1 << 22
"""Places of all cells of one lag together: they are held in memory."""
_NM_PER_MM: Final = 10**6
_FLOAT_ERROR_NM: Final = 20
"""More than floats are off by: 10 nm up to 10,000 km, and a unit for rounding."""
_NEVER_NM: Final = 1 << 60
"""Infinitely far: above every sum of distances."""
_FARTHEST_NM: Final = 1 << 56
"""About the largest weighted distance (72,000 km): no sum overflows."""
_COUNTED: Final = 255
"""What a byte can count to."""


class PlacesOfCity:
    """All places of a file, and which of them are near to each other.

    Parameters
    ----------
    places_e7
        Latitude and longitude in 1e-7 degrees, shape (P, 2).
    table_mm
        Their distances in another metric than on the map, whole millimetres, `NEVER_MM` for infinitely far, shape
        (P, P); None: on the map. Which place is nearest, coordinates say in any case.
    """

    def __init__(self, places_e7: Indices, table_mm: Ints | None = None) -> None:
        self._table_mm = table_mm
        self.lat_e7, self.lon_e7 = places_e7.astype(np.float64).T
        self.count = len(places_e7)
        self._vectors = unit_vectors(self.lat_e7 * 1e-7, self.lon_e7 * 1e-7)
        self._cosine = cosine(self.lat_e7)

    def distance_nm(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Ints:
        """Return distances in whole nanometres, never too large, shape (some, others): on the map by the chord."""
        if self._table_mm is not None:
            return _in_nanometres(self._table_mm[np.ix_(some, others)])
        squared = np.zeros((len(some), len(others)))
        for axis in range(3):
            difference = self._vectors[some, axis][:, None] - self._vectors[others, axis]
            squared += difference * difference
        half_chord = np.minimum(np.sqrt(squared) / 2, 1.0)
        nm = (np.arcsin(half_chord) * (2e9 * EARTH_RADIUS_M)).astype(np.int64)
        return np.maximum(nm - _FLOAT_ERROR_NM, 0)

    @cached_property
    def near(self) -> _Near:
        """The places near to each one, in order of their distance."""
        everywhere = np.arange(self.count)
        # Unless these are all places, the last only says how far away all others are at least.
        length = min(self.count, NEAR_PAIRS // self.count + 1)
        other = np.empty((self.count, length), np.int32)
        nm = np.empty((self.count, length), np.int64)
        step = max(1, _BLOCK // self.count)
        for start in range(0, self.count, step):
            distance = self.distance_nm(everywhere[start : start + step], everywhere)
            nearest = np.argpartition(distance, length - 1, axis=1)[:, :length]
            distance = np.take_along_axis(distance, nearest, axis=1)
            order = np.argsort(distance, axis=1)
            other[start : start + step] = np.take_along_axis(nearest, order, axis=1)
            nm[start : start + step] = np.take_along_axis(distance, order, axis=1)
        beyond = int(nm[:, -1].min()) if length < self.count else _NEVER_NM
        other[nm >= beyond] = self.count
        values, rank = np.unique(
            np.vstack([np.minimum(nm, beyond).T, np.full(self.count, beyond)]), return_inverse=True
        )
        return _Near(np.ascontiguousarray(other.T), rank.reshape(-1, self.count).astype(np.int32), values)

    def nearest_of(self, listed: Ints, asked: Ints | None = None) -> Ints:
        """Return the position in `listed` of the nearest to each of some (by default all); of equals, the first."""
        asked = np.arange(self.count) if asked is None else asked
        result = np.empty(len(asked), np.int64)
        step = max(1, _BLOCK // len(listed))
        for start in range(0, len(asked), step):
            some = asked[start : start + step]
            east = self.lon_e7[listed][:, None] - self.lon_e7[some]
            east = (east - np.rint(east / _TURN_E7) * _TURN_E7) * self._cosine[some]
            north = self.lat_e7[listed][:, None] - self.lat_e7[some]
            result[start : start + step] = (north * north + east * east).argmin(axis=0)
        return result


@dataclass(frozen=True, eq=False)
class _Near:
    """The places near to each place, the nearest first, and how far away they are."""

    other: Indices
    """Of each place the nearest, the second nearest, ...; P where there are no more; shape (K, P)."""
    rank: Indices
    """The number of each one's distance in `nm`, and last that of all places that are not near, shape (K + 1, P)."""
    nm: Ints
    """All distances that occur, nanometres, ascending: numbers of 32 bits compare as they do, in half the time."""


@dataclass(frozen=True, eq=False)
class _Lag:
    """One lag of the tree."""

    node: Ints
    """The node of each history of the table, shape (N,)."""
    count: int
    """How many nodes there are."""
    listed: dict[int, Ints]
    """For nodes of the lag before with several children, the places that they list."""
    first_child: Ints
    """For each node of the lag before, its first child."""


class RuleTree:
    """The rule of one zone and regime, read from the table of its histories.

    Parameters
    ----------
    histories
        Places at t, t − 1, ..., −1 for any, shape (N, 1 + Γ).
    rows
        The row of each, shape (N,).
    place_count
        P.

    Raises
    ------
    ValueError
        If the table is not a rule.
    """

    def __init__(self, histories: Indices, rows: Indices, place_count: int) -> None:
        ordered = sorted(zip(map(tuple, histories.tolist()), rows.tolist(), strict=True))
        if any(first[0] == second[0] for first, second in pairwise(ordered)):
            raise ValueError("it lists a history twice")
        if not ordered or ordered[0][0][0] < 0:
            raise ValueError("a history must say which present place it is of")
        self.rows: Ints = np.array([row for _, row in ordered])
        self.place_count = place_count
        table = [history for history, _ in ordered]
        self.lags = [self._lag(table, lag) for lag in range(histories.shape[1])]
        self.present: Ints = np.array(sorted({history[0] for history in table}))
        if self._members() > _MOST_MEMBERS:
            raise ValueError(
                f"its rule tells {self._members():,} earlier places apart, more than the {_MOST_MEMBERS:,} that fit"
            )

    @staticmethod
    def _lag(table: Sequence[tuple[int, ...]], lag: int) -> _Lag:
        numbers: dict[tuple[int, ...], int] = {}
        children: dict[tuple[int, ...], list[int]] = {}
        first: dict[tuple[int, ...], int] = {}
        for history in table:
            prefix = history[: lag + 1]
            if prefix not in numbers:
                numbers[prefix] = len(numbers)
                first.setdefault(prefix[:-1], numbers[prefix])
                children.setdefault(prefix[:-1], []).append(prefix[-1])
        if any(places[0] < 0 and len(places) > 1 for places in children.values()):
            raise ValueError("it lists a place beside any place")
        return _Lag(
            node=np.array([numbers[history[: lag + 1]] for history in table]),
            count=len(numbers),
            listed={number: np.array(places) for number, places in enumerate(children.values()) if len(places) > 1},
            first_child=np.array(list(first.values())),
        )

    def _members(self) -> int:
        return max((len(lag.listed) * self.place_count for lag in self.lags[1:]), default=0)

    def work(self, served: int) -> int:
        """Return about how many elementary steps it takes to compare its distances.

        Parameters
        ----------
        served
            How many present places the zone serves.
        """
        leaves = len(self.rows)
        near = min(self.place_count**2, NEAR_PAIRS)
        steps = served**2 + leaves**2 * len(self.lags)
        blocks = 1 + leaves * max(leaves, self.place_count) // _BLOCK
        for lag in self.lags[1:]:
            cells = sum(len(places) for places in lag.listed.values())
            # As measured: 16 bytes are looked at, and 8 numbers compared, in the time of a step.
            steps += cells * (near // 16 + len(lag.listed) * self.place_count // 8 + 2000 * blocks)
        return steps


def first_too_far(
    tree: RuleTree,
    city: PlacesOfCity,
    *,
    weights_micro: Sequence[int],
    stated_mm: Ints,
    stand_in: Indices,
) -> tuple[int, int] | None:
    """Return the first two rows that are stated to be further apart than some two of their histories; None if none are.

    Parameters
    ----------
    weights_micro
        What each earlier place counts, in millionths; `NEVER_MM` for a past that is known.
    stated_mm
        Row distances in millimetres, shape (S, S).
    stand_in
        The place of some zone that each place counts as at present, shape (P,).
    """
    present = _PresentDistances(tree, city, stand_in)
    lags = [_CellDistances(lag, city, weight) for lag, weight in zip(tree.lags[1:], weights_micro, strict=True)]
    count, now = len(tree.rows), tree.lags[0].node
    step = max(1, _BLOCK // max(count, city.count))
    for start in range(0, count, step):
        some = slice(start, start + step)
        on_map = present.between(now[some])[:, now[start:]]
        for lag, cells in zip(tree.lags[1:], lags, strict=True):
            first = int(lag.node[start])
            between = cells.between(first, int(lag.node[some][-1]) + 1)
            on_map += between[np.ix_(lag.node[some] - first, lag.node[start:] - first)]
            np.minimum(on_map, _NEVER_NM, out=on_map)
        rows, others = tree.rows[some], tree.rows[start:]
        too_far = _in_nanometres(stated_mm[np.ix_(rows, others)]) > on_map
        if too_far.any():
            leaf, other = np.argwhere(too_far)[0]
            return int(rows[leaf]), int(others[other])
    return None


def _in_nanometres(distance_mm: Ints) -> Ints:
    """Return distances in nanometres; what is too large for that counts as infinitely far."""
    return np.where(distance_mm < 10**12, np.minimum(distance_mm, 10**12) * _NM_PER_MM, _NEVER_NM)


def _weighted(nm: Ints, weight_micro: int) -> Ints:
    """Return distances times a weight in millionths, rounded down; any distance times infinity is infinite, but 0."""
    if weight_micro == NEVER_MM:
        return np.where(nm > 0, _NEVER_NM, 0)
    # A larger weight counts as a million, and a product that is too large for a sum as less than it is.
    weight_micro = min(weight_micro, 10**12)
    mm, rest = np.divmod(nm, _NM_PER_MM)
    product = np.minimum(mm, _FARTHEST_NM // max(weight_micro, 1)) * weight_micro + rest * weight_micro // _NM_PER_MM
    return np.where(nm == _NEVER_NM, _NEVER_NM, product)


class _PresentDistances:
    """The least distances between present places that count as two of the zone's."""

    def __init__(self, tree: RuleTree, city: PlacesOfCity, stand_in: Indices) -> None:
        self._city = city
        node = np.searchsorted(tree.present, stand_in)
        served = np.flatnonzero(tree.present[np.minimum(node, len(tree.present) - 1)] == stand_in)
        self._served = served[np.argsort(node[served], kind="stable")]
        self._starts = np.searchsorted(node[self._served], np.arange(len(tree.present) + 1))
        self._last: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    def between(self, nodes: Ints) -> Ints:
        """Return those from some of the zone's places (ascending) to all of them, nanometres."""
        different, position = np.unique(nodes, return_inverse=True)
        return np.stack([self._of(node) for node in different.tolist()])[position]

    def _of(self, node: int) -> Ints:
        if self._last[0] == node:  # its leaves may be more than a block
            return self._last[1]
        members = self._served[self._starts[node] : self._starts[node + 1]]
        result = np.full(len(self._starts) - 1, _NEVER_NM)
        step = max(1, _BLOCK // len(self._served))
        for start in range(0, len(members), step):
            distance = self._city.distance_nm(members[start : start + step], self._served)
            np.minimum(result, np.minimum.reduceat(distance.min(axis=0), self._starts[:-1]), out=result)
        self._last = (node, result)
        return result


class _CellDistances:
    """Weighted distances between the cells of one lag: one for each of its nodes."""

    def __init__(self, lag: _Lag, city: PlacesOfCity, weight_micro: int) -> None:
        self._city, self._weight_micro, self._count = city, weight_micro, lag.count
        # Every place of every node above that tells places apart, with the cell that it falls into.
        parts = [city.nearest_of(places) + lag.first_child[node] for node, places in lag.listed.items()]
        cell = np.concatenate([*parts, np.empty(0, np.int64)])
        self._places = (np.argsort(cell, kind="stable") % city.count).astype(np.int32)
        self._starts = np.append(0, np.bincount(cell, minlength=lag.count).cumsum())
        self._divided = np.zeros(lag.count, np.bool_)
        for node, places in lag.listed.items():
            self._divided[lag.first_child[node] : lag.first_child[node] + len(places)] = True

    def _members(self, cell: int) -> Indices:
        return self._places[self._starts[cell] : self._starts[cell + 1]]

    def between(self, first: int, end: int) -> Ints:
        """Return those from the nodes `first` to `end` − 1 to all from `first` on, nanometres."""
        # A cell that is not divided holds all places: nothing is away from it.
        result = np.zeros((end - first, self._count - first), np.int64)
        some = np.flatnonzero(self._divided[first:end])
        if len(some):
            to_places, nm = self._to_places(some + first), self._city.near.nm
            for cell in np.flatnonzero(self._divided[first:]).tolist():
                members = self._members(first + cell)
                # A cell without places, hidden by another one at the same coordinates, has no history.
                result[some, cell] = nm[to_places[members].min(axis=0)] if len(members) else _NEVER_NM
        return _weighted(result, self._weight_micro)

    def _to_places(self, cells: Ints) -> Indices:
        """Return how far each place is from the nearest of some cells, by its number in `near.nm`, shape (P, cells)."""
        near, places = self._city.near, np.arange(self._city.count)
        member = np.zeros((len(places) + 1, len(cells)), np.bool_)
        for column, cell in enumerate(cells.tolist()):
            member[self._members(cell), column] = True
        found, missing = np.zeros((2, len(places), len(cells)), np.bool_)
        few = np.zeros(found.shape, np.uint8)  # bytes are added sixteen at a time
        before = np.zeros(found.shape, np.int16)
        for number, neighbours in enumerate(near.other, start=1):
            np.take(member, neighbours, axis=0, out=missing, mode="clip")
            np.logical_or(found, missing, out=found)
            np.logical_not(found, out=missing)
            few += missing.view(np.uint8)
            if number % _COUNTED == 0:
                before += few
                few[:] = 0
        before += few
        return near.rank[before, places[:, None]]
