"""Numbers as every report writes them: shares, counts, p-values, and estimates with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "UNKNOWN",
    "Interval",
    "between",
    "count",
    "number",
    "p_text",
    "parameter",
    "percent",
    "share",
    "signed",
    "text",
]

UNKNOWN = "–"
"""What stands where nothing is known."""


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    @classmethod
    def of(cls, low: float | None, high: float | None) -> Interval | None:
        """Return the interval between two bounds; None unless both are known and finite."""
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
            return None
        return cls(low, high)

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def above(self, other: Interval) -> bool:
        """Whether all of it lies above another one."""
        return self.low > other.high

    def overlaps(self, other: Interval) -> bool:
        """Whether some number is in both."""
        return not self.above(other) and not other.above(self)


def number(value: float | str) -> str:
    """Return a number as people write it, or a word as it is."""
    return value if isinstance(value, str) else f"{value:g}".replace("inf", "∞")


def parameter(value: Any) -> str:
    """Return a parameter, a JSON value, as a table of parameters shows it."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {parameter(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(parameter, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return UNKNOWN if value is None else number(value) if isinstance(value, float) else f"{value}"


def text(value: float | None, form: str = ".3g", interval: Interval | None = None) -> str:
    """Return an estimate, with its interval in brackets where it is known: "0.15 (0.13 to 0.17)"."""
    if value is None:
        return UNKNOWN
    return f"{value:{form}}{f' ({between(interval, form)})' if interval else ''}".replace("-", "−")


def between(interval: Interval, form: str = ".3g") -> str:
    """Return an interval in words: "0.13 to 0.17"."""
    return f"{interval.low:{form}} to {interval.high:{form}}".replace("-", "−")


def percent(*shares: float) -> str:
    """Return a share in per cent, with a decimal where it is small; of several, the range that they span."""
    words = (f"{end:.0%}" if abs(end) >= 0.0995 else f"{end:.1%}" for end in (min(shares), max(shares)))
    return " to ".join(dict.fromkeys(words)).replace("-", "−")


def share(value: float | None) -> str:
    """Return a share in per cent, with one decimal."""
    return UNKNOWN if value is None else f"{value:.1%}"


def signed(value: float | None, *, digits: int = 3) -> str:
    """Return a coefficient with its sign."""
    return UNKNOWN if value is None else f"{value:+.{digits}f}"


def p_text(p_value: float | None) -> str:
    """Return a p-value: three decimals, or that it is below them."""
    if p_value is None:
        return UNKNOWN
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def count(many: int, one: str, more: str | None = None) -> str:
    """Return a number of things: "1 group", "1,200 groups"."""
    return f"{many:,} {one if many == 1 else more or one + 's'}"
