"""Reports by a lattice: a point of the frame, shifted by the anchor of the period, then a cell.

Every report costs the same, and each period begun costs the anchor besides. A location outside the frame counts as its
nearest point. No true location is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.lattice.lattice import NO_SHIFT, Lattice
from geoblanket.release.anchoring import Anchoring
from geoblanket.release.budget import Account
from geoblanket.release.source import Drawn, DrawnMany, Kind, Point

__all__ = ["LatticeFleetSource", "LatticeSource", "cell_centers_e7"]

_NEVER: Final = -(1 << 62)


class _Base:
    kind: Kind = "cell"

    def __init__(self, tables: ReleaseTables) -> None:
        if tables.lattice is None:
            raise MismatchError("The bundle has no lattice.")
        self._lattice, self._plane = tables.lattice, tables.lattice.spec.plane
        self.anchor = tables.lattice.anchor
        self.interval_ms = tables.needed_clock().interval_ms
        self._cost_micro = tables.costs.other
        self._anchoring = None if self.anchor is None else Anchoring(self.anchor, tables, side=self._plane.side)

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return whether a location lies outside the frame."""
        lat, lon = lat_e7 / 1e7, lon_e7 / 1e7
        if self._plane.holds(lat, lon):
            return None
        if abs(lon) <= 90 and self._plane.holds(lon, lat):
            return "Latitude and longitude seem to be exchanged: the latitude comes first."
        return "This location lies outside the area of the bundle, and counts as the nearest point of its edge."


class LatticeSource(_Base):
    """Reports of one vehicle."""

    def point(self, lat_e7: int, lon_e7: int) -> Point:
        """Return x and y in the frame."""
        return self._plane.unit_of_e7(lat_e7, lon_e7)

    def costs(self, slot: int, account: Account) -> tuple[int, int]:
        """Return what a report costs, and the anchor unless the period has one."""
        if self._anchoring is None:
            return self._cost_micro, 0
        anchor = account.anchor_cost_micro(slot * self.interval_ms, self._anchoring.frame, self._anchoring.cost_micro)
        return self._cost_micro, anchor

    def draw(self, point: Point, slot: int, account: Account) -> Drawn:
        """Draw a cell, and the anchor of the period if there is none yet."""
        shift, new = NO_SHIFT, None
        if self._anchoring is not None:
            slot_ms = slot * self.interval_ms
            anchor = account.anchor(slot_ms, self._anchoring.frame)
            if anchor is None:
                anchor = new = self._anchoring.drawn(slot_ms)
            shift = anchor.shift or NO_SHIFT
        x, y = point
        cell = self._lattice.draw_at(x, y, shift=shift)
        lat, lon = self._lattice.center(cell)
        return Drawn(cell, round(lat * 1e7), round(lon * 1e7), new)

    def made(self, point: Point, slot: int) -> None:
        """Do nothing: no report depends on earlier places."""

    def forget(self) -> None:
        """Do nothing: nothing is kept."""


class LatticeFleetSource(_Base):
    """Reports of many vehicles."""

    def __init__(self, tables: ReleaseTables, vehicles: int) -> None:
        super().__init__(tables)
        self._shift = np.zeros((vehicles, 2), np.int64)
        self._period = np.full(vehicles, _NEVER, np.int64)
        """The period of each vehicle's shift."""

    def grow(self, vehicles: int) -> None:
        """Add so many vehicles, which have no shift yet."""
        self._shift = np.concatenate([self._shift, np.zeros((vehicles, 2), np.int64)])
        self._period = np.concatenate([self._period, np.full(vehicles, _NEVER, np.int64)])

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return x and y in the frame, shape (n, 2)."""
        return np.column_stack(self._plane.units_e7(lat_e7, lon_e7))

    def costs(self, which: Ints, slot: Ints) -> Ints:
        """Return what reports cost: the same for all."""
        del slot
        return np.full(len(which), self._cost_micro)

    def anchor_costs(self, which: Ints, slot: Ints, account: Callable[[int], Account] | None) -> Ints:
        """Return what anchors cost, where a period has none yet."""
        costs = np.zeros(len(which), np.int64)
        if self._anchoring is None:
            return costs
        periods = self._periods(slot)
        for index in np.flatnonzero(self._period[which] != periods).tolist():
            vehicle = int(which[index])
            slot_ms = int(slot[index]) * self.interval_ms
            if account is None:
                costs[index] = self._anchoring.cost_micro
            elif (stored := account(vehicle).anchor(slot_ms, self._anchoring.frame)) and stored.shift is not None:
                self._shift[vehicle], self._period[vehicle] = stored.shift, periods[index]
            else:
                costs[index] = account(vehicle).anchor_cost_micro(
                    slot_ms, self._anchoring.frame, self._anchoring.cost_micro
                )
        return costs

    def draw(self, which: Ints, points: Ints, slot: Ints) -> DrawnMany:
        """Draw cells, and the anchors of periods that have none."""
        anchors = {}
        if self._anchoring is not None:
            for index in np.flatnonzero(self._period[which] != self._periods(slot)).tolist():
                anchor = self._anchoring.drawn(int(slot[index]) * self.interval_ms)
                anchors[int(which[index])] = anchor
                self._shift[which[index]] = anchor.shift or NO_SHIFT
        east, north = self._shift[which].T
        return DrawnMany(self._lattice.draw_many_at(points[:, 0], points[:, 1], shift=(east, north)), anchors)

    def made(self, which: Ints, points: Ints, slot: Ints) -> None:
        """Keep the shifts for the rest of their periods."""
        del points
        if self._anchoring is not None:
            self._period[which] = self._periods(slot)

    def coordinates_e7(self, outputs: Ints) -> Ints:
        """Return the centres of cells."""
        return cell_centers_e7(self._lattice, outputs)

    def forget(self) -> None:
        """Forget all shifts."""
        self._shift.fill(0)
        self._period.fill(_NEVER)

    def _periods(self, slot: Ints) -> Ints:
        period_ms = 1 if self._anchoring is None else self._anchoring.period_ms
        return slot * self.interval_ms // period_ms


def cell_centers_e7(lattice: Lattice, cells: Ints) -> Ints:
    """Return latitude and longitude of the centres of cells, 1e-7 degrees, shape (n, 2)."""
    return np.rint(np.column_stack(lattice.centers(cells)) * 1e7).astype(np.int64)
