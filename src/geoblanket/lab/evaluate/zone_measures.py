"""Measures of one mechanism: utility, privacy, time, memory and size."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket._workers import peak_memory_mb
from geoblanket.build.measures import VehicleLosses, by_vehicle, step_losses
from geoblanket.build.rows import ZoneRows
from geoblanket.lab.evaluate.attacker import Cases, attack_report, zone_distance_km
from geoblanket.lab.evaluate.city_data import ZoneData
from geoblanket.lab.evaluate.leakage import compose, effective_epsilon, posterior_leakage, same_past
from geoblanket.lab.evaluate.measures import (
    CONTEXT_INFERENCE,
    INFERENCE,
    AttackMeasures,
    HeldOut,
    Measure,
    Value,
    by_reports,
)
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism.bundle.storage import BundledMechanism, stored_bytes
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import Steps


def held_out_losses(
    probabilities: Floats, rows: ZoneRows, data: ZoneData, loss: PlaceLoss
) -> dict[HeldOut, VehicleLosses]:
    """Return losses by vehicle: the service's loss, the displacement in kilometres, and losses with one destination.

    Parameters
    ----------
    probabilities
        Of the places of the zone in each row, shape (S, K).
    """
    steps = data.steps
    of_step = step_losses(probabilities, rows, steps, loss)
    result = {HeldOut(Measure.HELD_OUT_LOSS, loss.unit): by_vehicle(steps, of_step)}
    present = replace(steps, next_place=steps.histories[:, 0])
    away = step_losses(probabilities, rows, present, StraightLine(data.places))
    result[HeldOut(Measure.DISPLACEMENT, "km")] = by_vehicle(steps, away)
    if data.vehicle_tasks is not None and len(data.vehicle_tasks):
        losses = data.vehicle_tasks.losses(probabilities, rows.row_of(data.vehicle_tasks.histories), rows.zone)
        result[HeldOut(Measure.ONE_DESTINATION_LOSS, "km")] = VehicleLosses(
            data.vehicle_tasks.number, np.ones(len(losses)), losses
        )
    return result


_PER_KM = "per km"


@dataclass(frozen=True, eq=False)
class PrivacyMeter:
    """Measures the privacy of mechanisms of one zone."""

    data: ZoneData

    def values(self, mechanism: Mechanism, rows: ZoneRows, *, reports: Sequence[int]) -> Iterator[Value]:
        """Yield the ε spent, leakage, and the errors of attackers on one report.

        The context-free attacker knows how probable each place is. The other attacker also knows where the vehicle was
        one step before.

        Parameters
        ----------
        reports
            Numbers of reports in a row for the composed cost, the usual number first.
        """
        yield Value(Measure.EPSILON_EFFECTIVE, effective_epsilon(mechanism).epsilon, _PER_KM)
        for count, part in by_reports(reports):
            cost = compose(mechanism.epsilon, rows.history_weights, reports=count)
            yield Value(Measure.COMPOSED_EPSILON, cost.per_trajectory, _PER_KM, part=part)
        leakage = posterior_leakage(
            mechanism.probabilities,
            rows.prior,
            rows.distance_km,
            eta_km=mechanism.eta_km,
            pairs=same_past(rows.histories),
        )
        yield Value(Measure.LEAKAGE_MAX, leakage.maximum, _PER_KM)
        yield Value(Measure.LEAKAGE_EXPECTED, leakage.expected, _PER_KM)
        yield from self._attack(INFERENCE, mechanism.probabilities, rows, known_past=0)
        yield from self._attack(CONTEXT_INFERENCE, mechanism.probabilities, rows, known_past=1)

    def of_one_report(self, reports: Floats, rows: ZoneRows, *, epsilon_effective: float) -> Iterator[Value]:
        """Yield the ε of one report, and the context-free attacker's errors.

        Parameters
        ----------
        reports
            Probability of each report from each row, before any remapping, shape (S, any).
        epsilon_effective
            The ε that they spend, per kilometre.
        """
        yield Value(Measure.EPSILON_EFFECTIVE, epsilon_effective, _PER_KM)
        yield from self._attack(INFERENCE, reports, rows, known_past=0)

    def crossing(self) -> Iterator[Value]:
        """Yield what zones alone disclose where a vehicle enters this zone from another.

        The attacker sees no report, only the zone one step before and the zone now.
        """
        before = self.data.zone_of[self.data.counts.histories[:, 1]]
        came = (self.data.counts.depth > 0) & (before != self.data.number)
        counts = self.data.counts.where(came)
        total = int(self.data.counts.count.sum())
        if total:
            yield Value(Measure.CROSSING_SHARE, int(counts.count.sum()) / total, "")
        if not len(counts):
            return
        lat, lon = self.data.places.lat, self.data.places.lon
        error = 0.0
        for zone in np.unique(before[came]):
            seen = before[came] == zone
            place, weight = counts.histories[seen, 0], counts.count[seen]
            here = self.data.members[:, None]
            apart = haversine_m(lat[here], lon[here], lat[place], lon[place]) / 1000
            error += float((apart @ weight).min())
        yield Value(Measure.CROSSING_ERROR, error / int(counts.count.sum()), "km")

    def _attack(self, attack: AttackMeasures, reports: Floats, rows: ZoneRows, *, known_past: int) -> Iterator[Value]:
        cases = Cases.of_counts(rows, self.data.counts, known_past=known_past)
        inference = attack_report(reports, cases, zone_distance_km(rows))
        yield Value(attack.error, inference.error_km, "km")
        yield Value(attack.success, inference.success, "")
        yield Value(attack.blind_error, inference.prior_error_km, "km")
        if attack is INFERENCE:
            yield Value(Measure.INFERENCE_ERROR_LIKELIEST, inference.likeliest_error_km, "km")
        yield Value(attack.blind_success, inference.prior_success, "")


_RESET_PEAK = "5"
_REPORTS = 64


def bundle_bytes(mechanism: Mechanism, rows: ZoneRows) -> int:
    """Return the bytes of this mechanism in a file with all places, without the header of some hundred bytes."""
    bundled = BundledMechanism.of(
        mechanism,
        zone="zone",
        regime="all day",
        history_weights=rows.history_weights,
        histories=rows.histories,
        output_places=rows.zone,
    )
    return stored_bytes([bundled], rows.places_e7)


def release_us(mechanism: Mechanism, rows: ZoneRows, steps: Steps) -> list[float]:
    """Return the times of some reports, from a history to a place drawn exactly, microseconds; none without steps.

    They do not include the ledger entry that a device writes before it reports.
    """
    times = []
    for history in steps.histories[:_REPORTS]:
        started = time.perf_counter_ns()
        mechanism.sample(int(rows.row_of(history[None])[0]))
        times.append((time.perf_counter_ns() - started) / 1000)
    return times


def reset_peak_memory() -> None:
    """Forget the largest memory of this process so far, where the system can (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return


def memory_since_reset_mb() -> float:
    """Return the largest memory of this process since `reset_peak_memory`, or since its start elsewhere, megabytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return peak_memory_mb()
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return round(int(lines["VmHWM"].split()[0]) * 1024 / 1e6, 1)
