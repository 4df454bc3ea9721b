"""Ways to replay by a lattice, and where the tracker takes the vehicle to be: held-out trips, or a made-up drive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_replay import Trip
from geoblanket.service.explore_streets import Line, Streets
from geoblanket.service.explore_tracking import (
    model_around,
    model_facts,
    points,
    track,
    tracked_json,
    typical_error_m,
    unreported,
)
from geoblanket.tracking.filtering import BeliefFilter
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["Way", "drive", "replay_way", "street_drive"]

_MORNING: Final = datetime(2026, 1, 12, 8, tzinfo=UTC)
_DRIVE_S: Final = 2700.0
_DAY_S: Final = 86_400.0
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
    nodes: Indices | None = None
    """Of the road graph, shape (T,); None: they are not known."""
    lines: list[Line] | None = None
    """The way from each point to the next along streets, the first a point; None: straight."""

    @classmethod
    def of_trip(cls, trip: Trip, places: Places) -> Way:
        """Return the way of a walk that was held out."""
        time_s = np.array([time.timestamp() for time in trip.times])
        return cls(time_s, places.lat[trip.places], places.lon[trip.places], nodes=places.nodes[trip.places])

    def in_slots(self, interval_s: float) -> Way:
        """Return it with one report in a slot at most, as a device makes them."""
        slot = self.slots(interval_s)
        first = np.concatenate([[True], slot[1:] > slot[:-1]])
        nodes = None if self.nodes is None else self.nodes[first]
        return Way(self.time_s[first], self.lat[first], self.lon[first], nodes)

    def slots(self, interval_s: float) -> Ints:
        """Return the slot of each point: intervals since 1970, shape (T,)."""
        return np.floor(self.time_s / interval_s).astype(np.int64)


def street_drive(lattice: Lattice, graph: RoadGraph, lat: float, lon: float, *, interval_s: float) -> Way | None:
    """Return a made-up drive of 45 minutes over the roads near a coordinate; None: there are no roads near by."""
    inside = lattice.spec.plane.holds_many(graph.lat, graph.lon)
    driven = Streets(graph).drive(lat, lon, far_m=_FAR_M, seconds=_DRIVE_S, interval_s=interval_s, inside=inside)
    if driven is None:
        return None
    way_lat, way_lon, lines = driven
    return Way(_morning(len(way_lat), interval_s), way_lat, way_lon, lines=lines)


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
    return Way(_morning(count, interval_s), way_lat, way_lon)


def _morning(count: int, interval_s: float) -> Floats:
    time_s: Floats = _MORNING.timestamp() + np.arange(count, dtype=np.float64) * interval_s
    return time_s


def replay_way(explored: ExploredLattice, way: Way, model: MotionModel | None) -> dict[str, Any]:
    """Report a way by a device with its budget in memory, track it, and return both as JSON values.

    Parameters
    ----------
    model
        How vehicles move in this city; None: the tracker knows no roads.
    """
    bundle, slots = explored.bundle, way.slots(explored.interval_s)
    whole = len(slots) * explored.lattice.epsilon
    # What is shown was accepted when it was loaded.
    with Device.open(
        bundle, ledger=None, budget=Budget(whole, _DAY_S), policy=ANYTHING, replay=True, hold_in_memory=True
    ) as device:
        told = [device.report(*at) for at in zip(way.lat.tolist(), way.lon.tolist(), way.time_s.tolist(), strict=True)]
    cells = np.array([report.place for report in told], np.int64)
    lat, lon = explored.lattice.centers(cells)
    around = model_around(explored.lattice, cells, interval_s=explored.interval_s) if model is None else model
    beliefs = BeliefFilter.of(bundle, around)
    true = points(way.lat, way.lon)
    return {
        "times": [datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds") for time in way.time_s.tolist()],
        "true": true,
        "lines": way.lines if way.lines is not None else [true[max(at - 1, 0) : at + 1] for at in range(len(true))],
        "model": model_facts(around),
        "reports": points(lat, lon),
        "spent": [round(whole - report.left, 6) for report in told],
        "error_m": np.round(haversine_m(way.lat, way.lon, lat, lon), 1).tolist(),
        "tracked": tracked_json(track(beliefs, slots, cells), way.lat, way.lon),
        "without": _without(explored, way, model),
    }


def _without(explored: ExploredLattice, way: Way, model: MotionModel | None) -> dict[str, Any]:
    """Return how far off one is without any report.

    For a walk by its own truth. A made-up way begins wherever somebody clicked, perhaps at the best guess itself: for
    it, on average over the city.
    """
    if model is not None and way.nodes is not None:
        estimates = unreported(BeliefFilter.of(explored.bundle, model), way.slots(explored.interval_s))
        return {"error_m": tracked_json(estimates, way.lat, way.lon)["error_m"], "typical": False}
    error_m = explored.unreported_error_m if model is None else typical_error_m(model)
    return {"error_m": [error_m] * len(way.lat), "typical": True}
