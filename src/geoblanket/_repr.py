"""How objects show themselves: one line that says what a person wants to know, never a location or a secret."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

__all__ = ["between", "call_repr", "counted", "options_repr", "short_repr"]

_LONGEST: Final = 120


def counted(count: int, thing: str) -> str:
    """Return a number of things in words: "1 zone", "1,200 zones"."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def between(least: int, most: int) -> str:
    """Return a range in words: "7", "5 to 12"."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def short_repr(thing: object, *facts: str) -> str:
    """Return the kind of a thing and facts about it, on one line; empty facts are left out."""
    return f"<{_cut(f'{type(thing).__name__}: ' + ', '.join(filter(None, facts)), _LONGEST - 2)}>"


def options_repr(options: Any) -> str:
    """Return a dataclass of options as the call that makes it, without those that have their defaults."""
    given = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.default is MISSING or getattr(options, field.name) != field.default
    }
    return call_repr(options, given)


def call_repr(options: object, given: dict[str, Any]) -> str:
    """Return options as the call that makes them, with these parameters."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    words = ", ".join(f"{name}={value!r}" for name, value in plain.items())
    return f"{type(options).__name__}({_cut(words, _LONGEST - 2 - len(type(options).__name__))})"


def _cut(text: str, longest: int) -> str:
    """Return a text on one line, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
