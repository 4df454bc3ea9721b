"""Road distances against networkx, on graphs with parallel edges, self-loops and zero lengths."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket.errors import InputError, ParameterError
from geoblanket.roads import distances
from geoblanket.roads.distances import (
    Weight,
    road_distances,
    weight_matrix,
)
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from geoblanket.roads.importer import import_roads
from tests.roads.graphs import grid_graph, road_graphs, to_multigraph

PORTO = Path(__file__).parents[2] / ".." / "shared" / "data" / "porto"


def oracle(graph: RoadGraph, weight: Weight, limit: float = math.inf) -> np.ndarray:
    """All road distances by networkx."""
    result = np.full((graph.node_count, graph.node_count), math.inf)
    for source, row in nx.all_pairs_dijkstra_path_length(to_multigraph(graph), weight=weight):
        for target, distance in row.items():
            if distance <= limit:
                result[source, target] = distance
    return result


@given(road_graphs(), st.sampled_from(["length", "time"]), st.booleans())
def test_all_distances_match_networkx(graph: RoadGraph, weight: Weight, reverse: bool) -> None:
    found = road_distances(graph, np.arange(graph.node_count), weight=weight, reverse=reverse)
    truth = oracle(graph, weight)
    np.testing.assert_allclose(found, truth.T if reverse else truth)


@given(road_graphs(), st.data())
def test_chosen_rows_and_columns_match_networkx(graph: RoadGraph, data: st.DataObject) -> None:
    nodes = st.lists(st.integers(0, graph.node_count - 1), max_size=20)
    sources, targets = data.draw(nodes), data.draw(nodes)
    found = road_distances(graph, sources, targets)
    truth = oracle(graph, "length")
    assert found.shape == (len(sources), len(targets))
    np.testing.assert_allclose(found, truth[np.ix_(np.array(sources, int), np.array(targets, int))])


def test_a_matrix_made_in_small_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = grid_graph(5, 6)
    whole = road_distances(graph, np.arange(graph.node_count)[::-1])
    monkeypatch.setattr(distances, "_BLOCK_BYTES", 8 * graph.node_count * 7)
    np.testing.assert_array_equal(road_distances(graph, np.arange(graph.node_count)[::-1]), whole)


def test_one_source_gives_one_row() -> None:
    graph = grid_graph(2, 3)
    np.testing.assert_allclose(road_distances(graph, 0), [0, 100, 200, 100, 200, 300])
    np.testing.assert_allclose(road_distances(graph, 0, [5, 0]), [300, 0])
    np.testing.assert_allclose(road_distances(graph, 0, weight="time"), [0, 10, 20, 10, 20, 30])


def test_the_better_of_parallel_edges_may_differ_by_length_and_time() -> None:
    graph = RoadGraph.from_edges(
        Nodes(ids=[1, 2], lat=[0, 0], lon=[0, 0.01]),
        Edges(sources=[0, 0], targets=[1, 1], length_m=[100.0, 150.0], speed_m_s=[1.0, 10.0], road_class=[0, 0]),
        length_model="given",
    )
    assert road_distances(graph, 0, [1]) == 100.0
    assert road_distances(graph, 0, [1], weight="time") == 15.0
    assert road_distances(graph, 1, [0]) == math.inf


def test_two_processes_give_what_one_gives() -> None:
    graph = grid_graph(8, 9)
    sources = np.arange(graph.node_count)
    np.testing.assert_array_equal(road_distances(graph, sources, workers=2), road_distances(graph, sources))


def test_small_work_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoblanket._workers.joblib", None)
    graph = grid_graph(8, 9)
    assert road_distances(graph, np.arange(graph.node_count), workers=None).shape == (72, 72)


def test_a_matrix_above_the_cap_is_refused_with_its_size() -> None:
    graph = grid_graph(200, 200)
    with pytest.raises(ParameterError, match=r"40,000 × 40,000 nodes needs 12\.8 GB.*cap of 1\.1 GB"):
        road_distances(graph, np.arange(graph.node_count))
    with pytest.raises(ParameterError, match="memory_cap_bytes"):
        road_distances(graph, [0, 1], [0, 1], memory_cap_bytes=31)
    assert road_distances(graph, [0, 1], [0, 1], memory_cap_bytes=32).shape == (2, 2)


@pytest.mark.parametrize("sources", [[-1], [6], [0.5], [[0]], [True], ["0"]])
def test_nodes_that_do_not_exist_are_refused(sources: list[object]) -> None:
    with pytest.raises(ParameterError, match=r"node indices|array of numbers"):
        road_distances(grid_graph(2, 3), sources)  # type: ignore[arg-type]  # wrong on purpose


def test_a_wrong_weight_and_wrong_workers_are_refused() -> None:
    with pytest.raises(ParameterError, match="'length' or 'time'"):
        road_distances(grid_graph(2, 3), 0, weight="hops")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ParameterError, match="workers"):
        road_distances(grid_graph(2, 3), 0, workers=0)


@pytest.mark.parametrize("length", [-1.0, math.nan])
def test_a_graph_with_impossible_lengths_is_refused(length: float) -> None:
    graph = grid_graph(2, 3)
    lengths = graph.length_m.copy()
    lengths[3] = length
    with pytest.raises(InputError, match="1 edges whose length"):
        road_distances(dataclasses.replace(graph, length_m=lengths), 0)


def test_a_graph_with_no_edges_has_only_its_nodes() -> None:
    graph = RoadGraph.from_edges(
        Nodes(ids=[1, 2], lat=[0, 0], lon=[0, 1]),
        Edges(sources=[], targets=[], length_m=[], speed_m_s=[], road_class=[]),
        length_model="given",
    )
    np.testing.assert_array_equal(road_distances(graph, [0, 1]), [[0, math.inf], [math.inf, 0]])


@settings(max_examples=30)
@given(road_graphs())
def test_the_matrix_does_not_share_memory_with_the_graph(graph: RoadGraph) -> None:
    before = graph.length_m.copy()
    matrix = weight_matrix(graph)
    matrix.data[:] = -1
    np.testing.assert_array_equal(graph.length_m, before)


@pytest.mark.skipif(not PORTO.is_dir(), reason=f"the roads of Porto are not in {PORTO}")
@pytest.mark.parametrize("weight", ["length", "time"])
def test_porto_matches_networkx(weight: Weight) -> None:
    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    roads = to_multigraph(graph)
    for source in (0, 1234, graph.node_count - 1):
        lengths = nx.single_source_dijkstra_path_length(roads, source, weight=weight)
        truth = [lengths[node] for node in range(graph.node_count)]
        np.testing.assert_allclose(road_distances(graph, source, weight=weight), truth)
        np.testing.assert_allclose(
            road_distances(graph, np.arange(graph.node_count), [source], weight=weight, reverse=True)[:, 0], truth
        )
