"""Shortest routes between many pairs of nodes: a table in pages, and searches for what does not fit into it.

Nodes are numbered so that 64 consecutive ones lie together: a *block*. A *page* holds the routes from the nodes of one
block to the nodes of another. So a look-up needs no search, and memory is taken only for blocks near each other. Each
node's row reaches as far as the routes from it that were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from geoblanket._arrays import Floats, Indices, Ints, Positions, Singles
from geoblanket.roads.distances import distances_within, weight_matrix
from geoblanket.roads.graph import RoadGraph

_Nodes = npt.NDArray[np.integer]

_LEAST_BITS = 6
"""A block has 2^6 nodes, more if there would be too many pairs of blocks."""
_MOST_BLOCKS = 1 << 13
_FIRST_REACH_M, _DOUBLINGS = 1150.0, 3
"""A node's row reaches this far at first, metres. This is doubled when it must be, up to three times: 9.2 km, three
minutes at 50 m/s. Longer routes are searched each time."""
_TABLE_BYTES = 1 << 30
_SEARCH_BYTES = 48_000_000
"""Memory of the table, which is taken as pages are filled, and of the rows of one search."""
_ROWS_AT_ONCE = 256


class RouteFinder:
    """Shortest routes by length on a road graph.

    Parameters
    ----------
    graph
        The roads.
    table_bytes
        The most memory of the table, bytes. It is taken as routes are added.
    """

    def __init__(self, graph: RoadGraph, *, table_bytes: int = _TABLE_BYTES) -> None:
        self._graph = graph
        self._nodes = graph.node_count
        self._matrix = weight_matrix(graph)
        # Edges are sorted by source, target and length, so the first of parallel edges is the shortest.
        self._ends, self._edges = np.unique(
            graph.sources.astype(np.int64) * self._nodes + graph.targets, return_index=True
        )
        # A k-d tree lists its points leaf by leaf: neighbours in the list are neighbours in space.
        self._number = np.empty(self._nodes, np.int64)
        self._number[KDTree(np.column_stack([graph.lat, graph.lon])).indices] = np.arange(self._nodes)
        self._bits = max(_LEAST_BITS, (self._nodes // _MOST_BLOCKS).bit_length())
        self._blocks = (self._nodes >> self._bits) + 1
        self._page_start = np.zeros(self._blocks**2, np.int64)
        node_type = np.min_scalar_type(-self._nodes - 1)
        self._page_size = 1 << 2 * self._bits
        pages = table_bytes // (self._page_size * (4 + node_type.itemsize)) + 1
        self._lengths = np.empty(pages * self._page_size, np.float32)
        self._previous: npt.NDArray[np.signedinteger] = np.empty(pages * self._page_size, node_type)
        self._lengths[: self._page_size] = np.inf
        self._reach_m = np.empty(self._nodes)
        self._clear()

    def lengths(self, sources: _Nodes, targets: _Nodes, *, limit_m: Floats) -> Singles:
        """Return the length of each pair's route in metres; beyond the pair's limit it may be infinite.

        The three arrays are broadcast against each other.
        """
        found: Singles = self._lengths.take(self._positions(sources, targets))
        unsure = np.nonzero(np.isinf(found))
        source, target = (np.broadcast_to(nodes, found.shape)[unsure] for nodes in (sources, targets))
        limit = np.broadcast_to(limit_m, found.shape)[unsure]
        if not (limit > self._reach_m[source]).any():
            return found
        self._extend(source, limit)
        length = self._lengths.take(self._positions(source, target))
        far = np.flatnonzero(np.isinf(length) & (limit > self._reach_m[source]))
        for pairs, row, distances, _ in self._search(source[far], limit[far]):
            length[far[pairs]] = distances[row, target[far[pairs]]]
        found[unsure] = length
        return found

    def paths(self, sources: Ints, targets: Ints, *, limit_m: Floats) -> tuple[Ints, Indices]:
        """Return the edges of each pair's shortest route, one route after the other.

        Returns
        -------
        offsets, edges
            The route of pair `i` is `edges[offsets[i]:offsets[i + 1]]`: empty if source and target are the same,
            or if there is no route within the limit.
        """
        # Routes within the table are followed there; the others are searched.
        self._extend(sources, limit_m)
        is_near = np.isfinite(self._lengths.take(self._positions(sources, targets)))
        near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near & (limit_m > self._reach_m[sources]))
        steps = list(self._walk_back(near, sources[near], targets[near], self._previous_in_table))
        for pairs, row, _, previous in self._search(sources[far], limit_m[far]):
            steps += self._walk_back(far[pairs], row, targets[far[pairs]], previous.__getitem__)
        if not steps:
            return np.zeros(len(sources) + 1, np.int64), np.empty(0, np.int32)
        # The edges were found from the target backwards, over all pairs at once: sort them by pair and along the way.
        pair, step, edge = (np.concatenate(part) for part in zip(*steps, strict=True))
        order = np.lexsort((-step, pair))
        offsets = np.zeros(len(sources) + 1, np.int64)
        np.cumsum(np.bincount(pair, minlength=len(sources)), out=offsets[1:])
        return offsets, edge[order].astype(np.int32)

    def _walk_back(
        self, pair: Ints, origin: Ints, at: Ints, previous: Callable[[tuple[Ints, Ints]], Indices]
    ) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Follow many pairs' routes back from their targets; yield (pair, steps from the target, edge)."""
        step = 0
        while len(pair):
            before = previous((origin, at)).astype(np.int64)
            going = before >= 0
            pair, origin, at, before = pair[going], origin[going], at[going], before[going]
            yield pair, np.full(len(pair), step), self._edges[np.searchsorted(self._ends, before * self._nodes + at)]
            at = before
            step += 1

    def _previous_in_table(self, pairs: tuple[Ints, Ints]) -> Indices:
        return self._previous.take(self._positions(*pairs))

    def _positions(self, sources: _Nodes, targets: _Nodes) -> Ints:
        """Return where in the table each pair is; the arrays are broadcast."""
        source, target, last = self._number.take(sources), self._number.take(targets), (1 << self._bits) - 1
        page = self._page_start.take((source >> self._bits) * self._blocks + (target >> self._bits))
        page += (source & last) << self._bits
        page += target & last
        return page

    def _extend(self, sources: _Nodes, limit_m: Floats) -> None:
        """Let the rows of `sources` reach the limits, as far as there is room."""
        wanted_m = np.full(self._nodes, -1.0)
        np.maximum.at(wanted_m, sources, limit_m)
        wanted_m = np.minimum(wanted_m, _FIRST_REACH_M * 2**_DOUBLINGS)
        nodes = np.flatnonzero(wanted_m > self._reach_m)
        doublings = np.ceil(np.log2(np.maximum(wanted_m[nodes] / _FIRST_REACH_M, 1.0)))
        for doubling in np.unique(doublings):
            reach_m = _FIRST_REACH_M * 2**doubling
            some = nodes[doublings == doubling]
            some = some[np.argsort(self._number[some])]
            for start in range(0, len(some), _ROWS_AT_ONCE):
                rows = some[start : start + _ROWS_AT_ONCE]
                if self._add(rows, reach_m):
                    self._reach_m[rows] = reach_m

    def _clear(self) -> None:
        """Empty the table. The first page has no routes, and stands for all pairs of blocks without a page."""
        self._page_start[:] = 0
        self._used = self._page_size
        self._reach_m[:] = -1.0

    def _add(self, rows: Positions, reach_m: float) -> bool:
        """Fill rows of the table as far as `reach_m`; return whether there was room.

        A full table is emptied: what is asked for next is probably near what was asked for last.
        """
        nearby = distances_within(self._graph, rows, limit=reach_m, matrix=self._matrix)
        sources = np.repeat(nearby.sources, np.diff(nearby.offsets))
        blocks = (self._number[sources] >> self._bits) * self._blocks + (self._number[nearby.targets] >> self._bits)
        new = np.unique(blocks[self._page_start[blocks] == 0])
        if self._used + len(new) * self._page_size > len(self._lengths):
            self._clear()
            new = np.unique(blocks)
        end = self._used + len(new) * self._page_size
        if end > len(self._lengths):
            return False
        self._page_start[new] = np.arange(self._used, end, self._page_size)
        self._lengths[self._used : end] = np.inf
        self._used = end
        at = self._positions(sources, nearby.targets)
        self._lengths[at], self._previous[at] = nearby.distances, nearby.previous
        return True

    def _search(self, sources: _Nodes, limit_m: Floats) -> Iterator[tuple[Positions, Positions, Floats, Indices]]:
        """Search from all sources, some at a time; yield the pairs, their rows, distances and previous nodes."""
        unique, which = np.unique(sources, return_inverse=True)
        limit = np.zeros(len(unique))
        np.maximum.at(limit, which, limit_m)
        by_source = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_source], np.arange(len(unique) + 1))
        size = max(1, _SEARCH_BYTES // (12 * self._nodes))
        for start in range(0, len(unique), size):
            rows = slice(start, min(start + size, len(unique)))
            pairs, most = by_source[ends[rows.start] : ends[rows.stop]], limit[rows].max()
            distances, previous = dijkstra(self._matrix, indices=unique[rows], limit=most, return_predecessors=True)
            yield pairs, which[pairs] - start, distances, previous
