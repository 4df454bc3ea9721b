"""Small roads whose losses are known, and all road distances by networkx."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import networkx as nx
import numpy as np

from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from tests.roads.graphs import grid_graph, to_multigraph

ONE_WAY_RING = [(0, 1, 1000.0), (1, 2, 2000.0), (2, 0, 4000.0)]
"""A ring 0 → 1 → 2 → 0 of one-way roads, metres: the way there is not as long as the way back."""


def roads(edges: Sequence[tuple[int, int, float]], *, speed_m_s: float = 10.0) -> RoadGraph:
    """One-way roads (from, to, metres); node `i` has the id `100 + i`."""
    sources, targets, length = (np.array(column) for column in zip(*edges, strict=True))
    nodes = int(max(sources.max(), targets.max())) + 1
    return RoadGraph.from_edges(
        Nodes(ids=100 + np.arange(nodes), lat=41.0 + 1e-3 * np.arange(nodes), lon=np.full(nodes, -8.6)),
        Edges(
            sources=sources,
            targets=targets,
            length_m=length,
            speed_m_s=np.full(len(edges), speed_m_s),
            road_class=np.zeros(len(edges)),
        ),
        length_model="given",
    )


def random_roads(nodes: int, edges: int, *, seed: int = 0, whole_metres: bool = False) -> RoadGraph:
    """A ring of one-way roads, so that every node can be reached, and one-way roads at random."""
    rng = np.random.default_rng(seed)
    ring = [(i, (i + 1) % nodes) for i in range(nodes)]
    ends = [*ring, *rng.integers(0, nodes, (edges, 2)).tolist()]
    length = rng.uniform(100, 3000, len(ends))
    if whole_metres:
        length = np.ceil(length / 100) * 100
    return roads([(one, other, float(metres)) for (one, other), metres in zip(ends, length, strict=True)])


def uneven_grid() -> RoadGraph:
    """12 × 12 junctions, with roads of 60 to 300 m whose two directions differ."""
    graph = grid_graph(12, 12)
    return dataclasses.replace(graph, length_m=np.random.default_rng(0).uniform(60, 300, graph.edge_count))


def ways(graph: RoadGraph, weight: str = "length") -> np.ndarray:
    """The way from each node (row) to each node (column) by networkx, metres or seconds."""
    result = np.full((graph.node_count,) * 2, np.inf)
    for source, row in nx.all_pairs_dijkstra_path_length(to_multigraph(graph), weight=weight):
        for target, distance in row.items():
            result[source, target] = distance
    return result
