"""GraphML as OSMnx saves it, to a road graph.

Such a graph is directed and already has an edge for each direction of a two-way road. It is parsed as a stream
(`_xml`), into columns.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Final

import polars as pl

from geoblanket.roads._reading import RoadsRead
from geoblanket.roads._xml import XmlReader
from geoblanket.roads.credit import OPENSTREETMAP
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

LONGEST_TEXT: Final = 1 << 22
"""The longest text of one element, in characters: a line of some 100,000 points."""

Value = str | int | None


def read_graphml(path: str | Path) -> RoadsRead:
    """Read a graph saved by OSMnx (`save_graphml`), in longitude and latitude."""
    path = Path(path)
    document = _Document(path)
    document.parse()
    nodes, edges = document.nodes.frame(), document.edges.frame()
    edges = edges.with_columns(pl.coalesce("speed", "maxspeed").alias("speed")).drop("maxspeed")
    if edges["length"].null_count() == edges.height:
        edges = edges.drop("length")
    return graph_of_tables(RoadTable(nodes, path, OPENSTREETMAP), RoadTable(edges, path))


class _Columns:
    """A table that grows row by row; a dictionary for each row would take many times the memory of the file."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._columns: dict[str, list[Value]] = {name: [] for name in ("row", *names)}
        self._in_order = tuple(self._columns.values())

    def add(self, *values: Value) -> None:
        """Add a row whose first values are known."""
        for column, value in zip_longest(self._in_order, values):
            column.append(value)

    def set(self, name: str, value: str) -> None:
        """Set a value of the last row."""
        self._columns[name][-1] = value

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self._columns, schema={"row": pl.Int64(), **dict.fromkeys(self._names, pl.String())})


class _Document:
    """One pass over a GraphML file; `row` of a record is the line where its element starts."""

    def __init__(self, path: Path) -> None:
        self.nodes = _Columns("id", "lat", "lon")
        self.edges = _Columns("source", "target", *_EDGE_DATA.values())
        self._names: dict[str, str] = {}
        self._inside: str | None = None
        self._field: str | None = None
        self._text: list[str] = []
        self._length = 0
        self._xml = XmlReader(path, start=self._start, end=self._end, characters=self._characters)

    def parse(self) -> None:
        self._xml.read()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        match name := tag.rpartition(" ")[2]:
            case "key":
                self._names[attributes.get("id", "")] = attributes.get("attr.name", "")
            case "graph" if attributes.get("edgedefault") != "directed":
                self._xml.refuse("is not a directed graph", "Save it before making it undirected")
            case "node":
                self._inside = name
                self.nodes.add(self._xml.line, attributes.get("id"))
            case "edge":
                self._inside = name
                self.edges.add(self._xml.line, attributes.get("source"), attributes.get("target"))
            case "data":
                self._field = self._names.get(attributes.get("key", ""), "")
                self._text, self._length = [], 0

    def _characters(self, text: str) -> None:
        if self._field is None:
            return
        self._length += len(text)
        if self._length > LONGEST_TEXT:
            self._xml.refuse(
                f"has a text of more than {LONGEST_TEXT:,} characters", "Check that this is the right file"
            )
        self._text.append(text)

    def _end(self, tag: str) -> None:
        match tag.rpartition(" ")[2]:
            case "data":
                self._store("".join(self._text))
                self._field = None
            case "node" | "edge":
                self._inside = None

    def _store(self, text: str) -> None:
        if self._inside is None:
            if self._field == "crs" and text.strip().lower() != "epsg:4326":
                self._xml.refuse("is projected, not in longitude and latitude", "Save it before projecting it")
        elif self._inside == "node" and self._field in _NODE_DATA:
            self.nodes.set(_NODE_DATA[self._field], text)
        elif self._inside == "edge" and self._field in _EDGE_DATA:
            self.edges.set(_EDGE_DATA[self._field], text)
