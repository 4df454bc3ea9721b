"""JSON without surprises: one object, each key once, finite numbers only."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["read_object"]


def read_object(data: bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Raises
    ------
    ValueError
        If it is anything else: not UTF-8, not JSON, nested too deep, with a key twice, a lone surrogate, NaN, infinity
        or a number beyond the range of floats. The message says nothing of the text.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate has no UTF-8
    except (ValueError, RecursionError):
        _refuse()
    if type(value) is not dict:
        _refuse()
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        _refuse()
    return values


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse()
    return value


def _refuse(_text: str = "") -> NoReturn:
    raise ValueError("This is not strict JSON.") from None
