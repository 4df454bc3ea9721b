"""Checks of locations and times, before anything else uses them.

Every valid location is accepted, so that no refusal depends on the location. No message repeats the input: errors end
up in logs.
"""

from __future__ import annotations

import math
import time as system_time
from datetime import datetime
from numbers import Real
from typing import Any, Final, NoReturn

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket.errors import ParameterError

CLOCK_TOLERANCE_S: Final = 86_400.0
"""Times of reports may be a day off the system's clock, either way, unless the caller says otherwise."""

NO_FIX: Final = "This is the location that receivers give without a fix."
"""What to say of latitude 0, longitude 0."""
_E7: Final = 10**7
_PLAIN: Final = (float, int)
"""Types that need no further check. A bool is an int, too, but of another type."""
_EARLIEST_MS: Final = 946_684_800_000  # 2000-01-01
_LATEST_MS: Final = 4_102_444_800_000  # 2100-01-01
_ANY_TIME: Final = (-math.inf, math.inf)
_PAST: Final = "The time lies too far in the past. Set the clock right; for old data, open a replay."
_FUTURE: Final = "The time lies in the future. Set the clock right."
_LONGEST_REQUEST: Final = 200


def checked_tolerance(clock_tolerance_s: float) -> None:
    """Raise ParameterError unless it is a finite number of seconds, 0 or more."""
    if not 0 <= clock_tolerance_s < math.inf:
        raise ParameterError("clock_tolerance_s must be zero or more seconds. For data of any time, open a replay.")


def checked_location_e7(lat: Any, lon: Any) -> tuple[int, int]:
    """Return a location in whole 1e-7 degrees, with a longitude of at least −180 and less than 180.

    Raises
    ------
    ParameterError
        If it is not one: other types than numbers, out of range, or not finite.
    """
    lat_e7, lon_e7 = _degrees_e7(lat, "latitude", 90), _degrees_e7(lon, "longitude", 180)
    return lat_e7, -lon_e7 if lon_e7 == 180 * _E7 else lon_e7


def _degrees_e7(value: Any, name: str, largest: int) -> int:
    degrees = value if type(value) in _PLAIN else _number(value, f"The {name} must be a number of degrees.")
    # NaN compares as false.
    if not -largest <= degrees <= largest:
        raise ParameterError(f"The {name} must be from -{largest} to {largest} degrees.")
    return round(degrees * _E7)


def accepted_ms(tolerance_s: float) -> tuple[float, float]:
    """Return the earliest and the latest time that is accepted now, milliseconds since 1970.

    Parameters
    ----------
    tolerance_s
        How far a time may be from the system's clock, seconds, either way.
    """
    now_s = system_time.time()
    return (now_s - tolerance_s) * 1000, (now_s + tolerance_s) * 1000


def checked_time_ms(time: Any, *, accepted: tuple[float, float] = _ANY_TIME) -> int:
    """Return a time in whole milliseconds since 1970 in UTC.

    Parameters
    ----------
    time
        A datetime with a time zone, or a number of seconds since 1970 in UTC.
    accepted
        The earliest and the latest time that is accepted, milliseconds since 1970.

    Raises
    ------
    ParameterError
        If it is not one, or not from 2000 to 2099.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise ParameterError("The time must have a time zone, such as datetime.now(UTC).")
        seconds = time.timestamp()
    else:
        seconds = time if type(time) in _PLAIN else _number(time, "The time must be a datetime or a number of seconds.")
    # A number of seconds that is NaN, infinite or too large fails here, before it is rounded.
    if not _EARLIEST_MS <= seconds * 1000 < _LATEST_MS:
        raise ParameterError("The time must be from 2000 to 2099; as a number, in seconds, not milliseconds.")
    milliseconds = math.floor(seconds * 1000)
    if milliseconds < accepted[0]:
        _refuse(_PAST)
    if milliseconds > accepted[1]:
        _refuse(_FUTURE)
    return milliseconds


def _number(value: Any, problem: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        _refuse(problem)
    try:
        return float(value)
    except (OverflowError, ValueError):
        _refuse(problem)


def _refuse(problem: str) -> NoReturn:
    raise ParameterError(problem)


def checked_request(request: Any) -> str | None:
    """Return the name of a request; raise ParameterError unless it is None or short, printable text."""
    if request is None:
        return None
    if type(request) is not str or not 1 <= len(request) <= _LONGEST_REQUEST or not request.isprintable():
        raise ParameterError(f"The name of a request must be printable text of 1 to {_LONGEST_REQUEST} characters.")
    return request


def checked_locations_e7(lat: Any, lon: Any, *, count: int) -> tuple[Ints, Ints]:
    """Return `count` locations in whole 1e-7 degrees; see `checked_location_e7`."""
    both = []
    for value, name, largest in ((lat, "latitude", 90), (lon, "longitude", 180)):
        degrees = _numbers(value, f"{name}s")
        if degrees.shape != (count,) or not (np.abs(degrees) <= largest).all():
            raise ParameterError(f"The {name}s must be {count} numbers from -{largest} to {largest} degrees.")
        both.append(np.rint(degrees * _E7).astype(np.int64))
    lat_e7, lon_e7 = both
    return lat_e7, np.where(lon_e7 == 180 * _E7, -lon_e7, lon_e7)


def checked_times_ms(time: Any, *, count: int, accepted: tuple[float, float] = _ANY_TIME) -> Ints:
    """Return `count` times in whole milliseconds since 1970 in UTC; a single time is for all. See `checked_time_ms`."""
    milliseconds = _numbers(time, "times") * 1000.0
    if milliseconds.shape not in {(), (count,)}:
        raise ParameterError(f"The times must be {count} numbers of seconds, or one for all.")
    if not ((milliseconds >= _EARLIEST_MS) & (milliseconds < _LATEST_MS)).all():
        raise ParameterError("The times must be from 2000 to 2099, in seconds, not milliseconds.")
    if (milliseconds < accepted[0]).any():
        _refuse(_PAST)
    if (milliseconds > accepted[1]).any():
        _refuse(_FUTURE)
    return np.broadcast_to(np.floor(milliseconds).astype(np.int64), count)


def _numbers(values: Any, name: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "iuf":
        raise ParameterError(f"The {name} must be numbers.")
    return array.astype(np.float64)
