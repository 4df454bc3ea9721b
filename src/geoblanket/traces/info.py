"""What a table of traces holds, at a glance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError
from geoblanket.traces.table import right_points, scan_traces, wrong_points

__all__ = ["QUANTILES", "TracesInfo", "describe_traces"]

QUANTILES = (0.05, 0.5, 0.95)
"""The quantiles that describe a distribution."""


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
        successive points in m/s; None where there are none.
    still_share
        Share of steps that do not move at all.
    south, west, north, east
        Bounding box in degrees, rounded outwards to 0.1° so that it gives no one's place away.
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
            right=right_points().all(),
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
    if not totals.item(0, "right"):
        raise wrong_points(path)
    facts = totals.drop("right").row(0, named=True)
    return TracesInfo(
        trips=trip.item(0, "len"),
        median_step_s=step.item(0, "step_s"),
        trip_points=_row(trip, "points"),
        trip_duration_s=_row(trip, "duration"),
        speed_m_s=_row(step, "speed"),
        still_share=step.item(0, "still"),
        **facts,
    )


def _quantiles(values: pl.Expr, name: str) -> list[pl.Expr]:
    return [values.quantile(q, interpolation="linear").alias(f"{name} {q}") for q in QUANTILES]


def _row(frame: pl.DataFrame, name: str) -> tuple[float, ...] | None:
    values = frame.select(f"{name} {q}" for q in QUANTILES).row(0)
    return None if None in values else values


def _step_m() -> pl.Expr:
    """Return the Haversine distance from the point before, as an expression, so that it can be streamed."""
    lat, lon = pl.col("lat").radians(), pl.col("lon").radians()
    h = (lat.diff() / 2).sin() ** 2 + lat.cos() * lat.shift().cos() * (lon.diff() / 2).sin() ** 2
    return 2 * EARTH_RADIUS_M * h.clip(0.0, 1.0).sqrt().arcsin()
