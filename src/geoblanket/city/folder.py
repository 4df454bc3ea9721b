"""A city in a folder: its map, its traces in several formats, and the truth about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket import __version__
from geoblanket._display import Progress, silent
from geoblanket._files import atomic_output
from geoblanket.city import fleet, gps
from geoblanket.city.formats import CsvTraces, PartsTable, PortoTraces, RomeTraces, points_frame
from geoblanket.city.maps import write_edges, write_nodes, write_osm
from geoblanket.city.model import City
from geoblanket.city.routes import TICK_S
from geoblanket.city.streets import CENTRE_LAT, CENTRE_LON
from geoblanket.city.truth import districts_frame, edges_frame, orders_frame, walks_frame
from geoblanket.errors import OutputError, ParameterError

__all__ = ["CITY_FILES", "FORMATS", "check_formats", "write_city"]

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
    schedule = fleet.make_schedule(trips, seed=seed)
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
    walks: fleet.Walks
    seed: int
    until_s: int
    """When the next block's first trip starts."""

    @cached_property
    def regular(self) -> gps.RegularPoints:
        return gps.regular_points(self.city, self.walks, seed=self.seed)

    @cached_property
    def irregular(self) -> gps.IrregularPoints:
        return gps.irregular_points(self.city, self.walks, seed=self.seed)


def _write_trips(
    city: City,
    schedule: fleet.Schedule,
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
        for walks in fleet.walk_blocks(city, schedule):
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


def _about(city: City, schedule: fleet.Schedule) -> dict[str, Any]:
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
        "noise_m": gps.NOISE_M,
        "version": __version__,
    }


def _write_csv(frame: pl.DataFrame, path: Path) -> None:
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def _write_json(value: Any, path: Path) -> None:
    with atomic_output(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
