"""Released reports as a stream of JSON lines, one answer per line: where the vehicle is.

A line is what `geoblanket perturb --stream` answers, with the vehicle's name:
`{"vehicle": "taxi 7", "cell": 4711, "slot": 59241600}`, or `"place"` for a bundle with zones, or `"time"` in the place
of the slot. What else such an answer has is not looked at. Lines without a vehicle are all of one. The answer is an
estimate, or `{"error": ..., "message": ..., "line": ...}`, which never repeats any of the line. A bad line does not
end the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final

import numpy as np

from geoblanket._untrusted import read_object
from geoblanket.errors import ParameterError
from geoblanket.release.inputs import checked_time_ms
from geoblanket.tracking.tracker import Tracker

__all__ = ["LARGEST_LINE", "LONGEST_NAME", "ReportLine", "answers", "read_report"]

LARGEST_LINE: Final = 4096
"""Bytes of a line; longer lines are skipped."""
LONGEST_NAME: Final = 200
"""Characters of a vehicle's name."""
_LINES_AT_A_TIME: Final = 256
_BYTES_AT_A_TIME: Final = 1 << 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ReportLine:
    """One report."""

    vehicle: str | None
    slot: int
    output: int


def answers(tracker: Tracker, lines: BinaryIO, *, ahead: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Yield the answers to lines, as JSON values: together for all lines that were there.

    Parameters
    ----------
    lines
        With `read1`, as `sys.stdin.buffer` has it.
    ahead
        Estimate where vehicles are so many slots after their reports.
    """
    number = 1
    for some in _batches(lines):
        yield _answered(tracker, some, number, ahead)
        number += len(some)


def _batches(lines: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they come; of one that is too long, only its beginning."""
    rest = b""
    while data := lines.read1(_BYTES_AT_A_TIME):  # type: ignore[attr-defined]  # of buffered readers and BytesIO
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[: LARGEST_LINE + 1]
        for start in range(0, len(whole), _LINES_AT_A_TIME):
            yield whole[start : start + _LINES_AT_A_TIME]
    if rest:
        yield [rest]


def _answered(tracker: Tracker, lines: list[bytes], number: int, ahead: int) -> list[dict[str, Any]]:
    given: list[dict[str, Any] | ReportLine] = []
    for position, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            if len(line) > LARGEST_LINE:
                raise ParameterError(f"The line is longer than {LARGEST_LINE} bytes. Give one report on each line.")
            given.append(read_report(line, tracker))
        except ParameterError as error:
            given.append({"error": "input", "message": str(error), "line": number + position})
    reports = [report for report in given if isinstance(report, ReportLine)]
    estimated = iter(_estimated(tracker, reports, ahead))
    return [next(estimated) if isinstance(each, ReportLine) else each for each in given]


def _estimated(tracker: Tracker, reports: list[ReportLine], ahead: int) -> list[dict[str, Any]]:
    if not reports:
        return []
    names = [report.vehicle for report in reports]
    slots, outputs = (np.array([getattr(report, name) for report in reports]) for name in ("slot", "output"))
    estimates, outcomes = tracker.see_many(names, slots, outputs, ahead=ahead)
    interval = timedelta(milliseconds=tracker.filter.interval_ms)
    return [
        {
            **({} if report.vehicle is None else {"vehicle": report.vehicle}),
            "slot": report.slot,
            "time": (_EPOCH + (report.slot + ahead) * interval).isoformat().replace("+00:00", "Z"),
            "lat": round(float(estimates.lat[index]), 7),
            "lon": round(float(estimates.lon[index]), 7),
            "radius_m": round(float(estimates.radius_m[index]), 1),
            "outcome": outcomes[index],
        }
        for index, report in enumerate(reports)
    ]


def read_report(data: bytes, tracker: Tracker) -> ReportLine:
    """Return the report that a JSON text has.

    Raises
    ------
    ParameterError
        If it has none, or one that cannot be of the tracker's bundle.
    """
    try:
        values = read_object(data)
    except ValueError:
        raise ParameterError("The line is not a JSON object, or has a key twice.") from None
    name = tracker.kind
    other = "cell" if name == "place" else "place"
    if name not in values and other in values:
        raise ParameterError(
            f"The line reports a {other}, and the bundle has a {name} for each report. Give its bundle."
        )
    if name not in values or not values.keys() & {"slot", "time"}:
        raise ParameterError(f"The line must be a JSON object with {name}, and slot or time, and vehicle.")
    output, vehicle = values[name], values.get("vehicle")
    if type(output) is not int or not 0 <= output < tracker.outputs:
        raise ParameterError(
            f"The {name} must be a whole number from 0 to {tracker.outputs - 1:,}, as the bundle has it."
        )
    if vehicle is not None and not (type(vehicle) is str and 1 <= len(vehicle) <= LONGEST_NAME):
        raise ParameterError(f"The vehicle must be a text of 1 to {LONGEST_NAME} characters.")
    return ReportLine(vehicle, _slot(values, tracker), output)


def _slot(values: dict[str, Any], tracker: Tracker) -> int:
    slot = values.get("slot")
    at = None if values.get("time") is None else _slot_of_time(values["time"], tracker)
    slot = at if slot is None else slot
    if type(slot) is not int or not 0 <= slot < tracker.slots:
        raise ParameterError("The slot must be a whole number, and lie between 1970 and 2099.")
    if at is not None and at != slot:
        raise ParameterError("The slot and the time do not agree. Give the bundle that the report was made with.")
    return slot


def _slot_of_time(time: Any, tracker: Tracker) -> int:
    if type(time) is str:
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise ParameterError("The time must be in ISO 8601, or a number of seconds since 1970.") from None
    return tracker.slot_of(checked_time_ms(time))
