"""Vehicles tracked through a whole city by the reports of each method: what comes after the zones one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.build.measures import VehicleLosses
from geoblanket.build.zone_task import leave_ctrl_c_to
from geoblanket.evaluate.comparing import MethodOutcome, ZoneOutcome
from geoblanket.evaluate.measures.catalogue import TRACKING, Measure
from geoblanket.evaluate.measures.reports import RowSight, ZoneReports, only_the_zone
from geoblanket.evaluate.measures.tracking import WalkTracker
from geoblanket.evaluate.measures.values import HeldOut, by_reports
from geoblanket.evaluate.results import ALL_ZONES, WHOLE_CITY
from geoblanket.evaluate.settings import Setting
from geoblanket.tracking.filtering import NO_REPORT

__all__ = ["TrackingTask", "track_city"]


@dataclass(frozen=True, eq=False)
class TrackingTask:
    """The reports of one method in one setting."""

    tracker: WalkTracker
    zone_of: Indices
    """The number of the zone of each place."""
    zones: tuple[ZoneOutcome, ...]
    """What the methods reported in some of them. In the others, nothing is known but the zone."""
    setting: Setting
    method: str | None
    """The method that reports; None: nobody does, and only zones are known."""
    reports: tuple[int, ...]
    """How many reports in a row an attacker sees in hindsight, the usual number first."""
    process: int
    """The process that asks for it."""


def track_city(task: TrackingTask) -> ZoneOutcome:
    """Track held-out vehicles by the reports of a method, if it has a mechanism in all zones of a task."""
    leave_ctrl_c_to(task.process)
    outcome = _City(task).outcome()
    first = task.zones[0]
    return ZoneOutcome(
        zone=WHOLE_CITY if task.setting.city_wide else ALL_ZONES,
        share=1.0,
        unit=first.unit,
        spacing_m=first.spacing_m,
        interval_s=first.interval_s,
        methods=() if outcome is None else (outcome,),
    )


class _City:
    def __init__(self, task: TrackingTask) -> None:
        self.task = task
        zone = task.zone_of[task.tracker.steps.histories[:, 0]]
        judged = np.isin(zone, [outcome.zone for outcome in task.zones])
        self.tracker = task.tracker if judged.all() else replace(task.tracker, judged=judged)
        self._positions = {int(number): np.flatnonzero(zone == number) for number in np.unique(task.zone_of)}

    def outcome(self) -> MethodOutcome | None:
        if self.task.method is None:
            sight, outputs = self._reports({})
            blind = {HeldOut(Measure.TRACKED_ERROR_PRIOR, "km"): self.tracker.tracked(sight, outputs).error_km}
            return MethodOutcome("", (), {**blind, **dict(self._in_hindsight({}, blind=True))}, "")
        parts = {
            outcome.zone: part.reports
            for outcome in self.task.zones
            for part in outcome.methods
            if part.method == self.task.method and part.reports is not None
        }
        if len(parts) < len(self.task.zones):
            return None
        held_out = {**dict(self._tracked(parts)), **dict(self._in_hindsight(parts))}
        return MethodOutcome(self.task.method, (), held_out, "")

    def _tracked(self, parts: dict[int, ZoneReports]) -> Iterator[tuple[HeldOut, VehicleLosses]]:
        sight, outputs = self._reports(parts)
        so_far = self.tracker.tracked(sight, outputs)
        yield HeldOut(Measure.TRACKED_ERROR, "km"), so_far.error_km
        yield HeldOut(Measure.TRACKED_SUCCESS, ""), so_far.success
        if so_far.loss is not None:
            yield HeldOut(Measure.TRACKED_LOSS, self.task.zones[0].unit), so_far.loss
        yield HeldOut(Measure.SINGLE_ERROR, "km"), self.tracker.single(sight, outputs).error_km

    def _in_hindsight(
        self, parts: dict[int, ZoneReports], *, blind: bool = False
    ) -> Iterator[tuple[HeldOut, VehicleLosses]]:
        sight, outputs = self._reports(parts)
        for count, part in by_reports(self.task.reports):
            attacker = self.tracker.in_hindsight(sight, outputs, steps=count * self.task.setting.every)
            yield HeldOut(TRACKING.blind_error if blind else TRACKING.error, "km", part), attacker.error_km
            yield HeldOut(TRACKING.blind_success if blind else TRACKING.success, "", part), attacker.success

    def _reports(self, parts: dict[int, ZoneReports]) -> tuple[RowSight, Ints]:
        """Return what is known of the reports, and the report of each step: where there is none, its zone."""
        motion = self.tracker.motion
        zones = [
            parts[number] if number in parts else only_the_zone(self._members(number), len(where), motion)
            for number, where in self._positions.items()
        ]
        sight = RowSight(motion, zones)
        outputs = np.empty(len(self.tracker.steps), np.int64)
        for first, zone, where in zip(sight.first, zones, self._positions.values(), strict=True):
            outputs[where] = first + zone.sent
        outputs[self.tracker.number_in_walk % self.task.setting.every > 0] = NO_REPORT
        return sight, outputs

    def _members(self, number: int) -> Indices:
        return np.flatnonzero(self.task.zone_of == number).astype(np.int32)
