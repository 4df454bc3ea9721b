"""Convert times of any form to UTC microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from geoblanket.errors import InputError, ParameterError

TimeUnit = Literal["s", "ms", "us", "ns"]

BAD_TIME = "the time is not readable"
TIME_OUT_OF_RANGE = "the time lies outside the years 1970 to 2100"

_MICROSECONDS: dict[TimeUnit, float] = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_PER_SECOND: dict[TimeUnit, float] = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_LATEST_US = 4_102_444_800_000_000  # 2100-01-01
_TELLING_S = (1e8, 1e10)
"""Seconds since 1970 (1973 to 2286) whose magnitude shows their unit."""

_WITH_OFFSET = "%Y-%m-%d %H:%M:%S%.f%#z"
_WITHOUT_OFFSET = "%Y-%m-%d %H:%M:%S%.f"


@dataclass(frozen=True)
class TimeFormat:
    """How the times of one file are written.

    Attributes
    ----------
    unit
        The unit of numbers since 1970-01-01 UTC; None for ISO 8601 times.
    zone
        The time zone of ISO times without an offset; None: all must have an offset.
    """

    unit: TimeUnit | None
    zone: str | None = None

    def microseconds(self, name: str) -> pl.Expr:
        """Return column `name` as microseconds since 1970 UTC, null where it is not readable.

        Local times that a change of the clocks skips or repeats are not readable either.
        """
        text = pl.col(name)
        if self.unit is not None:
            number = text.cast(pl.Float64, strict=False)
            scaled = (number * _MICROSECONDS[self.unit]).round()
            return scaled.clip(-9e18, 9e18).cast(pl.Int64, strict=False)
        text = text.str.replace("T", " ", literal=True).str.replace("Z", "+00", literal=True)
        absolute = text.str.to_datetime(_WITH_OFFSET, time_unit="us", time_zone="UTC", strict=False).to_physical()
        if self.zone is None:
            return absolute
        local = text.str.to_datetime(_WITHOUT_OFFSET, time_unit="us", strict=False)
        return pl.coalesce(absolute, in_utc(local, self.zone).to_physical())


def in_utc(local: pl.Expr, zone: str) -> pl.Expr:
    """Read naive times as local times of a zone; times that a change of the clocks skips or repeats become null."""
    return local.dt.replace_time_zone(zone, ambiguous="null", non_existent="null").dt.convert_time_zone("UTC")


def time_in_range(time: pl.Expr) -> pl.Expr:
    """Return whether microseconds since 1970 lie in the years 1970 to 2099."""
    return time.is_between(0, _LATEST_US, closed="left")


def find_time_format(sample: pl.Series, *, path: Path, unit: TimeUnit | None, zone: str | None) -> TimeFormat:
    """Find out from the first times of a file how they are written.

    Parameters
    ----------
    sample
        Times as text or numbers.
    unit
        The unit that the user declared for numbers; None: it is detected.
    zone
        The time zone that the user declared for times without an offset.

    Raises
    ------
    InputError
        If the unit cannot be detected, or the declared unit is impossible, or the times have neither an offset nor a
        declared zone.
    """
    if not sample.count():
        return TimeFormat(unit, zone)
    numbers = sample.cast(pl.Float64, strict=False).drop_nulls()
    if 2 * len(numbers) > len(sample) - sample.null_count() or (unit and len(numbers)):
        return TimeFormat(_find_unit(numbers, path=path, declared=unit))
    if unit is not None:
        raise InputError(f"the times are not numbers of unit '{unit}'", path=path, hint="Leave time_unit out")
    text = sample.drop_nulls().cast(pl.String).to_frame("time")
    offsets = text.select(TimeFormat(None).microseconds("time")).to_series()
    naive = text.select(pl.col("time").str.replace("T", " ").str.to_datetime(_WITHOUT_OFFSET, strict=False)).to_series()
    if zone is None and naive.count() > offsets.count():
        raise naive_times(path)
    return TimeFormat(None, zone)


def naive_times(path: Path) -> InputError:
    """Return the error for times that have neither an offset nor a declared zone."""
    return InputError(
        "the times have no UTC offset, so their time zone is not known",
        path=path,
        hint="Give it, for example --time-zone Europe/Lisbon or --time-zone UTC",
    )


def _find_unit(numbers: pl.Series, *, path: Path, declared: TimeUnit | None) -> TimeUnit:
    typical = float(numbers.abs().median() or 0.0)  # type: ignore[arg-type]  # the median of floats is a float
    low, high = _TELLING_S
    likely = next((unit for unit, per_s in _PER_SECOND.items() if low <= typical / per_s < high), None)
    if declared is not None and likely not in (None, declared):
        raise InputError(
            f"the times are numbers of magnitude 1e{len(str(int(typical))) - 1}, which is unit '{likely}', "
            f"but they were to be read as '{declared}'",
            path=path,
            hint=f"Give --set time_unit={likely}",
        )
    unit = declared or likely
    if unit is None:
        raise InputError(
            "the unit of the times (numbers since 1970) cannot be told from their size",
            path=path,
            hint=f"Give --set time_unit={'|'.join(get_args(TimeUnit))}",
        )
    return unit


def check_time_zone(zone: str) -> None:
    """Raise ParameterError unless Polars knows the time zone."""
    try:
        pl.select(in_utc(pl.lit(0).cast(pl.Datetime("us")), zone))
    except pl.exceptions.PolarsError:
        raise ParameterError(
            f"the time zone must be a name such as Europe/Lisbon or UTC. Got {zone!r} instead."
        ) from None
