"""A city in a folder: its map, its traces in several formats, and the truth about them for tests.

The truth: nodes at ticks, edges of points, orders, faults; and how well walks found from the GPS points agree with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket import __version__
from geoblanket._arrays import Octets
from geoblanket._display import Progress, silent
from geoblanket._files import atomic_output
from geoblanket._tables import reading_parquet
from geoblanket._untrusted import check_parquet
from geoblanket.city.fleet import FIRST_VEHICLE, Schedule, Walks, make_schedule, walk_blocks
from geoblanket.city.formats import (
    CsvTraces,
    PartsTable,
    PortoTraces,
    RomeTraces,
    points_frame,
    write_edges,
    write_nodes,
    write_osm,
)
from geoblanket.city.gps import NOISE_M, IrregularPoints, RegularPoints, irregular_points, regular_points
from geoblanket.city.model import City
from geoblanket.city.moves import BANDS, ORDERS, STRENGTH, speed_range_m_s
from geoblanket.city.plan import DISTRICTS
from geoblanket.city.routes import TICK_S
from geoblanket.city.streets import CENTRE_LAT, CENTRE_LON
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places

__all__ = ["CITY_FILES", "FORMATS", "check_formats", "orders_frame", "share_of_true_places", "write_city"]

FORMATS = {"porto": "porto.csv", "rome": "rome.txt", "table": "points.csv", "parquet": "points.parquet"}
"""Formats of traces, and the file of each."""
CITY_FILES = (
    "city.json", "faults.json", "roads.osm.pbf", "nodes.csv", "edges.csv", "districts.csv", "orders.csv",
    "true_walks.parquet", "true_edges.parquet", *FORMATS.values(),
)  # fmt: skip
"""All files that the folder of a city may have."""

_NEVER_S = 1 << 40  # later than any trip


def check_formats(formats: Sequence[str]) -> None:
    """Raise unless all formats are known: before long work."""
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ParameterError(f"formats must be out of {', '.join(FORMATS)}. Got '{unknown[0]}' instead.")


def write_city(
    city: City,
    folder: str | Path,
    *,
    trips: int,
    seed: int = 0,
    formats: Sequence[str] = tuple(FORMATS),
    true_edges: bool = True,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Write a city into a folder; each file is written wholly or not at all.

    Parameters
    ----------
    formats
        Names out of `FORMATS`.
    true_edges
        Whether to write the true edge of each point of the Porto file: about 10 bytes a point.

    Returns
    -------
    dict
        What was written, in JSON values: the content of `city.json`, with counts.
    """
    check_formats(formats)
    schedule = make_schedule(trips, seed=seed)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be made a folder ({error.strerror}). Choose another one.") from error
    write_osm(city, folder / "roads.osm.pbf")
    write_nodes(city, folder / "nodes.csv")
    write_edges(city, folder / "edges.csv")
    _write_csv(districts_frame(city), folder / "districts.csv")
    _write_csv(orders_frame(), folder / "orders.csv")
    counts = _write_trips(city, schedule, folder, formats, true_edges=true_edges, progress=progress)
    about = _about(city, schedule) | counts
    _write_json(about, folder / "city.json")
    _write_json(about["faults"], folder / "faults.json")
    return about


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of trips, and what receivers saw of them, made when first asked for."""

    city: City
    walks: Walks
    seed: int
    until_s: int
    """When the next block's first trip starts."""

    @cached_property
    def regular(self) -> RegularPoints:
        return regular_points(self.city, self.walks, seed=self.seed)

    @cached_property
    def irregular(self) -> IrregularPoints:
        return irregular_points(self.city, self.walks, seed=self.seed)


def _write_trips(
    city: City,
    schedule: Schedule,
    folder: Path,
    formats: Sequence[str],
    *,
    true_edges: bool,
    progress: Progress,
) -> dict[str, Any]:
    steps = 0
    points: Counter[str] = Counter()
    faults = {name: Counter[str]() for name in formats}
    with ExitStack() as stack:
        writers = _open_writers(city, folder, formats, _about(city, schedule), stack, true_edges=true_edges)
        progress("trips", 0, len(schedule))
        for walks in walk_blocks(city, schedule):
            done = int(walks.trip[-1]) + 1
            until_s = int(schedule.start_s[done]) if done < len(schedule) else _NEVER_S
            block = _Block(city, walks, schedule.seed, until_s)
            for write in writers:
                write(block)
            steps += len(walks.node) - len(walks.trip)
            for name in formats:
                seen = block.regular if name == "porto" else block.irregular
                points[name] += len(seen.lat)
                faults[name] += seen.faults
            progress("trips", done, len(schedule))
    return {"steps": steps, "points": dict(points), "faults": {name: dict(count) for name, count in faults.items()}}


def _open_writers(
    city: City,
    folder: Path,
    formats: Sequence[str],
    about: dict[str, Any],
    stack: ExitStack,
    *,
    true_edges: bool,
) -> list[Callable[[_Block], None]]:
    """Open the files on `stack`, and return for each what writes a block to it."""
    true_walks = stack.enter_context(PartsTable(folder / "true_walks.parquet", kind="true walks", about=about))
    writers: list[Callable[[_Block], None]] = [lambda block: true_walks.add(walks_frame(city, block.walks))]
    if "porto" in formats:
        porto = stack.enter_context(PortoTraces(folder / FORMATS["porto"]))
        writers.append(lambda block: porto.add(block.regular))
        if true_edges:
            edges = stack.enter_context(PartsTable(folder / "true_edges.parquet", kind="true edges", about=about))
            writers.append(lambda block: edges.add(edges_frame(city, block.regular)))
    if "rome" in formats:
        rome = stack.enter_context(RomeTraces(folder / FORMATS["rome"]))
        writers.append(lambda block: rome.add(block.irregular, until_us=block.until_s * 1_000_000))
    if "table" in formats:
        table = stack.enter_context(CsvTraces(folder / FORMATS["table"]))
        writers.append(lambda block: table.add(block.irregular))
    if "parquet" in formats:
        parquet = stack.enter_context(PartsTable(folder / FORMATS["parquet"], kind="points", about=about))
        writers.append(lambda block: parquet.add(points_frame(block.irregular)))
    return writers


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


def _write_json(value: Any, path: Path) -> None:
    with atomic_output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def walks_frame(city: City, walks: Walks) -> pl.DataFrame:
    """Return the true walks: a row a tick.

    Columns: vehicle, trip, step (0 at the start), time (UTC), node (id on the map), district (of the node), band and
    order of the step that ends here (null at the start). `order` is that by which this very step was drawn: 1 for
    steps that cross a border, whatever the order of the district they leave.
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


def edges_frame(city: City, points: RegularPoints) -> pl.DataFrame:
    """Return the true edge of each point of the Porto file.

    Columns: trip (row of the file, from 0), point (position in its POLYLINE, from 0), time (UTC), is_fault (a wild
    jump), and node ids of the edge: u_in → v_in by which the vehicle came and u_out → v_out by which it goes on. The
    two differ only at a node; null where the vehicle has not moved yet or will not move again.
    """
    graph = city.graph
    count = np.diff(points.offsets)
    frame = pl.DataFrame(
        {
            "trip": points.trip,
            "point": (np.arange(len(points.lat)) - np.repeat(points.offsets[:-1], count)).astype(np.int32),
            "time": pl.Series(points.time_s * 1_000_000).cast(pl.Datetime("us", "UTC")),
            "is_fault": points.jump,
        }
    )
    ends = {}
    for name, edge in (("in", points.edge_in), ("out", points.edge_out)):
        there = pl.Series(edge >= 0)
        nothing = pl.Series([None], dtype=pl.Int64)
        ends[f"u_{name}"] = pl.Series(graph.node_ids[graph.sources[edge]]).zip_with(there, nothing)
        ends[f"v_{name}"] = pl.Series(graph.node_ids[graph.targets[edge]]).zip_with(there, nothing)
    return frame.with_columns(**ends)


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


def share_of_true_places(walks: str | Path, *, roads: str | Path, city: str | Path) -> float:
    """Return the share of the steps at whose time the vehicle truly was at the place.

    Parameters
    ----------
    walks
        A table written by `geoblanket match` from the city's Porto file, on its 30 s clock.
    roads
        The road graph it was matched to.
    city
        The folder written by `geoblanket city`.
    """
    graph = RoadGraph.load(roads)
    frame, about = scan_walks(walks)
    if about["roads"] != graph.identity:
        raise MismatchError(f"{walks} was matched to other roads than {roads}. Give the roads that it was matched to.")
    places = choose_places(graph, spacing_m=about["spacing_m"])
    node = pl.LazyFrame({"place": range(len(places)), "found": graph.node_ids[places.nodes]}).cast({"place": pl.Int32})
    truth_path = Path(city) / "true_walks.parquet"
    if not truth_path.is_file():
        raise InputError("no such file", path=truth_path, hint="Make the city with `geoblanket city`")
    check_parquet(truth_path)
    truth = pl.scan_parquet(truth_path).select("vehicle", "time", "node")
    steps = frame.join(node, on="place").join(truth, on=["vehicle", "time"], how="left")
    right = pl.col("found").eq_missing(pl.col("node")).mean()
    with reading_parquet(truth_path):
        return float(steps.select(right).collect(engine="streaming").item())
