"""Stored dataclasses from JSON values and back: no key, type or number is taken on trust."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

__all__ = ["as_json", "read_dataclass"]

Made = TypeVar("Made")


def read_dataclass(cls: type[Made], values: Any) -> Made:
    """Return the dataclass that `as_json` gave as `values`; raise ValueError if a key or a type is another.

    A whole number may stand for a float.
    """
    try:
        made: Made = _adapter(cls).validate_python(values)  # type: ignore[arg-type]  # classes are hashable
    except ValidationError as error:
        wrong = {".".join(map(str, detail["loc"])) or "all of it" for detail in error.errors()}
        raise ValueError(f"not {cls.__name__}: {', '.join(sorted(wrong))} is missing or wrong") from None
    # Pydantic also takes text for numbers, true for 1 and keys that it does not know: none of them is written.
    if not _same(as_json(made), values):
        raise ValueError(f"not {cls.__name__}: a key or a type is another")
    return made


def as_json(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and numbers as JSON values; infinity becomes "inf" or "-inf"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _same(written: Any, given: Any) -> bool:
    """Whether JSON values are the same; True is not 1, and NaN is never the same."""
    if isinstance(written, dict) and isinstance(given, Mapping):
        return written.keys() == given.keys() and all(_same(item, given[key]) for key, item in written.items())
    if isinstance(written, list) and isinstance(given, list | tuple):
        return len(written) == len(given) and all(map(_same, written, given))
    return written == given and (type(written) is type(given) or (type(written) is float and type(given) is int))
