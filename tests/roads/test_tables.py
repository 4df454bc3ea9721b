from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.importer import import_roads
from tests.roads.samples import edges_of, length_of
from tests.traces._files import REAL_DATA

NODES = "osmid,y,x,street_count,ref\n1,41.150,-8.610,3,\n2,41.151,-8.610,3,19;20\n3,41.152,-8.611,1,\n"
EDGES = (
    "u,v,highway,length\n1,2,residential,111.5\n2,1,residential,111.5\n"
    "2,3,\"['residential', 'tertiary']\",140\n3,2,busway,140\n"
)


def write(folder: Path, *, nodes: str = NODES, edges: str = EDGES) -> list[Path]:
    paths = [folder / "edges.csv", folder / "nodes.csv"]
    paths[0].write_text(edges)
    paths[1].write_text(nodes)
    return paths


def test_tables_as_osmnx_writes_them(tmp_path: Path) -> None:
    graph, summary = import_roads(write(tmp_path))
    assert edges_of(graph) == [(1, 2), (2, 1), (2, 3), (3, 2)]
    assert graph.length_m.tolist() == [111.5, 111.5, 140, 140]
    assert [ROAD_CLASSES[number] for number in graph.road_class] == ["residential", "residential", "tertiary", "road"]
    assert graph.length_model == "given"
    assert summary.assumed == {"class_unknown": 1, "speed_of_class": 4}


def with_ids(ids: dict[str, str], name: str = "osmid") -> dict[str, str]:
    """The tables with other ids of the three nodes, in a column of another name."""
    nodes, edges = NODES.replace("osmid", name), "u,v\n1,2\n2,3\n3,1\n"
    for number, new in ids.items():
        nodes = nodes.replace(f"\n{number},41", f"\n{new},41")
    for number, new in ids.items():
        edges = "\n".join(
            ",".join(new if cell == number else cell for cell in line.split(",")) for line in edges.split("\n")
        )
    return {"nodes": nodes, "edges": edges}


@pytest.mark.parametrize(
    ("ids", "name", "is_credited"),
    [
        ({"1": "25503936", "2": "4722746638"}, "osmid", True),
        ({"1": "25503936", "2": "4722746638"}, "id", False),
        ({"1": "25503936"}, "osmid", False),
        ({"1": "6956", "2": "40029"}, "osmid", False),
    ],
)
def test_only_tables_with_its_ids_are_credited_to_openstreetmap(
    tmp_path: Path, ids: dict[str, str], name: str, is_credited: bool
) -> None:
    paths = write(tmp_path, **with_ids(ids, name))
    assert import_roads(paths)[0].credit == ("© OpenStreetMap contributors" if is_credited else "")
    assert import_roads(paths, credit="© somebody")[0].credit == "© somebody"


@pytest.mark.parametrize(("city", "is_credited"), [("porto", True), ("rome", True), ("sanfrancisco", False)])
@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="needs the real road data in ../shared/data")
def test_real_tables_are_credited_to_those_who_made_them(city: str, is_credited: bool) -> None:
    graph, _ = import_roads([*(REAL_DATA / city).glob("nodes.csv"), *(REAL_DATA / city).glob("edges.csv*")])
    assert graph.credit == ("© OpenStreetMap contributors" if is_credited else "")


def test_the_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    paths = write(tmp_path)
    assert import_roads(paths)[0].identity == import_roads(paths[::-1])[0].identity


@pytest.mark.parametrize("change", ["bom", "crlf", "gzip", "names", "quotes"])
def test_other_writers_tables_give_the_same_graph(tmp_path: Path, change: str) -> None:
    expected = import_roads(write(tmp_path))[0].identity
    texts = {"nodes": NODES, "edges": EDGES}
    if change == "names":
        texts["nodes"] = texts["nodes"].replace("osmid,y,x", "ID, Lat ,Lon")
        texts["edges"] = texts["edges"].replace("u,v,highway,length", "source,target,class,length_m")
    if change == "quotes":
        texts["nodes"] = texts["nodes"].replace("41.150", '"41.150"')
    paths = []
    for name, text in texts.items():
        data = text.replace("\n", "\r\n").encode() if change == "crlf" else text.encode()
        data = b"\xef\xbb\xbf" + data if change == "bom" else data
        paths.append(tmp_path / (f"{name}.csv.gz" if change == "gzip" else f"{name}.csv"))
        paths[-1].write_bytes(gzip.compress(data) if change == "gzip" else data)
    assert import_roads(paths)[0].identity == expected


def test_speeds_lengths_and_shapes_are_optional(tmp_path: Path) -> None:
    edges = (
        "u,v,speed_limit,geometry\n1,2,36.0,\n2,1,18,\n"
        '1,3,,"LINESTRING (-8.610 41.150, -8.610 41.151, -8.611 41.152)"\n'
        '3,1,-4,"LINESTRING(-8.611 41.152,-8.610 41.150)"\n'
    )
    graph, summary = import_roads(write(tmp_path, edges=edges))
    assert graph.length_model == "sphere"
    assert graph.length_m.tolist() == pytest.approx(
        [length_of(1, 2), length_of(1, 2, 3), length_of(1, 2), length_of(1, 3)]
    )
    assert graph.speed_m_s[[0, 2]].tolist() == pytest.approx([10, 5])
    assert graph.shape_lat.tolist() == [41.151]
    assert summary.assumed == {"class_unknown": 4, "speed_of_class": 2, "speed_unreadable": 1}


def test_loops_go_duplicates_go_and_parallel_roads_stay(tmp_path: Path) -> None:
    extra = "1,1,residential,80\n1,1,residential,80\n1,2,residential,111.5\n1,2,residential,300\n"
    graph, summary = import_roads(write(tmp_path, edges=EDGES + extra))
    assert edges_of(graph) == [(1, 2), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert graph.length_m[:2].tolist() == [111.5, 300]
    assert summary.read == {"nodes": 3, "edges": 8, "parallel_edges": 3}
    assert summary.dropped["self_loops"] == 2
    assert summary.dropped["self_loops_km"] == 0.16
    assert summary.dropped["duplicate_edges"] == 1


@pytest.mark.parametrize(
    ("table", "old", "new", "message", "row"),
    [
        ("nodes", "osmid,y,x", "osmid,y,z", "column .x. or .*The file has: osmid, y, z", None),
        ("nodes", ",", ";", "column .* is missing", None),
        ("edges", "u,v,", "u,w,", "column .v. or .*The file has: u, w, ", None),
        ("nodes", "41.151", "NaN", "has no latitude", 3),
        ("nodes", "41.151", "inf", "has no latitude", 3),
        ("nodes", "41.151", "91.5", "has no latitude", 3),
        ("nodes", "41.151", "", "has no latitude", 3),
        ("nodes", "41.151", "٤١", "has no latitude", 3),
        ("nodes", "-8.611", "181.5", "has no longitude", 4),
        ("nodes", "3,41.152", "2,41.152", "repeats the id", 4),
        ("nodes", "2,41.151", "9223372036854775808,41.151", "has no whole number of 64 bits as id", 3),
        ("nodes", "2,41.151", "two,41.151", "has no whole number", 3),
        ("edges", "3,2,busway,140", "3,2,busway,-140", "has no length", 5),
        ("edges", "3,2,busway,140", "3,2,busway,inf", "has no length", 5),
        ("edges", "3,2,busway,140", "3,2,busway,", "has no length", 5),
        ("edges", "3,2,busway", "3,77,busway", "has a target that is not among the nodes", 5),
        ("edges", "3,2,busway", "-77,2,busway", "has a source that is not among the nodes", 5),
        ("edges", "3,2,busway,140", "3,2,busway,140,1,1", "cannot be read as a table", None),
    ],
)
def test_bad_cells_are_refused_with_their_row(
    tmp_path: Path, table: str, old: str, new: str, message: str, row: int | None
) -> None:
    text = NODES if table == "nodes" else EDGES
    paths = write(tmp_path, **{table: text.replace(old, new)})
    with pytest.raises(InputError, match=message) as caught:
        import_roads(paths)
    assert caught.value.path == tmp_path / f"{table}.csv"
    assert caught.value.row == row


@pytest.mark.parametrize(
    "geometry", ["POINT (-8.61 41.15)", "LINESTRING (-8.61)", "LINESTRING (-8 41, x 41)", "LINESTRING EMPTY"]
)
def test_bad_geometries_are_refused(tmp_path: Path, geometry: str) -> None:
    paths = write(tmp_path, edges=f'u,v,length,geometry\n1,2,5,\n2,1,5,"{geometry}"\n')
    with pytest.raises(InputError, match="not a LINESTRING") as caught:
        import_roads(paths)
    assert caught.value.row == 3
    assert "41" not in str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_tables_without_rows_are_refused(tmp_path: Path, table: str) -> None:
    text = (NODES if table == "nodes" else EDGES).splitlines()[0] + "\n"
    with pytest.raises(InputError, match=f"has no {table}"):
        import_roads(write(tmp_path, **{table: text}))


def test_an_empty_file_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty"):
        import_roads(write(tmp_path, nodes=""))
    with pytest.raises(InputError, match="is a folder"):
        import_roads([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        import_roads([tmp_path / "nowhere.csv"])
    with pytest.raises(ParameterError, match="No road file"):
        import_roads([])


def test_one_table_of_each_kind_is_needed(tmp_path: Path) -> None:
    edges, nodes = write(tmp_path)
    with pytest.raises(InputError, match="needs a table of edges"):
        import_roads([nodes])
    with pytest.raises(InputError, match="second table of edges"):
        import_roads([edges, nodes, edges])


def test_a_cut_gzip_and_other_encodings_are_refused(tmp_path: Path) -> None:
    edges, nodes = write(tmp_path)
    packed = tmp_path / "edges.csv.gz"
    long_edges = EDGES + "".join(f"1,2,residential,{length}.5\n" for length in range(200, 9000))
    packed.write_bytes(gzip.compress(long_edges.encode())[:-200])
    with pytest.raises(InputError, match="cut short"):
        import_roads([packed, nodes])
    edges.write_bytes(EDGES.replace("busway", "Straße").encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"):
        import_roads([edges, nodes])
