"""Bringing the points of each vehicle together, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket.traces._source import Streams
from geoblanket.traces.cleaning import Points

__all__ = ["gather_by_vehicle", "to_streams"]

MAX_ROWS = 3_000_000
"""How many points are in memory at once (of one vehicle there may be more)."""

_PARTS = 32  # ranges of vehicles that a split makes


def gather_by_vehicle(
    batches: Iterable[pl.DataFrame], *, workspace: Path, max_rows: int | None = None
) -> Iterator[pl.DataFrame]:
    """Rearrange points so that each frame holds all points of its vehicles, in the order of the vehicles' names.

    What does not fit in memory goes to files in `workspace`, split into ranges of vehicles; a range that is still
    too large is split again. The points of a vehicle keep their order.
    """
    max_rows = max_rows or MAX_ROWS
    batches = iter(batches)
    held, rows = [], 0
    for batch in batches:
        held.append(batch)
        rows += batch.height
        if rows > max_rows:
            break
    else:
        if held:
            yield pl.concat(held, how="diagonal")
        return
    parts = _spill(chain(held, batches), _bounds(held), Path(tempfile.mkdtemp(dir=workspace)), max_rows)
    held.clear()
    for files in parts:
        contents = (_take(file) for file in files)
        if len(parts) == 1:  # a single vehicle, which cannot be split
            yield pl.concat(contents, how="diagonal")
        else:
            yield from gather_by_vehicle(contents, workspace=workspace, max_rows=max_rows)


def _bounds(frames: list[pl.DataFrame]) -> pl.Series:
    """Return up to 32 vehicles, in order, between which about equally many of the points lie."""
    counts = pl.concat([frame.select("vehicle") for frame in frames]).group_by("vehicle").len().sort("vehicle")
    share = pl.col("len").cum_sum() / pl.col("len").sum()
    part = (share * _PARTS).ceil()
    return counts.filter(part != part.shift(-1, fill_value=_PARTS + 1)).get_column("vehicle")


def _spill(frames: Iterator[pl.DataFrame], bounds: pl.Series, folder: Path, max_rows: int) -> list[list[Path]]:
    """Write frames to files by range of vehicles; return the files of each range, in order."""
    parts: dict[int, list[Path]] = {}
    for number, frame in enumerate(_merge(frames, max_rows)):
        vehicle = frame.get_column("vehicle")
        # Odd numbers are the vehicles at the bounds, even ones the ranges between them: so every split gets on.
        part = bounds.search_sorted(vehicle, side="left") + bounds.search_sorted(vehicle, side="right")
        pieces = frame.with_columns(part=part).partition_by("part", as_dict=True, include_key=False)
        for (key,), piece in pieces.items():
            path = folder / f"{key:02}-{number:06}.parquet"
            piece.write_parquet(path, compression="lz4")
            parts.setdefault(int(key), []).append(path)
    return [parts[key] for key in sorted(parts)]


def _merge(frames: Iterator[pl.DataFrame], max_rows: int) -> Iterator[pl.DataFrame]:
    """Join small frames, so that files do not become tiny."""
    held, rows = [], 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows > max_rows // 2:
            yield pl.concat(held, how="diagonal")
            held, rows = [], 0
    if held:
        yield pl.concat(held, how="diagonal")


def _take(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path, memory_map=False)
    path.unlink()
    return frame


def to_streams(frame: pl.DataFrame) -> Streams:
    """Sort points by stream (vehicle, or trip of a vehicle), and streams by vehicle, then start."""
    keys = [name for name in ("vehicle", "trip") if name in frame.columns]
    streams = (
        frame.group_by(keys).agg(start=pl.col("time").min()).sort("vehicle", "start", *keys).with_row_index("stream")
    )
    points = frame.join(streams.drop("start"), on=keys, how="left", nulls_equal=True, maintain_order="left")
    points = points.sort("stream", maintain_order=True)
    return Streams(
        Points(
            stream=points["stream"].to_numpy().astype(np.int64),
            row=points["row"].to_numpy(),
            time_us=points["time"].to_numpy(),
            lat=points["lat"].to_numpy(),
            lon=points["lon"].to_numpy(),
        ),
        streams["vehicle"],
    )
