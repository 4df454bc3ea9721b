"""Reports as a stream of JSON lines, one answer per line: for use by another process.

A line asks: `{"lat": 41.15, "lon": -8.61, "time": "2026-05-04T07:00:00Z"}`, with a name (`"request"`) if the request
may be repeated. The answer is a report, or `{"error": ..., "message": ...}`, which never repeats any of the line; where
the budget is spent, it has `retry_after_s`, the seconds until enough of it frees up. A bad line does not end the
stream; a ledger that cannot be used does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, BinaryIO, Final

from geoblanket._untrusted import read_object
from geoblanket.errors import GeoblanketError, LedgerError, ParameterError, RandomnessError, RefusedError
from geoblanket.release.device import Device

__all__ = ["LARGEST_LINE", "answers"]

LARGEST_LINE: Final = 4096
"""Bytes of a line; longer lines are skipped."""

_NEEDED: Final = frozenset({"lat", "lon", "time"})
_KNOWN: Final = _NEEDED | {"request"}


def answers(
    device: Device, lines: BinaryIO, *, on_warning: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each line, as JSON values.

    Parameters
    ----------
    device
        What reports.
    lines
        The requests.
    on_warning
        Called with what seems wrong with a location that was reported (`Device.warning_for`).

    Raises
    ------
    LedgerError
        After the answer that says so: the ledger cannot be used any more.
    """
    while line := lines.readline(LARGEST_LINE + 1):
        if not line.endswith(b"\n") and len(line) > LARGEST_LINE:
            _skip_rest(lines)
            yield _error_answer(ParameterError(f"The line is longer than {LARGEST_LINE} bytes."))
            continue
        if not line.strip():
            continue
        reported = None
        try:
            request = _request(line)
            answer = device.report(**request).as_dict()
            reported = request["lat"], request["lon"]
        except LedgerError as error:
            yield _error_answer(error)
            raise
        except GeoblanketError as error:
            answer = _error_answer(error)
        yield answer
        # Only now, so that no answer takes longer because of where the vehicle is.
        if reported is not None and (warning := device.warning_for(*reported)) is not None:
            on_warning(warning)


def _skip_rest(lines: BinaryIO) -> None:
    while (part := lines.readline(LARGEST_LINE)) and not part.endswith(b"\n"):
        pass


def _request(line: bytes) -> dict[str, Any]:
    """Return the arguments of `Device.report` that a line gives."""
    try:
        values = read_object(line)
    except ValueError:
        raise ParameterError("The line is not a JSON object, or has a key twice.") from None
    if not values.keys() >= _NEEDED or not values.keys() <= _KNOWN:
        raise ParameterError("The line must be a JSON object with lat, lon and time, and no more than request besides.")
    if isinstance(values["time"], str):
        try:
            values["time"] = datetime.fromisoformat(values["time"])
        except ValueError:
            raise ParameterError("The time must be in ISO 8601, or a number of seconds since 1970.") from None
    return values


def _error_answer(error: GeoblanketError) -> dict[str, Any]:
    kind = {ParameterError: "input", LedgerError: "ledger", RandomnessError: "randomness"}
    code = error.reason if isinstance(error, RefusedError) else kind.get(type(error), "other")
    answer: dict[str, Any] = {"error": code, "message": str(error)}
    if isinstance(error, RefusedError) and error.retry_after_s is not None:
        answer["retry_after_s"] = error.retry_after_s
    return answer
