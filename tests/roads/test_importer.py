"""The counts of the real networks, as their description gives them, and the files that are no roads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import osmium
import polars as pl
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.lab.city.folder import write_osm
from geoblanket.lab.city.model import make_city
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.importer import import_roads
from tests.roads.samples import PORTO_PBF, REAL_DATA, needs_real_data, osm_xml


@needs_real_data
@pytest.mark.parametrize(
    ("city", "edges", "expected"),
    [
        ("porto", "edges.csv", (5_033, 10_537, 4_988, 37, 79)),
        ("rome", "edges.csv.gz", (43_160, 89_739, 42_894, 275, 527)),
    ],
)
def test_counts_of_the_real_tables(city: str, edges: str, expected: tuple[int, ...]) -> None:
    graph, summary = import_roads([REAL_DATA / city / "nodes.csv", REAL_DATA / city / edges])
    counts = (summary.read["nodes"], summary.read["edges"], summary.nodes, summary.dropped["self_loops"])
    assert (*counts, summary.read["parallel_edges"]) == expected
    assert summary.nodes + summary.dropped["unconnected_nodes"] == expected[0]
    assert summary.edges + summary.dropped["unconnected_edges"] + summary.dropped["self_loops"] == expected[1]
    assert graph.length_model == "given"


@needs_real_data
def test_one_way_share_of_porto() -> None:
    paths = [REAL_DATA / "porto" / "nodes.csv", REAL_DATA / "porto" / "edges.csv"]
    graph, summary = import_roads(paths, keep_all=True)
    one_way = graph.is_one_way.sum() / (graph.edge_count + summary.dropped["self_loops"])
    assert one_way == pytest.approx(0.356, abs=5e-4)


@needs_real_data
def test_counts_of_the_real_openstreetmap_file() -> None:
    nodes, ways, refs_of_dropped, refs_of_kept = set(), 0, set[int](), set[int]()
    for entity in osmium.FileProcessor(PORTO_PBF):
        if isinstance(entity, osmium.osm.Node):
            nodes.add(entity.id)
        elif isinstance(entity, osmium.osm.Way):
            ways += 1
            is_closed = entity.tags.get("vehicle") == "no" and "motor_vehicle" not in entity.tags
            refs = refs_of_dropped if "service" in entity.tags or is_closed else refs_of_kept
            refs.update(node.ref for node in entity.nodes)
    assert (len(nodes), ways) == (55_296, 10_098)

    graph, summary = import_roads([PORTO_PBF])
    assert summary.read == {"ways": ways, "nodes": len(refs_of_kept)}
    assert summary.dropped["ways_of_service"] == 10
    assert summary.dropped["ways_without_access"] == 2
    assert summary.dropped["missing_nodes"] == 0
    assert summary.nodes + summary.contracted_nodes + summary.dropped["unconnected_nodes"] == len(refs_of_kept)
    assert not np.any(graph.sources == graph.targets)
    assert graph.length_m.min() > 0
    everything, _ = import_roads([PORTO_PBF], keep_all=True)
    assert everything.length_m.sum() / 1000 == pytest.approx(summary.length_km + summary.dropped["unconnected_km"])


@needs_real_data
def test_half_of_the_real_openstreetmap_file_is_refused(tmp_path: Path) -> None:
    data = PORTO_PBF.read_bytes()
    path = tmp_path / "half.osm.pbf"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="cannot be read as OpenStreetMap data"):
        import_roads([path])


def test_the_synthetic_city_is_read_as_it_was_made(tmp_path: Path) -> None:
    city = make_city("small", seed=3)
    write_osm(city, tmp_path / "roads.osm.pbf")
    made = city.graph
    nodes = {"osmid": made.node_ids, "y": made.lat, "x": made.lon}
    edges = {
        "u": made.node_ids[made.sources],
        "v": made.node_ids[made.targets],
        "highway": [ROAD_CLASSES[number] for number in made.road_class],
        "length": made.length_m,
        "speed_limit": city.streets.speed_km_h,
    }
    pl.DataFrame(nodes).write_csv(tmp_path / "nodes.csv")
    pl.DataFrame(edges).write_csv(tmp_path / "edges.csv")
    for files in (["roads.osm.pbf"], ["nodes.csv", "edges.csv"]):
        graph, _ = import_roads([tmp_path / name for name in files])
        np.testing.assert_array_equal(graph.node_ids, city.graph.node_ids)
        np.testing.assert_array_equal(graph.targets, city.graph.targets)
        np.testing.assert_array_equal(graph.road_class, city.graph.road_class)
        np.testing.assert_allclose(graph.length_m, city.graph.length_m, atol=0.05)
        np.testing.assert_allclose(graph.speed_m_s, city.graph.speed_m_s)
    # Nobody's data, though in OpenStreetMap's format.
    assert import_roads([tmp_path / "roads.osm.pbf"])[0].credit == city.graph.credit == "a synthetic city"


def test_openstreetmap_is_credited_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "some.osm"
    path.write_text(osm_xml([([1, 2, 3], {})]))
    graph, summary = import_roads([path])
    assert graph.credit == summary.credit == "© OpenStreetMap contributors"
    assert import_roads([path], credit="© the city of Nowhere")[0].credit == "© the city of Nowhere"
    assert import_roads([path], credit="")[0].credit == ""
    with pytest.raises(ParameterError, match="one line"):
        import_roads([path], credit="two\nlines")


@pytest.mark.parametrize(
    ("name", "content"),
    [("text.osm.pbf", b"just some text, and then some more\n"), ("table.txt", b"u,v\n1,2\n"), ("a.csv", b"<a></a>")],
)
def test_files_that_are_not_what_their_name_says_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match="neither OpenStreetMap"):
        import_roads([path])


def test_a_damaged_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "some.osm.gz"
    path.write_bytes(b"\x1f\x8b\x08" + b"\x00" * 20)
    with pytest.raises(InputError):
        import_roads([path])
