from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csgraph

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.lab.city.model import City
from geoblanket.lab.city.plan import make_plan
from geoblanket.lab.city.streets import build_streets
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph


def neighbours(graph: RoadGraph) -> np.ndarray:
    pairs = {(min(u, v), max(u, v)) for u, v in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)}
    return np.bincount(np.array(sorted(pairs)).ravel(), minlength=graph.node_count)


@pytest.mark.parametrize(("size", "nodes"), [("small", 500), ("medium", 5_000)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_city_has_the_size_and_the_features_of_one(size: str, nodes: int, seed: int) -> None:
    streets = build_streets(make_plan(size, seed))
    graph = streets.graph
    assert 0.9 * nodes <= graph.node_count <= 1.1 * nodes
    count = neighbours(graph)
    assert not (count == 2).any(), "a node with two neighbours would be contracted by every reader"
    assert 0.04 < (count == 1).mean() < 0.13
    assert 0.2 < streets.one_way.mean() < 0.4
    assert {"trunk", "primary", "secondary", "tertiary", "residential"} <= {
        ROAD_CLASSES[number] for number in np.unique(graph.road_class)
    }
    assert 0.2 < (np.diff(graph.shape_offsets) > 0).mean() < 0.8


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_every_seed_gives_a_connected_city_of_junctions_and_dead_ends(seed: int) -> None:
    graph = build_streets(make_plan("small", seed)).graph
    assert 400 < graph.node_count < 600
    matrix = sparse.csr_array((np.ones(graph.edge_count), graph.targets, graph.offsets))
    assert csgraph.connected_components(matrix, directed=True, connection="strong")[0] == 1
    assert 2 not in neighbours(graph)


@pytest.mark.slow
def test_large_city_has_a_motorway() -> None:
    graph = build_streets(make_plan("large", 0)).graph
    assert 0.9 * 45_000 <= graph.node_count <= 1.1 * 45_000
    assert ROAD_CLASSES.index("motorway") in graph.road_class


def test_every_node_can_be_reached_from_every_other(small_city: City, medium_city: City) -> None:
    for city in (small_city, medium_city):
        graph = city.graph
        matrix = sparse.csr_array((np.ones(graph.edge_count), graph.targets, graph.offsets))
        parts, _ = csgraph.connected_components(matrix, directed=True, connection="strong")
        assert parts == 1


def test_no_loops_and_no_parallel_edges(medium_city: City) -> None:
    graph = medium_city.graph
    pairs = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(source != target for source, target in pairs)


def test_one_way_streets_are_those_without_a_way_back(small_city: City) -> None:
    graph = small_city.graph
    pairs = set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    expected = [(v, u) not in pairs for u, v in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)]
    assert small_city.streets.one_way.tolist() == expected


def test_lengths_are_those_of_the_lines(small_city: City) -> None:
    graph = small_city.graph
    for edge in range(graph.edge_count):
        lat, lon = graph.edge_line(edge)
        assert graph.length_m[edge] == pytest.approx(haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum(), rel=1e-9)


def test_only_few_bridges_cross_the_river(medium_city: City) -> None:
    river = medium_city.plan.river
    points, graph, bridge = medium_city.streets.points, medium_city.graph, medium_city.streets.bridge
    # Which bank a node is on: the river runs from west to east.
    north = points[:, 1] > np.interp(points[:, 0], river[:, 0], river[:, 1])
    crosses = north[graph.sources] != north[graph.targets]
    assert bridge[crosses].all()
    assert 4 <= bridge.sum() / 2 <= 12


def test_roundabouts_are_driven_counter_clockwise(medium_city: City) -> None:
    streets, graph = medium_city.streets, medium_city.graph
    circle = np.flatnonzero(streets.roundabout)
    assert len(circle) > 40
    assert streets.one_way[circle].all()
    for street in np.unique(streets.street[circle]):
        edges = circle[streets.street[circle] == street]
        assert sorted(graph.sources[edges]) == sorted(graph.targets[edges])
        start, end = streets.points[graph.sources[edges]], streets.points[graph.targets[edges]]
        area = (start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]).sum() / 2
        assert 200 < area < np.pi * 23**2


def test_same_seed_same_city_other_seed_other_city() -> None:
    first, again, other = (build_streets(make_plan("small", seed)).graph.identity for seed in (4, 4, 5))
    assert first == again != other


def test_unknown_size_is_named() -> None:
    with pytest.raises(ParameterError, match=r"small, medium, large.*'huge'"):
        make_plan("huge", 0)
