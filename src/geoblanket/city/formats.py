"""The city in the formats of real ones.

The map: OpenStreetMap PBF, and tables of nodes and edges. The traces, written block by block: Porto's CSV, Rome's text,
a plain table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import numpy as np
import osmium
import polars as pl
from osmium.osm import mutable

from geoblanket._arrays import Ints
from geoblanket._files import atomic_output, writing
from geoblanket._tables import write_table
from geoblanket.city.fleet import CALL_TYPES, FIRST_VEHICLE
from geoblanket.city.gps import IrregularPoints, RegularPoints
from geoblanket.city.model import City
from geoblanket.city.streets import to_degrees
from geoblanket.roads.graph import ROAD_CLASSES, SYNTHETIC_PROGRAM

__all__ = [
    "CsvTraces",
    "PartsTable",
    "PortoTraces",
    "RomeTraces",
    "points_frame",
    "write_edges",
    "write_nodes",
    "write_osm",
]

_FIRST_INNER_ID = 2_000_000_001
_FIRST_RIVER_ID = 3_000_000_001
_FIRST_WAY_ID = 100_000_001
_WORDS = (
    "Alder", "Amber", "Aspen", "Barley", "Beacon", "Birch", "Bramble", "Canal", "Cedar", "Chapel", "Clover", "Copper",
    "Crescent", "Dove", "Elm", "Falcon", "Fern", "Garden", "Hazel", "Heron", "Ivy", "Juniper", "Kestrel", "Lark",
    "Linden", "Maple", "Market", "Meadow", "Mill", "Oak", "Orchard", "Pearl", "Pine", "Quarry", "Rowan", "Saddle",
    "Station", "Thistle", "Tower", "Willow",
)  # fmt: skip
_KINDS = {"motorway": "Motorway", "trunk": "Ring", "primary": "Avenue", "secondary": "Road", "tertiary": "Road"}


class _TextFile:
    """A file that is there, whole, only when the block ends without an exception."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(atomic_output(self._path))
        self._file = self._stack.enter_context(temporary.open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._stack.__exit__(kind, error, trace)

    def _finish(self) -> None:
        """Write the points that are held back."""


class PortoTraces(_TextFile):
    """A file in the format of Porto's `train.csv`: a trip a row, everything quoted, points as JSON."""

    _COLUMNS = (
        "TRIP_ID", "CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "TAXI_ID", "TIMESTAMP", "DAY_TYPE", "MISSING_DATA",
        "POLYLINE",
    )  # fmt: skip

    def __enter__(self) -> Self:
        super().__enter__()
        self._file.write((",".join(f'"{name}"' for name in self._COLUMNS) + "\n").encode())
        return self

    def add(self, points: RegularPoints) -> None:
        """Write the trips of a block."""
        walks = points.walks
        taxi = pl.Series(FIRST_VEHICLE + walks.vehicle.astype(np.int64)).cast(pl.String)
        start = pl.Series(walks.start_s).cast(pl.String)
        stand = pl.Series(walks.stand + 1)
        # Porto's callers have numbers; here they are drawn from the trip's own number.
        caller = pl.Series(2_000 + walks.trip * 7_919 % 60_000)
        called = pl.Series(walks.call_type == CALL_TYPES.index("A"))
        frame = pl.DataFrame(
            {
                "TRIP_ID": start + "6" + taxi,
                "CALL_TYPE": pl.Series(CALL_TYPES).gather(walks.call_type.astype(np.uint32)),
                "ORIGIN_CALL": caller.cast(pl.String).zip_with(called, pl.Series([""])),
                "ORIGIN_STAND": stand.cast(pl.String).zip_with(stand > 0, pl.Series([""])),
                "TAXI_ID": taxi,
                "TIMESTAMP": start,
                "DAY_TYPE": "A",
                "MISSING_DATA": pl.Series(np.where(points.missing_data, "True", "False")),
                "POLYLINE": _polylines(points),
            }
        )
        frame.write_csv(self._file, include_header=False, quote_style="always")


def _polylines(points: RegularPoints) -> pl.Series:
    """Return the points of each trip as [[lon,lat],…], six decimals without the zeros at the end."""
    count = np.diff(points.offsets)
    frame = pl.DataFrame({"trip": np.repeat(np.arange(len(count)), count), "lon": points.lon, "lat": points.lat})
    texts = (
        frame.lazy()
        .select("trip", text=pl.format("[{},{}]", "lon", "lat"))
        .group_by("trip", maintain_order=True)
        .agg(pl.col("text").str.join(","))
        .collect()
    )
    every = pl.DataFrame({"trip": np.arange(len(count))}).join(texts, on="trip", how="left", maintain_order="left")
    return every.select(pl.format("[{}]", pl.col("text").fill_null(""))).to_series()


class RomeTraces(_TextFile):
    """A file in the format of Rome's `taxi_february.txt`: a point a row, in the order of arrival, local time UTC+1."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._held: pl.DataFrame | None = None
        return self

    def add(self, points: IrregularPoints, *, until_us: int) -> None:
        """Write a block's points that arrive before `until_us`, when the next block's first trip starts."""
        frame = pl.DataFrame(
            {
                "arrival": points.arrival_us,
                "vehicle": points.vehicle + 1,
                "time": points.time_us + 3_600_000_000,
                "lat": points.lat,
                "lon": points.lon,
            }
        )
        if self._held is not None:
            frame = pl.concat([self._held, frame])
        frame = frame.sort("arrival", maintain_order=True)
        self._held = frame.filter(pl.col("arrival") >= until_us)
        self._write(frame.filter(pl.col("arrival") < until_us))

    def _finish(self) -> None:
        if self._held is not None:
            self._write(self._held)

    def _write(self, frame: pl.DataFrame) -> None:
        time = pl.col("time").cast(pl.Datetime("us")).dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
        frame.select(
            "vehicle",
            # PostgreSQL leaves out the zeros at the end of a fraction.
            time.str.strip_chars_end("0").str.strip_chars_end(".") + "+01",
            pl.format("POINT({} {})", pl.col("lat").round(13), pl.col("lon").round(13)),
        ).write_csv(self._file, include_header=False, separator=";", quote_style="never")


class CsvTraces(_TextFile):
    """A plain table with a header: vehicle, trip, time (ISO 8601, UTC), lat, lon."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._file.write(b"vehicle,trip,time,lat,lon\n")
        return self

    def add(self, points: IrregularPoints) -> None:
        """Write a block's points."""
        time = pl.col("time").dt.replace_time_zone(None).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        points_frame(points).with_columns(time).write_csv(self._file, include_header=False)


def points_frame(points: IrregularPoints) -> pl.DataFrame:
    """Return points as a table: vehicle, trip, time (UTC), lat, lon with seven decimals."""
    return pl.DataFrame(
        {
            "vehicle": pl.Series(FIRST_VEHICLE + points.vehicle.astype(np.int64)).cast(pl.String),
            "trip": points.trip,
            "time": pl.Series(points.time_us).cast(pl.Datetime("us", "UTC")),
            "lat": points.lat.round(7),
            "lon": points.lon.round(7),
        }
    )


class PartsTable:
    """A Parquet table made of many frames: kept as parts beside it, joined when the block ends without an exception."""

    def __init__(self, path: str | Path, *, kind: str, about: Mapping[str, Any]) -> None:
        self._path = Path(path)
        self._kind = kind
        self._about = about
        self._parts = 0

    def __enter__(self) -> Self:
        with writing(self._path):
            self._folder = TemporaryDirectory(dir=self._path.parent, prefix=f".{self._path.stem}.")
        return self

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows at the end."""
        with writing(self._path):
            frame.write_parquet(Path(self._folder.name) / f"{self._parts:06}.parquet", compression="lz4")
        self._parts += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                parts = pl.scan_parquet(Path(self._folder.name) / "*.parquet")
                write_table(parts, self._path, kind=self._kind, about=self._about, private=False)
        finally:
            self._folder.cleanup()


def write_osm(city: City, path: str | Path) -> None:
    """Write the streets and the river as OpenStreetMap data, PBF or XML by the ending of `path`.

    Junctions keep the node ids of the graph. Ways run along streets across junctions, as in real maps.
    """
    graph = city.graph
    ways = list(_ways(city))
    inner_ids = _inner_node_ids(city)
    with atomic_output(path) as temporary:
        header = osmium.io.Header()
        header.set("generator", SYNTHETIC_PROGRAM)
        writer = osmium.SimpleWriter(str(temporary), header=header)
        try:
            for number, lat, lon in zip(graph.node_ids.tolist(), graph.lat.tolist(), graph.lon.tolist(), strict=True):
                writer.add_node(mutable.Node(id=number, location=(lon, lat)))
            for number, at in sorted({number: at for at, number in enumerate(inner_ids.tolist())}.items()):
                writer.add_node(mutable.Node(id=number, location=(graph.shape_lon[at], graph.shape_lat[at])))
            lat_river, lon_river = to_degrees(city.plan.river)
            for at, (lat, lon) in enumerate(zip(lat_river.tolist(), lon_river.tolist(), strict=True)):
                writer.add_node(mutable.Node(id=_FIRST_RIVER_ID + at, location=(lon, lat)))
            for number, way in enumerate(ways, _FIRST_WAY_ID):
                writer.add_way(mutable.Way(id=number, nodes=_way_nodes(city, way, inner_ids), tags=_tags(city, way[0])))
            river = [_FIRST_RIVER_ID + at for at in range(len(lat_river))]
            tags = {"waterway": "river", "name": "The Blanket", "width": f"{city.plan.size.river_m:.0f}"}
            writer.add_way(mutable.Way(id=_FIRST_WAY_ID + len(ways), nodes=river, tags=tags))
        finally:
            writer.close()


def write_nodes(city: City, path: str | Path) -> None:
    """Write the nodes as a table in OSMnx's style: osmid, y (latitude), x (longitude), street_count, ..."""
    graph = city.graph
    ends = np.unique(np.sort(np.stack([graph.sources, graph.targets], 1), axis=1), axis=0)
    frame = pl.DataFrame(
        {
            "osmid": graph.node_ids,
            "y": graph.lat,
            "x": graph.lon,
            "street_count": np.bincount(ends.ravel(), minlength=graph.node_count),
        }
    ).with_columns(
        pl.lit(None, pl.String).alias("highway"),
        pl.lit(None, pl.String).alias("ref"),
        pl.format("POINT ({} {})", "x", "y").alias("geometry"),
    )
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def write_edges(city: City, path: str | Path) -> None:
    """Write the edges as a table: u, v, highway, length (metres), speed_limit (km/h)."""
    graph = city.graph
    frame = pl.DataFrame(
        {
            "u": graph.node_ids[graph.sources],
            "v": graph.node_ids[graph.targets],
            "highway": pl.Series(ROAD_CLASSES).gather(graph.road_class.astype(np.uint32)),
            "length": graph.length_m.round(3),
            "speed_limit": city.streets.speed_km_h,
        }
    )
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def _ways(city: City) -> Iterator[list[int]]:
    """Join the edges of each street, one direction only, in driving order into chains as long as their tags allow."""
    graph, streets = city.graph, city.streets
    drawn = np.flatnonzero(streets.one_way | (graph.sources < graph.targets))
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    tags = (streets.street, graph.road_class, streets.speed_km_h, streets.one_way, streets.bridge)
    for edge, key in zip(drawn.tolist(), np.stack([tag[drawn] for tag in tags], 1).tolist(), strict=True):
        groups[tuple(key)].append(edge)
    back = _opposite_edges(city)
    for key in sorted(groups):
        yield from _chain(city, groups[key], back)


def _opposite_edges(city: City) -> Ints:
    """Return for each edge the one in the other direction, -1 for one-way streets."""
    graph = city.graph
    key = graph.sources.astype(np.int64) * graph.node_count + graph.targets
    wanted = graph.targets.astype(np.int64) * graph.node_count + graph.sources
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, at, -1)


def _chain(city: City, edges: list[int], back: Ints) -> Iterator[list[int]]:
    sources, targets = city.graph.sources, city.graph.targets
    leaving: defaultdict[int, list[int]] = defaultdict(list)
    for edge in edges:
        leaving[int(sources[edge])].append(edge)
        if back[edge] >= 0:
            leaving[int(targets[edge])].append(int(back[edge]))
    entered = {int(targets[edge]) for edge in edges}
    done: set[int] = set()
    # Start where a chain begins, so that chains are long; what is left are circles.
    starts = sorted(leaving, key=lambda node: (len(leaving[node]) != 1, node in entered, node))
    for node in starts:
        for first in leaving[node]:
            chain: list[int] = []
            onwards = [] if first in done else [first]
            while onwards:
                chain.append(onwards[0])
                done.update((chain[-1], int(back[chain[-1]])))
                onwards = [edge for edge in leaving[int(targets[chain[-1]])] if edge not in done]
            if chain:
                yield chain


def _inner_node_ids(city: City) -> Ints:
    """Return a node id for each inner geometry point; the two directions of a street share theirs."""
    graph = city.graph
    back = _opposite_edges(city)
    count = np.diff(graph.shape_offsets)
    edge = np.repeat(np.arange(graph.edge_count), count)
    position = np.arange(len(edge)) - graph.shape_offsets[edge]
    mirrored = (back[edge] >= 0) & (back[edge] < edge)
    mirror_image = graph.shape_offsets[back[edge]] + count[edge] - 1 - position
    ids = _FIRST_INNER_ID + np.arange(len(edge))
    return np.where(mirrored, _FIRST_INNER_ID + mirror_image, ids)


def _way_nodes(city: City, way: list[int], inner_ids: Ints) -> list[int]:
    graph = city.graph
    nodes = [int(graph.node_ids[graph.sources[way[0]]])]
    for edge in way:
        nodes += inner_ids[graph.shape_offsets[edge] : graph.shape_offsets[edge + 1]].tolist()
        nodes.append(int(graph.node_ids[graph.targets[edge]]))
    return nodes


def _tags(city: City, edge: int) -> dict[str, str]:
    streets = city.streets
    road_class, street = ROAD_CLASSES[city.graph.road_class[edge]], int(streets.street[edge])
    turn, word = divmod(street, len(_WORDS))
    number = f" {turn + 1}" if turn else ""
    tags = {
        "highway": road_class,
        "name": f"{_WORDS[word]} {_KINDS.get(road_class, 'Street')}{number}",
        "maxspeed": str(streets.speed_km_h[edge]),
    }
    if streets.roundabout[edge]:
        # That a roundabout is one-way goes without saying.
        return tags | {"junction": "roundabout"}
    tags["oneway"] = "yes" if streets.one_way[edge] else "no"
    return tags | ({"bridge": "yes"} if streets.bridge[edge] else {})
