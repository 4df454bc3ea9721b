"""The city's traces in the formats of real ones, written block by block: Porto's CSV, Rome's text, a plain table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl

from geoblanket._files import atomic_output, writing
from geoblanket._tables import write_table
from geoblanket.city.fleet import CALL_TYPES, FIRST_VEHICLE
from geoblanket.city.gps import IrregularPoints, RegularPoints

__all__ = ["CsvTraces", "PartsTable", "PortoTraces", "RomeTraces", "points_frame"]


class _TextFile:
    """A file that is there, whole, only when the block ends without an exception."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(atomic_output(self._path))
        self._file = self._stack.enter_context(temporary.open("wb"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._stack.__exit__(kind, error, trace)

    def _finish(self) -> None:
        """Write the points that are held back."""


class PortoTraces(_TextFile):
    """A file in the format of Porto's `train.csv`: a trip a row, everything quoted, points as JSON."""

    _COLUMNS = (
        "TRIP_ID", "CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "TAXI_ID", "TIMESTAMP", "DAY_TYPE", "MISSING_DATA",
        "POLYLINE",
    )  # fmt: skip

    def __enter__(self) -> Self:
        super().__enter__()
        self._file.write((",".join(f'"{name}"' for name in self._COLUMNS) + "\n").encode())
        return self

    def add(self, points: RegularPoints) -> None:
        """Write the trips of a block."""
        walks = points.walks
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
        frame.write_csv(self._file, include_header=False, quote_style="always")


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


class RomeTraces(_TextFile):
    """A file in the format of Rome's `taxi_february.txt`: a point a row, in the order of arrival, local time UTC+1."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._held: pl.DataFrame | None = None
        return self

    def add(self, points: IrregularPoints, *, until_us: int) -> None:
        """Write a block's points that arrive before `until_us`, when the next block's first trip starts."""
        frame = pl.DataFrame(
            {
                "arrival": points.arrival_us,
                "vehicle": points.vehicle + 1,
                "time": points.time_us + 3_600_000_000,
                "lat": points.lat,
                "lon": points.lon,
            }
        )
        if self._held is not None:
            frame = pl.concat([self._held, frame])
        frame = frame.sort("arrival", maintain_order=True)
        self._held = frame.filter(pl.col("arrival") >= until_us)
        self._write(frame.filter(pl.col("arrival") < until_us))

    def _finish(self) -> None:
        if self._held is not None:
            self._write(self._held)

    def _write(self, frame: pl.DataFrame) -> None:
        time = pl.col("time").cast(pl.Datetime("us")).dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
        frame.select(
            "vehicle",
            # PostgreSQL leaves out the zeros at the end of a fraction.
            time.str.strip_chars_end("0").str.strip_chars_end(".") + "+01",
            pl.format("POINT({} {})", pl.col("lat").round(13), pl.col("lon").round(13)),
        ).write_csv(self._file, include_header=False, separator=";", quote_style="never")


class CsvTraces(_TextFile):
    """A plain table with a header: vehicle, trip, time (ISO 8601, UTC), lat, lon."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._file.write(b"vehicle,trip,time,lat,lon\n")
        return self

    def add(self, points: IrregularPoints) -> None:
        """Write a block's points."""
        time = pl.col("time").dt.replace_time_zone(None).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        points_frame(points).with_columns(time).write_csv(self._file, include_header=False)


def points_frame(points: IrregularPoints) -> pl.DataFrame:
    """Return points as a table: vehicle, trip, time (UTC), lat, lon with seven decimals."""
    return pl.DataFrame(
        {
            "vehicle": pl.Series(FIRST_VEHICLE + points.vehicle.astype(np.int64)).cast(pl.String),
            "trip": points.trip,
            "time": pl.Series(points.time_us).cast(pl.Datetime("us", "UTC")),
            "lat": points.lat.round(7),
            "lon": points.lon.round(7),
        }
    )


class PartsTable:
    """A Parquet table made of many frames: kept as parts beside it, joined when the block ends without an exception."""

    def __init__(self, path: str | Path, *, kind: str, about: Mapping[str, Any]) -> None:
        self._path = Path(path)
        self._kind = kind
        self._about = about
        self._parts = 0

    def __enter__(self) -> Self:
        with writing(self._path):
            self._folder = TemporaryDirectory(dir=self._path.parent, prefix=f".{self._path.stem}.")
        return self

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows at the end."""
        with writing(self._path):
            frame.write_parquet(Path(self._folder.name) / f"{self._parts:06}.parquet", compression="lz4")
        self._parts += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                parts = pl.scan_parquet(Path(self._folder.name) / "*.parquet")
                write_table(parts, self._path, kind=self._kind, about=self._about, private=False)
        finally:
            self._folder.cleanup()
