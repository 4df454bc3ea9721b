"""The canonical table of traces that everything after import reads."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from geoblanket._tables import scan_table

__all__ = ["TRACES_SCHEMA", "scan_traces"]

TRACES_SCHEMA: dict[str, pl.DataType] = {
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "time": pl.Datetime("us", "UTC"),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""One row a GPS point. `trip` numbers the trips of the file from 0; rows are sorted by trip, then time;
`lat` and `lon` are degrees WGS84."""


def scan_traces(path: str | Path) -> pl.LazyFrame:
    """Open a table written by `geoblanket traces import`, lazily."""
    frame, _ = scan_table(path, kind="traces", schema=TRACES_SCHEMA)
    return frame
