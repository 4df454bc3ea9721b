"""Stored dataclasses from JSON values and back, by their annotations: no key, type or number is taken on trust."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["as_json", "of_type", "read_dataclass", "type_in_words"]

Made = TypeVar("Made")

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "nothing"}


def read_dataclass(cls: type[Made], values: Any) -> Made:
    """Return `cls` made from a mapping with exactly its fields; raise ValueError unless all are of their types."""
    if not isinstance(values, Mapping) or set(values) != {field.name for field in fields(cls)}:  # type: ignore[arg-type]  # any dataclass
        raise ValueError(f"there must be the keys of {cls.__name__}, and no others")
    hints = get_type_hints(cls)
    made = {}
    for name, value in values.items():
        try:
            made[name] = of_type(value, hints[name])
        except ValueError as error:
            raise ValueError(f"'{name}': {error}") from None
    return cls(**made)


def of_type(value: Any, hint: Any) -> Any:
    """Return a JSON value as an annotation wants it; raise ValueError, in words, if it is something else.

    A list becomes a tuple and a whole number a float where these are wanted; "inf" and "-inf" stand for infinity, since
    JSON has none. True is not a number, and NaN is never one.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _first_fit(value, arguments)
    if origin in (tuple, dict):
        return _tuple(value, arguments) if origin is tuple else _table(value, arguments[1])
    if is_dataclass(hint) and isinstance(hint, type):
        return read_dataclass(hint, value)
    if origin is Literal and value not in arguments:
        raise ValueError(f"must be {_listed(arguments)}")
    return value if origin is Literal or hint is Any else _plain(value, hint)


def as_json(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and numbers as JSON values; infinity becomes "inf" or "-inf"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def type_in_words(value: Any) -> str:
    """Return what a JSON or TOML value is."""
    return _WORDS.get(type(value), "a table or a list")


def _plain(value: Any, hint: Any) -> Any:
    if hint is float and (value in ("inf", "-inf") or (type(value) is int and abs(value) < 1 << 53)):
        value = float(value)
    if type(value) is not hint or (hint is float and math.isnan(value)):
        raise ValueError(f"must be {_WORDS[hint]}, not {type_in_words(value)}")
    return value


def _table(value: Any, hint: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(type(key) is str for key in value):
        raise ValueError("must be a table of names and values")
    return {key: of_type(item, hint) for key, item in value.items()}


def _first_fit(value: Any, hints: tuple[Any, ...]) -> Any:
    problems = []
    for hint in hints:
        try:
            return of_type(value, hint)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(problems[0])


def _tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(of_type(item, hints[0]) for item in value)
    if len(value) != len(hints):
        raise ValueError(f"must have {len(hints)} values")
    return tuple(of_type(item, hint) for item, hint in zip(value, hints, strict=True))


def _listed(values: tuple[Any, ...]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"
