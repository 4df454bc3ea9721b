from __future__ import annotations

import json
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import polars as pl
import pytest
import shapely

from geoblanket.errors import MissingExtraError
from geoblanket.roads.export import to_geojson, to_geoparquet
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads
from geoblanket.roads.tables import read_graphml
from tests.roads.samples import PLACES, osm_xml


@pytest.fixture
def graph(tmp_path: Path) -> RoadGraph:
    path = tmp_path / "some.osm"
    lens = [([1, 2, 5], {"maxspeed": "30"}), ([1, 6, 5], {"highway": "primary"}), ([5, 7], {}), ([1, 8], {})]
    path.write_text(osm_xml([*lens, ([7, 8], {"oneway": "yes"})]))
    return import_roads([path])[0]


def test_networkx_has_osmnx_conventions(graph: RoadGraph) -> None:
    exported = graph.to_networkx()
    assert isinstance(exported, nx.MultiDiGraph)
    assert exported.graph["crs"] == "epsg:4326"
    assert (exported.number_of_nodes(), exported.number_of_edges()) == (graph.node_count, graph.edge_count)
    assert exported.nodes[5] == {"y": PLACES[5][0], "x": PLACES[5][1], "street_count": 3}
    assert exported.nodes[7]["street_count"] == 2
    assert sorted(exported[1][5]) == [0, 1]
    assert {exported[1][5][key]["highway"] for key in (0, 1)} == {"residential", "primary"}
    one_way = exported[7][8][0]
    assert one_way["oneway"]
    assert not one_way["reversed"]
    assert exported[5][7][0]["reversed"] != exported[7][5][0]["reversed"]
    for source, target, data in exported.edges(data=True):
        assert data["travel_time"] == pytest.approx(data["length"] / data["speed_kph"] * 3.6)
        if "geometry" in data:
            assert data["geometry"].coords[0] == pytest.approx(
                (exported.nodes[source]["x"], exported.nodes[source]["y"])
            )
            assert data["geometry"].coords[-1] == pytest.approx(
                (exported.nodes[target]["x"], exported.nodes[target]["y"])
            )
    assert sum("geometry" in data for *_, data in exported.edges(data=True)) == 4


def test_what_networkx_saves_as_graphml_is_read_again(graph: RoadGraph, tmp_path: Path) -> None:
    exported = graph.to_networkx()
    for *_, data in exported.edges(data=True):
        data.update({name: str(value) for name, value in data.items()})
    nx.write_graphml(exported, tmp_path / "again.graphml")
    again = read_graphml(tmp_path / "again.graphml").graph
    np.testing.assert_array_equal(again.node_ids, graph.node_ids)
    np.testing.assert_array_equal(again.targets, graph.targets)
    np.testing.assert_allclose(again.length_m, graph.length_m)
    np.testing.assert_allclose(again.speed_m_s, graph.speed_m_s)
    np.testing.assert_array_equal(again.road_class, graph.road_class)
    np.testing.assert_allclose(again.shape_lat, graph.shape_lat)


def test_geojson(graph: RoadGraph, tmp_path: Path) -> None:
    to_geojson(graph, tmp_path / "edges.geojson")
    edges = json.loads((tmp_path / "edges.geojson").read_text())
    assert edges["type"] == "FeatureCollection"
    assert len(edges["features"]) == graph.edge_count
    for edge, feature in enumerate(edges["features"]):
        lat, lon = graph.edge_line(edge)
        np.testing.assert_allclose(feature["geometry"]["coordinates"], np.column_stack([lon, lat]), atol=1e-7)
        assert feature["properties"]["length_m"] == graph.length_m[edge]
    to_geojson(graph, tmp_path / "nodes.geojson", part="nodes")
    nodes = json.loads((tmp_path / "nodes.geojson").read_text())
    assert [feature["properties"]["osmid"] for feature in nodes["features"]] == graph.node_ids.tolist()
    assert nodes["features"][0]["geometry"] == {"type": "Point", "coordinates": [PLACES[1][1], PLACES[1][0]]}


@pytest.mark.parametrize(("part", "kind"), [("edges", "LineString"), ("nodes", "Point")])
def test_geoparquet(graph: RoadGraph, tmp_path: Path, part: str, kind: str) -> None:
    path = tmp_path / "some.parquet"
    to_geoparquet(graph, path, part="edges" if part == "edges" else "nodes")
    about = json.loads(pl.read_parquet_metadata(path)["geo"])
    assert about["version"] == "1.1.0"
    assert about["columns"][about["primary_column"]]["geometry_types"] == [kind]
    geometries = shapely.from_wkb(pl.read_parquet(path)["geometry"].to_list())
    assert {geometry.geom_type for geometry in geometries} == {kind}
    assert about["columns"]["geometry"]["bbox"] == pytest.approx(shapely.total_bounds(geometries).tolist())
    assert len(geometries) == (graph.edge_count if part == "edges" else graph.node_count)


@pytest.mark.parametrize("package", ["networkx", "shapely"])
def test_a_missing_extra_is_named(graph: RoadGraph, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"geoblanket\[networkx\]"):
        graph.to_networkx()


def test_geoparquet_needs_no_extra(graph: RoadGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    to_geoparquet(graph, tmp_path / "some.parquet")
    assert (tmp_path / "some.parquet").exists()


def test_osmnx_works_with_it(graph: RoadGraph) -> None:
    osmnx = pytest.importorskip("osmnx", reason="of the group bench")
    exported = graph.to_networkx()
    osmnx.convert.validate_graph(exported)
    nodes, edges = osmnx.graph_to_gdfs(exported)
    assert edges.crs == nodes.crs == "epsg:4326"
    assert len(edges) == graph.edge_count
    again = osmnx.graph_from_gdfs(nodes, edges)
    assert sorted(again.edges(keys=True)) == sorted(exported.edges(keys=True))
    lat, lon = graph.lat.tolist(), graph.lon.tolist()
    assert osmnx.nearest_nodes(exported, lon[0], lat[0]) == graph.node_ids[0]
