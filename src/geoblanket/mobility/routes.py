"""Shortest routes between nodes for map matching: near ones from a table that grows, far ones searched on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import dijkstra

from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket.roads.distances import weight_matrix
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.nearby import distances_within

__all__ = ["RouteFinder"]


_SEARCH_BYTES = 48_000_000
"""Memory for the rows of one search of far routes."""


class RouteFinder:
    """Shortest routes by length on a road graph.

    Parameters
    ----------
    graph
        The roads.
    near_m
        The table holds, for each source node asked so far, every node within this distance. Longer routes are
        searched each time.
    """

    def __init__(self, graph: RoadGraph, *, near_m: float) -> None:
        self.near_m = near_m
        self._graph = graph
        self._nodes = graph.node_count
        self._matrix = weight_matrix(graph)
        # Edges are sorted by source, target and length, so the first of parallel edges is the shortest.
        self._ends, self._edges = np.unique(
            graph.sources.astype(np.int64) * self._nodes + graph.targets, return_index=True
        )
        self._row = np.full(self._nodes, -1, np.int64)
        self._rows = 0
        self._keys = np.empty(0, np.int64)
        self._lengths = np.empty(0, np.float32)
        self._previous = np.empty(0, np.int32)

    def near(self, sources: Ints, targets: Ints) -> npt.NDArray[np.float32]:
        """Return the length of each pair's route in metres, infinite beyond `near_m`."""
        position, is_near = self._find(sources, targets)
        lengths: npt.NDArray[np.float32] = np.where(is_near, self._lengths[position], np.float32(np.inf))
        return lengths

    def far(self, sources: Ints, targets: Ints, *, limit_m: Floats) -> npt.NDArray[np.float32]:
        """Return the length of each pair's route in metres; it may be infinite where it exceeds the pair's limit."""
        lengths = np.full(len(sources), np.inf, np.float32)
        for pairs, row, distances, _ in self._search(sources, limit_m):
            lengths[pairs] = distances[row, targets[pairs]]
        return lengths

    def paths(self, sources: Ints, targets: Ints, *, limit_m: Floats) -> tuple[Ints, Indices]:
        """Return the edges of each pair's shortest route, one route after the other.

        Returns
        -------
        offsets, edges
            The route of pair `i` is `edges[offsets[i]:offsets[i + 1]]`: empty if source and target are the same,
            or if there is no route within the limit.
        """
        _, is_near = self._find(sources, targets)
        near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
        steps = list(self._walk_back(near, sources[near], targets[near], self._previous_in_table))
        for pairs, row, _, previous in self._search(sources[far], limit_m[far]):
            steps += self._walk_back(far[pairs], row, targets[far[pairs]], partial(_previous_in_rows, previous))
        if not steps:
            return np.zeros(len(sources) + 1, np.int64), np.empty(0, np.int32)
        pair, step, edge = (np.concatenate(part) for part in zip(*steps, strict=True))
        order = np.lexsort((-step, pair))
        offsets = np.zeros(len(sources) + 1, np.int64)
        np.cumsum(np.bincount(pair, minlength=len(sources)), out=offsets[1:])
        return offsets, edge[order].astype(np.int32)

    def _walk_back(
        self, pair: Ints, origin: Ints, at: Ints, previous: Callable[[Ints, Ints], Indices]
    ) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Follow the ways of many pairs back from their targets; yield (pair, steps from the target, edge)."""
        step = 0
        while len(pair):
            before = previous(origin, at).astype(np.int64)
            going = before >= 0
            pair, origin, at, before = pair[going], origin[going], at[going], before[going]
            yield pair, np.full(len(pair), step), self._edges[np.searchsorted(self._ends, before * self._nodes + at)]
            at = before
            step += 1

    def _previous_in_table(self, sources: Ints, at: Ints) -> Indices:
        return self._previous[self._find(sources, at)[0]]

    def _find(self, sources: Ints, targets: Ints) -> tuple[Positions, Bools]:
        """Return where in the table each pair stands, and whether it is there at all."""
        self._add(sources)
        key = self._row[sources] * self._nodes + targets
        position = np.minimum(np.searchsorted(self._keys, key), max(0, len(self._keys) - 1))
        return position, self._keys[position] == key

    def _add(self, sources: Ints) -> None:
        """Add to the table the sources that it does not have yet."""
        new = np.unique(sources[self._row[sources] < 0])
        if not len(new):
            return
        nearby = distances_within(self._graph, new, limit=self.near_m)
        self._row[new] = self._rows + np.arange(len(new))
        row = np.repeat(self._row[new], np.diff(nearby.offsets))
        self._rows += len(new)
        self._keys = np.concatenate([self._keys, row * self._nodes + nearby.targets])
        self._lengths = np.concatenate([self._lengths, nearby.distances.astype(np.float32)])
        self._previous = np.concatenate([self._previous, nearby.previous])

    def _search(self, sources: Ints, limit_m: Floats) -> Iterator[tuple[Positions, Positions, Floats, Indices]]:
        """Search from all sources, some at a time; yield the pairs served, their rows, distances and nodes before."""
        unique, which = np.unique(sources, return_inverse=True)
        limit = np.zeros(len(unique))
        np.maximum.at(limit, which, limit_m)
        by_source = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_source], np.arange(len(unique) + 1))
        size = max(1, _SEARCH_BYTES // (12 * self._nodes))
        for start in range(0, len(unique), size):
            stop = min(start + size, len(unique))
            pairs = by_source[ends[start] : ends[stop]]
            distances, previous = dijkstra(
                self._matrix,
                indices=unique[start:stop],
                limit=limit[start:stop].max(),
                return_predecessors=True,
            )
            yield pairs, which[pairs] - start, distances, previous


def _previous_in_rows(previous: Indices, row: Ints, at: Ints) -> Indices:
    return previous[row, at]
