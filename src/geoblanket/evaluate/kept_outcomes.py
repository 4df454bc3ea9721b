"""Outcomes of zones and settings as arrays and JSON values, for the store of an unfinished run."""

from __future__ import annotations

from typing import Any

from geoblanket._arrayfile import Arrays
from geoblanket.build.measures import VehicleLosses
from geoblanket.build.validation import as_json, read_dataclass
from geoblanket.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.evaluate.measures.reports import ZoneReports
from geoblanket.evaluate.measures.values import HeldOut, Value

__all__ = ["pack_outcome", "unpack_outcome"]

_PLAIN = ("zone", "share", "unit", "spacing_m", "interval_s")


def pack_outcome(outcome: ZoneOutcome) -> tuple[dict[str, Any], Arrays]:
    """Return an outcome as JSON values and arrays."""
    arrays: dict[str, Any] = {}
    methods = []
    for number, method in enumerate(outcome.methods):
        for index, losses in enumerate(method.held_out.values()):
            arrays |= losses.as_arrays(f"{number}/{index}/")
        if method.reports is not None:
            arrays |= method.reports.as_arrays(f"{number}/reports/")
        methods.append(
            {
                "method": method.method,
                "note": method.note,
                "reports": method.reports is not None,
                "values": as_json([{**value.columns, "part": value.part} for value in method.values]),
                "held_out": [as_json(measure) for measure in method.held_out],
            }
        )
    return {**{key: getattr(outcome, key) for key in _PLAIN}, "methods": methods}, arrays


def unpack_outcome(fields: dict[str, Any], arrays: Arrays) -> ZoneOutcome:
    """Return the outcome again."""
    methods = tuple(_method(number, values, arrays) for number, values in enumerate(fields["methods"]))
    return ZoneOutcome(**{key: fields[key] for key in _PLAIN}, methods=methods)


def _method(number: int, fields: dict[str, Any], arrays: Arrays) -> MethodOutcome:
    held_out = {
        read_dataclass(HeldOut, measure): VehicleLosses.from_arrays(arrays, f"{number}/{index}/")
        for index, measure in enumerate(fields["held_out"])
    }
    values = tuple(map(Value.of, fields["values"]))
    reports = ZoneReports.from_arrays(arrays, f"{number}/reports/") if fields["reports"] else None
    return MethodOutcome(fields["method"], values, held_out, fields["note"], reports)
