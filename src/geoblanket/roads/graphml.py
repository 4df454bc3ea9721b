"""GraphML as OSMnx saves it, to a road graph.

Such a graph is directed and already has an edge for each direction of a two-way road. It is parsed as a stream, and
a document that declares a type or entities is refused: no file can make the parser read another file or inflate.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

import polars as pl

from geoblanket.errors import InputError
from geoblanket.roads._reading import RoadsRead
from geoblanket.roads.tables import RoadTable, graph_of_tables

__all__ = ["read_graphml"]

_NODE_DATA = {"y": "lat", "x": "lon"}
_EDGE_DATA = {
    "length": "length",
    "highway": "highway",
    "speed_kph": "speed",
    "maxspeed": "maxspeed",
    "geometry": "geometry",
}

Record = dict[str, str | int | None]


def read_graphml(path: str | Path) -> RoadsRead:
    """Read a graph saved by OSMnx (`save_graphml`), in longitude and latitude."""
    path = Path(path)
    document = _Document(path)
    document.parse()
    nodes = pl.DataFrame(document.nodes, schema={"row": pl.Int64, "id": pl.String, "lat": pl.String, "lon": pl.String})
    edge_columns = dict.fromkeys(("source", "target", *_EDGE_DATA.values()), pl.String())
    edges = pl.DataFrame(document.edges, schema={"row": pl.Int64(), **edge_columns})
    edges = edges.with_columns(pl.coalesce("speed", "maxspeed").alias("speed")).drop("maxspeed")
    if edges["length"].null_count() == edges.height:
        edges = edges.drop("length")
    return graph_of_tables(RoadTable(nodes, path), RoadTable(edges, path))


class _Document:
    """One pass over a GraphML file; `row` of a record is the line where its element starts."""

    def __init__(self, path: Path) -> None:
        self.nodes: list[Record] = []
        self.edges: list[Record] = []
        self._path = path
        self._names: dict[str, str] = {}
        self._record: Record | None = None
        self._field: str | None = None
        self._text: list[str] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def parse(self) -> None:
        try:
            with self._path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                self._parser.ParseFile(gzip.GzipFile(fileobj=raw) if packed else raw)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(f"is not well-formed XML ({reason})", path=self._path, row=error.lineno) from None
        except (OSError, EOFError) as error:
            raise InputError("cannot be read: it is cut off or damaged", path=self._path) from error

    def _refuse(self, problem: str, hint: str) -> NoReturn:
        raise InputError(problem, path=self._path, row=self._parser.CurrentLineNumber, hint=hint)

    def _refuse_doctype(self, *_: object) -> None:
        self._refuse("declares a document type, which GraphML has no use for", "Save the graph again with OSMnx")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        match tag.rpartition(" ")[2]:
            case "key":
                self._names[attributes.get("id", "")] = attributes.get("attr.name", "")
            case "graph" if attributes.get("edgedefault") != "directed":
                self._refuse("is not a directed graph", "Save it before making it undirected")
            case "node":
                self._record = {"row": self._parser.CurrentLineNumber, "id": attributes.get("id")}
                self.nodes.append(self._record)
            case "edge":
                self._record = {
                    "row": self._parser.CurrentLineNumber,
                    "source": attributes.get("source"),
                    "target": attributes.get("target"),
                }
                self.edges.append(self._record)
            case "data":
                self._field = self._names.get(attributes.get("key", ""), "")
                self._text = []

    def _characters(self, text: str) -> None:
        if self._field is not None:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        match tag.rpartition(" ")[2]:
            case "data":
                self._store("".join(self._text))
                self._field = None
            case "node" | "edge":
                self._record = None

    def _store(self, text: str) -> None:
        if self._record is None:
            if self._field == "crs" and text.strip().lower() != "epsg:4326":
                self._refuse("is projected, not in longitude and latitude", "Save it before projecting it")
            return
        known = _NODE_DATA if "id" in self._record else _EDGE_DATA
        if self._field in known:
            self._record[known[self._field]] = text
