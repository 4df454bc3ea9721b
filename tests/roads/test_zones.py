"""Zones: a partition into connected, balanced parts that depends on nothing but the roads."""

from __future__ import annotations

from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._tables import write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from geoblanket.roads.importer import import_roads
from geoblanket.roads.places import Places, choose_places
from geoblanket.roads.zones import Zones, is_connected, partition_zones, read_zones, write_zones
from tests.roads.graphs import grid_graph, permute_nodes, road_graphs, to_multigraph

PORTO = Path(__file__).parents[2] / ".." / "shared" / "data" / "porto"


def place_network(graph: RoadGraph, places: Places) -> nx.Graph:
    """Which places are neighbours, by networkx: nodes go with the place that is nearest by road in any direction."""
    roads = nx.Graph()
    roads.add_nodes_from(range(graph.node_count))
    for one, other, length in to_multigraph(graph).edges(data="length"):
        if one != other:
            known = roads.get_edge_data(one, other, {"length": length})["length"]
            roads.add_edge(one, other, length=min(length, known))
    _, paths = nx.multi_source_dijkstra(roads, set(places.nodes.tolist()), weight="length")
    place = {int(node): number for number, node in enumerate(places.nodes)}
    result = nx.Graph()
    result.add_nodes_from(range(len(places)))
    result.add_edges_from(
        (place[paths[one][0]], place[paths[other][0]]) for one, other in roads.edges if one in paths and other in paths
    )
    return result


def irregular_city(seed: int, rows: int = 20, columns: int = 20) -> RoadGraph:
    """A grid with crooked, closed and one-way streets; every length is different."""
    rng = np.random.default_rng(seed)
    graph = grid_graph(rows, columns)
    open_ = rng.random(graph.edge_count) < 0.6
    return RoadGraph.from_edges(
        Nodes(
            ids=rng.permutation(10_000)[: graph.node_count],
            lat=graph.lat + rng.normal(0, 2e-4, graph.node_count),
            lon=graph.lon + rng.normal(0, 2e-4, graph.node_count),
        ),
        Edges(
            sources=graph.sources[open_],
            targets=graph.targets[open_],
            length_m=rng.uniform(80, 140, int(open_.sum())),
            speed_m_s=graph.speed_m_s[open_],
            road_class=rng.integers(0, 8, int(open_.sum())),
        ),
        length_model="given",
    )


@given(road_graphs(max_nodes=30), st.integers(1, 10))
def test_zones_are_connected_parts_of_at_most_so_many_places(graph: RoadGraph, max_places: int) -> None:
    places = choose_places(graph)
    zones = partition_zones(graph, places, max_places=max_places)
    assert zones.sizes.min() >= 1
    assert zones.sizes.max() <= max_places
    assert zones.sizes.sum() == len(places)
    network = place_network(graph, places)
    for zone in range(len(zones)):
        assert nx.is_connected(network.subgraph(zones.members(zone).tolist()))
    assert is_connected(graph, places, zones)
    crossing = {
        tuple(sorted((int(zones.zone[one]), int(zones.zone[other]))))
        for one, other in network.edges
        if zones.zone[one] != zones.zone[other]
    }
    assert {tuple(pair) for pair in zones.neighbours.tolist()} == crossing


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 150.0, 400.0]), st.integers(5, 60))
def test_thinned_zones_are_connected_through_the_nodes_nearest_by_road(
    seed: int, spacing_m: float, max_places: int
) -> None:
    graph = irregular_city(seed)
    places = choose_places(graph, spacing_m=spacing_m)
    zones = partition_zones(graph, places, max_places=max_places)
    network = place_network(graph, places)
    assert zones.sizes.max() <= max_places
    for zone in range(len(zones)):
        assert nx.is_connected(network.subgraph(zones.members(zone).tolist()))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 150.0]), st.randoms(use_true_random=False))
def test_zones_do_not_depend_on_the_order_of_the_nodes(seed: int, spacing_m: float, random: Random) -> None:
    graph = irregular_city(seed, 12, 12)
    other = permute_nodes(graph, np.array(random.sample(range(graph.node_count), graph.node_count)))
    assert _by_node_id(graph, spacing_m) == _by_node_id(other, spacing_m)


@given(road_graphs(max_nodes=25), st.integers(1, 8), st.randoms(use_true_random=False))
def test_ties_do_not_depend_on_the_order_of_the_nodes(graph: RoadGraph, max_places: int, random: Random) -> None:
    other = permute_nodes(graph, np.array(random.sample(range(graph.node_count), graph.node_count)))
    assert _by_node_id(graph, 2000.0, max_places) == _by_node_id(other, 2000.0, max_places)


def _by_node_id(graph: RoadGraph, spacing_m: float, max_places: int = 20) -> dict[int, tuple[int, str]]:
    places = choose_places(graph, spacing_m=spacing_m)
    zones = partition_zones(graph, places, max_places=max_places)
    return {
        int(node): (int(zone), zones.ids[zone])
        for node, zone in zip(graph.node_ids[places.nodes], zones.zone, strict=True)
    }


@pytest.mark.parametrize(("rows", "columns", "max_places"), [(20, 20, 50), (30, 10, 40), (1, 100, 10), (15, 15, 7)])
def test_zones_of_a_grid_are_balanced(rows: int, columns: int, max_places: int) -> None:
    graph = grid_graph(rows, columns)
    zones = partition_zones(graph, choose_places(graph), max_places=max_places)
    assert zones.sizes.min() >= max_places // 2
    assert len(zones) <= 1.5 * rows * columns / max_places


def test_zones_of_a_grid_are_compact() -> None:
    graph = grid_graph(20, 20)
    zones = partition_zones(graph, choose_places(graph), max_places=25)
    severed = int((zones.zone[graph.sources] != zones.zone[graph.targets]).sum()) // 2
    # Sixteen squares of 5 × 5 would sever 120 streets of 760; strips of 25 would sever 380.
    assert severed <= 220


def test_a_zone_does_not_reach_over_a_river() -> None:
    # Two banks of 6 × 8 junctions and one bridge: the cheapest cut is the bridge.
    graph = grid_graph(12, 8)
    row = np.arange(96) // 8
    crosses = (row[graph.sources] < 6) != (row[graph.targets] < 6)
    bridge = (graph.sources % 8 == 3) & (graph.targets % 8 == 3)
    graph = graph.keep_edges(~crosses | bridge)
    zones = partition_zones(graph, choose_places(graph), max_places=60)
    assert len(zones) == 2
    np.testing.assert_array_equal(zones.zone, row >= 6)
    np.testing.assert_array_equal(zones.neighbours, [[0, 1]])


def test_small_parts_join_a_neighbour() -> None:
    # A long avenue with a dead end at every junction: no straight cut leaves two connected halves.
    count = 60
    avenue, ends = np.arange(count), count + np.arange(count)
    sources = np.concatenate([avenue[:-1], avenue])
    targets = np.concatenate([avenue[1:], ends])
    graph = RoadGraph.from_edges(
        Nodes(
            ids=np.arange(2 * count),
            lat=np.concatenate([np.full(count, 41.0), np.where(avenue % 2, 41.02, 40.98)]),
            lon=-8.6 + 1e-3 * np.tile(avenue, 2),
        ),
        Edges(
            sources=sources,
            targets=targets,
            length_m=np.full(len(sources), 100.0),
            speed_m_s=np.ones(len(sources)),
            road_class=np.zeros(len(sources)),
        ),
        length_model="given",
    )
    zones = partition_zones(graph, choose_places(graph), max_places=20)
    assert zones.sizes.max() <= 20
    assert zones.sizes.min() >= 10


def test_unconnected_parts_have_zones_of_their_own() -> None:
    graph = grid_graph(4, 8)
    column = np.arange(32) % 8
    graph = graph.keep_edges((column[graph.sources] < 5) == (column[graph.targets] < 5))
    zones = partition_zones(graph, choose_places(graph), max_places=100)
    assert sorted(zones.sizes.tolist()) == [12, 20]
    assert len(zones.neighbours) == 0


def test_the_date_line_does_not_change_the_shape_of_zones() -> None:
    here, there = grid_graph(12, 12, lat=0.0, lon=10.0), grid_graph(12, 12, lat=0.0, lon=179.9945)
    first, second = (partition_zones(graph, choose_places(graph), max_places=40) for graph in (here, there))
    assert there.lon.min() < -179
    np.testing.assert_array_equal(first.zone, second.zone)


def test_a_zone_keeps_its_id_when_another_part_of_the_map_changes() -> None:
    # Two towns without a road between them; the second grows.
    def towns(columns: int) -> RoadGraph:
        graph = grid_graph(4, 8 + columns)
        column = np.arange(graph.node_count) % (8 + columns)
        row = np.arange(graph.node_count) // (8 + columns)
        apart = graph.keep_edges((column[graph.sources] < 8) == (column[graph.targets] < 8))
        ids = np.where(column < 8, row * 8 + column, 1000 + row * 100 + column)
        return RoadGraph.from_edges(
            Nodes(ids=ids, lat=apart.lat, lon=apart.lon),
            Edges(
                sources=apart.sources,
                targets=apart.targets,
                length_m=apart.length_m,
                speed_m_s=apart.speed_m_s,
                road_class=apart.road_class,
            ),
            length_model="given",
        )

    small, large = towns(4), towns(6)
    old, new = (partition_zones(graph, choose_places(graph), max_places=32) for graph in (small, large))
    assert len(old) == len(new) == 2
    assert old.ids[0] == new.ids[0]
    assert old.ids[1] != new.ids[1]
    assert len(set(old.ids + new.ids)) == 3


def test_a_check_finds_a_zone_that_is_not_connected() -> None:
    graph = grid_graph(1, 4)
    places = choose_places(graph)
    torn = Zones(np.array([0, 1, 0, 1], np.int32), ("a", "b"), np.array([[0, 1]], np.int32), 2, places.identity)
    assert not is_connected(graph, places, torn)


def test_zones_are_written_and_read(tmp_path: Path) -> None:
    graph = grid_graph(12, 12)
    places = choose_places(graph, spacing_m=150)
    zones = partition_zones(graph, places, max_places=10)
    write_zones(tmp_path / "zones.parquet", graph, places, zones)
    again = read_zones(tmp_path / "zones.parquet", places)
    np.testing.assert_array_equal(again.zone, zones.zone)
    np.testing.assert_array_equal(again.neighbours, zones.neighbours)
    assert again.ids == zones.ids
    assert again.identity == zones.identity
    assert again.max_places == 10
    table = pl.read_parquet(tmp_path / "zones.parquet")
    assert table["node"].to_list() == graph.node_ids[places.nodes].tolist()
    with pytest.raises(MismatchError, match="spacing of 150"):
        read_zones(tmp_path / "zones.parquet", choose_places(graph))


def test_a_changed_table_of_zones_is_refused(tmp_path: Path) -> None:
    graph = grid_graph(4, 4)
    places = choose_places(graph)
    path = tmp_path / "zones.parquet"
    write_zones(path, graph, places, partition_zones(graph, places, max_places=8))
    about = {
        "places": places.identity, "identity": "0" * 64, "max_places": 8, "neighbours": [], "spacing_m": 0.0,
    }  # fmt: skip
    write_table(pl.read_parquet(path), path, kind="zones", about=about)
    with pytest.raises(InputError, match="changed or damaged"):
        read_zones(path, places)


def test_wrong_questions_are_refused() -> None:
    graph = grid_graph(2, 2)
    places = choose_places(graph)
    with pytest.raises(ParameterError, match="max_places=0"):
        partition_zones(graph, places, max_places=0)
    with pytest.raises(MismatchError, match="another road graph"):
        partition_zones(grid_graph(2, 3), places, max_places=2)
    with pytest.raises(ParameterError, match="zone must be from 0 to 1"):
        partition_zones(graph, places, max_places=3).members(2)


@pytest.mark.skipif(not PORTO.is_dir(), reason=f"the roads of Porto are not in {PORTO}")
@pytest.mark.parametrize(("spacing_m", "max_places"), [(0.0, 200), (0.0, 50), (250.0, 50)])
def test_zones_of_porto_are_balanced(spacing_m: float, max_places: int) -> None:
    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    places = choose_places(graph, spacing_m=spacing_m)
    zones = partition_zones(graph, places, max_places=max_places)
    assert is_connected(graph, places, zones)
    assert zones.sizes.max() <= max_places
    assert zones.sizes.min() >= max_places // 2
