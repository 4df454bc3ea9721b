"""Numbers as words, the same everywhere in the report."""

from __future__ import annotations

__all__ = ["NAMES", "count", "number", "p_text", "share"]

NAMES = {"p_value": "p", "effect_size": "effect"}
"""What outcomes are called."""


def p_text(p_value: float | None) -> str:
    """Return a p-value as text: three decimals, or the order of magnitude."""
    if p_value is None:
        return "–"
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def number(value: float | None, *, digits: int = 3) -> str:
    """Return a coefficient as text, with its sign."""
    return "–" if value is None else f"{value:+.{digits}f}"


def share(value: float | None) -> str:
    """Return a share as per cent."""
    return "–" if value is None else f"{value:.1%}"


def count(many: int, one: str, more: str | None = None) -> str:
    """Return a number of things: "1 group", "1,200 groups"."""
    return f"{many:,} {one if many == 1 else more or one + 's'}"
