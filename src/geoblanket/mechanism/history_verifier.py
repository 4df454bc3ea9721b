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

Bounds
------
In large cities only pairs of places nearer than some radius are looked at, and all others count as that far: less than
they are. Distances are floats, off by less than 10⁻⁵ mm up to 10,000 km; what `Metric.haversine` makes of them is
further below the truth than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import EARTH_RADIUS_M, unit_vectors
from geoblanket.mechanism.history_table import cosine
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.row_distances import NEAR_PAIRS

__all__ = ["PlacesOfCity", "RuleTree", "first_too_far"]


_TURN_E7: Final = 3_600_000_000
_BLOCK: Final = 1 << 20
"""Floats in memory at a time."""
_MOST_MEMBERS: Final = 1 << 22
"""Places of all cells of one lag together: they are held in memory."""


class PlacesOfCity:
    """All places of a file, and which of them are near to each other.

    Parameters
    ----------
    places_e7
        Latitude and longitude in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        self.lat_e7, self.lon_e7 = places_e7.astype(np.float64).T
        self.count = len(places_e7)
        self._vectors = unit_vectors(self.lat_e7 * 1e-7, self.lon_e7 * 1e-7)
        self._cosine = cosine(self.lat_e7)
        self._near: _Near | None = None

    def distance_mm(self, some: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Floats:
        """Return great-circle distances by the chord, millimetres, shape (some, others)."""
        squared = np.zeros((len(some), len(others)))
        for axis in range(3):
            difference = self._vectors[some, axis][:, None] - self._vectors[others, axis]
            squared += difference * difference
        half_chord = np.minimum(np.sqrt(squared) / 2, 1.0)
        mm: Floats = np.arcsin(half_chord) * (2000 * EARTH_RADIUS_M)
        return mm

    def near(self) -> _Near:
        """Return which places are near to each one."""
        if self._near is None:
            self._near = self._find_near()
        return self._near

    def _find_near(self) -> _Near:
        everywhere = np.arange(self.count)
        step = max(1, _BLOCK // self.count)
        blocks = [everywhere[start : start + step] for start in range(0, self.count, step)]
        rank, beyond = NEAR_PAIRS // self.count, np.inf
        if rank < self.count:
            beyond = min(
                float(np.partition(self.distance_mm(block, everywhere), rank, axis=1)[:, rank].min())
                for block in blocks
            )
        pairs = []
        for block in blocks:
            distance = self.distance_mm(block, everywhere)
            row, column = np.nonzero(distance < beyond)
            pairs.append((np.bincount(row, minlength=len(block)), column.astype(np.int32), distance[row, column]))
        count, other, mm = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return _Near(np.append(0, count.cumsum()), other, mm, beyond)

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
    """The places near to each place, and how far away they are."""

    start: Ints
    """Where those of each place begin in the other two, shape (P + 1,)."""
    other: Indices
    mm: Floats
    beyond_mm: float
    """All other places are at least so far away, millimetres."""

    def of(self, places: Ints) -> tuple[Ints, Ints]:
        """Return positions of all that are near to some places, and for each the number of the place among them."""
        count = self.start[places + 1] - self.start[places]
        which = np.repeat(np.arange(len(places)), count)
        position = np.arange(len(which)) - np.repeat(count.cumsum() - count, count) + self.start[places][which]
        return position, which


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
        for lag in self.lags[1:]:
            cells = sum(len(places) for places in lag.listed.values())
            steps += len(lag.listed) * near + cells * self.place_count * (1 + len(lag.listed))
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
    lags = [
        _CellDistances(tree.lags[lag], city, weight / 1e6 if weight != NEVER_MM else np.inf)
        for lag, weight in enumerate(weights_micro, start=1)
    ]
    now = tree.lags[0].node
    for leaves in _blocks(now, max(1, _BLOCK // len(now))):
        on_map = np.repeat(present.of(int(now[leaves.start]))[now][None], leaves.stop - leaves.start, axis=0)
        for lag, cells in enumerate(lags, start=1):
            node = tree.lags[lag].node
            on_map += cells.between(node[leaves])[:, node]
        rows = tree.rows[leaves]
        stated = stated_mm[rows][:, tree.rows]
        # "Never" is 2^63 − 1, which as a float is above every distance on Earth, and below infinity.
        too_far = stated > on_map
        if too_far.any():
            leaf, other = np.argwhere(too_far)[0]
            return int(rows[leaf]), int(tree.rows[other])
    return None


class _PresentDistances:
    """The least distances between present places that count as two of the zone's."""

    def __init__(self, tree: RuleTree, city: PlacesOfCity, stand_in: Indices) -> None:
        self._city = city
        node = np.searchsorted(tree.present, stand_in)
        served = np.flatnonzero(tree.present[np.minimum(node, len(tree.present) - 1)] == stand_in)
        self._served = served[np.argsort(node[served], kind="stable")]
        self._starts = np.searchsorted(node[self._served], np.arange(len(tree.present) + 1))
        self._last: tuple[int, Floats] = (-1, np.empty(0))

    def of(self, node: int) -> Floats:
        """Return those from one of the zone's places to all of them, millimetres."""
        if self._last[0] == node:
            return self._last[1]
        members = self._served[self._starts[node] : self._starts[node + 1]]
        result = np.full(len(self._starts) - 1, np.inf)
        step = max(1, _BLOCK // len(self._served))
        for start in range(0, len(members), step):
            distance = self._city.distance_mm(members[start : start + step], self._served)
            np.minimum(result, np.minimum.reduceat(distance.min(axis=0), self._starts[:-1]), out=result)
        self._last = (node, result)
        return result


def _blocks(node: Ints, most: int) -> Iterator[slice]:
    """Yield slices of leaves of one present place each."""
    for number in range(int(node[-1]) + 1):
        begin, end = np.searchsorted(node, [number, number + 1]).tolist()
        for start in range(begin, end, most):
            yield slice(start, min(start + most, end))


class _CellDistances:
    """Weighted distances between the cells of one lag."""

    def __init__(self, lag: _Lag, city: PlacesOfCity, weight: float) -> None:
        self._lag, self._city, self._weight = lag, city, weight
        # Every place of every node that tells places apart, with the cell that it falls into.
        parts = [
            (city.nearest_of(places) + lag.first_child[node]).astype(np.int32) for node, places in lag.listed.items()
        ]
        self._cell_of = dict(zip(lag.listed, parts, strict=True))
        cell = np.concatenate([*parts, np.empty(0, np.int32)])
        by_cell = np.argsort(cell, kind="stable")
        self._cells, self._starts = np.unique(cell[by_cell], return_index=True)
        self._places = (by_cell % city.count).astype(np.int32)
        self._undivided = np.ones(lag.count, np.bool_)
        for node, places in lag.listed.items():
            self._undivided[lag.first_child[node] : lag.first_child[node] + len(places)] = False
        self._node_above = np.repeat(np.arange(len(lag.first_child)), np.diff(lag.first_child, append=lag.count))

    def between(self, nodes: Ints) -> Floats:
        """Return the distances from some nodes to all nodes of the lag, shape (nodes, all)."""
        result = np.zeros((len(nodes), self._lag.count))
        for above in np.unique(self._node_above[nodes]).tolist():
            if above in self._cell_of:
                positions = np.flatnonzero(self._node_above[nodes] == above)
                result[positions] = self._from(above, nodes[positions])
        return result

    def _from(self, above: int, nodes: Ints) -> Floats:
        wanted, position_of = np.unique(nodes, return_inverse=True)
        near = self._city.near()
        result = np.empty((len(wanted), self._lag.count))
        step = max(1, _BLOCK // max(self._city.count, len(self._places)))
        for start in range(0, len(wanted), step):
            cells = wanted[start : start + step]
            number = np.full(self._lag.count, -1)
            number[cells] = np.arange(len(cells))
            of_place = number[self._cell_of[above]]
            members = np.flatnonzero(of_place >= 0)
            position, member = near.of(members)
            to_place = np.full((len(cells), self._city.count), near.beyond_mm)
            np.minimum.at(to_place, (of_place[members[member]], near.other[position]), near.mm[position])
            to_cell = np.full((len(cells), self._lag.count), np.inf)
            to_cell[:, self._cells] = np.minimum.reduceat(to_place[:, self._places], self._starts, axis=1)
            to_cell[:, self._undivided] = 0.0
            result[start : start + step] = to_cell
        if self._weight == np.inf:
            result[result > 0] = np.inf
        else:
            result[np.isfinite(result)] *= self._weight
        return result[position_of]
