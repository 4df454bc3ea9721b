"""Node and edge tables to a road graph: CSV, or GraphML as OSMnx saves it.

A graph in GraphML is directed and already has an edge for each direction of a two-way road. It is parsed as a stream
(`XmlReader`), into columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from geoblanket._arrays import Floats, Ints, Octets
from geoblanket._geodesy import haversine_m
from geoblanket._tables import missing_column
from geoblanket._untrusted import UNPACKED_BY_POLARS, open_unpacked
from geoblanket.errors import InputError
from geoblanket.roads._reading import KMH_TO_M_S, Counts, RoadsRead, XmlReader, class_speeds_kmh
from geoblanket.roads.graph import OPENSTREETMAP, Edges, LengthModel, Nodes, RoadGraph, whole_lines
from geoblanket.roads.tags import class_index, parse_speed

NODE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("osmid", "id", "node_id", "node"),
    "lat": ("y", "lat", "latitude"),
    "lon": ("x", "lon", "lng", "longitude"),
}
"""The columns of a table of nodes, and the names that each may have, in any case."""

EDGE_COLUMNS: Mapping[str, tuple[str, ...]] = {"source": ("u", "source", "from"), "target": ("v", "target", "to")}
"""The columns that a table of edges must have."""

OPTIONAL_EDGE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "length": ("length", "length_m"),
    "highway": ("highway", "road_class", "class"),
    "speed": ("speed_limit", "speed_kph", "maxspeed"),
    "geometry": ("geometry", "wkt"),
}
"""The columns that a table of edges may have: metres, OpenStreetMap's class, km/h, a LINESTRING of lon, lat."""

_MOST_COLUMNS = 1000
_LARGE_ID = 10_000_000
"""OpenStreetMap had given so many ids by 2007, before most cities were mapped."""
_LONGEST_M = 20_100_000.0
"""The largest length of an edge, metres: no two points on Earth are farther apart. It also excludes infinity."""

Lines = tuple[Ints, Floats, Floats]
"""Points of edges: where each edge's points start, latitudes, longitudes."""

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


class RoadTable(NamedTuple):
    """Text columns under our names, with the `row` of the file of each line."""

    frame: pl.DataFrame
    path: Path
    credit: str = ""
    """Whose data it is, if the columns show it."""


def read_tables(paths: Sequence[str | Path]) -> RoadsRead:
    """Read a table of nodes and a table of edges, in any order; they are recognised by their columns.

    Each row of the edges is one direction of a road. Lengths are taken as given, in metres; without a column of
    lengths they are measured on the sphere.
    """
    tables: dict[str, RoadTable] = {}
    for path in map(Path, paths):
        kind, table = _read_table(path)
        if kind in tables:
            raise InputError(f"is a second table of {kind}", path=path, hint="Give one table of nodes and one of edges")
        tables[kind] = table
    for kind in ("nodes", "edges"):
        if kind not in tables:
            raise InputError(
                f"needs a table of {kind} beside it",
                path=paths[0],
                hint="Give both files, for example nodes.csv edges.csv",
            )
    return graph_of_tables(tables["nodes"], tables["edges"])


def _read_table(path: Path) -> tuple[str, RoadTable]:
    frame = _read_csv(path)
    by_name = {name.strip().lower(): name for name in reversed(frame.columns)}
    edges, nodes = _matching(EDGE_COLUMNS, by_name), _matching(NODE_COLUMNS, by_name)
    if len(edges) == len(EDGE_COLUMNS):
        kind, columns = "edges", edges | _matching(OPTIONAL_EDGE_COLUMNS, by_name)
    elif len(nodes) == len(NODE_COLUMNS):
        kind, columns = "nodes", nodes
    else:
        expected, present = (EDGE_COLUMNS, edges) if edges else (NODE_COLUMNS, nodes)
        missing = next(names for column, names in expected.items() if column not in present)
        raise missing_column(
            " or ".join(f"'{name}'" for name in missing),
            frame.columns,
            path=path,
            hint="A table of nodes has the columns osmid,y,x and a table of edges u,v,length, separated by commas",
        )
    row = pl.int_range(2, pl.len() + 2).alias("row")
    selected = frame.select(row, **{column: pl.col(name) for column, name in columns.items()})
    is_named = kind == "nodes" and "osmid" in by_name
    return kind, RoadTable(selected, path, OPENSTREETMAP if is_named and _has_osm_ids(selected) else "")


def _has_osm_ids(nodes: pl.DataFrame) -> bool:
    """Return whether most ids are as large as those of OpenStreetMap, which counts all nodes of the world."""
    return bool(nodes["id"].cast(pl.Float64, strict=False).gt(_LARGE_ID).sum() > nodes.height / 2)


def _read_csv(path: Path) -> pl.DataFrame:
    """Read a table of comma-separated texts, plain or packed."""
    with open_unpacked(path) as stream:
        content = stream.read()
    no_table = InputError(
        "cannot be read as a table of comma-separated values in UTF-8",
        path=path,
        hint="Check that it is not cut off and that every row has as many cells as the header",
    )
    # Polars would unpack a doubly packed file, without a limit.
    if content.startswith(UNPACKED_BY_POLARS) or content.partition(b"\n")[0].count(b",") >= _MOST_COLUMNS:
        raise no_table
    try:
        return pl.read_csv(content, infer_schema=False)
    except pl.exceptions.NoDataError as error:
        raise InputError("is empty", path=path) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        # The message of the parser may quote a cell.
        raise no_table from None


def _matching(wanted: Mapping[str, tuple[str, ...]], by_name: Mapping[str, str]) -> dict[str, str]:
    names_by_column = {
        column: next((by_name[name] for name in names if name in by_name), None) for column, names in wanted.items()
    }
    return {column: name for column, name in names_by_column.items() if name is not None}


def graph_of_tables(nodes: RoadTable, edges: RoadTable) -> RoadsRead:
    """Build the graph of a table of nodes (id, lat, lon) and a table of edges (source, target, ...)."""
    for table, things in ((nodes, "nodes"), (edges, "edges")):
        if not table.frame.height:
            raise InputError(f"has no {things}", path=table.path, hint="Give a network with at least one road")
    node_ids = _whole_numbers(nodes, "id")
    _refuse_first(nodes, ~nodes.frame["id"].is_first_distinct(), "repeats the id of a node")
    lat = _numbers(nodes, "lat", lowest=-90.0, highest=90.0, problem="has no latitude between -90 and 90 degrees")
    lon = _numbers(nodes, "lon", lowest=-180.0, highest=180.0, problem="has no longitude between -180 and 180 degrees")
    sources, targets = _node_indices(edges, "source", node_ids), _node_indices(edges, "target", node_ids)
    shapes = _inner_points(edges)
    length_m, length_model = _lengths(edges, whole_lines(lat, lon, sources, targets, shapes))
    counts = Counts()
    road_class = _classes(edges.frame, counts)
    graph = RoadGraph.from_edges(
        Nodes(ids=node_ids, lat=lat, lon=lon),
        Edges(
            sources=sources,
            targets=targets,
            length_m=length_m,
            speed_m_s=_speeds_kmh(edges.frame, road_class, counts) * KMH_TO_M_S,
            road_class=road_class,
        ),
        length_model=length_model,
        shapes=shapes,
        credit=nodes.credit,
    )
    pairs = np.unique(np.stack([sources, targets]), axis=1).shape[1]
    counts.read.update(nodes=graph.node_count, edges=graph.edge_count, parallel_edges=graph.edge_count - pairs)
    return RoadsRead(graph, counts)


def _refuse_first(table: RoadTable, wrong: pl.Series, problem: str, hint: str | None = None) -> None:
    """Raise an error for the first row where `wrong` is true."""
    rows = table.frame["row"].filter(wrong)
    if len(rows):
        raise InputError(problem, path=table.path, row=rows[0], hint=hint)


def _whole_numbers(table: RoadTable, column: str) -> Ints:
    values = table.frame[column].str.strip_chars().cast(pl.Int64, strict=False)
    _refuse_first(table, values.is_null(), f"has no whole number of 64 bits as {column}")
    return values.to_numpy()


def _numbers(table: RoadTable, column: str, *, lowest: float, highest: float, problem: str) -> Floats:
    values = table.frame[column].str.strip_chars().cast(pl.Float64, strict=False)
    _refuse_first(table, ~values.is_between(lowest, highest).fill_null(value=False), problem)
    return values.to_numpy()


def _node_indices(edges: RoadTable, column: str, node_ids: Ints) -> Ints:
    wanted = _whole_numbers(edges, column)
    order = np.argsort(node_ids)
    indices: Ints = order[np.searchsorted(node_ids, wanted, sorter=order).clip(max=len(node_ids) - 1)]
    _refuse_first(
        edges,
        pl.Series(node_ids[indices] != wanted),
        f"has a {column} that is not among the nodes",
        hint="Give the nodes that belong to these edges",
    )
    return indices


def _lengths(edges: RoadTable, lines: Lines) -> tuple[Floats, LengthModel]:
    if "length" in edges.frame.columns:
        problem = "has no length of 0 m or more"
        return _numbers(edges, "length", lowest=0.0, highest=_LONGEST_M, problem=problem), "given"
    offsets, lat, lon = lines
    step_m = np.append(haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]), 0.0)
    step_m[offsets[1:] - 1] = 0.0
    return np.add.reduceat(step_m, offsets[:-1]), "sphere"


def _classes(edges: pl.DataFrame, counts: Counts) -> Octets:
    """Return the class of each edge, and count those of unknown class."""
    if "highway" not in edges.columns:
        counts.assumed["class_unknown"] += edges.height
        return np.full(edges.height, class_index("road").number, np.uint8)
    texts = edges["highway"].fill_null("")
    classes = {text: class_index(text) for text in texts.unique()}
    known = texts.replace_strict(
        {text: road_class.known for text, road_class in classes.items()}, return_dtype=pl.Boolean
    )
    counts.assumed["class_unknown"] += int((~known).sum())
    return texts.replace_strict(
        {text: road_class.number for text, road_class in classes.items()}, return_dtype=pl.UInt8
    ).to_numpy()


def _speeds_kmh(edges: pl.DataFrame, road_class: Octets, counts: Counts) -> Floats:
    """Return the speed of each edge in km/h: its own if it has one, else the speed of its class."""
    speeds = class_speeds_kmh(road_class)
    if "speed" not in edges.columns:
        counts.assumed["speed_of_class"] += edges.height
        return speeds
    texts = edges["speed"].fill_null("").str.strip_chars()
    parsed: dict[str, float | None] = {}
    for text in texts.unique():
        try:
            parsed[text] = parse_speed(text)
        except ValueError:
            parsed[text] = None
            counts.assumed["speed_unreadable"] += int((texts == text).sum())
    own = texts.replace_strict(parsed, return_dtype=pl.Float64)
    counts.assumed["speed_of_class"] += own.null_count()
    return own.fill_null(pl.Series(speeds)).to_numpy()


def _inner_points(edges: RoadTable) -> Lines:
    """Return the points of each edge's LINESTRING without its ends: offsets, latitudes and longitudes."""
    count = edges.frame.height
    if "geometry" not in edges.frame.columns or edges.frame["geometry"].null_count() == count:
        return np.zeros(count + 1, np.int64), np.empty(0), np.empty(0)
    inside = pl.col("geometry").str.extract(r"^\s*LINESTRING\s*\((.*)\)\s*$")
    pair = pl.col("point").str.extract_groups(r"^\s*(?<lon>\S+)\s+(?<lat>\S+)\s*$")
    points = (
        edges.frame.select(
            edge=pl.int_range(pl.len()), is_line=pl.col("geometry").is_not_null(), point=inside.str.split(",")
        )
        .filter("is_line")
        .explode("point")
        .select("edge", pair.alias("pair"))
        .unnest("pair")
        .with_columns(pl.col("lat", "lon").cast(pl.Float64, strict=False))
    )
    is_good = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
    is_bad = pl.int_range(pl.len()).is_in(points.filter(~is_good.fill_null(value=False))["edge"].implode())
    _refuse_first(edges, edges.frame.select(is_bad).to_series(), "has a geometry that is not a LINESTRING of degrees")
    is_end = pl.col("edge").is_first_distinct() | pl.col("edge").is_last_distinct()
    inner = points.filter(~is_end)
    sizes = np.bincount(inner["edge"].to_numpy(), minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]), inner["lat"].to_numpy(), inner["lon"].to_numpy()


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
    """A table that grows row by row, as columns: a dictionary for each row would take much more memory."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._columns: dict[str, list[Value]] = {name: [] for name in ("row", *names)}
        self._in_order = tuple(self._columns.values())

    def add(self, *values: Value) -> None:
        """Add a row by its first values; the others are None."""
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
