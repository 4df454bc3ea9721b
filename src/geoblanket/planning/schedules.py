"""How a vehicle may report, and what that costs: one report, an hour on the road, a night at one place.

All costs are bounds of the theorem for trips (`geoblanket.mechanism.lattice.anchor`), in ε per kilometre, as a ledger
counts them:

- one report costs ε;
- an hour on the road costs ε for each report. The theorem holds for every shift; without any (s = 0) the anchor adds
  nothing;
- a stay costs ε₀ for each period of the anchor that it touches, or ε for each report, whichever is less. Without an
  anchor every report counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S, LARGEST_EPSILON, NIGHT_S, SMALLEST_EPSILON, periods_touched
from geoblanket.mechanism.meaning import AtRest

__all__ = [
    "DAY_S",
    "HOUR_S",
    "Budgets",
    "Schedule",
    "affordable",
    "every",
    "round_down",
    "stays",
]

DAY_S: Final = 24 * HOUR_S
_LARGEST_BUDGET: Final = 1e6
_DIGITS: Final = 2
_SPOKEN: Final = {"night": "a night", "hour": "an hour", "report": "a report"}


@checked
@dataclass(frozen=True)
class Budgets:
    """What may be given away at most, ε per kilometre; None: no limit is set.

    Examples
    --------
    >>> from geoblanket.planning import Budgets
    >>> budgets = Budgets(night=32, hour=240)
    >>> budgets.given()
    {'night': 32, 'hour': 240}
    """

    night: float | None = None
    """8 hours at one place."""
    hour: float | None = None
    """An hour on the road."""
    report: float | None = None
    """One report."""

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if all(value is None for value in given.values()):
            raise ParameterError("A plan needs a limit: give at least one of night, hour and report, ε per km.")
        for name, value in given.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and (not is_number or not 0 < value <= _LARGEST_BUDGET):
                raise ParameterError(
                    f"What {_SPOKEN[name]} may cost must be above 0 and at most {_LARGEST_BUDGET:,.0f} per km. Got "
                    f"{value} instead."
                )

    def given(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        limits = {"night": self.night, "hour": self.hour, "report": self.report}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def times(self, factor: float) -> Budgets:
        """Return all limits, so many times as large, up to the largest that there is."""
        return Budgets(**{name: min(limit * factor, _LARGEST_BUDGET) for name, limit in self.given().items()})


@checked
@dataclass(frozen=True)
class Schedule:
    """How a vehicle reports by a lattice.

    Examples
    --------
    >>> from geoblanket.planning import Schedule
    >>> schedule = Schedule(epsilon=2.0, interval_s=30, anchor_epsilon=4.0)
    >>> schedule.hour, schedule.night  # what an hour on the road and a night at home cost, ε per km
    (240.0, 36.0)
    """

    epsilon: float
    """ε of a report, per kilometre."""
    interval_s: float
    """From one report to the next, seconds."""
    anchor_epsilon: float | None = None
    """ε₀ of a period, per kilometre; None: no anchor."""
    anchor_period_s: int = HOUR_S
    """How long an anchor stays, seconds."""

    @property
    def report(self) -> float:
        """What one report costs."""
        return self.epsilon

    @property
    def hour(self) -> float:
        """What an hour on the road costs at most."""
        return _exact(self._reports(HOUR_S) * self.epsilon)

    @property
    def night(self) -> float:
        """What 8 hours at one place cost at most."""
        return self.at_rest.night_cost

    @property
    def at_rest(self) -> AtRest:
        """What it tells of a vehicle at rest."""
        return AtRest(self.epsilon, self.interval_s, self.anchor_epsilon, self.anchor_period_s)

    @property
    def anchors_of_hour(self) -> float:
        """What the anchors cost that the reports of any hour can touch; 0 without an anchor."""
        if self.anchor_epsilon is None:
            return 0.0
        return _exact(periods_touched(HOUR_S, self.anchor_period_s) * self.anchor_epsilon)

    def within(self, budgets: Budgets) -> bool:
        """Return whether nothing costs more than it may."""
        pairs = ((self.night, budgets.night), (self.hour, budgets.hour), (self.report, budgets.report))
        return all(limit is None or cost <= limit * (1 + 1e-12) for cost, limit in pairs)

    def _reports(self, seconds: float) -> int:
        return math.ceil(seconds / self.interval_s)


def every(seconds: float) -> str:
    """Return an interval in words."""
    return f"{seconds:g} s" if seconds < 60 or seconds % 60 else f"{seconds / 60:g} min"


def stays(schedule: Schedule) -> str:
    """Return an anchor in words."""
    if schedule.anchor_epsilon is None:
        return "none"
    period = {HOUR_S: "an hour", DAY_S: "a day"}.get(schedule.anchor_period_s, every(schedule.anchor_period_s))
    return f"ε₀ = {schedule.anchor_epsilon:g} per km for {period}"


def affordable(budgets: Budgets, *, intervals_s: Sequence[float], periods_s: Sequence[int]) -> Iterator[Schedule]:
    """Yield, for each interval, with each anchor and without, the largest ε and ε₀ within the budgets.

    A larger ε or ε₀ is never less useful, so nothing below them needs a look. Both are rounded down to two digits.
    """
    for interval_s in intervals_s:
        alone = Schedule(1.0, interval_s)
        limits = [LARGEST_EPSILON if budgets.report is None else budgets.report]
        if budgets.hour is not None:
            limits.append(budgets.hour / alone.hour)
        if budgets.night is not None:
            for period_s in periods_s:
                epsilon = round_down(min(limits))
                anchor_epsilon = round_down(budgets.night / periods_touched(NIGHT_S, period_s))
                if min(epsilon, anchor_epsilon) >= SMALLEST_EPSILON:
                    yield Schedule(epsilon, interval_s, anchor_epsilon, period_s)
            limits.append(budgets.night / alone.night)
        epsilon = round_down(min(limits))
        if epsilon >= SMALLEST_EPSILON:
            yield Schedule(epsilon, interval_s)


def _exact(cost: float) -> float:
    """Return a cost in whole millionths, as ledgers count: 6 times 0.7 is 4.2."""
    return round(cost, 6)


def round_down(epsilon: float) -> float:
    """Round down to two digits that count, and to what devices accept."""
    epsilon = min(epsilon, LARGEST_EPSILON)
    if epsilon < SMALLEST_EPSILON / 10:
        return 0.0
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(epsilon)))
    return round(math.floor(epsilon * scale * (1 + 1e-12)) / scale, 6)
