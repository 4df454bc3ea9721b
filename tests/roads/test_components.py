from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from geoblanket.roads.simplification import in_largest_part


def graph_of(edges: list[tuple[int, int]], *, node_count: int) -> RoadGraph:
    return RoadGraph.from_edges(
        Nodes(ids=np.arange(node_count), lat=np.linspace(41, 41.1, node_count), lon=np.full(node_count, -8.6)),
        Edges(
            sources=[source for source, _ in edges],
            targets=[target for _, target in edges],
            length_m=np.full(len(edges), 250.0),
            speed_m_s=np.full(len(edges), 10.0),
            road_class=np.full(len(edges), 6),
        ),
        length_model="given",
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_agrees_with_networkx(edges: list[tuple[int, int]]) -> None:
    oracle = nx.DiGraph()
    oracle.add_nodes_from(range(10))
    oracle.add_edges_from(edges)
    parts = sorted(nx.strongly_connected_components(oracle), key=lambda part: (-len(part), min(part)))
    assert set(np.flatnonzero(in_largest_part(graph_of(edges, node_count=10))).tolist()) == parts[0]


def test_many_parallel_edges_do_not_cancel_out() -> None:
    edges = [(0, 1)] * 256 + [(1, 0)] * 256
    assert in_largest_part(graph_of(edges, node_count=3)).tolist() == [True, True, False]
