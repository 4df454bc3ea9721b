from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path

import numpy as np
import osmium
import pytest
from osmium.osm.mutable import Node
from osmium.osm.mutable import Way as MutableWay

from geoblanket.errors import InputError
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.importer import import_roads
from geoblanket.roads.osm import OsmFile, read_osm
from tests.roads.samples import PLACES, Way, edges_of, length_of, osm_xml

SQUARE: Way = ([1, 2, 5, 6, 1], {})


def write(folder: Path, text: str | bytes, name: str = "some.osm") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def raw_edges(folder: Path, *ways: Way) -> set[tuple[int, int]]:
    return set(edges_of(read_osm([OsmFile(write(folder, osm_xml(ways)), "osm")]).graph))


@pytest.mark.parametrize(
    ("tags", "edges"),
    [
        ({}, {(1, 2), (2, 1), (2, 3), (3, 2)}),
        ({"oneway": "yes"}, {(1, 2), (2, 3)}),
        ({"oneway": "-1"}, {(3, 2), (2, 1)}),
        ({"oneway": "reverse"}, {(3, 2), (2, 1)}),
        ({"junction": "roundabout"}, {(1, 2), (2, 3)}),
        ({"highway": "motorway"}, {(1, 2), (2, 3)}),
        ({"highway": "motorway", "oneway": "no"}, {(1, 2), (2, 1), (2, 3), (3, 2)}),
    ],
)
def test_one_way_streets(tmp_path: Path, tags: dict[str, str], edges: set[tuple[int, int]]) -> None:
    assert raw_edges(tmp_path, ([1, 2, 3], tags)) == edges


def test_only_ways_for_cars_are_read(tmp_path: Path) -> None:
    closed: list[Way] = [
        ([1, 3], {"highway": "footway"}),
        ([1, 3], {"highway": "service"}),
        ([1, 4], {"access": "private"}),
        ([1, 5], {"area": "yes"}),
        ([1, 6], {"service": "alley"}),
        ([1, 7], {"access": "yes", "motor_vehicle": "no"}),
    ]
    roads = read_osm([OsmFile(write(tmp_path, osm_xml([([1, 2], {}), *closed])), "osm")])
    assert set(edges_of(roads.graph)) == {(1, 2), (2, 1)}
    assert roads.counts.read["ways"] == 5  # the other two are of no road class
    assert roads.counts.dropped["ways_without_access"] == 2
    assert roads.counts.dropped["ways_of_areas"] == 1
    assert roads.counts.dropped["ways_of_service"] == 1


def test_speeds_by_direction_and_class(tmp_path: Path) -> None:
    ways: list[Way] = [
        ([1, 2], {"maxspeed": "36", "maxspeed:backward": "18"}),
        ([2, 3], {"highway": "primary", "maxspeed": "-5"}),
        ([3, 4], {"highway": "secondary", "maxspeed": "inf"}),
    ]
    roads = read_osm([OsmFile(write(tmp_path, osm_xml(ways)), "osm")])
    speed = {ends: round(float(v), 6) for ends, v in zip(edges_of(roads.graph), roads.graph.speed_m_s, strict=True)}
    assert speed[1, 2] == 10
    assert speed[2, 1] == 5
    assert speed[2, 3] == pytest.approx(65 / 3.6, abs=1e-5)
    assert speed[3, 4] == pytest.approx(55 / 3.6, abs=1e-5)
    assert roads.counts.assumed == {"maxspeed_unreadable": 2, "ways_with_speed_of_class": 2}


def test_ways_are_cut_at_junctions_and_bends_become_shape(tmp_path: Path) -> None:
    # A cross at 2: a bent road 1-2-3-4 and a side road 2-5-6.
    path = write(tmp_path, osm_xml([([1, 2, 3, 4], {}), ([2, 5, 6], {})]))
    graph, summary = import_roads([path])
    assert set(edges_of(graph)) == {(1, 2), (2, 1), (2, 4), (4, 2), (2, 6), (6, 2)}
    edge = edges_of(graph).index((2, 4))
    assert graph.length_m[edge] == pytest.approx(length_of(2, 3, 4))
    lat, lon = graph.edge_line(edge)
    np.testing.assert_allclose(np.column_stack([lat, lon]), [PLACES[2], PLACES[3], PLACES[4]], atol=1e-9)
    assert (summary.contracted_nodes, summary.nodes, summary.length_model) == (2, 4, "sphere")


def test_ways_that_share_an_end_are_merged_unless_the_class_changes(tmp_path: Path) -> None:
    ways: list[Way] = [([1, 2], {"maxspeed": "30"}), ([2, 3], {"maxspeed": "50"}), ([3, 4], {"highway": "tertiary"})]
    graph, _ = import_roads([write(tmp_path, osm_xml(ways))])
    assert set(edges_of(graph)) == {(1, 3), (3, 1), (3, 4), (4, 3)}
    edge = edges_of(graph).index((1, 3))
    assert graph.time_s[edge] == pytest.approx(3.6 * (length_of(1, 2) / 30 + length_of(2, 3) / 50))
    assert ROAD_CLASSES[graph.road_class[edge]] == "residential"


def test_a_roundabout_with_arms(tmp_path: Path) -> None:
    ways: list[Way] = [([1, 2, 5, 6, 1], {"junction": "roundabout"}), ([1, 8], {}), ([5, 7], {})]
    graph, _ = import_roads([write(tmp_path, osm_xml(ways))])
    assert set(edges_of(graph)) == {(1, 5), (5, 1), (1, 8), (8, 1), (5, 7), (7, 5)}
    assert graph.length_m[edges_of(graph).index((1, 5))] == pytest.approx(length_of(1, 2, 5))
    assert graph.length_m[edges_of(graph).index((5, 1))] == pytest.approx(length_of(5, 6, 1))


def test_the_connected_part_is_kept_and_the_rest_counted(tmp_path: Path) -> None:
    path = write(tmp_path, osm_xml([SQUARE, ([2, 3], {"oneway": "yes"}), ([4, 7], {})]))
    graph, summary = import_roads([path])
    assert 3 not in graph.node_ids
    assert summary.dropped["unconnected_nodes"] == 3
    assert summary.dropped["unconnected_edges"] == 3
    assert summary.dropped["unconnected_km"] == pytest.approx((length_of(2, 3) + 2 * length_of(4, 7)) / 1000, abs=1e-3)
    everything, _ = import_roads([path], keep_all=True)
    assert {3, 4, 7} <= set(everything.node_ids.tolist())


def test_a_way_is_cut_where_a_node_is_missing(tmp_path: Path) -> None:
    roads = read_osm([OsmFile(write(tmp_path, osm_xml([([1, 2, 99, 3, 4], {})])), "osm")])
    assert set(edges_of(roads.graph)) == {(1, 2), (2, 1), (3, 4), (4, 3)}
    assert roads.counts.dropped["missing_nodes"] == 1


@pytest.mark.parametrize("place", ["", 'lat="91" lon="0"', 'lat="0" lon="200"'])
def test_a_node_without_a_place_counts_as_missing(tmp_path: Path, place: str) -> None:
    xml = osm_xml([([1, 2, 50, 3, 4], {})], extra=f'<node id="50" {place}/>')
    roads = read_osm([OsmFile(write(tmp_path, xml), "osm")])
    assert set(edges_of(roads.graph)) == {(1, 2), (2, 1), (3, 4), (4, 3)}
    assert roads.counts.dropped["missing_nodes"] == 1


def test_degenerate_ways_are_counted(tmp_path: Path) -> None:
    ways: list[Way] = [([1, 1, 2], {}), ([3], {}), ([], {}), ([4, 4], {}), ([2, 1], {"highway": "primary"})]
    roads = read_osm([OsmFile(write(tmp_path, osm_xml(ways)), "osm")])
    assert set(edges_of(roads.graph)) == {(1, 2), (2, 1)}
    assert roads.counts.dropped["repeated_nodes"] == 2
    assert roads.counts.dropped["ways_without_length"] == 3
    assert roads.counts.dropped["duplicate_pieces"] == 2
    assert {ROAD_CLASSES[number] for number in roads.graph.road_class} == {"primary"}


def test_ways_before_their_nodes_are_no_problem(tmp_path: Path) -> None:
    xml = osm_xml([SQUARE])
    nodes = "".join(re.findall("<node[^>]*>", xml))
    turned = xml.replace(nodes, "").replace("</osm>", nodes + "</osm>")
    assert import_roads([write(tmp_path, turned)])[0].identity == import_roads([write(tmp_path, xml)])[0].identity


def test_neighbouring_extracts_are_read_as_one(tmp_path: Path) -> None:
    both = osm_xml([SQUARE, ([2, 3, 4], {})])
    one = write(tmp_path, both, "one.osm")
    overlapping = write(tmp_path, osm_xml([SQUARE]), "two.osm")
    graph, summary = import_roads([one, overlapping])
    assert graph.identity == import_roads([one])[0].identity
    assert summary.dropped["repeated_ways"] == 1


@pytest.mark.parametrize("packing", ["pbf", "gz", "bz2"])
def test_every_packing_gives_the_same_graph(tmp_path: Path, packing: str) -> None:
    ways: list[Way] = [SQUARE, ([2, 3, 4], {"highway": "primary", "maxspeed": "60"})]
    xml = osm_xml(ways)
    path = tmp_path / f"some.osm.{packing}"
    if packing == "pbf":
        with osmium.SimpleWriter(str(path)) as writer:
            for number, (lat, lon) in PLACES.items():
                writer.add_node(Node(id=number, location=(lon, lat)))
            for number, (refs, tags) in enumerate(ways, start=100):
                writer.add_way(MutableWay(id=number, nodes=refs, tags={"highway": "residential", **tags}))
    else:
        path.write_bytes((gzip if packing == "gz" else bz2).compress(xml.encode()))
    assert import_roads([path])[0].identity == import_roads([write(tmp_path, xml)])[0].identity


BILLION_LAUGHS = '<!DOCTYPE osm [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]>'
EXTERNAL_ENTITY = '<!DOCTYPE osm [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("declaration", [BILLION_LAUGHS, EXTERNAL_ENTITY])
def test_entities_are_refused(tmp_path: Path, declaration: str) -> None:
    xml = osm_xml([([1, 2], {"name": "&a;"})]).replace('<?xml version="1.0"?>', f'<?xml version="1.0"?>{declaration}')
    with pytest.raises(InputError, match="declares a document type"):
        import_roads([write(tmp_path, xml)])


@pytest.mark.parametrize("number", [2**63, 2**64 + 1, -(2**63) - 1])
def test_ids_beyond_64_bits_are_refused(tmp_path: Path, number: int) -> None:
    xml = osm_xml([([1, 2], {})], extra=f'<node id="{number}" lat="41.1" lon="-8.6"/>')
    with pytest.raises(InputError, match="illegal id"):
        import_roads([write(tmp_path, xml)])


@pytest.mark.parametrize("canary", ["41.987654x", "41,987654", "419.87654"])
def test_a_message_never_holds_a_coordinate(tmp_path: Path, canary: str) -> None:
    xml = osm_xml([([1, 2], {})], extra=f'<node id="9" lat="{canary}" lon="{canary}"/>')
    with pytest.raises(InputError) as caught:
        import_roads([write(tmp_path, xml)])
    assert canary[:6] not in str(caught.value)
    assert caught.value.__suppress_context__  # so that no traceback shows libosmium's message


def pbf_blob(header_size: int, blob_size: bytes) -> bytes:
    header = b"\x0a\x09OSMHeader\x18" + blob_size
    return (header_size or len(header)).to_bytes(4, "big") + header + b"x" * 100


@pytest.mark.parametrize(
    "data",
    [
        pbf_blob(0, b"\xff\xff\xff\xff\x0f"),  # a blob of 4 GB
        pbf_blob(0, b"\xff\xff\xff\x0f"),  # a blob of 32 MB in a file of 100 bytes
        pbf_blob(0xFFFFFFFF, b"\x64"),  # a header of 4 GB
        pbf_blob(0, b"\x64"),  # nonsense inside
    ],
)
def test_a_pbf_that_lies_about_its_size_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="cannot be read as OpenStreetMap data"):
        import_roads([write(tmp_path, data, "evil.osm.pbf")])


def test_a_cut_pbf_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.osm.pbf"
    with osmium.SimpleWriter(str(whole)) as writer:
        for number, (lat, lon) in PLACES.items():
            writer.add_node(Node(id=number, location=(lon, lat)))
        writer.add_way(MutableWay(id=1, nodes=[1, 2, 3], tags={"highway": "residential"}))
    data = whole.read_bytes()
    for size in range(30, len(data) - 1, 7):
        with pytest.raises(InputError):
            import_roads([write(tmp_path, data[:size], "cut.osm.pbf")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("hello", "neither OpenStreetMap"),
        ("<html></html>", "neither OpenStreetMap"),
        (osm_xml([]), "no roads that a car may drive on"),
        (osm_xml([([1, 2], {"access": "no"})]), r"no roads that a car may drive on \(ways of a road class: 1\)"),
        (osm_xml([([97, 98], {})]), "not the nodes"),
        (osm_xml([([1, 2], {"oneway": "yes"})]), "no two places connected"),
        (osm_xml([SQUARE])[:-9], "is not well-formed XML"),
        ('<osmChange version="0.6"><create><node id="1" lat="1" lon="1"/></create></osmChange>', "history"),
    ],
)
def test_unusable_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        import_roads([path])
    assert caught.value.path == path
