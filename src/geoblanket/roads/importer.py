"""Import road files of any known kind as one road graph, with counts of everything that was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from geoblanket._arguments import checked
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._files import found_in_words, kind_of_file
from geoblanket._untrusted import open_unpacked
from geoblanket.errors import InputError, ParameterError
from geoblanket.roads._reading import RoadsRead
from geoblanket.roads.graph import LengthModel, RoadGraph, check_credit
from geoblanket.roads.simplification import contract, in_largest_part

RoadsSource = Literal["OpenStreetMap", "tables", "GraphML"]

_SNIFFED_BYTES = 4096


@dataclass(frozen=True)
class RoadsSummary:
    """Counts of an import of roads: what it read, left out, assumed and made."""

    source: RoadsSource
    nodes: int
    edges: int
    length_km: float
    """Length of all directed edges together."""
    length_model: LengthModel
    read: dict[str, int]
    """Contents of the files."""
    dropped: dict[str, float]
    """What was left out, by reason; `*_km` are kilometres, the others counts."""
    assumed: dict[str, int]
    """Where the files lack a value, and a default is used."""
    contracted_nodes: int
    """Nodes where a road only bends, which are now part of an edge's shape."""
    credit: str
    """Whose data it is."""

    def as_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        sizes = counted(self.nodes, "node"), counted(self.edges, "edge"), f"{self.length_km:,.1f} km"
        return short_repr(self, *sizes, f"from {self.source}")


@checked
def import_roads(
    files: str | Path | Sequence[str | Path],
    *,
    keep_all: bool = False,
    credit: str | None = None,
    progress: Progress = silent,
) -> tuple[RoadGraph, RoadsSummary]:
    """Read a road network; the format is recognised by the content of the files.

    Parameters
    ----------
    files
        A file or a list of files: OpenStreetMap PBF or XML (one or several extracts), or a table of nodes and a table
        of edges (CSV), or one GraphML file saved by OSMnx. XML, GraphML and CSV may be compressed.
    keep_all
        Keep the whole network, not only its largest strongly connected part.
    credit
        Whose data it is, for pictures and reports (`RoadGraph.credit`). By default OpenStreetMap's contributors, for
        its formats, for GraphML and for tables with its ids (most of a column `osmid` above 10 million); otherwise
        none.
    progress
        Called while reading.

    Returns
    -------
    graph, summary
        OpenStreetMap's nodes are contracted to junctions and ends. Self-loops are dropped: they are on no shortest
        path. Of edges with the same ends and the same length only one is kept. Edges with the same ends and different
        lengths are different roads, and stay.

    Examples
    --------
    >>> from geoblanket import import_roads
    >>> graph, summary = import_roads(["city/roads.osm.pbf"])
    >>> summary.nodes, summary.edges
    (539, 1433)
    >>> graph.save("city.roads")
    """
    if credit is not None:
        check_credit(credit)
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    source, roads = _read(paths, progress)
    progress("Building the graph", 0, None)
    # Tables and GraphML come contracted, and their users know their nodes.
    simplify = contract if source == "OpenStreetMap" else _as_it_is
    unique, repeated = _without_loops_and_duplicates(roads.graph)
    graph = simplify(unique)
    contracted = unique.node_count - graph.node_count
    unconnected: dict[str, float] = {}
    if not keep_all:
        part = graph.keep_nodes(in_largest_part(graph))
        unconnected = {
            "unconnected_nodes": graph.node_count - part.node_count,
            "unconnected_edges": graph.edge_count - part.edge_count,
            "unconnected_km": round((float(graph.length_m.sum()) - float(part.length_m.sum())) / 1000, 3),
        }
        # Where a dropped road joined, a junction may have become a bend.
        graph = simplify(part)
        contracted += part.node_count - graph.node_count
    progress("Building the graph", 1, 1)
    if not graph.edge_count:
        raise InputError(
            "has no two places connected in both directions",
            path=paths[0],
            hint="Give a larger network, or keep all of it (--set keep_all=true)",
        )
    graph = replace(graph, scenery=roads.scenery, credit=graph.credit if credit is None else credit)
    return graph, RoadsSummary(
        source=source,
        nodes=graph.node_count,
        edges=graph.edge_count,
        length_km=round(float(graph.length_m.sum()) / 1000, 3),
        length_model=graph.length_model,
        read=dict(roads.counts.read),
        dropped={**roads.counts.dropped, **repeated, **unconnected},
        assumed=dict(roads.counts.assumed),
        contracted_nodes=contracted,
        credit=graph.credit,
    )


def _read(paths: list[Path], progress: Progress) -> tuple[RoadsSource, RoadsRead]:
    if not paths:
        raise ParameterError("No road file was given. Give at least one.")
    kinds = {path: _kind_of(path) for path in paths}
    if set(kinds.values()) == {"csv"}:
        from geoblanket.roads.tables import read_tables

        return "tables", read_tables(paths)
    if "csv" in kinds.values() or ("graphml" in kinds.values() and len(paths) > 1):
        raise ParameterError(
            "These road files do not belong together. "
            "Give OpenStreetMap extracts, or a table of nodes and one of edges, or one GraphML file."
        )
    if set(kinds.values()) == {"graphml"}:
        from geoblanket.roads.tables import read_graphml

        return "GraphML", read_graphml(paths[0])
    from geoblanket.roads.osm import OsmFile, read_osm

    return "OpenStreetMap", read_osm([OsmFile(path, kind) for path, kind in kinds.items()], progress=progress)


def _kind_of(path: Path) -> str:
    """Return "csv", "graphml", or a format of OpenStreetMap in libosmium's words, by the first bytes of the file."""
    if path.is_dir():
        raise InputError("is a folder, not a road file", path=path, hint="Give the files in it")
    if not path.is_file():
        raise InputError("no such file", path=path)
    head, packing = _first_bytes(path)
    if not head:
        raise InputError("is empty", path=path)
    if b"OSMHeader" in head[:64]:
        return "pbf"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        if b"<graphml" in head:
            return "graphml"
        if b"<osm" in head and packing != ".xz":
            return "osm" + packing
    elif ".csv" in [suffix.lower() for suffix in path.suffixes]:
        return "csv"
    found = kind_of_file(path)
    raise InputError(
        "is neither OpenStreetMap data (PBF or XML), nor GraphML, nor a table named .csv"
        + ("" if found is None else f": it is {found_in_words(found)}"),
        path=path,
        hint="It was imported already: use it as it is" if found == "roads" else "Check that it is the right file",
    )


def _first_bytes(path: Path) -> tuple[bytes, str]:
    """Return the first unpacked bytes of a file, and how it is packed ("", ".gz", ".bz2", ".xz")."""
    with open_unpacked(path) as stream:
        return stream.read(_SNIFFED_BYTES), stream.raw.ending


def _as_it_is(graph: RoadGraph) -> RoadGraph:
    return graph


def _without_loops_and_duplicates(graph: RoadGraph) -> tuple[RoadGraph, dict[str, float]]:
    is_loop = graph.sources == graph.targets
    repeats = np.zeros(graph.edge_count, bool)
    # Edges are sorted by ends and length, so those that agree in all three are neighbours.
    repeats[1:] = np.all([np.diff(values) == 0 for values in (graph.sources, graph.targets, graph.length_m)], axis=0)
    repeats &= ~is_loop
    dropped: dict[str, float] = {
        "self_loops": int(is_loop.sum()),
        "self_loops_km": round(float(graph.length_m[is_loop].sum()) / 1000, 3),
        "duplicate_edges": int(repeats.sum()),
    }
    return graph.keep_edges(~is_loop & ~repeats), dropped
