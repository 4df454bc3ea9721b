"""Ways to replay: a trip that was held out, a parked car, or a drive that is made up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.service.explore_replay import Trip
from geoblanket.service.explore_streets import Line, Streets

__all__ = ["Way", "drive", "parked", "street_drive"]

_EVENING: Final = datetime(2026, 1, 12, 22, tzinfo=UTC)
_MORNING: Final = datetime(2026, 1, 12, 8, tzinfo=UTC)
_MOST_REPORTS: Final = 1440
_DRIVE_S: Final = 2700.0
_SPEED_M_S: Final = 7.0
_FAR_M: Final = 2500.0
"""How far from its start a made-up drive goes before it turns round."""
_TURN: Final = 0.35
"""How much a made-up drive turns from one report to the next, radians."""


@dataclass(frozen=True, eq=False)
class Way:
    """Where a vehicle truly is, report by report."""

    time_s: Floats
    """Since 1970, UTC, shape (T,)."""
    lat: Floats
    lon: Floats
    """Degrees, shape (T,)."""
    moves: bool
    nodes: Indices | None = None
    """Of the road graph, shape (T,); None: they are not known."""
    lines: list[Line] | None = None
    """The way from each point to the next along streets, the first a point; None: straight."""

    @classmethod
    def of_trip(cls, trip: Trip, places: Places) -> Way:
        """Return the way of a walk that was held out."""
        time_s = np.array([time.timestamp() for time in trip.times])
        return cls(
            time_s, places.lat[trip.places], places.lon[trip.places], moves=True, nodes=places.nodes[trip.places]
        )

    def in_slots(self, interval_s: float) -> Way:
        """Return it with one report in a slot at most, as a device makes them."""
        slot = self.slots(interval_s)
        first = np.concatenate([[True], slot[1:] > slot[:-1]])
        nodes = None if self.nodes is None else self.nodes[first]
        return Way(self.time_s[first], self.lat[first], self.lon[first], self.moves, nodes)

    def slots(self, interval_s: float) -> Ints:
        """Return the slot of each point: intervals since 1970, shape (T,)."""
        return np.floor(self.time_s / interval_s).astype(np.int64)


def parked(lat: float, lon: float, *, hours: int, interval_s: float) -> Way:
    """Return a car that stays at a coordinate and reports all the time."""
    seconds = max(interval_s, hours * 3600 / _MOST_REPORTS)
    time_s: Floats = _EVENING.timestamp() + np.arange(max(int(hours * 3600 / seconds), 2), dtype=np.float64) * seconds
    return Way(time_s, np.full(len(time_s), lat), np.full(len(time_s), lon), moves=False)


def street_drive(lattice: Lattice, graph: RoadGraph, lat: float, lon: float, *, interval_s: float) -> Way | None:
    """Return a made-up drive of 45 minutes over the roads near a coordinate; None: there are no roads near by."""
    inside = lattice.spec.plane.holds_many(graph.lat, graph.lon)
    driven = Streets(graph).drive(lat, lon, far_m=_FAR_M, seconds=_DRIVE_S, interval_s=interval_s, inside=inside)
    if driven is None:
        return None
    way_lat, way_lon, lines = driven
    return Way(_morning(len(way_lat), interval_s), way_lat, way_lon, moves=True, lines=lines)


def drive(lattice: Lattice, lat: float, lon: float, *, interval_s: float) -> Way:
    """Return a made-up drive of 45 minutes from a coordinate where no roads are known, always the same one."""
    plane = lattice.spec.plane
    generator = np.random.default_rng(5)
    count = max(int(_DRIVE_S / interval_s), 2)
    metre = 1000 / plane.unit_mm
    x, y = (float(value) for value in plane.units(lat, lon))
    start, far = (x, y), min(_FAR_M * metre, plane.side / 4)
    heading = np.arctan2(plane.side / 2 - y, plane.side / 2 - x)
    points = []
    for _ in range(count):
        points.append((x, y))
        heading += generator.normal(0, _TURN)
        if np.hypot(x - start[0], y - start[1]) > far:
            heading = np.arctan2(start[1] - y, start[0] - x) + generator.normal(0, _TURN)
        step = _SPEED_M_S * interval_s * metre * generator.uniform(0.4, 1.4)
        x, y = np.clip([x + step * np.cos(heading), y + step * np.sin(heading)], 0, plane.side - 1)
    way_lat, way_lon = plane.degrees(*np.array(points).T)
    return Way(_morning(count, interval_s), way_lat, way_lon, moves=True)


def _morning(count: int, interval_s: float) -> Floats:
    time_s: Floats = _MORNING.timestamp() + np.arange(count, dtype=np.float64) * interval_s
    return time_s
