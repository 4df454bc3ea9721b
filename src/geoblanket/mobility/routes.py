"""Shortest routes between near nodes: a table of distances that grows where it is asked, and paths on demand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from geoblanket._geodesy import Floats
from geoblanket.roads.graph import RoadGraph

__all__ = ["Routes"]

Nodes = npt.NDArray[np.int64]

_DENSE_BYTES = 48_000_000
"""Memory for the rows of one call of Dijkstra."""


class Routes:
    """Shortest routes by length on a road graph, bounded.

    Parameters
    ----------
    graph
        The roads.
    near_m
        Routes up to this length come from a table that holds, for each source node asked so far, every node within
        the bound. Longer ones are searched each time.
    """

    def __init__(self, graph: RoadGraph, *, near_m: float) -> None:
        self.near_m = near_m
        self._nodes = graph.node_count
        # Edges are sorted by source, target and length, so the first of parallel edges is the shortest.
        ends = graph.sources.astype(np.int64) * self._nodes + graph.targets
        self._ends, self._edges = np.unique(ends, return_index=True)
        source, target = np.divmod(self._ends, self._nodes)
        self._matrix = csr_array((graph.length_m[self._edges], (source, target)), shape=(self._nodes, self._nodes))
        self._row = np.full(self._nodes, -1, np.int64)
        self._rows = 0
        self._keys = np.empty(0, np.int64)
        self._distances = np.empty(0, np.float32)

    def near(self, sources: Nodes, targets: Nodes) -> npt.NDArray[np.float32]:
        """Return the route length of each pair in metres, infinite beyond `near_m`."""
        self._grow(sources)
        key = self._row[sources] * self._nodes + targets
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        found: npt.NDArray[np.float32] = np.where(self._keys[at] == key, self._distances[at], np.float32(np.inf))
        return found

    def far(self, sources: Nodes, targets: Nodes, *, limit_m: Floats) -> npt.NDArray[np.float32]:
        """Return the route length of each pair in metres; it may be infinite where it exceeds the pair's limit."""
        lengths = np.full(len(sources), np.inf, np.float32)
        for pairs, row, distances, _ in self._search(sources, limit_m):
            lengths[pairs] = distances[row, targets[pairs]]
        return lengths

    def paths(
        self, sources: Nodes, targets: Nodes, *, limit_m: Floats
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the edges of each pair's shortest route, one route after the other.

        Returns
        -------
        offsets, edges
            The route of pair `i` is `edges[offsets[i]:offsets[i + 1]]`: empty if source and target are the same,
            or if there is no route within the limit.
        """
        found: list[tuple[Nodes, Nodes, npt.NDArray[np.int64]]] = []
        for served, rows, _, previous in self._search(sources, limit_m):
            pair, row, at, step = served, rows, targets[served], 0
            while len(pair):
                before = previous[row, at].astype(np.int64)
                going = before >= 0
                pair, row, at, before = pair[going], row[going], at[going], before[going]
                step -= 1
                edge = self._edges[np.searchsorted(self._ends, before * self._nodes + at)]
                found.append((pair, np.full(len(pair), step), edge))
                at = before
        if not found:
            return np.zeros(len(sources) + 1, np.int64), np.empty(0, np.int32)
        pair, step_back, edge = (np.concatenate(part) for part in zip(*found, strict=True))
        order = np.lexsort((step_back, pair))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(pair, minlength=len(sources)))]).astype(np.int64)
        return offsets, edge[order].astype(np.int32)

    def _grow(self, sources: Nodes) -> None:
        """Add the sources that the table does not have yet."""
        wanted = np.zeros(self._nodes, dtype=bool)
        wanted[sources] = True
        new = np.flatnonzero(wanted & (self._row < 0))
        if not len(new):
            return
        keys, distances = [self._keys], [self._distances]
        for start in range(0, len(new), self._chunk):
            some = new[start : start + self._chunk]
            rows = dijkstra(self._matrix, indices=some, limit=self.near_m)
            row, target = np.nonzero(np.isfinite(rows))
            keys.append((row + (self._rows + start)) * self._nodes + target)
            distances.append(rows[row, target].astype(np.float32))
        self._row[new] = self._rows + np.arange(len(new))
        self._rows += len(new)
        self._keys, self._distances = np.concatenate(keys), np.concatenate(distances)

    def _search(
        self, sources: Nodes, limit_m: Floats
    ) -> Iterator[tuple[Nodes, npt.NDArray[np.intp], Floats, npt.NDArray[np.int32]]]:
        """Run Dijkstra from the sources in chunks; yield which pairs a chunk serves, with its rows."""
        unique, which = np.unique(sources, return_inverse=True)
        limit = np.zeros(len(unique))
        np.maximum.at(limit, which, limit_m)
        by_source = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_source], np.arange(len(unique) + 1))
        for start in range(0, len(unique), self._chunk):
            stop = min(start + self._chunk, len(unique))
            pairs = by_source[ends[start] : ends[stop]]
            distances, previous = dijkstra(
                self._matrix,
                indices=unique[start:stop],
                limit=limit[start:stop].max(),
                return_predecessors=True,
            )
            yield pairs, which[pairs] - start, distances, previous

    @property
    def _chunk(self) -> int:
        return max(1, _DENSE_BYTES // (12 * self._nodes))
