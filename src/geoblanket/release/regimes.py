"""The regime of a time, by the hours of a bundle's clock in its time zone."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.clock import Clock

__all__ = ["Regimes"]

_QUARTER_MS: Final = 900_000
"""All time zones of this century are whole quarter-hours from UTC, and change on a quarter-hour."""


class Regimes:
    """Gives the regime of a time.

    Parameters
    ----------
    clock
        The clock of a bundle.

    Raises
    ------
    MismatchError
        If this machine does not know the clock's time zone.
    """

    def __init__(self, clock: Clock) -> None:
        try:
            self._zone = ZoneInfo(clock.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise MismatchError(
                f"This machine does not know the time zone '{clock.time_zone}' of the bundle. "
                "Install its data, for example the package tzdata."
            ) from error
        self.interval_ms = clock.interval_ms
        self.start = clock.start
        self.names = tuple(name for name, _ in clock.regimes)
        self._by_hour = [clock.regime(hour) for hour in range(24)]
        self._last = (-1, "")

    def at(self, time_ms: int) -> str:
        """Return the regime of a report with history at a time, milliseconds since 1970 in UTC."""
        quarter = time_ms // _QUARTER_MS
        if quarter != self._last[0]:
            local = datetime.fromtimestamp(quarter * _QUARTER_MS // 1000, self._zone)
            self._last = (quarter, self._by_hour[local.hour])
        return self._last[1]

    def numbers_at(self, times_ms: Ints) -> Ints:
        """Return the regimes of many times, as indices into `names`."""
        quarters, which = np.unique(times_ms // _QUARTER_MS, return_inverse=True)
        numbers = [self.names.index(self.at(quarter * _QUARTER_MS)) for quarter in quarters.tolist()]
        return np.array(numbers, np.int64)[which]
