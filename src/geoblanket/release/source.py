"""Where reports come from: what `Device` and `Fleet` need of a bundle, with zones or with a lattice.

Zones report by the nearest place, with as much of its past as the mechanisms look at. True places are kept in memory
only. After a gap there is no history, and the next report uses the start regime.

A lattice reports by a point of the frame, then a cell; at rest it repeats the last cell. Every draw costs the same, and
a held report costs nothing. A location outside the frame counts as its nearest point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from geoblanket._arrays import Bools, Indices, Ints
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.release.hold import DrawnAt
from geoblanket.release.nearest import NearestPlace, PlaceRaster
from geoblanket.release.rule import Regimes, ReleaseRule

__all__ = [
    "Drawn",
    "FleetSource",
    "Kind",
    "LatticeFleetSource",
    "LatticeSource",
    "Point",
    "ReportSource",
    "ZoneFleetSource",
    "ZoneSource",
    "cell_centers_e7",
]

Kind = Literal["place", "cell"]
"""What is reported: a place of a zone, or a cell of a lattice."""
Point = tuple[int, ...]
"""A location as a source knows it: a place, or a point of the frame."""
_NEVER: Final = -(1 << 62)
_EXCHANGED: Final = "Latitude and longitude seem to be exchanged: the latitude comes first."
_FAR: Final = -(1 << 40)
"""Nothing in a frame is near this."""


class Drawn(NamedTuple):
    """What is reported."""

    output: int
    """Number of the place or cell."""
    lat_e7: int
    """Where that is, 1e-7 degrees."""
    lon_e7: int


class ReportSource(Protocol):
    """Reports of one vehicle."""

    kind: Kind
    interval_ms: int

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return what a location counts as."""

    def cost(self, slot: int) -> int:
        """Return what a report that is drawn in a slot costs, in millionths per kilometre."""

    def is_held(self, point: Point, last: DrawnAt | None) -> bool:
        """Return whether the last report is repeated, given where it was drawn."""

    def drawn_at(self, point: Point, slot: int) -> DrawnAt | None:
        """Return what has to be remembered of a draw so that its report can be held; None: nothing."""

    def draw(self, point: Point, slot: int) -> Drawn:
        """Draw a report in a slot."""

    def made(self, point: Point, slot: int) -> None:
        """Remember a report that was stored, as far as later ones depend on it."""

    def forget(self) -> None:
        """Forget where the vehicle was."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""


class FleetSource(Protocol):
    """Reports of many vehicles, known by their numbers."""

    kind: Kind
    interval_ms: int

    def grow(self, last: list[DrawnAt | None]) -> None:
        """Add vehicles, with the next numbers, given where the last report of each was drawn."""

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return what each of n locations counts as, shape (n, ...)."""

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what reports that are drawn in slots cost, in millionths per kilometre, shape (n,)."""

    def are_held(self, which: Ints, points: Ints) -> Bools:
        """Return whose last report is repeated, shape (n,)."""

    def draw(self, which: Ints, points: Ints, slot: Ints) -> Ints:
        """Draw reports in slots; return the numbers of places or cells, shape (n,)."""

    def drawn_at(self, which: Ints, points: Ints, slot: Ints) -> Mapping[int, DrawnAt]:
        """Return what has to be remembered of draws so that their reports can be held, by the vehicle's number."""

    def made(self, which: Ints, points: Ints, slot: Ints, held: Bools) -> None:
        """Remember reports that were stored, as far as later ones depend on them."""

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return latitude and longitude of places or cells, 1e-7 degrees, shape (n, 2)."""

    def forget(self) -> None:
        """Forget where the vehicles were."""

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return what seems wrong with a location."""


class _ZoneBase:
    kind: Kind = "place"

    def __init__(self, tables: ReleaseTables) -> None:
        clock = tables.needed_clock()
        self._places_e7 = tables.places_e7
        self._rule = ReleaseRule(tables)
        self._nearest = NearestPlace(tables.places_e7)
        self._regimes = Regimes(clock)
        self._costs = tables.costs
        self.interval_ms = clock.interval_ms

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether latitude and longitude seem to be exchanged."""
        return _EXCHANGED if self._nearest.seems_exchanged(lat_e7, lon_e7) else None


class ZoneSource(_ZoneBase):
    """Reports of one vehicle."""

    def __init__(self, tables: ReleaseTables) -> None:
        super().__init__(tables)
        self._past = self._rule.past
        self._rule.prepare(sorted(tables.needed_clock().names))
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

    def _follows(self, slot: int) -> bool:
        return bool(self._history) and slot == self._history_slot + 1

    def _history_with(self, point: Point, slot: int) -> list[int]:
        return [*point, *self._history[: self._past]] if self._follows(slot) else [*point]


class ZoneFleetSource(_ZoneBase):
    """Reports of many vehicles."""

    def __init__(self, tables: ReleaseTables) -> None:
        super().__init__(tables)
        self._raster = PlaceRaster(tables.places_e7)
        self._history = np.empty((0, self._rule.past), np.int32)
        self._history_slot = np.empty(0, np.int64)

    def grow(self, last: list[DrawnAt | None]) -> None:
        """Add vehicles, which have no history yet."""
        vehicles = len(last)
        self._history = np.concatenate([self._history, np.full((vehicles, self._history.shape[1]), -1, np.int32)])
        self._history_slot = np.concatenate([self._history_slot, np.full(vehicles, _NEVER, np.int64)])

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return the nearest places."""
        return self._raster.of(lat_e7, lon_e7).astype(np.int64)

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

    def _follows(self, which: Ints, slot: Ints) -> Bools:
        follows: Bools = self._history_slot[which] == slot - 1
        return follows

    def _histories(self, which: Ints, points: Ints, slot: Ints) -> Indices:
        before = np.where(self._follows(which, slot)[:, None], self._history[which], -1)
        return np.column_stack([points.astype(np.int32), before])


class _LatticeBase:
    kind: Kind = "cell"

    def __init__(self, tables: ReleaseTables) -> None:
        if tables.lattice is None:
            raise MismatchError("The bundle has no lattice.")
        self._lattice, self._plane = tables.lattice, tables.lattice.spec.plane
        self.interval_ms = tables.needed_clock().interval_ms
        self._cost_micro = tables.costs.other
        self._frame = bytes.fromhex(tables.domain)[:16]

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether a location lies outside the frame."""
        lat, lon = lat_e7 / 1e7, lon_e7 / 1e7
        if self._plane.holds(lat, lon):
            return None
        if abs(lon) <= 90 and self._plane.holds(lon, lat):
            return _EXCHANGED
        return "This location lies outside the area of the bundle, and counts as the nearest point of its edge."


class LatticeSource(_LatticeBase):
    """Reports of one vehicle."""

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return x and y in the frame."""
        return self._plane.unit_of_e7(lat_e7, lon_e7)

    def cost(self, slot: int) -> int:
        """Return what a draw costs."""
        del slot
        return self._cost_micro

    def is_held(self, point: Point, last: DrawnAt | None) -> bool:
        """Return whether the last report was drawn within the distance of the lattice."""
        x, y = point
        return last is not None and last.frame == self._frame and self._lattice.holds(x, y, last.x, last.y)

    def drawn_at(self, point: Point, slot: int) -> DrawnAt | None:
        """Return where a report was drawn; None where none is ever held."""
        x, y = point
        return DrawnAt(slot * self.interval_ms, self._frame, x, y) if self._lattice.hold_mm else None

    def draw(self, point: Point, slot: int) -> Drawn:
        """Draw a cell."""
        del slot
        x, y = point
        cell = self._lattice.draw_at(x, y)
        lat, lon = self._lattice.center(cell)
        return Drawn(cell, round(lat * 1e7), round(lon * 1e7))

    def made(self, point: Point, slot: int) -> None:
        """Do nothing: the ledger keeps where a report was drawn."""

    def forget(self) -> None:
        """Do nothing: nothing is kept."""


class LatticeFleetSource(_LatticeBase):
    """Reports of many vehicles."""

    def __init__(self, tables: ReleaseTables) -> None:
        super().__init__(tables)
        self._hold_units = self._lattice.hold_mm // self._plane.unit_mm
        self._drawn_at = np.empty((0, 2), np.int64)
        """Where the last report of each vehicle was drawn."""

    def grow(self, last: list[DrawnAt | None]) -> None:
        """Add vehicles."""
        known = [(drawn.x, drawn.y) if drawn and drawn.frame == self._frame else (_FAR, _FAR) for drawn in last]
        self._drawn_at = np.concatenate([self._drawn_at, np.array(known, np.int64).reshape(-1, 2)])

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return x and y in the frame, shape (n, 2)."""
        return np.column_stack(self._plane.units_e7(lat_e7, lon_e7))

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what draws cost: the same for all."""
        del slot
        return np.full(len(which), self._cost_micro)

    def are_held(self, which: Ints, points: Ints) -> Bools:
        """Return whose last report was drawn within the distance of the lattice."""
        if not self._hold_units:
            return np.zeros(len(which), np.bool_)
        apart = points - self._drawn_at[which]
        near = np.abs(apart).max(axis=1) <= self._hold_units
        apart[~near] = 0  # squares of more could overflow
        held: Bools = near & ((apart**2).sum(axis=1) <= self._hold_units**2)
        return held

    def draw(self, which: Ints, points: Ints, slot: Ints) -> Ints:
        """Draw cells."""
        del which, slot
        return self._lattice.draw_many_at(points[:, 0], points[:, 1])

    def drawn_at(self, which: Ints, points: Ints, slot: Ints) -> Mapping[int, DrawnAt]:
        """Return where reports were drawn; nothing where none is ever held."""
        if not self._hold_units:
            return {}
        rows = zip(which.tolist(), (slot * self.interval_ms).tolist(), points.tolist(), strict=True)
        return {number: DrawnAt(slot_ms, self._frame, x, y) for number, slot_ms, (x, y) in rows}

    def made(self, which: Ints, points: Ints, slot: Ints, held: Bools) -> None:
        """Keep where reports were drawn."""
        del slot
        self._drawn_at[which[~held]] = points[~held]

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return the centres of cells."""
        return cell_centers_e7(self._lattice, outputs)

    def forget(self) -> None:
        """Forget where reports were drawn."""
        self._drawn_at.fill(_FAR)


def cell_centers_e7(lattice: Lattice, cells: Ints) -> Ints:
    """Return latitude and longitude of the centres of cells, 1e-7 degrees, shape (n, 2)."""
    return np.rint(np.column_stack(lattice.centers(cells)) * 1e7).astype(np.int64)
