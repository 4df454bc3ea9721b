from __future__ import annotations

import gzip
from pathlib import Path

import networkx as nx
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.importer import import_roads
from geoblanket.roads.tables import read_graphml
from tests.roads.samples import PLACES, edges_of

LINE = "LINESTRING (-8.61 41.15, -8.6095 41.1505, -8.61 41.151)"


def osmnx_graph() -> nx.MultiDiGraph:
    """Return a graph as OSMnx saves it: every value as text."""
    graph = nx.MultiDiGraph(crs="epsg:4326", simplified="True", created_with="OSMnx 2.1.1")
    for node in (1, 2, 3):
        graph.add_node(node, y=str(PLACES[node][0]), x=str(PLACES[node][1]), street_count="3")
    graph.add_edge(1, 2, osmid="7", highway="residential", oneway="False", length="111.5", geometry=LINE)
    graph.add_edge(1, 2, osmid="8", highway="residential", oneway="True", length="150.25", maxspeed="20 mph")
    graph.add_edge(2, 1, osmid="7", highway="residential", oneway="False", reversed="True", length="111.5")
    graph.add_edge(2, 3, osmid="[5, 6]", highway="['residential', 'primary']", length="140.0", maxspeed="['70', '50']")
    graph.add_edge(3, 2, osmid="9", highway="tertiary", length="140.0", maxspeed="30", speed_kph="36.0")
    graph.add_edge(3, 3, osmid="10", highway="tertiary", length="99.0")
    return graph


def saved(folder: Path, graph: nx.MultiDiGraph | None = None) -> Path:
    path = folder / "roads.graphml"
    nx.write_graphml(osmnx_graph() if graph is None else graph, path)
    return path


def test_a_graph_saved_by_osmnx(tmp_path: Path) -> None:
    graph, summary = import_roads([saved(tmp_path)])
    assert edges_of(graph) == [(1, 2), (1, 2), (2, 1), (2, 3), (3, 2)]
    assert graph.length_m.tolist() == [111.5, 150.25, 111.5, 140, 140]
    assert (graph.speed_m_s * 3.6).tolist() == pytest.approx([25, 32.18688, 25, 50, 36])
    assert ROAD_CLASSES[graph.road_class[3]] == "primary"
    assert (graph.shape_lat.tolist(), graph.shape_lon.tolist()) == ([41.1505], [-8.6095])
    assert (summary.source, summary.length_model) == ("GraphML", "given")
    assert summary.dropped["self_loops"] == 1
    assert graph.credit == "© OpenStreetMap contributors"


def test_compressed(tmp_path: Path) -> None:
    plain = saved(tmp_path)
    packed = tmp_path / "roads.graphml.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert import_roads([packed])[0].identity == import_roads([plain])[0].identity
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cut short"):
        read_graphml(packed)


BILLION_LAUGHS = '<!DOCTYPE g [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
EXTERNAL_ENTITY = '<!DOCTYPE g [<!ENTITY c SYSTEM "file:///etc/passwd">]>'
EXTERNAL_TYPE = '<!DOCTYPE g SYSTEM "file:///etc/passwd">'


@pytest.mark.parametrize("declaration", [BILLION_LAUGHS, EXTERNAL_ENTITY, EXTERNAL_TYPE])
def test_document_types_and_entities_are_refused(tmp_path: Path, declaration: str) -> None:
    path = saved(tmp_path)
    text = path.read_text().replace("<graphml", declaration + "<graphml", 1).replace(">residential<", ">&c;<")
    path.write_text(text)
    with pytest.raises(InputError, match="declares a document type"):
        import_roads([path])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epsg:4326", "epsg:32629", "is projected"),
        ('edgedefault="directed"', 'edgedefault="undirected"', "not a directed graph"),
        ("111.5", "-111.5", "has no length"),
        ("111.5", "nan", "has no length"),
        ("41.151", "nan", "has no latitude"),
        ('<node id="3"', '<node id="three"', "has no whole number"),
        ('target="3"', 'target="33"', "not among the nodes"),
        ("</graph>", "</graf>", "not well-formed XML"),
        (LINE, "LINESTRING (-8.61 41.15", "not a LINESTRING"),
    ],
)
def test_bad_graphs_are_refused_with_their_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = saved(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        import_roads([path])
    line = text[: text.index(old)].count("\n") + 1
    assert caught.value.row is not None
    assert 0 <= line - caught.value.row <= 8  # the element that holds it starts a few lines above


def test_a_node_without_coordinates_is_refused(tmp_path: Path) -> None:
    graph = osmnx_graph()
    del graph.nodes[2]["y"]
    with pytest.raises(InputError, match="has no latitude"):
        import_roads([saved(tmp_path, graph)])


def test_a_graph_without_edges_or_cut_in_half_is_refused(tmp_path: Path) -> None:
    graph = osmnx_graph()
    graph.remove_edges_from(list(graph.edges(keys=True)))
    with pytest.raises(InputError, match="has no edges"):
        import_roads([saved(tmp_path, graph)])
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(InputError, match="not well-formed XML"):
        import_roads([path])


def test_other_road_files_beside_it_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(ParameterError, match="do not belong together"):
        import_roads([path, path])
