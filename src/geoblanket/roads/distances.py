"""Road distances between nodes, by length or by time, in bounded memory.

Dijkstra's algorithm is SciPy's, one search per source. The best of parallel edges counts, self-loops are ignored, edges
of length zero are roads like any other, and a node that cannot be reached is infinitely far.

`road_distances` refuses to make a matrix larger than `memory_cap_bytes`.

`distances_within` makes a sparse table of all nodes within a road distance of each source, with the routes. SciPy's
search writes a row for all nodes of the graph, however near its limit is. So sources that lie together are searched
together, on the part of the graph within the limit of any of them. Every node on a route within the limit is itself
within the limit, so nothing is missed. The table takes memory only for its entries.
"""

from __future__ import annotations

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

Weight = Literal["length", "time"]
"""`length`: metres along the road; `time`: seconds at free-flow speed."""

Matrix = csr_array[np.float64, tuple[int, int]]

_MEMORY_CAP_BYTES = 1 << 30
_BLOCK_BYTES = 64 << 20
_SECONDS_PER_EDGE = 8e-8
"""Time of SciPy's search per edge of the graph (measured on Rome), to decide whether more processes pay."""
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
    workers: int | None = 1,
    memory_cap_bytes: int = _MEMORY_CAP_BYTES,
) -> Floats:
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
        Return the distances from the targets *to* the sources.
    workers
        Number of processes; None: as many as pay, which is one unless the work takes seconds.
    memory_cap_bytes
        The largest matrix allowed, bytes.

    Returns
    -------
    distances
        Shape (sources, targets), or (targets,) if `sources` is one node; infinite where there is no route.

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
    _check_size(len(rows), width, memory_cap_bytes)
    from_nodes, to_nodes, turned = rows, columns, False
    if columns is not None and 0 < len(columns) < len(rows):
        # A search costs the same from either end, so it starts from the side with fewer nodes.
        from_nodes, to_nodes, turned = columns, rows, True
    matrix = weight_matrix(graph, weight=weight, reverse=reverse != turned)
    # Blocks of sources bound the memory of SciPy's full rows, and are the tasks of the processes.
    seconds = len(from_nodes) * graph.edge_count * _SECONDS_PER_EDGE
    count = count_workers(workers, tasks=len(from_nodes), seconds=seconds)
    size = max(1, min(_BLOCK_BYTES // (8 * max(1, graph.node_count)), -(-len(from_nodes) // count)))
    starts = range(0, len(from_nodes), size)
    tasks = [(matrix, from_nodes[start : start + size], to_nodes) for start in starts]
    result: Floats = np.empty((len(rows), width))
    filled = result.T if turned else result
    for start, block in zip(starts, map_in_order(_search_block, tasks, workers=count), strict=True):
        filled[start : start + size] = block
    return result[0] if one_source else result


def weight_matrix(graph: RoadGraph, *, weight: Weight = "length", reverse: bool = False) -> Matrix:
    """Return the graph as a sparse matrix for SciPy's graph functions: entry (i, j) is the best edge from i to j.

    Edges of weight zero are explicit zeros, which SciPy's shortest paths take as edges. Self-loops are left out.

    Parameters
    ----------
    weight
        `length` (metres) or `time` (seconds).
    reverse
        Reverse every edge.
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


def best_edges(tails: Indices, heads: Indices, values: Floats, nodes: int) -> Matrix:
    """Return a sparse matrix with the least value of the edges from each tail to each head, self-loops left out."""
    between = np.flatnonzero(tails != heads)
    ends = tails[between].astype(np.int64) * nodes + heads[between]
    order = np.argsort(ends, kind="stable")
    pairs, first = np.unique(ends[order], return_index=True)
    # Built by hand, because SciPy's constructors would add up parallel edges.
    best = np.minimum.reduceat(values[between[order]], first) if len(first) else np.empty(0)
    rows, columns = np.divmod(pairs, max(1, nodes))
    offsets = np.searchsorted(rows, np.arange(nodes + 1)).astype(np.int32)
    return csr_array((best, columns.astype(np.int32), offsets), shape=(nodes, nodes))


def _search_block(matrix: Matrix, sources: Indices, targets: Indices | None) -> Floats:
    distances: Floats = dijkstra(matrix, indices=sources)
    return distances if targets is None else distances[:, targets]


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


def _check_size(rows: int, columns: int, cap_bytes: int) -> None:
    needed = 8 * rows * columns
    if needed > cap_bytes:
        raise ParameterError(
            f"The distance matrix of {rows:,} × {columns:,} nodes needs {needed / 1e9:.1f} GB, more than the cap of "
            f"{cap_bytes / 1e9:.1f} GB. Take fewer nodes, or raise memory_cap_bytes."
        )


@dataclass(frozen=True, eq=False)
class NearbyNodes:
    """The nodes within a road distance of some nodes, in compressed rows.

    The nodes within the limit of `sources[i]`, including itself, are `targets[offsets[i]:offsets[i + 1]]`, ascending.
    """

    sources: Indices
    """The node of each row, shape (S,)."""
    offsets: Ints
    """Where each row starts, shape (S + 1,)."""
    targets: Indices
    """The nodes within the limit, shape (T,)."""
    distances: Floats
    """Their distances, metres, shape (T,)."""
    previous: Indices
    """The node before each target on a shortest route from the row's source; -1 at the source itself."""

    def path(self, row: int, target: int) -> Indices:
        """Return the nodes of a shortest route from a row's source to `target`; empty if it is beyond the limit."""
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
    graph: RoadGraph, sources: npt.ArrayLike, *, limit: float, matrix: Matrix | None = None
) -> NearbyNodes:
    """Return every node within `limit` metres of each source, with its distance and its route.

    Parameters
    ----------
    graph
        The roads.
    sources
        Node indices; the rows of the table are in their order.
    limit
        The largest distance, metres.
    matrix
        The graph's `weight_matrix`, if there is one already.

    Raises
    ------
    ParameterError
        If the table grows larger than a gigabyte.
    """
    rows = check_nodes(graph, sources, "sources")
    if not limit >= 0:
        raise ParameterError(f"The limit must be zero or more. Got {limit} instead.")
    blocks: list[tuple[Ints, NearbyNodes]] = []
    pairs = 0
    for block in _nearby_blocks(graph, rows, limit, weight_matrix(graph) if matrix is None else matrix):
        pairs += len(block[1].targets)
        if pairs * _BYTES_PER_PAIR > _MEMORY_CAP_BYTES:
            raise ParameterError(
                f"The table of nodes within {limit:g} m of {len(rows):,} nodes needs more than the cap of "
                f"{_MEMORY_CAP_BYTES / 1e9:.1f} GB. Take a smaller limit or fewer nodes."
            )
        blocks.append(block)
    # Blocks came in the order of space: put their rows back in the order of the sources.
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


def _nearby_blocks(graph: RoadGraph, rows: Indices, limit: float, matrix: Matrix) -> Iterator[tuple[Ints, NearbyNodes]]:
    """Yield positions in `rows` and the nodes near them, for groups of sources that lie together."""
    if not len(rows):
        return
    # A k-d tree lists its points leaf by leaf: neighbours in the list are neighbours in space.
    together = KDTree(np.column_stack([graph.lat[rows], graph.lon[rows]])).indices.astype(np.int64)
    for start in range(0, len(rows), _BLOCK_SOURCES):
        block = together[start : start + _BLOCK_SOURCES]
        # The subgraph that any source of the block reaches within the limit.
        reach = dijkstra(matrix, indices=np.unique(rows[block]), limit=limit, min_only=True)
        nodes = np.flatnonzero(np.isfinite(reach)).astype(np.int32)
        part = matrix[nodes][:, nodes]
        size = max(1, _BLOCK_BYTES // (12 * len(nodes)))
        for first in range(0, len(block), size):
            where = block[first : first + size]
            yield where, _nearby_in_part(part, nodes, rows[where], limit)


def _nearby_in_part(part: Matrix, nodes: Indices, sources: Indices, limit: float) -> NearbyNodes:
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
