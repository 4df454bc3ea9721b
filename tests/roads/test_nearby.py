"""The table of nodes within a road distance, against the full matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.roads import distances
from geoblanket.roads.distances import NearbyNodes, distances_within, road_distances
from geoblanket.roads.graph import RoadGraph
from tests.roads.graphs import grid_graph, road_graphs, to_multigraph


def as_matrix(table: NearbyNodes, nodes: int) -> np.ndarray:
    result = np.full((len(table.sources), nodes), math.inf)
    rows = np.repeat(np.arange(len(table.sources)), np.diff(table.offsets))
    result[rows, table.targets] = table.distances
    return result


@given(road_graphs(), st.sampled_from([0.0, 1.0, 3.0, 8.0, 1e9]), st.data())
def test_the_table_is_the_matrix_within_the_limit(graph: RoadGraph, limit: float, data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(0, graph.node_count - 1), max_size=15))
    table = distances_within(graph, sources, limit=limit)
    assert table.sources.tolist() == sources
    matrix = road_distances(graph, sources)
    truth = np.where(matrix <= limit, matrix, math.inf)
    np.testing.assert_allclose(as_matrix(table, graph.node_count), truth)
    for start, stop in zip(table.offsets[:-1], table.offsets[1:], strict=True):
        assert (np.diff(table.targets[start:stop]) > 0).all()


@given(road_graphs(), st.data())
def test_paths_follow_edges_and_have_the_length_said(graph: RoadGraph, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, graph.node_count - 1))
    table = distances_within(graph, [source], limit=8.0)
    roads = to_multigraph(graph)
    for target, distance in zip(table.targets.tolist(), table.distances, strict=True):
        path = table.path(0, target)
        assert path[0] == source
        assert path[-1] == target
        steps = zip(path[:-1].tolist(), path[1:].tolist(), strict=True)
        length = sum(min(edge["length"] for edge in roads[one][other].values()) for one, other in steps)
        assert length == pytest.approx(distance)
    for target in set(range(graph.node_count)) - set(table.targets.tolist()):
        assert len(table.path(0, target)) == 0


def test_a_table_made_in_small_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid_graph(30, 30)
    sources = np.arange(0, 900, 2)
    whole = distances_within(graph, sources, limit=300.0)
    monkeypatch.setattr(distances, "_BLOCK_BYTES", 12 * 900 * 10)
    parts = distances_within(graph, sources, limit=300.0)
    for name in ("offsets", "targets", "distances", "previous"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    # Inside a grid of blocks, 25 junctions lie within three blocks.
    assert np.diff(whole.offsets).max() == 25


def test_a_table_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "_MEMORY_CAP_BYTES", 100_000)
    with pytest.raises(ParameterError, match="more than the cap"):
        distances_within(grid_graph(10, 10), np.arange(100), limit=1e6)


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_a_wrong_limit_is_refused(limit: float) -> None:
    with pytest.raises(ParameterError, match="limit"):
        distances_within(grid_graph(2, 2), [0], limit=limit)


def test_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ParameterError, match="node indices"):
        distances_within(grid_graph(2, 2), [4], limit=1.0)
