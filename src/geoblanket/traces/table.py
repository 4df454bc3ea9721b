"""The table of traces that an import writes and all later steps read, and its description."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._frames import FRAME, AnyFrame, conformed, to_polars
from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket._tables import reading_parquet, scan_table, write_table
from geoblanket.errors import InputError
from geoblanket.traces._times import time_in_range

TRACES_SCHEMA: dict[str, pl.DataType] = {
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "time": pl.Datetime("us", "UTC"),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""One row a GPS point. `trip` numbers the trips of the file from 0; rows are sorted by trip, then time;
`lat` and `lon` are degrees WGS84."""

OCCUPIED: dict[str, pl.DataType] = {"occupied": pl.Boolean()}
"""A column that a table may have besides: whether a passenger is on board."""

QUANTILES = (0.05, 0.5, 0.95)
"""The quantiles that describe a distribution."""


@checked
def scan_traces(path: str | Path) -> pl.LazyFrame:
    """Open a table written by `geoblanket traces import`, lazily.

    Examples
    --------
    >>> from geoblanket import scan_traces
    >>> scan_traces("traces.parquet").collect_schema().names()
    ['vehicle', 'trip', 'time', 'lat', 'lon']
    """
    frame, _ = scan_table(path, kind="traces", schema=TRACES_SCHEMA, optional=OCCUPIED)
    return frame


def write_traces(frame: AnyFrame, path: Path) -> None:
    """Write a data frame as a table of traces, in order of trips and times.

    Raises
    ------
    InputError
        If columns of `TRACES_SCHEMA` are missing, a point is impossible, or a trip has several vehicles.
    """
    with reading_parquet(FRAME, "cannot be computed as a table of traces"):
        table = conformed(to_polars(frame, TRACES_SCHEMA), TRACES_SCHEMA, kind="traces")
        write_table(table.sort("trip", "time", maintain_order=True), path, kind="traces", about={"format": "frame"})
        written = pl.scan_parquet(path)
        vehicles = written.group_by("trip").agg(pl.col("vehicle").n_unique())
        shared = vehicles.select((pl.col("vehicle") > 1).any()).collect(engine="streaming").item()
        check_points(written, path=path)
    if shared:
        raise InputError(
            "some trips have several vehicles, so their numbers do not identify trips",
            path=FRAME,
            hint="Import it with import_traces, which numbers trips anew",
        )


def check_points(frame: pl.LazyFrame | pl.DataFrame, *, path: str | Path) -> None:
    """Raise InputError unless all rows are complete, on Earth, and of a possible year, as an import writes them."""
    whole = pl.all_horizontal(pl.col("vehicle", "trip", "time").is_not_null())
    on_earth = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
    possible = (whole & on_earth & time_in_range(pl.col("time").to_physical())).fill_null(value=False)
    if not frame.lazy().select(possible.all()).collect(engine="streaming").item():
        raise InputError(
            "has points without a vehicle, a trip, a time or a place on Earth",
            path=path,
            hint="Import the traces again",
        )


@dataclass(frozen=True)
class TracesInfo:
    """A summary of a table of traces.

    Attributes
    ----------
    vehicles, trips, points
        How many there are.
    first, last
        The span of time, UTC.
    median_step_s
        Median time between successive points of a trip, seconds.
    trip_points, trip_duration_s, speed_m_s
        Quantiles (5 %, 50 %, 95 %) of points per trip, of a trip's duration in seconds, and of the speeds between
        successive points in m/s; None without any.
    still_share
        Share of steps without movement.
    south, west, north, east
        Bounding box in degrees, rounded outwards to 0.1°, so that it reveals nobody's place.
    """

    vehicles: int
    trips: int
    points: int
    first: datetime
    last: datetime
    median_step_s: float | None
    trip_points: tuple[float, ...] | None
    trip_duration_s: tuple[float, ...] | None
    speed_m_s: tuple[float, ...] | None
    still_share: float | None
    south: float
    west: float
    north: float
    east: float

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values; times are ISO 8601."""
        return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in asdict(self).items()}


def describe_traces(path: str | Path) -> TracesInfo:
    """Summarise a table written by `import_traces`."""
    traces = scan_traces(path)
    same_trip = pl.col("trip") == pl.col("trip").shift()
    steps = traces.select(
        step_s=pl.when(same_trip).then(pl.col("time").diff().dt.total_microseconds() / 1e6),
        distance_m=pl.when(same_trip).then(_step_m()),
    ).drop_nulls()
    trips = traces.group_by("trip").agg(
        points=pl.len(), duration_s=(pl.col("time").max() - pl.col("time").min()).dt.total_microseconds() / 1e6
    )
    moves = pl.col("step_s") > 0
    questions = [
        traces.select(
            vehicles=pl.col("vehicle").n_unique(),
            points=pl.len(),
            first=pl.col("time").min(),
            last=pl.col("time").max(),
            south=(pl.col("lat").min() * 10).floor() / 10,
            west=(pl.col("lon").min() * 10).floor() / 10,
            north=(pl.col("lat").max() * 10).ceil() / 10,
            east=(pl.col("lon").max() * 10).ceil() / 10,
        ),
        steps.select(
            pl.col("step_s").median(),
            *_quantiles(pl.col("distance_m").filter(moves) / pl.col("step_s").filter(moves), "speed"),
            still=(pl.col("distance_m") == 0.0).mean(),
        ),
        trips.select(
            pl.len(),
            *_quantiles(pl.col("points"), "points"),
            *_quantiles(pl.col("duration_s"), "duration"),
        ),
    ]
    with reading_parquet(path):
        totals, step, trip = pl.collect_all(questions, engine="streaming")
    if totals.item(0, "points") == 0:
        raise InputError("the table of traces is empty", path=path)
    return TracesInfo(
        trips=trip.item(0, "len"),
        median_step_s=step.item(0, "step_s"),
        trip_points=_row(trip, "points"),
        trip_duration_s=_row(trip, "duration"),
        speed_m_s=_row(step, "speed"),
        still_share=step.item(0, "still"),
        **totals.row(0, named=True),
    )


def _quantiles(values: pl.Expr, name: str) -> list[pl.Expr]:
    return [values.quantile(q, interpolation="linear").alias(f"{name} {q}") for q in QUANTILES]


def _row(frame: pl.DataFrame, name: str) -> tuple[float, ...] | None:
    values = frame.select(f"{name} {q}" for q in QUANTILES).row(0)
    return None if None in values else values


def _step_m() -> pl.Expr:
    """Return the Haversine distance from the point before, metres, as an expression that can be streamed."""
    lat, lon = pl.col("lat").radians(), pl.col("lon").radians()
    h = (lat.diff() / 2).sin() ** 2 + lat.cos() * lat.shift().cos() * (lon.diff() / 2).sin() ** 2
    return 2 * EARTH_RADIUS_M * h.clip(0.0, 1.0).sqrt().arcsin()
