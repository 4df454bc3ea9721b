"""A city in a folder: its map, its traces as GPS points, and the truth about them.

The map is OpenStreetMap PBF. The traces are in Porto's format and as a plain table. The truth is nodes at ticks, Markov
orders and faults.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import osmium
import polars as pl
from osmium.osm import mutable

from geoblanket import __version__
from geoblanket._arrays import Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._files import atomic_output, make_folder, temporary_folder
from geoblanket._tables import write_table
from geoblanket.errors import ParameterError
from geoblanket.lab.city.fleet import CALL_TYPES, FIRST_VEHICLE, Schedule, Walks, make_schedule, walk_blocks
from geoblanket.lab.city.gps import NOISE_M, IrregularPoints, RegularPoints, irregular_points, regular_points
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, ORDERS, STRENGTH, TICK_S, speed_range_m_s
from geoblanket.lab.city.plan import DISTRICTS
from geoblanket.lab.city.streets import CENTRE_LAT, CENTRE_LON, to_degrees
from geoblanket.roads.graph import ROAD_CLASSES, SYNTHETIC_PROGRAM

FORMATS = {"porto": "porto.csv", "table": "points.csv"}
"""Formats of traces, and the file of each."""
CITY_FILES = (
    "city.json", "roads.osm.pbf", "districts.csv", "orders.csv", "true_walks.parquet", *FORMATS.values(),
)  # fmt: skip
"""All files that the folder of a city may have."""

_HEADERS = {
    "porto": (
        '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"\n'
    ),
    "table": "vehicle,trip,time,lat,lon\n",
}
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


def write_city(
    city: City,
    folder: str | Path,
    *,
    trips: int,
    seed: int = 0,
    formats: Sequence[str] = tuple(FORMATS),
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write a city into a folder; each file is written wholly or not at all.

    Parameters
    ----------
    formats
        Formats of the traces, names out of `FORMATS`.

    Returns
    -------
    dict
        The content of `city.json`, with counts.
    """
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise ParameterError(f"formats must be out of {', '.join(FORMATS)}. Got '{unknown[0]}' instead.")
    schedule = make_schedule(trips, seed=seed)
    folder = make_folder(folder)
    write_osm(city, folder / "roads.osm.pbf")
    _write_csv(districts_frame(city), folder / "districts.csv")
    _write_csv(orders_frame(), folder / "orders.csv")
    about = _about(city, schedule)
    about |= _write_trips(city, schedule, folder, formats, about=about, progress=progress)
    with atomic_output(folder / "city.json") as temporary:
        temporary.write_text(json.dumps(about, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return about


def _write_trips(
    city: City, schedule: Schedule, folder: Path, formats: Sequence[str], *, about: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Write true walks and traces of the trips, block by block, in bounded memory; return the counts."""
    steps = 0
    points: Counter[str] = Counter()
    faults = {name: Counter[str]() for name in formats}
    true_walks = folder / "true_walks.parquet"
    with ExitStack() as stack:
        parts = stack.enter_context(temporary_folder(true_walks))
        files = {name: stack.enter_context(_text_file(folder / FORMATS[name], _HEADERS[name])) for name in formats}
        progress("trips", 0, len(schedule))
        for number, walks in enumerate(walk_blocks(city, schedule)):
            walks_frame(city, walks).write_parquet(parts / f"{number:06}.parquet", compression="lz4")
            for name, file in files.items():
                seen = (_write_porto if name == "porto" else _write_table)(city, walks, schedule.seed, file)
                points[name] += len(seen.lat)
                faults[name] += seen.faults
            steps += len(walks.node) - len(walks.trip)
            progress("trips", int(walks.trip[-1]) + 1, len(schedule))
        write_table(pl.scan_parquet(parts / "*.parquet"), true_walks, kind="true walks", about=about, private=False)
    return {"steps": steps, "points": dict(points), "faults": {name: dict(count) for name, count in faults.items()}}


@contextmanager
def _text_file(path: Path, header: str) -> Iterator[IO[bytes]]:
    with atomic_output(path) as temporary, temporary.open("wb") as file:
        file.write(header.encode())
        yield file


def _write_porto(city: City, walks: Walks, seed: int, file: IO[bytes]) -> RegularPoints:
    """Write trips in the format of Porto's `train.csv`: a trip a row, everything quoted, points as JSON."""
    points = regular_points(city, walks, seed=seed)
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
    frame.write_csv(file, include_header=False, quote_style="always")
    return points


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


def _write_table(city: City, walks: Walks, seed: int, file: IO[bytes]) -> IrregularPoints:
    """Write points as a plain table: vehicle, trip, time (ISO 8601, UTC), lat, lon with seven decimals."""
    points = irregular_points(city, walks, seed=seed)
    frame = pl.DataFrame(
        {
            "vehicle": pl.Series(FIRST_VEHICLE + points.vehicle.astype(np.int64)).cast(pl.String),
            "trip": points.trip,
            "time": pl.Series(points.time_us).cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"),
            "lat": points.lat.round(7),
            "lon": points.lon.round(7),
        }
    )
    frame.write_csv(file, include_header=False)
    return points


def _about(city: City, schedule: Schedule) -> dict[str, Any]:
    return {
        "size": city.size,
        "seed": city.seed,
        "trips_seed": schedule.seed,
        "trips": len(schedule),
        "vehicles": len(set(schedule.vehicle.tolist())),
        "nodes": city.graph.node_count,
        "edges": city.graph.edge_count,
        "length_km": round(float(city.graph.length_m.sum()) / 1000, 3),
        "roads_identity": city.graph.identity,
        "centre": [CENTRE_LAT, CENTRE_LON],
        "time_zone": "UTC",
        "tick_s": TICK_S,
        "noise_m": NOISE_M,
        "version": __version__,
    }


def _write_csv(frame: pl.DataFrame, path: Path) -> None:
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def walks_frame(city: City, walks: Walks) -> pl.DataFrame:
    """Return the true walks: a row a tick.

    Columns: vehicle, trip, step (0 at the start), time (UTC), node (id on the map), district (of the node), band and
    order of the step that ends here (null at the start). `order` is the Markov order by which the step was drawn: 1
    for steps that cross a border, whatever the order of the district they leave.
    """
    count = walks.ticks
    step = (np.arange(len(walks.node)) - np.repeat(walks.offsets[:-1], count)).astype(np.int32)
    seconds = np.repeat(walks.start_s, count) + step.astype(np.int64) * TICK_S
    moved = pl.col("step") > 0
    return pl.DataFrame(
        {
            "vehicle": pl.Series(FIRST_VEHICLE + np.repeat(walks.vehicle.astype(np.int64), count)).cast(pl.String),
            "trip": np.repeat(walks.trip, count),
            "step": step,
            "time": pl.Series(seconds * 1_000_000).cast(pl.Datetime("us", "UTC")),
            "node": city.graph.node_ids[walks.node],
            "district": _names(DISTRICTS, city.district[walks.node]),
            "band": _names(BANDS, walks.band),
            "order": walks.order,
        }
    ).with_columns(pl.when(moved).then("band"), pl.when(moved).then("order"))


def orders_frame() -> pl.DataFrame:
    """Return the Markov order by district of the node that is left and band of the straight-line speed.

    `lag_1` and `lag_2` are the strengths with which the last two directions pull the next one.
    """
    rows = [
        (district, band, *speed_range_m_s(band), order, *STRENGTH[order]) for (district, band), order in ORDERS.items()
    ]
    names = ["district", "band", "speed_above_m_s", "speed_to_m_s", "order", "lag_1", "lag_2"]
    return pl.DataFrame(rows, schema=names, orient="row")


def districts_frame(city: City) -> pl.DataFrame:
    """Return the district of each node, and whether vehicles are ever there at a tick."""
    return pl.DataFrame(
        {
            "node": city.graph.node_ids,
            "district": _names(DISTRICTS, city.district),
            "at_ticks": city.moves.usable,
        }
    )


def _names(names: tuple[str, ...], index: Octets) -> pl.Series:
    return pl.Series(names, dtype=pl.Enum(names)).gather(index.astype(np.uint32))


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
