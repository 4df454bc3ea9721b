"""What is measured: single numbers, and losses by vehicle of which means with intervals are made later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geoblanket._display import Interval
from geoblanket.evaluate.variants import Varied, variant_of

__all__ = ["HeldOut", "Value", "by_reports"]


@dataclass(frozen=True)
class Value:
    """A measure of a method."""

    measure: str
    """Its name; see `catalogue`."""
    value: float
    unit: str
    interval: Interval | None = None
    part: str = ""
    """Of what part of the setting, for example of how many reports; empty for all of it."""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Value:
        """Return a value from columns of results."""
        interval = Interval.of(columns["low"], columns["high"])
        return cls(columns["measure"], float(columns["value"]), columns["unit"], interval, columns.get("part", ""))

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns in results; there `variant` says which part it is of."""
        low, high = (None, None) if self.interval is None else (self.interval.low, self.interval.high)
        return {"measure": str(self.measure), "value": self.value, "low": low, "high": high, "unit": self.unit}


@dataclass(frozen=True)
class HeldOut:
    """What was measured of the steps of held-out walks."""

    measure: str
    unit: str
    part: str = ""
    """Of which steps or how many reports: empty for what the setting says, else in words."""


def by_reports(reports: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield numbers of reports in a row, and how results tell them from the first, the usual one."""
    for number, count in enumerate(reports):
        yield count, "" if number == 0 else variant_of(Varied.REPORTS, count)
