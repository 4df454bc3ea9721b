"""All nodes within a road distance of each of many nodes, with the ways there: a sparse table.

SciPy's search writes a row for all nodes of the graph, however near its limit. So sources that lie together are
searched together, on the part of the graph that any of them can reach within the limit: whatever lies on a way
within the limit is itself within the limit, so nothing is missed. The table costs memory only for what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.errors import ParameterError
from geoblanket.roads.distances import Weight, check_limit, check_nodes, weight_matrix
from geoblanket.roads.graph import RoadGraph

__all__ = ["NearbyNodes", "distances_within", "distances_within_blocks"]

_MEMORY_CAP_BYTES = 1 << 30
_BLOCK_BYTES = 64 << 20
_BLOCK_SOURCES = 256  # searched on one subgraph
_BYTES_PER_PAIR = 16  # target, distance and previous node


@dataclass(frozen=True, eq=False)
class NearbyNodes:
    """What lies within a road distance of some nodes, in compressed rows.

    The nodes within the limit of `sources[i]`, itself among them, are `targets[offsets[i]:offsets[i + 1]]`,
    ascending.
    """

    sources: Indices
    """The node of each row, shape (S,)."""
    offsets: Ints
    """Where each row starts, shape (S + 1,)."""
    targets: Indices
    """The nodes within the limit, shape (T,)."""
    distances: Floats
    """Their distances, metres or seconds, shape (T,)."""
    previous: Indices
    """The node before each target on a shortest way from the row's source; -1 at the source itself."""

    def path(self, row: int, target: int) -> Indices:
        """Return the nodes of a shortest way from a row's source to `target`; empty if it is not within the limit.

        If the table was made with `reverse`, the nodes still start at the source: driving goes the other way.
        """
        start, stop = self.offsets[row], self.offsets[row + 1]
        within = self.targets[start:stop]
        path: list[int] = []
        node = target
        while node >= 0:
            position = int(np.searchsorted(within, node))
            if position == len(within) or within[position] != node:
                return np.empty(0, np.int32)
            path.append(node)
            node = int(self.previous[start + position])
        return np.array(path[::-1], np.int32)


def distances_within(
    graph: RoadGraph,
    sources: npt.ArrayLike,
    *,
    limit: float,
    weight: Weight = "length",
    reverse: bool = False,
    memory_cap_bytes: int = _MEMORY_CAP_BYTES,
) -> NearbyNodes:
    """Return every node within `limit` of each source, with its distance and the way there.

    Parameters
    ----------
    graph
        The roads.
    sources
        Node indices; the rows of the table are in their order.
    limit
        The largest distance, metres or seconds.
    weight
        `length` for metres, `time` for seconds at free-flow speed.
    reverse
        Take the distances *to* the sources.
    memory_cap_bytes
        The largest table to make (16 bytes for each pair of nodes).

    Raises
    ------
    ParameterError
        If the table grows larger than `memory_cap_bytes`.
    """
    rows = check_nodes(graph, sources, "sources")
    blocks: list[tuple[Ints, NearbyNodes]] = []
    pairs = 0
    for block in distances_within_blocks(graph, rows, limit=limit, weight=weight, reverse=reverse):
        pairs += len(block[1].targets)
        if pairs * _BYTES_PER_PAIR > memory_cap_bytes:
            raise ParameterError(
                f"The table of nodes within {limit:g} of {len(rows):,} nodes needs more than the cap of "
                f"{memory_cap_bytes / 1e9:.1f} GB. Take a smaller limit or fewer nodes, work in blocks with "
                f"distances_within_blocks, or raise memory_cap_bytes."
            )
        blocks.append(block)
    lengths = np.zeros(len(rows), np.int64)
    for where, block_rows in blocks:
        lengths[where] = np.diff(block_rows.offsets)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    targets, distances, previous = np.empty(pairs, np.int32), np.empty(pairs), np.empty(pairs, np.int32)
    for where, block_rows in blocks:
        counts = np.diff(block_rows.offsets)
        at = np.arange(len(block_rows.targets)) + np.repeat(offsets[where] - block_rows.offsets[:-1], counts)
        targets[at], distances[at], previous[at] = block_rows.targets, block_rows.distances, block_rows.previous
    return NearbyNodes(rows, offsets, targets, distances, previous)


def distances_within_blocks(
    graph: RoadGraph,
    sources: npt.ArrayLike,
    *,
    limit: float,
    weight: Weight = "length",
    reverse: bool = False,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[tuple[Ints, NearbyNodes]]:
    """Iterate over the rows of `distances_within`, sources that lie together at a time.

    Parameters
    ----------
    graph, sources, limit, weight, reverse
        As in `distances_within`.
    block_bytes
        Memory for one search.

    Returns
    -------
    blocks
        An iterator of (positions in `sources`, their rows). Every position comes once.
    """
    rows = check_nodes(graph, sources, "sources")
    check_limit(limit)
    matrix = weight_matrix(graph, weight=weight, reverse=reverse)
    return _search_blocks(graph, matrix, rows, limit, block_bytes)


def _search_blocks(
    graph: RoadGraph,
    matrix: csr_array[np.float64, tuple[int, int]],
    rows: Indices,
    limit: float,
    block_bytes: int,
) -> Iterator[tuple[Ints, NearbyNodes]]:
    if not len(rows):
        return
    # The leaves of a k-d tree, one after the other, are neighbours in space.
    together = KDTree(np.column_stack([graph.lat[rows], graph.lon[rows]])).indices.astype(np.int64)
    for start in range(0, len(rows), _BLOCK_SOURCES):
        block = together[start : start + _BLOCK_SOURCES]
        reach = dijkstra(matrix, indices=np.unique(rows[block]), limit=limit, min_only=True)
        nodes = np.flatnonzero(np.isfinite(reach)).astype(np.int32)
        part = matrix[nodes][:, nodes]
        size = max(1, block_bytes // (12 * len(nodes)))
        for first in range(0, len(block), size):
            where = block[first : first + size]
            yield where, _search_part(part, nodes, rows[where], limit)


def _search_part(
    part: csr_array[np.float64, tuple[int, int]], nodes: Indices, sources: Indices, limit: float
) -> NearbyNodes:
    """Search on the subgraph of `nodes` (ascending) from some of them."""
    distances, previous = dijkstra(part, indices=np.searchsorted(nodes, sources), limit=limit, return_predecessors=True)
    row, target = np.nonzero(np.isfinite(distances))
    before = previous[row, target]
    return NearbyNodes(
        sources=sources,
        offsets=np.searchsorted(row, np.arange(len(sources) + 1)).astype(np.int64),
        targets=nodes[target],
        distances=distances[row, target],
        previous=np.where(before < 0, np.int32(-1), nodes[np.maximum(before, 0)]),
    )
