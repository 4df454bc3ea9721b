"""Replays of held-out trips: the true path beside what a device would have reported.

Whoever has walks may give them to the service. They are true paths of vehicles, so the service accepts them only on a
loopback address, and the page says what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from geoblanket._arrays import Indices
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet
from geoblanket.errors import MismatchError, RefusedError
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mobility.splitting import Split, split_walks
from geoblanket.mobility.walks import scan_walks
from geoblanket.release.budget import Budget
from geoblanket.release.device import Device, Report
from geoblanket.release.regimes import Regimes
from geoblanket.roads.places import Places
from geoblanket.service.explore_bundle import ExploredBundle
from geoblanket.service.explore_traffic import Tracker, Traffic

__all__ = ["ReplayStep", "Trip", "held_out_trips", "replay"]

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


@dataclass(frozen=True)
class ReplayStep:
    """One interval of a trip."""

    true: int
    """The true place."""
    released: int | None
    """The place that was reported; None: the budget did not allow a report."""
    error_m: float | None
    """From the true place to the reported one, metres."""
    guess: int
    """Where a recipient who follows the vehicle guesses it to be."""
    guess_error_m: float
    """From the true place to that, metres."""
    zone_only_error_m: float
    """The same for a recipient who learns the zones of reports only, metres."""
    left: float
    """Of the budget in the window that ends with the last report, per km."""


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


def replay(
    trip: Trip, explored: ExploredBundle, places: Places, traffic: Traffic, *, budget: Budget
) -> list[ReplayStep]:
    """Report a trip as a device would, once, and follow it as a recipient would.

    The reports are those of a real device with its budget in memory, by the operating system's randomness.
    """
    following = _Following(explored, places, traffic)
    steps, left = [], budget.epsilon
    # What is shown was accepted when it was loaded.
    with Device.open(explored.bundle, ledger=None, budget=budget, policy=ANYTHING, replay=True) as device:
        for time, place in zip(trip.times, trip.places.tolist(), strict=True):
            try:
                report = device.report(places.lat[place], places.lon[place], time)
            except RefusedError:
                report = None
            left = left if report is None else report.left
            following.see(report)
            steps.append(_step(place, report, following, left))
    return steps


def _step(true: int, report: Report | None, following: _Following, left: float) -> ReplayStep:
    guess, from_zones = following.reports.guess()[0], following.zones.guess()[0]
    return ReplayStep(
        true=true,
        released=None if report is None else report.place,
        error_m=None if report is None else following.apart_m(true, report.place),
        guess=guess,
        guess_error_m=following.apart_m(true, guess),
        zone_only_error_m=following.apart_m(true, from_zones),
        left=left,
    )


class _Following:
    """Two recipients of the same reports: one uses all that they disclose, the other their zones only."""

    def __init__(self, explored: ExploredBundle, places: Places, traffic: Traffic) -> None:
        self._explored, self._places = explored, places
        self._regimes = Regimes(explored.bundle.needed_clock())
        self._last_slot = -1
        self.reports, self.zones = Tracker(traffic, places), Tracker(traffic, places)

    def see(self, report: Report | None) -> None:
        """Take in one more interval; None: there was no report in it."""
        if report is None:
            self.reports.wait()
            self.zones.wait()
            return
        follows = report.slot == self._last_slot + 1
        regime = self._regimes.at(int(report.time.timestamp()) * 1000) if follows else self._regimes.start
        self._last_slot = report.slot
        view = self._explored.view(report.place, regime)
        if view is None:
            raise MismatchError("A report is not a place of the zone that it came from.")
        self.reports.see(view, report.place, follows=follows)
        self.zones.see_zone(view)

    def apart_m(self, place: int, other: int) -> float:
        """Return how far two places are apart, metres."""
        lat, lon = self._places.lat, self._places.lon
        return float(haversine_m(lat[place], lon[place], lat[other], lon[other]))
