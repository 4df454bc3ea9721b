"""The canonical table of traces that everything after import reads."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from geoblanket._arguments import checked
from geoblanket._frames import FRAME, AnyFrame, conformed, to_polars
from geoblanket._tables import reading_parquet, scan_table, write_table
from geoblanket.errors import InputError
from geoblanket.traces._times import time_in_range

__all__ = ["TRACES_SCHEMA", "check_points", "right_points", "scan_traces", "write_traces", "wrong_points"]

TRACES_SCHEMA: dict[str, pl.DataType] = {
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "time": pl.Datetime("us", "UTC"),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""One row a GPS point. `trip` numbers the trips of the file from 0; rows are sorted by trip, then time;
`lat` and `lon` are degrees WGS84."""


@checked
def scan_traces(path: str | Path) -> pl.LazyFrame:
    """Open a table written by `geoblanket traces import`, lazily.

    Examples
    --------
    >>> from geoblanket import scan_traces
    >>> scan_traces("traces.parquet").collect_schema().names()
    ['vehicle', 'trip', 'time', 'lat', 'lon']
    """
    frame, _ = scan_table(path, kind="traces", schema=TRACES_SCHEMA)
    return frame


def write_traces(frame: AnyFrame, path: Path) -> None:
    """Write a data frame as a table of traces, in order of trips and times.

    Raises
    ------
    InputError
        If it has not the columns of `TRACES_SCHEMA`, or if a trip is of several vehicles.
    """
    with reading_parquet(FRAME, "cannot be computed as a table of traces"):
        table = conformed(to_polars(frame, TRACES_SCHEMA), TRACES_SCHEMA, kind="traces")
        write_table(table.sort("trip", "time", maintain_order=True), path, kind="traces", about={"format": "frame"})
        vehicles = pl.scan_parquet(path).group_by("trip").agg(pl.col("vehicle").n_unique())
        shared = vehicles.select((pl.col("vehicle") > 1).any()).collect(engine="streaming").item()
    if shared:
        raise InputError(
            "some trips are of several vehicles, so their numbers are not those of the frame's trips",
            path=FRAME,
            hint="Import it with import_traces, which numbers trips anew",
        )


def right_points() -> pl.Expr:
    """Tell of each row whether it is as the import writes it: whole, on the Earth, and of a year that can be."""
    whole = pl.all_horizontal(pl.col("vehicle", "trip", "time").is_not_null())
    on_earth = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
    return (whole & on_earth & time_in_range(pl.col("time").to_physical())).fill_null(value=False)


def check_points(frame: pl.DataFrame, *, path: str | Path) -> None:
    """Raise InputError unless all rows of traces are `right_points`."""
    if not frame.select(right_points().all()).item():
        raise wrong_points(path)


def wrong_points(path: str | Path) -> InputError:
    """Return the error for a table with rows that the import does not write."""
    return InputError(
        "has points without a vehicle, a trip, a time or a place on Earth", path=path, hint="Import the traces again"
    )
