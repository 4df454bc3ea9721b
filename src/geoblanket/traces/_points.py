"""Rows that are points: what Rome's files and tables have in common."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from geoblanket.traces._source import (
    BAD_COORDINATE,
    EMPTY_CELL,
    Box,
    Parsed,
    check_coordinates,
    check_first,
    set_aside,
)
from geoblanket.traces._times import BAD_TIME, TIME_OUT_OF_RANGE, time_in_range
from geoblanket.traces.summary import file_row

__all__ = ["read_points"]


def read_points(
    frame: pl.DataFrame,
    malformed: list[tuple[int, str]],
    *,
    time: pl.Expr,
    path: Path,
    file: int,
    first: bool,
    expected: str,
    home: Box | None = None,
) -> Parsed[pl.DataFrame]:
    """Read the points of a batch.

    Parameters
    ----------
    frame
        Columns row, vehicle, perhaps trip, time, lat, lon, as they are in the file.
    malformed
        The rows that could not be split into these columns, and why.
    time
        Microseconds since 1970 UTC, from column "time".
    first
        Whether this is the first batch of the file, from which it shows whether the file is what it should be.
    expected, home
        What rows should look like, and where points should lie.
    """
    rows = frame.height + len(malformed)
    names = [name for name in ("vehicle", "trip") if name in frame.columns]
    frame = frame.with_columns(
        pl.col(names).cast(pl.String).str.strip_chars().replace("", None),
        pl.col("lat", "lon").cast(pl.Float64, strict=False).name.suffix("_number"),
        microseconds=time,
    )
    frame, unreadable = set_aside(
        frame,
        {
            EMPTY_CELL: pl.any_horizontal(pl.col(*names, "time", "lat", "lon").is_null()),
            BAD_TIME: pl.col("microseconds").is_null(),
            TIME_OUT_OF_RANGE: ~time_in_range(pl.col("microseconds")),
            BAD_COORDINATE: pl.any_horizontal(pl.col("lat_number", "lon_number").is_null()),
        },
    )
    malformed = sorted(malformed + unreadable)
    frame = frame.select(
        *names, pl.col("row") + file_row(file, 0), time="microseconds", lat="lat_number", lon="lon_number"
    )
    if first:
        check_first(path, rows, malformed, expected=expected)
        check_coordinates(frame, path=path, home=home)
    return Parsed(frame, rows, frame.height, malformed)
