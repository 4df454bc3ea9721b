from __future__ import annotations

import math
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._geodesy import haversine_m
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from geoblanket.roads.simplification import contract

TWO_WAY, ONE_WAY = True, False

Road = tuple[list[int], bool, int, float]
"""Nodes, whether it is open both ways, class, speed in m/s."""


def network(roads: list[Road], *, node_count: int = 12) -> RoadGraph:
    """Build an uncontracted graph; where roads run over each other the first one counts."""
    generator = np.random.default_rng(7)
    lat, lon = 41 + generator.random(node_count) / 50, -8 + generator.random(node_count) / 50
    edges: dict[tuple[int, int], tuple[int, float]] = {}
    for nodes, both_ways, road_class, speed in roads:
        for start, end in pairwise(nodes):
            if start != end:
                edges.setdefault((start, end), (road_class, speed))
                if both_ways:
                    edges.setdefault((end, start), (road_class, speed))
    ends = np.array(list(edges), np.int64).reshape(-1, 2)
    return RoadGraph.from_edges(
        Nodes(ids=np.arange(node_count) + 1000, lat=lat, lon=lon),
        Edges(
            sources=ends[:, 0],
            targets=ends[:, 1],
            length_m=haversine_m(lat[ends[:, 0]], lon[ends[:, 0]], lat[ends[:, 1]], lon[ends[:, 1]]),
            speed_m_s=[speed for _, speed in edges.values()],
            road_class=[road_class for road_class, _ in edges.values()],
        ),
        length_model="sphere",
    )


def distances(graph: RoadGraph, weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[int, dict[int, float]]:
    oracle = nx.MultiDiGraph()
    oracle.add_nodes_from(graph.node_ids.tolist())
    for edge, weight in enumerate(weights):
        oracle.add_edge(
            int(graph.node_ids[graph.sources[edge]]), int(graph.node_ids[graph.targets[edge]]), weight=float(weight)
        )
    return dict(nx.all_pairs_dijkstra_path_length(oracle))


roads_strategy = st.lists(
    st.tuples(
        st.lists(st.integers(0, 11), min_size=2, max_size=7),
        st.booleans(),
        st.sampled_from([4, 4, 4, 6]),
        st.sampled_from([5.0, 10.0]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(roads_strategy)
def test_contraction_keeps_every_distance_time_and_metre(roads: list[Road]) -> None:
    before = network(roads)
    after = contract(before)
    kept = after.node_ids.tolist()
    for old_weights, new_weights in ((before.length_m, after.length_m), (before.time_s, after.time_s)):
        old, new = distances(before, old_weights), distances(after, new_weights)
        for source in kept:
            assert {node for node in old[source] if node in new} == new[source].keys()
            assert all(math.isclose(new[source][node], old[source][node], abs_tol=1e-6) for node in new[source])
    assert after.length_m.sum() == pytest.approx(before.length_m.sum())
    assert after.time_s.sum() == pytest.approx(before.time_s.sum())
    for number in (4, 6):
        assert after.length_m[after.road_class == number].sum() == pytest.approx(
            before.length_m[before.road_class == number].sum()
        )


@settings(max_examples=100, deadline=None)
@given(roads_strategy)
def test_contraction_leaves_no_bend_no_loop_and_true_shapes(roads: list[Road]) -> None:
    before = network(roads)
    after = contract(before)
    assert not (after.sources == after.targets).any()
    for edge in range(after.edge_count):
        lat, lon = after.edge_line(edge)
        assert haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum() == pytest.approx(after.length_m[edge])
    assert contract(after).identity == after.identity
    assert after.edge_count <= before.edge_count


def test_a_two_way_road_becomes_one_edge_each_way() -> None:
    graph = contract(network([([0, 1, 2, 3], TWO_WAY, 4, 10.0)], node_count=4))
    assert graph.node_ids.tolist() == [1000, 1003]
    assert graph.edge_count == 2
    lat, _ = graph.edge_line(0)
    back, _ = graph.edge_line(1)
    np.testing.assert_array_equal(lat, back[::-1])
    assert len(lat) == 4


def test_merged_speed_keeps_the_time() -> None:
    before = network([([0, 1], ONE_WAY, 4, 5.0), ([1, 2], ONE_WAY, 4, 10.0)], node_count=3)
    after = contract(before)
    assert after.edge_count == 1
    assert after.time_s[0] == pytest.approx(before.time_s.sum())
    assert 5.0 < after.speed_m_s[0] < 10.0


def test_a_constant_speed_stays_exactly() -> None:
    after = contract(network([([0, 1, 2, 3, 4], ONE_WAY, 4, 50 / 3.6)], node_count=5))
    assert after.speed_m_s.tolist() == [50 / 3.6]


def test_nodes_where_the_class_or_the_direction_changes_stay() -> None:
    by_class = contract(network([([0, 1], TWO_WAY, 4, 5.0), ([1, 2], TWO_WAY, 6, 5.0)], node_count=3))
    assert by_class.node_ids.tolist() == [1000, 1001, 1002]
    by_direction = contract(network([([0, 1], TWO_WAY, 4, 5.0), ([1, 2], ONE_WAY, 4, 5.0)], node_count=3))
    assert by_direction.node_ids.tolist() == [1000, 1001, 1002]


def test_a_dead_end_stays() -> None:
    graph = contract(network([([0, 1, 2], TWO_WAY, 4, 5.0), ([0, 3], TWO_WAY, 4, 5.0)], node_count=4))
    assert graph.node_ids.tolist() == [1002, 1003]


@pytest.mark.parametrize("both_ways", [TWO_WAY, ONE_WAY])
def test_a_loop_at_a_junction_keeps_its_far_end(both_ways: bool) -> None:
    roads = [([0, 1, 2, 3, 4, 0], both_ways, 4, 5.0), ([5, 0], TWO_WAY, 4, 5.0)]
    before = network(roads, node_count=6)
    after = contract(before)
    far = max(
        range(1, 5), key=lambda node: haversine_m(before.lat[node], before.lon[node], before.lat[0], before.lon[0])
    )
    assert sorted(after.node_ids.tolist()) == sorted([1000, 1005, 1000 + far])
    assert after.edge_count == (6 if both_ways else 4)


@pytest.mark.parametrize("both_ways", [TWO_WAY, ONE_WAY])
def test_a_ring_without_junctions_keeps_two_nodes(both_ways: bool) -> None:
    graph = contract(network([([0, 1, 2, 3, 4, 0], both_ways, 4, 5.0)], node_count=5))
    assert graph.node_count == 2
    assert graph.edge_count == (4 if both_ways else 2)


def test_a_graph_without_edges_stays_as_it_is() -> None:
    graph = network([([0, 0], TWO_WAY, 4, 5.0)], node_count=2)
    assert contract(graph).identity == graph.identity
