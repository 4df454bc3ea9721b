"""Reports by a lattice: a point of the frame, then a cell; at rest the last cell again.

Every draw costs the same, and a report that is held costs nothing. A location outside the frame counts as its nearest
point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Ints
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.release.hold import DrawnAt
from geoblanket.release.source import Drawn, Kind, Point

__all__ = ["LatticeFleetSource", "LatticeSource", "cell_centers_e7"]

_FAR: Final = -(1 << 40)
"""Nothing in a frame is near this."""


class _Base:
    kind: Kind = "cell"

    def __init__(self, tables: ReleaseTables) -> None:
        if tables.lattice is None:
            raise MismatchError("The bundle has no lattice.")
        self._lattice, self._plane = tables.lattice, tables.lattice.spec.plane
        self.interval_ms = tables.needed_clock().interval_ms
        self._cost_micro = tables.costs.other
        self._frame = bytes.fromhex(tables.domain)[:16]


class LatticeSource(_Base):
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

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether a location lies outside the frame."""
        lat, lon = lat_e7 / 1e7, lon_e7 / 1e7
        if self._plane.holds(lat, lon):
            return None
        if abs(lon) <= 90 and self._plane.holds(lon, lat):
            return "Latitude and longitude seem to be exchanged: the latitude comes first."
        return "This location lies outside the area of the bundle, and counts as the nearest point of its edge."


class LatticeFleetSource(_Base):
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
        held: Bools = ((points - self._drawn_at[which]) ** 2).sum(axis=1) <= self._hold_units**2
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
