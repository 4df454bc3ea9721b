"""Numbers and times as messages have them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from geoblanket._untrusted import read_object
from geoblanket.gateway.position import Dropped

__all__ = ["iso_seconds", "json_object", "number_of", "table_of"]


def json_object(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text; raise Dropped if it is not strict JSON."""
    try:
        return read_object(data)
    except ValueError:
        raise Dropped("malformed") from None


def number_of(values: Mapping[str, Any], name: str) -> float:
    """Return a number of a message; text and truth values are none."""
    value = values.get(name)
    if type(value) is int or type(value) is float:
        try:
            return float(value)
        except OverflowError:
            pass
    raise Dropped("malformed") from None


def table_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object within a message."""
    value = values.get(name)
    if type(value) is not dict:
        raise Dropped("malformed")
    return value


def iso_seconds(text: object) -> float:
    """Return a time in ISO 8601, with its zone, as seconds since 1970 in UTC."""
    if type(text) is str and len(text) <= 40:
        try:
            time = datetime.fromisoformat(text)
            if time.utcoffset() is not None:
                return time.timestamp()
        except (ValueError, OverflowError):
            pass
    raise Dropped("malformed") from None
