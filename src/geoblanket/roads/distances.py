"""Road distances: from some nodes to some nodes, by length or by time, in bounded memory.

Dijkstra's algorithm is SciPy's, one search per source. Of parallel edges the best one counts, self-loops do not
matter, edges of length zero are roads like any other, and what cannot be reached is infinitely far.

A matrix is never made by accident: `road_distances` refuses one that is larger than `memory_cap_bytes`, and
`road_distance_blocks` gives the rows of any matrix some at a time.

`distances_within` makes a sparse table of all nodes within a road distance of each of many nodes, with the ways there.
SciPy's search writes a row for all nodes of the graph, however near its limit. So sources that lie together are
searched together, on the part of the graph that any of them can reach within the limit: whatever lies on a way
within the limit is itself within the limit, so nothing is missed. The table costs memory only for what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._workers import count_workers, map_in_order
from geoblanket.errors import InputError, ParameterError
from geoblanket.roads.graph import RoadGraph

__all__ = [
    "NearbyNodes",
    "Weight",
    "best_edges",
    "check_nodes",
    "distances_within",
    "distances_within_blocks",
    "road_distance_blocks",
    "road_distances",
    "weight_matrix",
]

Weight = Literal["length", "time"]
"""`length`: metres along the road; `time`: seconds at free-flow speed."""

Distances = npt.NDArray[np.float64 | np.float32]

_MEMORY_CAP_BYTES = 1 << 30
_BLOCK_BYTES = 64 << 20
_SECONDS_PER_EDGE = 8e-8
"""What SciPy's search takes per edge of the graph (measured on Rome), to judge whether more processes pay."""
_BLOCK_SOURCES = 256  # searched on one subgraph
_BYTES_PER_PAIR = 16  # target, distance and previous node


@checked
def road_distances(
    graph: RoadGraph,
    sources: npt.ArrayLike,
    targets: npt.ArrayLike | None = None,
    *,
    weight: Weight = "length",
    reverse: bool = False,
    limit: float = math.inf,
    dtype: type[np.float64 | np.float32] = np.float64,
    workers: int | None = 1,
    memory_cap_bytes: int = _MEMORY_CAP_BYTES,
) -> Distances:
    """Return the road distances from `sources` to `targets`.

    Parameters
    ----------
    graph
        The roads.
    sources
        Node indices, or one node index.
    targets
        Node indices; None for all nodes.
    weight
        `length` for metres, `time` for seconds at free-flow speed.
    reverse
        Give the distances *to* the sources, from the targets.
    limit
        Do not search farther than this (metres or seconds); what lies beyond is infinitely far.
    dtype
        `np.float32` halves the memory and is right to a centimetre over 100 km.
    workers
        How many processes to use; None for as many as pay, which is one unless the work takes seconds.
    memory_cap_bytes
        The largest matrix to make.

    Returns
    -------
    distances
        Shape (sources, targets), or (targets,) if `sources` is one node. Infinite where there is no way.

    Raises
    ------
    ParameterError
        If the matrix would be larger than `memory_cap_bytes`.

    Examples
    --------
    >>> from geoblanket import RoadGraph, road_distances
    >>> graph = RoadGraph.load("city.roads")
    >>> road_distances(graph, [0, 1], [0, 1]).round()
    array([[ 0., 99.],
           [99.,  0.]])
    >>> road_distances(graph, 0, [1], weight="time").round()  # seconds
    array([7.])
    """
    one_source = np.ndim(sources) == 0
    rows = check_nodes(graph, np.atleast_1d(np.asarray(sources)), "sources")
    columns = None if targets is None else check_nodes(graph, targets, "targets")
    width = graph.node_count if columns is None else len(columns)
    _check_size(len(rows), width, np.dtype(dtype).itemsize, memory_cap_bytes)
    from_nodes, to_nodes, turned = rows, columns, False
    if columns is not None and 0 < len(columns) < len(rows):
        # A search costs the same from either end, so start from the side with fewer nodes.
        from_nodes, to_nodes, turned = columns, rows, True
    blocks = road_distance_blocks(
        graph,
        from_nodes,
        to_nodes,
        weight=weight,
        reverse=reverse != turned,
        limit=limit,
        dtype=dtype,
        workers=workers,
    )
    result: Distances = np.empty((len(rows), width), dtype)
    filled = result.T if turned else result
    done = 0
    for nodes, block in blocks:
        filled[done : done + len(nodes)] = block
        done += len(nodes)
    return result[0] if one_source else result


def road_distance_blocks(
    graph: RoadGraph,
    sources: npt.ArrayLike,
    targets: npt.ArrayLike | None = None,
    *,
    weight: Weight = "length",
    reverse: bool = False,
    limit: float = math.inf,
    dtype: type[np.float64 | np.float32] = np.float64,
    workers: int | None = 1,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[tuple[Indices, Distances]]:
    """Iterate over the rows of `road_distances` some at a time, in the order of `sources`.

    Parameters
    ----------
    graph, sources, targets, weight, reverse, limit, dtype, workers
        As in `road_distances`.
    block_bytes
        Memory for one block's search; with several workers, each needs as much and up to two finished blocks per
        worker wait to be taken.

    Returns
    -------
    blocks
        An iterator of (sources, distances): some of the sources, and their distances of shape (these sources, targets).
    """
    rows = check_nodes(graph, sources, "sources")
    columns = None if targets is None else check_nodes(graph, targets, "targets")
    check_limit(limit)
    matrix = weight_matrix(graph, weight=weight, reverse=reverse)
    # How long a bounded search takes cannot be told beforehand; it is mostly too short for more processes.
    seconds = 0.0 if math.isfinite(limit) else len(rows) * graph.edge_count * _SECONDS_PER_EDGE
    count = count_workers(workers, tasks=len(rows), seconds=seconds)
    size = max(1, min(block_bytes // (8 * max(1, graph.node_count)), -(-len(rows) // count)))
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    tasks = [(matrix, block, columns, limit, dtype) for block in blocks]
    return zip(blocks, map_in_order(_search_block, tasks, workers=count), strict=True)


def weight_matrix(
    graph: RoadGraph, *, weight: Weight = "length", reverse: bool = False
) -> csr_array[np.float64, tuple[int, int]]:
    """Return the graph as a sparse matrix for SciPy's graph functions: entry (i, j) is the best edge from i to j.

    Edges of weight zero are explicit zeros, which SciPy's shortest paths take as edges. Self-loops are left out.

    Parameters
    ----------
    weight
        `length` (metres) or `time` (seconds).
    reverse
        Turn every edge round.
    """
    if weight not in ("length", "time"):
        raise ParameterError(f"The weight must be 'length' or 'time'. Got {weight!r} instead.")
    values = graph.length_m if weight == "length" else graph.time_s
    wrong = ~(values >= 0)
    if wrong.any():
        raise InputError(
            f"the road graph has {int(wrong.sum())} edges whose {weight} is negative or not a number",
            hint="Import the roads again",
        )
    tails, heads = (graph.targets, graph.sources) if reverse else (graph.sources, graph.targets)
    return best_edges(tails, heads, values, graph.node_count)


def best_edges(tails: Indices, heads: Indices, values: Floats, nodes: int) -> csr_array[np.float64, tuple[int, int]]:
    """Return a sparse matrix with the least value of the edges from each tail to each head, self-loops left out."""
    between = np.flatnonzero(tails != heads)
    ends = tails[between].astype(np.int64) * nodes + heads[between]
    order = np.argsort(ends, kind="stable")
    pairs, first = np.unique(ends[order], return_index=True)
    # SciPy's own constructors would add parallel edges up.
    best = np.minimum.reduceat(values[between[order]], first) if len(first) else np.empty(0)
    rows, columns = np.divmod(pairs, max(1, nodes))
    offsets = np.searchsorted(rows, np.arange(nodes + 1)).astype(np.int32)
    return csr_array((best, columns.astype(np.int32), offsets), shape=(nodes, nodes))


def _search_block(
    matrix: csr_array[np.float64, tuple[int, int]],
    sources: Indices,
    targets: Indices | None,
    limit: float,
    dtype: type[np.float64 | np.float32],
) -> Distances:
    distances = dijkstra(matrix, indices=sources, limit=limit)
    chosen = distances if targets is None else distances[:, targets]
    return chosen.astype(dtype, copy=False)


def check_nodes(graph: RoadGraph, nodes: npt.ArrayLike, name: str) -> Indices:
    """Return node indices as an array, or raise ParameterError if they are not indices of the graph's nodes."""
    nodes = np.asarray(nodes)
    if nodes.ndim != 1 or (len(nodes) and not np.issubdtype(nodes.dtype, np.integer)):
        raise ParameterError(
            f"The {name} must be a one-dimensional array of node indices. "
            f"Got shape {nodes.shape} and type {nodes.dtype} instead."
        )
    indices = nodes.astype(np.int64)
    if len(indices) and not (indices.min() >= 0 and indices.max() < graph.node_count):
        raise ParameterError(
            f"The {name} must be node indices from 0 to {graph.node_count - 1}. "
            f"Got values from {indices.min()} to {indices.max()} instead."
        )
    return indices.astype(np.int32)


def check_limit(limit: float) -> None:
    """Raise ParameterError unless a search limit makes sense."""
    if not limit >= 0:
        raise ParameterError(f"The limit must be zero or more. Got {limit} instead.")


def _check_size(rows: int, columns: int, item_bytes: int, cap_bytes: int) -> None:
    needed = rows * columns * item_bytes
    if needed > cap_bytes:
        raise ParameterError(
            f"The distance matrix of {rows:,} × {columns:,} nodes needs {needed / 1e9:.1f} GB, more than the cap of "
            f"{cap_bytes / 1e9:.1f} GB. Take fewer nodes, work in blocks with road_distance_blocks, or raise "
            f"memory_cap_bytes."
        )


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
    return _nearby_blocks(graph, matrix, rows, limit, block_bytes)


def _nearby_blocks(
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
            yield where, _nearby_in_part(part, nodes, rows[where], limit)


def _nearby_in_part(
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
