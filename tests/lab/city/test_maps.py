from __future__ import annotations

from pathlib import Path

import numpy as np
import osmium
import pytest

from geoblanket.lab.city.folder import write_osm
from geoblanket.lab.city.model import City
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads


def edges(graph: RoadGraph) -> dict[tuple[int, int], int]:
    ends = zip(graph.node_ids[graph.sources].tolist(), graph.node_ids[graph.targets].tolist(), strict=True)
    return {pair: edge for edge, pair in enumerate(ends)}


@pytest.mark.parametrize("name", ["roads.osm.pbf", "roads.osm"])
def test_reader_gets_the_same_graph_back_from_openstreetmap_data(small_city: City, tmp_path: Path, name: str) -> None:
    write_osm(small_city, tmp_path / name)
    graph = import_roads([tmp_path / name])[0]
    truth = small_city.graph
    assert sorted(graph.node_ids.tolist()) == truth.node_ids.tolist()
    found, expected = edges(graph), edges(truth)
    assert found.keys() == expected.keys()
    one = np.array([found[pair] for pair in expected])
    other = np.array(list(expected.values()))
    np.testing.assert_allclose(graph.length_m[one], truth.length_m[other], rtol=1e-6)
    np.testing.assert_allclose(graph.speed_m_s[one], truth.speed_m_s[other])
    np.testing.assert_array_equal(graph.road_class[one], truth.road_class[other])


def test_ways_look_like_a_real_map(small_city: City, tmp_path: Path) -> None:
    write_osm(small_city, tmp_path / "roads.osm.pbf")
    ways = [
        (way.id, dict(way.tags), [node.ref for node in way.nodes])
        for way in osmium.FileProcessor(str(tmp_path / "roads.osm.pbf"))
        if isinstance(way, osmium.osm.Way)
    ]
    assert len({number for number, _, _ in ways}) == len(ways)
    assert [tags["waterway"] for _, tags, _ in ways if "waterway" in tags] == ["river"]
    roads = [(tags, nodes) for _, tags, nodes in ways if "highway" in tags]
    assert all(tags.keys() >= {"highway", "name", "maxspeed"} for tags, _ in roads)
    assert {tags.get("oneway", "unsaid") for tags, _ in roads} == {"yes", "no", "unsaid"}
    circles = [nodes for tags, nodes in roads if tags.get("junction") == "roundabout"]
    assert circles
    assert all(nodes[0] == nodes[-1] for nodes in circles)
    assert any(tags.get("bridge") == "yes" for tags, _ in roads)
    junctions = set(small_city.graph.node_ids.tolist())
    assert max(len(junctions.intersection(nodes)) for _, nodes in roads) > 5, "ways run across junctions"
