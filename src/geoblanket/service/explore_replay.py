"""Replays of held-out trips: the true path beside what a device would have reported.

Whoever has walks may give them to the service. They are true paths of vehicles, so the service accepts them only on a
loopback address, and the page says what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._arrays import Indices
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet
from geoblanket.errors import RefusedError
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mobility.walks import Split, scan_walks, split_walks
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device
from geoblanket.roads.places import Places
from geoblanket.service.explore_bundle import ExploredBundle
from geoblanket.service.explore_tracking import ZoneAlone, track, unreported
from geoblanket.tracking.estimate import Estimates
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["Replay", "Trip", "held_out_trips", "replay"]

_MOST_TRIPS = 24
_LEAST_STEPS = 8
_MOST_STEPS = 240


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
