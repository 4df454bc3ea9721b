from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.release.inputs import (
    accepted_ms,
    checked_location_e7,
    checked_locations_e7,
    checked_request,
    checked_time_ms,
    checked_times_ms,
)

NO_LATITUDES = [
    91, -180.5, math.nan, math.inf, -math.inf, 1e308, 10**400, "12.5", "12,5", "١٢", b"1", True, None, [1.0], 1j,
    Decimal("1.5"), np.float64("nan"), np.True_,
]  # fmt: skip


@pytest.mark.parametrize("value", NO_LATITUDES, ids=repr)
def test_what_is_no_coordinate_is_refused_without_repeating_it(value: Any) -> None:
    for arguments, name in (((value, 1.0), "latitude"), ((1.0, 181 if value == 91 else value), "longitude")):
        with pytest.raises(ParameterError, match=f"The {name} must be") as caught:
            checked_location_e7(*arguments)
        assert str(caught.value) in {
            f"The {name} must be a number of degrees.",
            "The latitude must be from -90 to 90 degrees.",
            "The longitude must be from -180 to 180 degrees.",
        }


def test_numbers_of_any_kind_are_coordinates() -> None:
    for lat in (45, 45.0, np.float64(45), np.float32(45), np.int16(45), Fraction(45)):
        assert checked_location_e7(lat, -8.61) == (450_000_000, -86_100_000)
    assert checked_location_e7(-90.0, 179.9999999) == (-900_000_000, 1_799_999_999)


def test_both_ends_of_longitude_are_one() -> None:
    assert checked_location_e7(1.0, 180.0) == checked_location_e7(1.0, -180.0)
    lat, lon = checked_locations_e7([1.0, 1.0], [180.0, -180.0], count=2)
    assert lon[0] == lon[1]
    assert lat[0] == lat[1]


def test_the_location_of_no_fix_is_a_location_as_any() -> None:
    for lat, lon in ((0.0, 0.0), (-0.0, 0), (1e-9, -1e-9)):
        assert checked_location_e7(lat, lon) == (0, 0)
    lat_e7, lon_e7 = checked_locations_e7([1.0, 0.0], [0.0, 0.0], count=2)
    assert (lat_e7.tolist(), lon_e7.tolist()) == ([10_000_000, 0], [0, 0])


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def test_times() -> None:
    seconds = NOON.timestamp()
    for given in (NOON, seconds, int(seconds), np.float64(seconds), NOON.astimezone(timezone(timedelta(hours=5.5)))):
        assert checked_time_ms(given) == 1_777_896_000_000
    assert checked_time_ms(seconds + 0.0019) == 1_777_896_000_001


@pytest.mark.parametrize(
    "given",
    [
        NOON.replace(tzinfo=None), 0, 946_684_799.999, 4_102_444_800, 1_777_896_000_000, -1, math.nan, math.inf, 1e308,
        10**400, True, "2026-05-04T12:00:00Z", None, datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 2, 7, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), NOON.date(), np.datetime64("2026-05-04"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ParameterError, match="The time must") as caught:
        checked_time_ms(given)
    assert "1777896" not in str(caught.value)


def test_the_past_and_the_future_are_refused() -> None:
    noon = 1_777_896_000_000
    assert checked_time_ms(NOON, accepted=(noon, noon)) == noon
    assert checked_times_ms(NOON.timestamp(), count=1, accepted=(noon, noon)).tolist() == [noon]
    for accepted, problem in (((noon - 9, noon - 1), "future"), ((noon + 1, noon + 9), "past")):
        with pytest.raises(ParameterError, match=problem):
            checked_time_ms(NOON, accepted=accepted)
        with pytest.raises(ParameterError, match=problem):
            checked_times_ms([NOON.timestamp()], count=1, accepted=accepted)
    earliest, latest = accepted_ms(60.0)
    assert earliest == pytest.approx(time.time() * 1000 - 60_000, abs=5000)
    assert latest - earliest == pytest.approx(120_000, abs=1)


def test_names_of_requests() -> None:
    assert checked_request(None) is None
    assert checked_request("a" * 200) == "a" * 200
    for request in ("", "a" * 201, "a\n", "\x00", b"a", 1, ["a"]):
        with pytest.raises(ParameterError, match="name of a request"):
            checked_request(request)


@pytest.mark.parametrize(
    ("lat", "lon", "problem"),
    [
        ([1.0, 91.0], [1.0, 1.0], "latitudes"),
        ([1.0, math.nan], [1.0, 1.0], "latitudes"),
        ([1.0, 1.0], [1.0, math.inf], "longitudes"),
        ([1.0], [1.0, 1.0], "latitudes must be 2"),
        (["1", "2"], [1.0, 1.0], "latitudes must be numbers"),
        ([True, False], [1.0, 1.0], "latitudes must be numbers"),
        ([1.0, 2.0], [[1.0], [1.0, 2.0]], "longitudes must be numbers"),
    ],
)
def test_arrays_of_coordinates_are_refused_as_a_whole(lat: Any, lon: Any, problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        checked_locations_e7(lat, lon, count=2)


def test_arrays_of_times() -> None:
    assert checked_times_ms(1.7e9, count=3).tolist() == [1_700_000_000_000] * 3
    assert checked_times_ms([1.7e9, 1.8e9], count=2).tolist() == [1_700_000_000_000, 1_800_000_000_000]
    for times in (1.7e12, [1.7e9, math.nan], [1.7e9], ["a", "b"], np.array(["2026-05-04"], "datetime64[s]")):
        with pytest.raises(ParameterError, match="times"):
            checked_times_ms(times, count=2)
