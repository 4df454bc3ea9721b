"""Reports by the mechanisms of zones: the nearest place, with as much of its past as the mechanisms look at.

True places are kept in memory only. After a gap there is no history, and the next report uses the start regime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Indices, Ints
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.release.hold import DrawnAt
from geoblanket.release.nearest import NearestPlace
from geoblanket.release.place_raster import PlaceRaster
from geoblanket.release.regimes import Regimes
from geoblanket.release.rule import ReleaseRule
from geoblanket.release.source import Drawn, Kind, Point

__all__ = ["ZoneFleetSource", "ZoneSource"]

_NEVER: Final = -(1 << 62)
_EXCHANGED: Final = "Latitude and longitude seem to be exchanged: the latitude comes first."


class ZoneSource:
    """Reports of one vehicle."""

    kind: Kind = "place"

    def __init__(self, tables: ReleaseTables) -> None:
        clock = tables.needed_clock()
        self._places_e7 = tables.places_e7
        self._rule = ReleaseRule(tables)
        self._nearest = NearestPlace(tables.places_e7)
        self._regimes = Regimes(clock)
        self._costs = tables.costs
        self._past = self._rule.past
        self._rule.prepare(sorted(clock.names))
        self.interval_ms = clock.interval_ms
        self._history: list[int] = []
        self._history_slot = -1

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return the nearest place."""
        return (self._nearest.of(lat_e7, lon_e7),)

    def cost(self, slot: int) -> int:
        """Return what a report costs, which depends on whether there is a history."""
        return self._costs.other if self._follows(slot) else self._costs.start

    def is_held(self, point: Point, last: DrawnAt | None) -> bool:
        """Return False: hold is for lattices."""
        del point, last
        return False

    def drawn_at(self, point: Point, slot: int) -> DrawnAt | None:
        """Return None: hold is for lattices."""
        del point, slot
        return None

    def draw(self, point: Point, slot: int) -> Drawn:
        """Draw a place by the history and the regime of the slot."""
        regime = self._regimes.at(slot * self.interval_ms) if self._follows(slot) else self._regimes.start
        place = self._rule.draw_one(self._history_with(point, slot), regime)
        lat_e7, lon_e7 = self._places_e7[place].tolist()
        return Drawn(place, lat_e7, lon_e7)

    def made(self, point: Point, slot: int) -> None:
        """Let the place be the past of the next report."""
        self._history, self._history_slot = self._history_with(point, slot), slot

    def forget(self) -> None:
        """Forget where the vehicle was."""
        self._history.clear()

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether latitude and longitude seem to be exchanged."""
        return _EXCHANGED if self._nearest.seems_exchanged(lat_e7, lon_e7) else None

    def _follows(self, slot: int) -> bool:
        return bool(self._history) and slot == self._history_slot + 1

    def _history_with(self, point: Point, slot: int) -> list[int]:
        return [*point, *self._history[: self._past]] if self._follows(slot) else [*point]


class ZoneFleetSource:
    """Reports of many vehicles."""

    kind: Kind = "place"

    def __init__(self, tables: ReleaseTables) -> None:
        clock = tables.needed_clock()
        self._places_e7 = tables.places_e7
        self._rule = ReleaseRule(tables)
        self._nearest = PlaceRaster(tables.places_e7)
        self._regimes = Regimes(clock)
        self._costs = tables.costs
        self.interval_ms = clock.interval_ms
        self._history = np.empty((0, self._rule.past), np.int32)
        self._history_slot = np.empty(0, np.int64)

    def grow(self, last: list[DrawnAt | None]) -> None:
        """Add vehicles, which have no history yet."""
        vehicles = len(last)
        self._history = np.concatenate([self._history, np.full((vehicles, self._history.shape[1]), -1, np.int32)])
        self._history_slot = np.concatenate([self._history_slot, np.full(vehicles, _NEVER, np.int64)])

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return the nearest places."""
        return self._nearest.of(lat_e7, lon_e7).astype(np.int64)

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what reports cost, which depends on whether there is a history."""
        return np.where(self._follows(which, slot), self._costs.other, self._costs.start)

    def are_held(self, which: Ints, points: Ints) -> Bools:
        """Return False for all: hold is for lattices."""
        del points
        return np.zeros(len(which), np.bool_)

    def draw(self, which: Ints, points: Ints, slot: Ints) -> Ints:
        """Draw places by the histories and the regimes of the slots."""
        follows = self._follows(which, slot)
        regime = np.where(follows, self._regimes.numbers_at(slot * self.interval_ms), len(self._regimes.names))
        histories = self._histories(which, points, slot)
        result = np.empty(len(slot), np.int64)
        for number, name in enumerate((*self._regimes.names, self._regimes.start)):
            some = np.flatnonzero(regime == number)
            if len(some):
                result[some] = self._rule.draw(histories[some], name)
        return result

    def drawn_at(self, which: Ints, points: Ints, slot: Ints) -> Mapping[int, DrawnAt]:
        """Return nothing: hold is for lattices."""
        del which, points, slot
        return {}

    def made(self, which: Ints, points: Ints, slot: Ints, held: Bools) -> None:
        """Let the places be the past of the next reports."""
        del held
        self._history[which] = self._histories(which, points, slot)[:, : self._history.shape[1]]
        self._history_slot[which] = slot

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return where places are."""
        return self._places_e7[outputs].astype(np.int64)

    def forget(self) -> None:
        """Forget where the vehicles were."""
        self._history.fill(-1)
        self._history_slot.fill(_NEVER)

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether latitude and longitude seem to be exchanged."""
        return _EXCHANGED if self._nearest.seems_exchanged(lat_e7, lon_e7) else None

    def _follows(self, which: Ints, slot: Ints) -> Bools:
        follows: Bools = self._history_slot[which] == slot - 1
        return follows

    def _histories(self, which: Ints, points: Ints, slot: Ints) -> Indices:
        before = np.where(self._follows(which, slot)[:, None], self._history[which], -1)
        return np.column_stack([points.astype(np.int32), before])
