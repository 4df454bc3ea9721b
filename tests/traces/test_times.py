from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import InputError, ParameterError
from geoblanket.traces._times import TimeFormat, TimeUnit, check_time_zone, find_time_format, time_in_range

PATH = Path("file.csv")


def read(texts: list[str], form: TimeFormat) -> list[int | None]:
    return pl.DataFrame({"time": texts}).select(form.microseconds("time")).to_series().to_list()


def found(texts: list[str], *, unit: TimeUnit | None = None, zone: str | None = None) -> TimeFormat:
    return find_time_format(pl.Series(texts, dtype=pl.String), path=PATH, unit=unit, zone=zone)


def microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from("T "),
    st.booleans(),
)
def test_iso_times_are_read_as_the_standard_library_reads_them(
    moment: datetime, offset_min: int, between: str, colon: bool
) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    text = aware.isoformat(sep=between)
    if not colon:
        text = text[:-3] + text[-2:]
    assert read([text], TimeFormat(None)) == [microseconds(aware)]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2014-02-01 00:00:00.739166+01", "2014-01-31T23:00:00.739166+00:00"),
        ("2014-02-01 00:00:00+01", "2014-01-31T23:00:00+00:00"),
        ("2014-02-01 00:00:00.7+01", "2014-01-31T23:00:00.700000+00:00"),
        ("2014-02-03T10:44:39Z", "2014-02-03T10:44:39+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
    ],
)
def test_forms_of_iso_times(text: str, same: str) -> None:
    assert read([text], TimeFormat(None)) == [microseconds(datetime.fromisoformat(same))]


@pytest.mark.parametrize(
    "text",
    ["", "today", "2014-02-30T00:00:00Z", "2014-02-01", "03/02/2014 10:44:39Z", "٢٠١٤-02-03T10:44:39Z", "=cmd()"],
)
def test_what_is_no_time_is_null(text: str) -> None:
    assert read([text], TimeFormat(None, "UTC")) == [None]


def test_local_times_need_a_zone_and_the_hour_of_the_clock_change_is_null() -> None:
    texts = ["2014-07-01 12:00:00", "2014-12-01 12:00:00", "2014-03-30 02:30:00", "2014-10-26 02:30:00"]
    with pytest.raises(InputError, match=r"no UTC offset.*--time-zone"):
        found(texts)
    summer = microseconds(datetime(2014, 7, 1, 10, tzinfo=UTC))
    winter = microseconds(datetime(2014, 12, 1, 11, tzinfo=UTC))
    assert read(texts, found(texts, zone="Europe/Rome")) == [summer, winter, None, None]


def test_an_offset_wins_over_the_declared_zone() -> None:
    form = found(["2014-07-01 12:00:00+05"], zone="Europe/Rome")
    assert read(["2014-07-01 12:00:00+05"], form) == [microseconds(datetime(2014, 7, 1, 7, tzinfo=UTC))]


@pytest.mark.parametrize(("unit", "per_s"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_the_unit_of_numbers_is_found_from_their_size(unit: TimeUnit, per_s: int) -> None:
    texts = [str(1_391_209_200 * per_s), str(1_391_209_215 * per_s)]
    form = found(texts)
    assert form.unit == unit
    assert read(texts, form) == [1_391_209_200_000_000, 1_391_209_215_000_000]


def test_fractions_of_seconds_are_kept() -> None:
    assert read(["1391209200.25"], TimeFormat("s")) == [1_391_209_200_250_000]


@pytest.mark.parametrize(("declared", "per_s", "right"), [("s", 1000, "ms"), ("ms", 1, "s"), ("s", 10**6, "us")])
def test_a_declared_unit_that_cannot_be_right_is_refused(declared: TimeUnit, per_s: int, right: str) -> None:
    with pytest.raises(InputError, match=f"Give --set time_unit={right}"):
        found([str(1_391_209_200 * per_s)], unit=declared)


def test_numbers_that_do_not_tell_their_unit_need_one() -> None:
    with pytest.raises(InputError, match=r"cannot be told.*--set time_unit"):
        found(["0", "15", "30"])
    assert found(["0", "15", "30"], unit="s") == TimeFormat("s")


def test_a_unit_for_iso_times_is_refused() -> None:
    with pytest.raises(InputError, match="not numbers of unit 'ms'"):
        found(["2014-02-03T10:44:39Z"], unit="ms")


@pytest.mark.parametrize("text", ["1e308", "inf", "nan", "-1", "99999999999999999999"])
def test_absurd_numbers_are_no_times(text: str) -> None:
    frame = pl.DataFrame({"time": [text]}).select(time=TimeFormat("s").microseconds("time"))
    assert frame.select(time_in_range(pl.col("time")).fill_null(value=False)).item() is False


def test_unknown_zones_are_refused() -> None:
    check_time_zone("Europe/Lisbon")
    with pytest.raises(ParameterError, match="Mars"):
        check_time_zone("Mars/Olympus")
