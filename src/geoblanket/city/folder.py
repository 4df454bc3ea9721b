"""A city in a folder: its map, its traces in several formats, and the truth about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket import __version__
from geoblanket._files import atomic_output
from geoblanket._progress import Progress, silent
from geoblanket.city import fleet, gps
from geoblanket.city.formats import CsvTraces, PartsTable, PortoTraces, RomeTraces, points_frame
from geoblanket.city.maps import write_edges, write_nodes, write_osm
from geoblanket.city.model import City
from geoblanket.city.routes import TICK_S
from geoblanket.city.streets import CENTRE_LAT, CENTRE_LON
from geoblanket.city.truth import districts_frame, edges_frame, orders_frame, walks_frame
from geoblanket.errors import OutputError, ParameterError

__all__ = ["FORMATS", "write_city"]

FORMATS = {"porto": "porto.csv", "rome": "rome.txt", "table": "points.csv", "parquet": "points.parquet"}
"""Formats of traces, and the file of each."""


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
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ParameterError(f"formats must be out of {', '.join(FORMATS)}. Got '{unknown[0]}' instead.")
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
    counts = _write_trips(city, schedule, folder, tuple(formats), true_edges=true_edges, progress=progress)
    about = _about(city, schedule) | counts
    _write_json(about, folder / "city.json")
    _write_json(about["faults"], folder / "faults.json")
    return about


def _write_trips(
    city: City,
    schedule: fleet.Schedule,
    folder: Path,
    formats: tuple[str, ...],
    *,
    true_edges: bool,
    progress: Progress,
) -> dict[str, Any]:
    about = _about(city, schedule)
    steps = 0
    faults: dict[str, Counter[str]] = {}
    points: dict[str, int] = {}
    with ExitStack() as stack:
        walks_table = stack.enter_context(PartsTable(folder / "true_walks.parquet", kind="true walks", about=about))
        edges_table = (
            stack.enter_context(PartsTable(folder / "true_edges.parquet", kind="true edges", about=about))
            if true_edges and "porto" in formats
            else None
        )
        porto = stack.enter_context(PortoTraces(folder / FORMATS["porto"])) if "porto" in formats else None
        rome = stack.enter_context(RomeTraces(folder / FORMATS["rome"])) if "rome" in formats else None
        table = stack.enter_context(CsvTraces(folder / FORMATS["table"])) if "table" in formats else None
        parquet = (
            stack.enter_context(PartsTable(folder / FORMATS["parquet"], kind="points", about=about))
            if "parquet" in formats
            else None
        )
        progress("trips", 0, len(schedule))
        for walks in fleet.walk_blocks(city, schedule):
            done = int(walks.trip[-1]) + 1
            steps += len(walks.node) - len(walks.trip)
            walks_table.add(walks_frame(city, walks))
            if porto is not None:
                regular = gps.regular_points(city, walks, seed=schedule.seed)
                porto.add(regular)
                _count(points, faults, "porto", len(regular.lat), regular.faults)
                if edges_table is not None:
                    edges_table.add(edges_frame(city, regular))
            if rome is not None or table is not None or parquet is not None:
                irregular = gps.irregular_points(city, walks, seed=schedule.seed)
                if rome is not None:
                    until = schedule.start_s[done] if done < len(schedule) else fleet.END_OF_TIME_S
                    rome.add(irregular, until_us=int(until) * 1_000_000)
                if table is not None:
                    table.add(irregular)
                if parquet is not None:
                    parquet.add(points_frame(irregular))
                for name in formats:
                    if name != "porto":
                        _count(points, faults, name, len(irregular.lat), irregular.faults)
            progress("trips", done, len(schedule))
    return {"steps": steps, "points": points, "faults": {name: dict(count) for name, count in faults.items()}}


def _count(
    points: dict[str, int], faults: dict[str, Counter[str]], name: str, number: int, found: Counter[str]
) -> None:
    points[name] = points.get(name, 0) + number
    faults[name] = faults.get(name, Counter()) + found


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
