"""The part of a road network where every place can be reached from every other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from geoblanket._arrays import Bools
from geoblanket.roads.graph import RoadGraph

__all__ = ["LargestPart", "in_largest_part", "largest_part"]


class LargestPart(NamedTuple):
    """The largest strongly connected part of a graph, and what lies outside it."""

    graph: RoadGraph
    dropped_nodes: int
    dropped_edges: int
    dropped_km: float


def largest_part(graph: RoadGraph) -> LargestPart:
    """Keep the largest strongly connected part (by nodes; of equals the one with the first node)."""
    kept = graph.keep_nodes(in_largest_part(graph))
    return LargestPart(
        kept,
        dropped_nodes=graph.node_count - kept.node_count,
        dropped_edges=graph.edge_count - kept.edge_count,
        dropped_km=(float(graph.length_m.sum()) - float(kept.length_m.sum())) / 1000,
    )


def in_largest_part(graph: RoadGraph) -> Bools:
    """Return which nodes lie in the largest strongly connected part, shape (N,)."""
    adjacency = coo_array((np.ones(graph.edge_count), (graph.sources, graph.targets)), shape=(graph.node_count,) * 2)
    _, part = connected_components(adjacency, directed=True, connection="strong")
    sizes = np.bincount(part)
    inside: Bools = part == part[np.argmax(sizes[part])]
    return inside
