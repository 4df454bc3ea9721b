"""Reading road networks, against OSMnx and pandas + NetworkX; run `python -m benchmarks.roads`.

Uses the real networks of Porto and Rome where they are in ../shared/data, else only the synthetic city.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import osmium

from benchmarks._measure import Measured, measure, show

DATA = Path(__file__).parents[2] / "shared" / "data"


def import_and_save(files: list[Path], out: Path) -> int:
    """Import a network and write it; return the number of nodes."""
    from geoblanket.roads.importer import import_roads

    graph, summary = import_roads(files)
    graph.save(out)
    return summary.nodes


def read_xml_with_osmnx(path: Path) -> int:
    """Read, simplify and cut to the largest strongly connected part with OSMnx; return the number of nodes."""
    import osmnx

    graph = osmnx.graph_from_xml(path, simplify=True, retain_all=True)
    return len(osmnx.truncate.largest_component(graph, strongly=True))


def read_graphml_with_osmnx(path: Path) -> int:
    """Read GraphML with OSMnx and cut to the largest strongly connected part; return the number of nodes."""
    import osmnx

    return len(osmnx.truncate.largest_component(osmnx.load_graphml(path), strongly=True))


def read_tables_with_networkx(nodes_path: Path, edges_path: Path) -> int:
    """Read two tables with pandas into NetworkX and cut to the largest strongly connected part."""
    import networkx as nx
    import pandas as pd

    nodes, edges = pd.read_csv(nodes_path, low_memory=False), pd.read_csv(edges_path)
    graph = nx.from_pandas_edgelist(edges, "u", "v", ["highway", "length"], create_using=nx.MultiDiGraph)
    for axis in ("y", "x"):
        nx.set_node_attributes(graph, dict(zip(nodes["osmid"], nodes[axis], strict=True)), axis)
    return len(graph.subgraph(max(nx.strongly_connected_components(graph), key=len)).copy())


def load_milliseconds(path: Path) -> float:
    """Return the best of ten times to load a saved graph, every hash checked, in milliseconds."""
    from geoblanket.roads.graph import RoadGraph

    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        RoadGraph.load(path)
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds)


def write_city(size: str, path: Path) -> None:
    """Write the streets of the synthetic city as OpenStreetMap PBF."""
    from geoblanket.lab.city.folder import write_osm
    from geoblanket.lab.city.model import make_city

    write_osm(make_city(size), path)


def write_xml(pbf: Path, path: Path) -> None:
    """Write the same data as XML, which is what OSMnx reads."""
    with osmium.SimpleWriter(str(path)) as writer:
        for entity in osmium.FileProcessor(pbf):
            writer.add(entity)


def write_graphml(roads: Path, path: Path) -> None:
    """Write a saved graph as GraphML in the way of OSMnx."""
    import osmnx

    from geoblanket.roads.graph import RoadGraph

    osmnx.save_graphml(RoadGraph.load(roads).to_networkx(), path)


def write_tables(roads: Path, folder: Path) -> list[Path]:
    """Write a saved graph as tables of nodes and edges."""
    import polars as pl

    from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

    graph = RoadGraph.load(roads)
    paths = [folder / "nodes.csv", folder / "edges.csv"]
    pl.DataFrame({"osmid": graph.node_ids, "y": graph.lat, "x": graph.lon}).write_csv(paths[0])
    ends = {"u": graph.node_ids[graph.sources], "v": graph.node_ids[graph.targets]}
    highway = [ROAD_CLASSES[number] for number in graph.road_class]
    pl.DataFrame({**ends, "highway": highway, "length": graph.length_m}).write_csv(paths[1])
    return paths


def row(what: str, measured: Measured, ours: Measured | None = None) -> tuple[str, ...]:
    """Format a line; a peer is also shown as a multiple of ours."""
    ratio = "" if ours is None else f"{measured.seconds / ours.seconds:.1f} ×"
    return what, f"{measured.result:,}", f"{measured.seconds:.2f}", f"{measured.peak_mb:,.0f}", ratio


def compared(what: str, files: list[Path], peer: Callable[..., int], name: str) -> list[tuple[str, ...]]:
    """Measure our import of files and a peer's reading of them."""
    with tempfile.TemporaryDirectory() as folder:
        ours = measure(import_and_save, files, Path(folder) / "some.roads")
    return [row(what, ours), row(f"{what} by {name}", measure(peer, *files), ours)]


def main() -> None:
    """Measure everything and print two tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Everything is prepared in processes of its own: a process inherits the peak memory of the one that starts it.
        cities = {"Porto": DATA / "porto" / "porto_drive_2022-11.osm.pbf"}
        if not cities["Porto"].exists():
            cities = {"medium city": folder / "medium.osm.pbf"}
            measure(write_city, "medium", cities["medium city"])
        cities["large city"] = folder / "large.osm.pbf"
        measure(write_city, "large", cities["large city"])
        rows: list[tuple[str, ...]] = []
        loads: list[tuple[str, ...]] = []
        for city, pbf in cities.items():
            xml, graphml, saved = folder / "city.osm", folder / "city.graphml", folder / "city.roads"
            measure(write_xml, pbf, xml)
            rows.append(row(f"{city}: PBF", measure(import_and_save, [pbf], saved)))
            rows += compared(f"{city}: XML", [xml], read_xml_with_osmnx, "OSMnx")
            measure(write_graphml, saved, graphml)
            rows += compared(f"{city}: GraphML", [graphml], read_graphml_with_osmnx, "OSMnx")
            megabytes = saved.stat().st_size / 1e6
            loads.append((city, f"{measure(load_milliseconds, saved).result:.1f}", f"{megabytes:.1f}"))
            xml.unlink()
        tables, city = [DATA / "rome" / "nodes.csv", DATA / "rome" / "edges.csv.gz"], "Rome"
        if not tables[0].exists():
            tables, city = measure(write_tables, folder / "city.roads", folder).result, "large city"
        rows += compared(f"{city}: tables", tables, read_tables_with_networkx, "pandas and NetworkX")
        show("Importing a road network", ("", "nodes kept", "seconds", "peak MB", "against ours"), rows)
        show("Loading a saved network", ("", "milliseconds", "file MB"), loads)


if __name__ == "__main__":
    main()
