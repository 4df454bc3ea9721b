"""Replays: a true path beside what a device would have reported, and where the tracker takes the vehicle to be.

By zones the path is a trip that was held out; by a lattice it may be a made-up drive, too. Walks are true paths of
vehicles, so the service accepts them only on a loopback address, and the page says what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet
from geoblanket.errors import RefusedError
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.service.explore_bundle import ExploredBundle
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_map import Line, Streets, points
from geoblanket.service.explore_tracking import (
    ZoneAlone,
    model_around,
    model_facts,
    track,
    tracked_json,
    typical_error_m,
    unreported,
)
from geoblanket.tracking.estimate import Estimates
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["Replay", "Trip", "Way", "drive", "held_out_trips", "replay", "replay_way", "street_drive"]

_MOST_TRIPS = 24
_LEAST_STEPS = 8
_MOST_STEPS = 240
_MORNING: Final = datetime(2026, 1, 12, 8, tzinfo=UTC)
_DRIVE_S: Final = 2700.0
_DAY_S: Final = 86_400.0
_SPEED_M_S: Final = 7.0
_FAR_M: Final = 2500.0
"""How far from its start a made-up drive goes before it turns round."""
_TURN: Final = 0.35
"""How much a made-up drive turns from one report to the next, radians."""


@dataclass(frozen=True, eq=False)
class Trip:
    """One walk that was held out."""

    number: int
    """Of the walk in its table."""
    times: Sequence[datetime]
    """UTC."""
    places: Indices
    """The true place at each step."""
    length_km: float
    """Along straight lines between the places."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A trip as a device reported it, and what three recipients make of it, interval by interval."""

    released: list[int | None]
    """The places that were reported; None: the budget did not allow a report."""
    left: list[float]
    """Of the budget in the window that ends with the last report, per km."""
    tracked: Estimates
    """By all reports so far."""
    from_zones: Estimates
    """By the zones of all reports so far."""
    unreported: Estimates
    """By how vehicles move alone."""


def held_out_trips(path: str | Path, places: Places, *, split: Split) -> list[Trip]:
    """Return some walks that were held out, long ones, in order of time."""
    frame, _ = scan_walks(path)
    parts = split_walks(frame, path=path, part="held_out", split=split)
    held_out = frame.filter(pl.col("walk").is_in(parts.walks[parts.chosen].tolist()), pl.col("step") < _MOST_STEPS)
    lengths = held_out.group_by("walk").agg(pl.len().alias("steps"), pl.col("place").n_unique().alias("different"))
    longest = lengths.filter(pl.col("steps") >= _LEAST_STEPS).sort(["different", "walk"], descending=[True, False])
    with reading_parquet(path):
        chosen = longest.head(_MOST_TRIPS).collect()["walk"]
        rows = held_out.filter(pl.col("walk").is_in(chosen.to_list())).sort("walk", "step").collect()
    trips = [_trip(part, places) for part in rows.partition_by("walk", maintain_order=True)]
    return sorted(trips, key=lambda trip: trip.times[0])


def _trip(rows: pl.DataFrame, places: Places) -> Trip:
    way = rows["place"].to_numpy()
    lat, lon = places.lat[way], places.lon[way]
    return Trip(
        number=int(rows["walk"][0]),
        times=rows["time"].to_list(),
        places=way,
        length_km=float(haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:]).sum() / 1000),
    )


def replay(trip: Trip, explored: ExploredBundle, places: Places, model: MotionModel, *, budget: Budget) -> Replay:
    """Report a trip as a device would, once, and track it as a recipient would.

    The reports are those of a real device with its budget in memory, by the operating system's randomness.

    Parameters
    ----------
    model
        How vehicles move between the bundle's places.
    """
    bundle, interval_s = explored.bundle, explored.bundle.needed_clock().interval_s
    released: list[int | None] = []
    left = [budget.epsilon]
    # What is shown was accepted when it was loaded.
    with Device.open(bundle, ledger=None, budget=budget, policy=ANYTHING, replay=True) as device:
        for time, place in zip(trip.times, trip.places.tolist(), strict=True):
            try:
                report = device.report(places.lat[place], places.lon[place], time)
            except RefusedError:
                released.append(None)
                left.append(left[-1])
            else:
                released.append(report.place)
                left.append(report.left)
    slots = np.array([int(time.timestamp() // interval_s) for time in trip.times], np.int64)
    outputs = np.array([NO_REPORT if place is None else place for place in released], np.int64)
    zones = BeliefFilter(model, ZoneAlone(explored.zone, model, interval_s=interval_s))
    return Replay(
        released=released,
        left=left[1:],
        tracked=track(BeliefFilter.of(bundle, model), slots, outputs),
        from_zones=track(zones, slots, outputs),
        unreported=unreported(zones, slots),
    )


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
    at = []
    for _ in range(count):
        at.append((x, y))
        heading += generator.normal(0, _TURN)
        if np.hypot(x - start[0], y - start[1]) > far:
            heading = np.arctan2(start[1] - y, start[0] - x) + generator.normal(0, _TURN)
        step = _SPEED_M_S * interval_s * metre * generator.uniform(0.4, 1.4)
        x, y = np.clip([x + step * np.cos(heading), y + step * np.sin(heading)], 0, plane.side - 1)
    way_lat, way_lon = plane.degrees(*np.array(at).T)
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
        reports = [
            device.report(*at) for at in zip(way.lat.tolist(), way.lon.tolist(), way.time_s.tolist(), strict=True)
        ]
    cells = np.array([report.place for report in reports], np.int64)
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
        "spent": [round(whole - report.left, 6) for report in reports],
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
