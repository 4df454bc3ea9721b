"""Values of a header, read strictly."""

from __future__ import annotations

from typing import Any

__all__ = ["check_keys", "integer", "text"]


def check_keys(values: Any, names: set[str]) -> None:
    """Raise ValueError unless it is an object with these keys and no others."""
    if type(values) is not dict or set(values) != names:
        raise ValueError(f"there must be the keys {', '.join(sorted(names))}, and no others")


def integer(values: dict[str, Any], name: str, least: int, most: int) -> int:
    """Return a whole number in a range; raise ValueError for anything else."""
    value = values[name]
    # Neither True nor 1.0 is a whole number here.
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"'{name}' must be a whole number from {least} to {most}")
    return value


def text(values: dict[str, Any], name: str, longest: int) -> str:
    """Return printable text; raise ValueError for anything else."""
    value = values[name]
    # What is not printable could steer a terminal.
    if type(value) is not str or not 1 <= len(value) <= longest or not value.isprintable():
        raise ValueError(f"'{name}' must be printable text of 1 to {longest} characters")
    return value
