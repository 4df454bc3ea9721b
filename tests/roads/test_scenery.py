"""Names, water and parks of a map: what is drawn beside the roads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.importer import import_roads
from geoblanket.roads.scenery import _joined

OSM = """<?xml version="1.0"?>
<osm version="0.6" generator="test">
  <node id="1" lat="41.10" lon="-8.60"/><node id="2" lat="41.11" lon="-8.60"/><node id="3" lat="41.11" lon="-8.61"/>
  <node id="4" lat="41.12" lon="-8.62"><tag k="place" v="suburb"/><tag k="name" v="Bonfim"/></node>
  <node id="5" lat="41.12" lon="-8.62"><tag k="place" v="suburb"/></node>
  <way id="1"><nd ref="1"/><nd ref="2"/><tag k="highway" v="residential"/><tag k="name" v="Rua A"/></way>
  <way id="2"><nd ref="2"/><nd ref="3"/><tag k="highway" v="residential"/><tag k="name" v="Rua A"/></way>
  <way id="3"><nd ref="3"/><nd ref="1"/><tag k="highway" v="primary"/></way>
  <way id="4"><nd ref="1"/><nd ref="2"/><nd ref="3"/><nd ref="1"/><tag k="leisure" v="park"/></way>
  <way id="5"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="natural" v="water"/></way>
  <way id="6"><nd ref="1"/><nd ref="3"/><tag k="waterway" v="river"/><tag k="width" v="wide"/></way>
  <way id="7"><nd ref="1"/><nd ref="99"/><tag k="waterway" v="river"/></way>
</osm>"""


def test_scenery_is_kept_beside_the_roads(tmp_path: Path) -> None:
    (tmp_path / "map.osm").write_text(OSM, encoding="utf-8")
    graph, _ = import_roads(tmp_path / "map.osm")
    features = json.loads(graph.scenery)["features"]
    kinds = {feature["properties"]["kind"]: feature for feature in features}
    assert len(features) == len(kinds) == 4  # open water, nameless places and lines without nodes are left out
    assert kinds["place"]["geometry"] == {"type": "Point", "coordinates": [-8.62, 41.12]}
    assert kinds["place"]["properties"]["name"] == "Bonfim"
    joined = [[[-8.6, 41.1], [-8.6, 41.11], [-8.61, 41.11]]]
    assert kinds["street"]["geometry"]["coordinates"] == joined
    assert kinds["park"]["geometry"]["type"] == "Polygon"
    assert kinds["river"]["properties"] == {"kind": "river", "width_m": 30.0}
    graph.save(tmp_path / "map.roads")
    assert RoadGraph.load(tmp_path / "map.roads").scenery == graph.scenery


def test_scenery_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "map.osm").write_text(OSM, encoding="utf-8")
    graph, _ = import_roads(tmp_path / "map.osm")
    plain = replace(graph, scenery=b"")
    assert plain.identity == graph.identity
    plain.save(tmp_path / "plain.roads")  # as all files were before there was scenery
    assert b"scenery" not in (tmp_path / "plain.roads").read_bytes()
    assert RoadGraph.load(tmp_path / "plain.roads").scenery == b""


def test_pieces_of_a_street_are_joined_once_each() -> None:
    a, b, c, d = [0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]
    assert _joined([[b, c], [c, d], [a, b]]) == [[a, b, c, d]]
    assert _joined([[a, b], [b, a]]) == [[a, b, a]]  # a ring
    forks = _joined([[a, b], [b, c], [b, d]])
    assert sorted(map(len, forks)) == [2, 3]
