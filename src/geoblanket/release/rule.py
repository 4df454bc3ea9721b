"""The public rule of a bundle: which mechanism and which row a history uses.

The regime and the zone are public. A present place outside all zones of the regime counts as the nearest place in one;
earlier places may be anywhere, and the mechanism's table says what they count as. Nothing here depends on more than the
history itself, so the rule reveals nothing that the report does not.

`Regimes` finds the regime of a time, by the hours of a bundle's clock in its time zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket.errors import MismatchError
from geoblanket.mechanism import sampling
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.release_tables import ReleaseTable, ReleaseTables
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.history_rule.history_table import HistoryTable, cosine, squared_distance

__all__ = ["Regimes", "ReleaseRule"]

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


class ReleaseRule:
    """Maps histories to rows of a bundle's mechanisms, and draws what they report.

    Parameters
    ----------
    bundle
        A bundle with coordinates and histories; without them its rows have no meaning.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> from geoblanket.release import ReleaseRule
    >>> bundle = load_bundle("city.bundle")
    >>> rule = ReleaseRule(bundle)
    >>> 0 <= rule.draw_one([3], "start") < len(bundle.places_e7)
    True
    """

    @checked
    def __init__(self, bundle: Bundle | ReleaseTables) -> None:
        if not len(bundle.places_e7):
            raise MismatchError("The bundle has no places, so it does not say which row a history uses.")
        self._tables = ReleaseTables.of(bundle) if isinstance(bundle, Bundle) else bundle
        self._regimes: dict[str, _Regime] = {}

    @property
    def past(self) -> int:
        """Γ: how many earlier places the mechanisms look at, at most."""
        return max(len(table.history_weights_micro) for table in self._tables.tables)

    def draw(self, histories: Indices, regime: str) -> Indices:
        """Draw the place to report for each of many histories, exactly, with the operating system's randomness.

        Parameters
        ----------
        histories
            Places at t, t − 1, ..., shape (n, 1 + Γ); earlier ones that are not known are −1.
        regime
            The name of their regime.

        Raises
        ------
        MismatchError
            If the bundle has no mechanism for the regime.
        """
        return self._regime(regime).draw(histories)

    def draw_one(self, history: Sequence[int], regime: str) -> int:
        """Draw the place to report for one history: the present place, and as many earlier ones as are known.

        The whole row is scanned, whatever is drawn.
        """
        return self._regime(regime).draw_one(history)

    def distributions(self, histories: Indices, regime: str) -> Iterator[tuple[Positions, Indices, Floats]]:
        """Yield, zone by zone, which of some histories it serves, its outputs, and how probable each is from each.

        Parameters
        ----------
        histories, regime
            As for `draw`.

        Yields
        ------
        some, places, probabilities
            Positions among the histories, shape (n,); places that may be reported, shape (K,); shape (n, K).
        """
        yield from self._regime(regime).distributions(histories)

    def outside(self, places: Indices, regime: str) -> Bools:
        """Return which present places are outside all zones of the regime, and so count as another place."""
        result: Bools = self._regime(regime).stand_in[places] != places
        return result

    def prepare(self, regimes: Sequence[str]) -> None:
        """Build the tables of regimes now, so that no report is slower than the others."""
        for name in regimes:
            self._regime(name).prepare()

    def _regime(self, name: str) -> _Regime:
        if name not in self._regimes:
            tables = tuple(table for table in self._tables.tables if table.regime == name)
            if not tables:
                raise MismatchError(f"The bundle has no mechanism for the regime '{name}'.")
            self._regimes[name] = _Regime(tables, self._tables.places_e7)
        return self._regimes[name]

    def __repr__(self) -> str:
        tables, places = len(self._tables.tables), len(self._tables.places_e7)
        return short_repr(self, counted(tables, "mechanism"), counted(places, "place"), f"{self.past} earlier places")


@dataclass(frozen=True, eq=False)
class _Regime:
    """The tables of one regime, one for each zone."""

    tables: tuple[ReleaseTable, ...]
    places_e7: Indices

    def draw(self, histories: Indices) -> Indices:
        histories = histories.copy()
        histories[:, 0] = self.stand_in[histories[:, 0]]
        # NumPy sorts 16 bits ten times as fast, by their digits.
        zone = self._zone[histories[:, 0]].astype(np.int16)
        order = np.argsort(zone, kind="stable")
        ends = np.searchsorted(zone[order], np.arange(len(self.tables) + 1))
        result = np.empty(len(histories), np.int32)
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            some = order[ends[number] : ends[number + 1]]
            drawn = sampling.draw_many(table.weights, rows.row_of(histories[some]).astype(np.int64))
            result[some] = table.output_places[drawn]
        return result

    def distributions(self, histories: Indices) -> Iterator[tuple[Positions, Indices, Floats]]:
        histories = histories.copy()
        histories[:, 0] = self.stand_in[histories[:, 0]]
        zone = self._zone[histories[:, 0]]
        for number, (table, rows) in enumerate(zip(self.tables, self._rows, strict=True)):
            some = np.flatnonzero(zone == number)
            if len(some):
                weights = table.weights.astype(np.float64)
                shares = weights / weights.sum(axis=1, keepdims=True)
                yield some, table.output_places, shares[rows.row_of(histories[some])]

    def draw_one(self, history: Sequence[int]) -> int:
        now = self._stand_ins[history[0]]
        zone = self._zones[now]
        row = self._rows[zone].row_of_one((now, *history[1:]))
        return int(self.tables[zone].output_places[sampling.draw_cumulative(self._cumulative[zone][row])])

    def prepare(self) -> None:
        for table, rows, _ in zip(self.tables, self._rows, self._cumulative, strict=True):
            present = self._stand_ins[int(table.histories[0, 0])]
            rows.row_of_one((present,))
        self._zones  # noqa: B018  # made by looking at it

    @cached_property
    def stand_in(self) -> Indices:
        """The place that each place counts as, shape (P,): itself, or the nearest in a zone (the first of equals)."""
        result = np.arange(len(self.places_e7), dtype=np.int32)
        inside, outside = np.flatnonzero(self._zone >= 0), np.flatnonzero(self._zone < 0)
        lat, lon = self.places_e7.astype(np.float64).T
        scale = cosine(lat)
        for place in outside.tolist():
            squared = squared_distance(lat[inside] - lat[place], lon[inside] - lon[place], scale[place])
            result[place] = inside[squared.argmin()]
        return result

    @cached_property
    def _stand_ins(self) -> list[int]:
        """The same as a list, which is faster for one place at a time."""
        return [int(place) for place in self.stand_in]

    @cached_property
    def _zone(self) -> Indices:
        """The number of the table with each place as a present place, −1 for none, shape (P,)."""
        result = np.full(len(self.places_e7), -1, np.int32)
        for number, table in enumerate(self.tables):
            result[table.histories[:, 0]] = number
        return result

    @cached_property
    def _zones(self) -> list[int]:
        """The same as a list, which is faster for one place at a time."""
        return [int(zone) for zone in self._zone]

    @cached_property
    def _cumulative(self) -> list[Ints]:
        return [table.weights.cumsum(axis=1) for table in self.tables]

    @cached_property
    def _rows(self) -> list[HistoryTable]:
        return [HistoryTable(self.places_e7, table.histories, table.history_rows) for table in self.tables]
