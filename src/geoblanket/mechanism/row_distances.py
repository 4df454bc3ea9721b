"""The tree of a rule from histories to rows, and the distances between rows that follow from it.

A history is a secret with its context: the values at lag 0 (the secret), 1, 2, ... (context variables, for vehicles the
earlier places). A rule lists some histories, each with its row. Any other history goes down the tree of those listed:
at each lag, of the values listed below the node that it has reached, the nearest wins. So the histories of a row are a
product of *cells*, one for each lag: all values that are nearer to its listed one than to the others listed there.

Row distances
-------------
The distance of two rows is the smallest between the histories that use them, d + Σ w_τ·d_τ. *All* histories count that
the rule can be asked about, listed or not: every secret that the rule lists, and every value of each context variable.
So the promise holds for every pair of histories.

Given the node, the value at one lag does not restrict those at others. So the distance of two leaves is the sum, over
lags, of the distance of their two cells. The distance of two rows is the smallest between their leaves. From the cells
of one node to all others it is found in two steps: from each value to the nearest member of each cell, then over the
values of the other cells. All numbers are whole: floats hold them exactly, and `inf` besides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket.mechanism.metric import FARTHEST, Metric, weighted, whole_millionths
from geoblanket.mechanism.problem import NEVER_MM

NEAR_PAIRS: Final = 1 << 20
"""Pairs of values whose distance is looked at; of variables with more than about 1,000 values, only near ones are."""
NO_MORE: Final = -2
"""Fills up lists of values."""
_BLOCK_CELLS: Final = 1 << 22
"""Distances between leaves that are computed at a time."""


class RowTree(ABC):
    """Listed histories as a tree, with the row of each leaf.

    Nodes are numbered such that the children of a node come one after the other, by their values.

    Parameters
    ----------
    histories
        The value at lag 0, 1, ... of each listed history, −1 for any, shape (N, 1 + Γ); no two are the same.
    rows
        The row that each of them uses, shape (N,); every row has one or more.
    value_counts
        How many values there are at each lag.
    """

    def __init__(self, histories: Indices, rows: Indices, value_counts: Sequence[int]) -> None:
        order = np.lexsort(histories.T[::-1])
        histories = histories[order]
        self.value_counts = tuple(value_counts)
        self.rows: Indices = rows[order]
        """The row of each leaf: each history of the table, in order of its values, shape (N,)."""
        starts = [_starts(histories[:, : lag + 1]) for lag in range(histories.shape[1])]
        self.paths: list[Ints] = [start.cumsum() - 1 for start in starts]
        """For each lag the node that each leaf lies below, ascending, shape (N,)."""
        self.present: Indices = histories[starts[0], 0]
        """The secret of each node of lag 0."""
        self._node_of_present = np.full(value_counts[0], -1, np.int64)
        self._node_of_present[self.present] = np.arange(len(self.present))
        parents = [self.paths[lag - 1][starts[lag]] for lag in range(1, histories.shape[1])]
        self._first = [np.flatnonzero(np.diff(above, prepend=-1)) for above in parents]
        self._listed = [
            _children(above, first, histories[starts[lag], lag])
            for lag, (above, first) in enumerate(zip(parents, self._first, strict=True), start=1)
        ]

    @abstractmethod
    def _nearest(self, lag: int, nodes: Ints, values: Ints) -> Ints:
        """Return the child, of each of many nodes of lag − 1, that is nearest to a value; of equals, the first."""

    def rows_of(self, histories: Ints) -> Indices:
        """Return the rows of complete histories of secrets that the rule lists, shape (n, 1 + Γ)."""
        node = self._node_of_present[histories[:, 0]]
        for lag, values in enumerate(histories.T[1:], start=1):
            count = self.value_counts[lag]
            pairs, position = np.unique(node * count + values, return_inverse=True)
            node = self._nearest(lag, pairs // count, pairs % count)[position]
        return self.rows[node]

    def cells(self, lag: int) -> Iterator[tuple[int, Ints]]:
        """Yield the nodes of lag − 1 below which values are told apart, each with the child of every value.

        Nodes with a single child are left out: all values belong to it.
        """
        values = np.arange(self.value_counts[lag])
        for node in np.flatnonzero(np.diff(self.children(lag)) > 1).tolist():
            yield node, self._nearest(lag, np.full(len(values), node), values)

    def children(self, lag: int) -> Ints:
        """Return the first child of each node of lag − 1 among the nodes of `lag`, and after them how many there are.

        Shape (nodes of lag − 1, plus 1).
        """
        return np.append(self._first[lag - 1], self.paths[lag][-1] + 1)


def _starts(histories: Indices) -> Bools:
    """Return which histories, in order, differ from the one before."""
    starts = np.ones(len(histories), np.bool_)
    starts[1:] = (histories[1:] != histories[:-1]).any(axis=1)
    return starts


def _children(parents: Ints, first: Ints, values: Indices) -> Ints:
    """Return the values listed below each node, shape (nodes, most children); `NO_MORE` after them."""
    listed = np.full((len(first), int(np.diff(first, append=len(parents)).max())), NO_MORE)
    listed[parents, np.arange(len(parents)) - first[parents]] = values
    return listed


def row_distances(tree: RowTree, metrics: Sequence[Metric], weights_micro: Sequence[int]) -> Ints:
    """Return the distances of rows in whole millionths, the smallest between all their histories, shape (S, S).

    `NEVER_MM` stands for infinity.

    Parameters
    ----------
    tree
        The rule from histories to rows.
    metrics
        The metric of the secrets, and that of each context variable.
    weights_micro
        What each context variable counts, in millionths; `NEVER_MM` for one that is known (histories in which it
        differs are infinitely far apart).
    """
    # Vehicles have the same metric at every lag.
    near = {metric: _NearPairs.of(metric) for metric in dict.fromkeys(metrics[1:])}
    lags = [
        _Lag(tree, lag, near[metric].weighted(weight))
        for lag, (metric, weight) in enumerate(zip(metrics[1:], weights_micro, strict=True), start=1)
    ]
    order = np.argsort(tree.rows, kind="stable")
    rows = tree.rows[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    present = _summable(metrics[0].between(tree.present, tree.present))
    result = np.full((len(starts), len(starts)), np.inf)
    for leaves in _slices(tree.paths[0], max(1, _BLOCK_CELLS // len(rows))):
        distance = present[tree.paths[0][leaves]].take(tree.paths[0][order], axis=1)
        for lag in lags:
            distance += lag.between(tree.paths[lag.lag][leaves], tree.paths[lag.lag][order])
        distance = np.minimum.reduceat(distance, starts, axis=1)
        for leaf, row in enumerate(tree.rows[leaves].tolist()):
            np.minimum(result[row], distance[leaf], out=result[row])
    # From a cell without values nothing is near, but to it something may be: what is smaller is safe.
    symmetric = np.minimum(result, result.T)
    symmetric[np.isfinite(symmetric)] = np.minimum(symmetric[np.isfinite(symmetric)], FARTHEST)
    return whole_millionths(symmetric)


def _summable(whole: Ints) -> Floats:
    """Return whole distances as floats, which hold them exactly; `inf` for `NEVER_MM`."""
    return np.where(whole == NEVER_MM, np.inf, whole.astype(np.float64))


def _slices(node_of_leaf: Ints, most: int) -> list[slice]:
    """Cut leaves into slices of at most `most` leaves, each below one secret."""
    first = np.flatnonzero(np.diff(node_of_leaf, prepend=-1)).tolist()
    ends = [*first[1:], len(node_of_leaf)]
    return [
        slice(start, min(start + most, end))
        for begin, end in zip(first, ends, strict=True)
        for start in range(begin, end, most)
    ]


@dataclass(frozen=True, eq=False)
class _NearPairs:
    """Pairs of values in order of falling distance; those that are left out are at least `beyond` apart."""

    value_count: int
    value: Ints
    other: Ints
    distance: Ints
    beyond: int

    @classmethod
    def of(cls, metric: Metric) -> _NearPairs:
        everything = np.arange(len(metric))
        step = max(1, _BLOCK_CELLS // len(metric))
        blocks = [everything[start : start + step] for start in range(0, len(metric), step)]
        beyond, neighbours = NEVER_MM, NEAR_PAIRS // len(metric)
        if neighbours < len(metric):
            for block in blocks:
                distance = np.partition(metric.between(block, everything), neighbours, axis=1)
                beyond = min(beyond, int(distance[:, neighbours].min()))
        parts = []
        for block in blocks:
            distance = metric.between(block, everything)
            value, other = np.nonzero(distance < beyond)
            parts.append((value + block[0], other, distance[value, other]))
        value, other, distance = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(-distance, kind="stable")
        return cls(len(metric), value[order], other[order], distance[order], beyond)

    def weighted(self, weight_micro: int) -> _NearPairs:
        """Return the pairs with their distances times a weight; their order stays."""
        distance = weighted(np.append(self.distance, self.beyond), weight_micro)
        return _NearPairs(self.value_count, self.value, self.other, distance[:-1], int(distance[-1]))


class _Lag:
    """Weighted distances between the nodes of one lag: between their cells."""

    def __init__(self, tree: RowTree, lag: int, near: _NearPairs) -> None:
        self.lag, self._near = lag, near
        self._first = tree.children(lag)
        self._cells = dict(tree.cells(lag))
        cell = np.concatenate([*self._cells.values(), np.empty(0, np.int64)])
        order = np.argsort(cell, kind="stable")
        self._value_of_member = order % near.value_count
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
        to_cell = np.full((children, near.value_count), near.beyond)
        # Of several that are assigned to the same value the last stays, and so the nearest.
        to_cell[self._cells[parent][near.value] - self._first[parent], near.other] = near.distance
        result = np.full((children, len(self._any)), np.inf)
        step = max(1, _BLOCK_CELLS // len(self._value_of_member))
        for start in range(0, children, step):
            to_members = to_cell[start : start + step].take(self._value_of_member, axis=1)
            nearest = np.minimum.reduceat(to_members, self._starts, axis=1)
            result[start : start + step, self._cell_numbers] = _summable(nearest)
        result[:, self._any] = 0.0
        self._made = (parent, result)
        return result
