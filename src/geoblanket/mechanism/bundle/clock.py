"""When a bundle's mechanisms are used: how often a vehicle reports, and which hours belong to which regime."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from geoblanket.errors import ParameterError

__all__ = ["HOURS", "LARGEST_INTERVAL_MS", "Clock"]

HOURS: Final = 24
LARGEST_INTERVAL_MS: Final = 86_400_000


@dataclass(frozen=True)
class Clock:
    """What a device must know about time to choose a mechanism; all of it is public.

    Parameters
    ----------
    interval_ms
        Milliseconds from one place of a history to the next.
    time_zone
        IANA name of the time zone of the hours.
    regimes
        Name and hours (0 to 23, ascending) of each regime, in order of names; every hour in exactly one.
    start
        The regime of a report without history: the first of a trip, and the first after a gap.
    """

    interval_ms: int
    time_zone: str
    regimes: tuple[tuple[str, tuple[int, ...]], ...]
    start: str = "start"

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ParameterError(f"This is not a clock of a bundle: {problem}.")

    @property
    def names(self) -> frozenset[str]:
        """The names of all regimes, including that of reports without history."""
        return frozenset({self.start, *(name for name, _ in self.regimes)})

    @property
    def interval_s(self) -> float:
        """Seconds from one place of a history to the next."""
        return self.interval_ms / 1000

    def regime(self, hour: int) -> str:
        """Return the regime of a report with history in an hour (0 to 23) of the clock's time zone."""
        for name, hours in self.regimes:
            if hour in hours:
                return name
        raise ParameterError("The hour must be a whole number from 0 to 23.")

    def _problem(self) -> str | None:
        if not 1 <= self.interval_ms <= LARGEST_INTERVAL_MS:
            return f"the interval must be from 1 to {LARGEST_INTERVAL_MS} ms"
        listed = [hour for _, hours in self.regimes for hour in hours]
        if sorted(listed) != list(range(HOURS)):
            return "every hour from 0 to 23 must be in exactly one regime"
        if any(first >= second for _, hours in self.regimes for first, second in pairwise(hours)):
            return "the hours of a regime must ascend"
        if any(first >= second for first, second in pairwise(name for name, _ in self.regimes)):
            return "regimes must be in order of their names, without duplicates"
        if any(name == self.start or not hours for name, hours in self.regimes):
            return f"a regime must have hours, and another name than '{self.start}', that of reports without history"
        return None
