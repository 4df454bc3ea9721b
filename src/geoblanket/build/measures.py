"""How good a mechanism is: losses on walks that it was not made from, and what the zones of its reports disclose.

The zone of a report is that of the true place, so an attacker knows it for certain. Where a vehicle crosses a border,
the attacker knows both zones. The attacker guesses the place from which the true one is least far on average, knowing
how often vehicles are where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # scipy.stats takes half a second to import

from geoblanket._arrays import Floats, Indices
from geoblanket._display import Interval, interval_text
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import HistoryCounts, Steps

_LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """The mean loss over steps of walks that were held out."""

    steps: int
    vehicles: int
    loss: float
    """Expected over what the mechanism may report, mean over the steps, in the unit of the loss."""
    low: float
    high: float
    """The 95 % confidence interval; vehicles, not steps, count as independent."""

    def in_words(self, unit: str = "") -> str:
        """Return the mean with its interval."""
        interval = Interval.of(self.low, self.high)
        sure = "one vehicle only" if interval is None else interval_text(interval, "#.4g")
        return f"{self.loss:#.4g}{f' {unit}' if unit else ''} ({sure}; {self.steps:,} steps)"


@dataclass(frozen=True, eq=False)
class VehicleLosses:
    """Losses summed over the steps of each vehicle: what is needed for means with honest intervals."""

    vehicle: Indices
    """A number for each vehicle, ascending, shape (V,)."""
    steps: Floats
    """How many steps each has, shape (V,)."""
    loss: Floats
    """Sum of the expected losses of its steps, shape (V,)."""

    @classmethod
    def joined(cls, parts: Sequence[VehicleLosses]) -> VehicleLosses:
        """Add up the losses of the same vehicles in several zones or regimes."""
        if not parts:
            return cls(np.empty(0, np.int32), np.empty(0), np.empty(0))
        vehicle, whose = np.unique(np.concatenate([part.vehicle for part in parts]), return_inverse=True)
        steps, loss = (
            np.bincount(whose, np.concatenate([getattr(part, name) for part in parts]), len(vehicle)).astype(np.float64)
            for name in ("steps", "loss")
        )
        return cls(vehicle.astype(np.int32), steps, loss)

    def as_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the arrays by name, after a prefix, for a file of several."""
        return {f"{prefix}{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], prefix: str) -> VehicleLosses:
        """Return the losses that `as_arrays` gave."""
        return cls(**{field.name: arrays[f"{prefix}{field.name}"] for field in fields(cls)})


def vehicle_losses(mechanism: Mechanism, rows: ZoneRows, steps: Steps, loss: PlaceLoss) -> VehicleLosses:
    """Return the expected losses of a mechanism on steps of walks; those elsewhere than in its zone are left out.

    Parameters
    ----------
    mechanism
        Its outputs are the places of the zone, in order.
    rows
        Its rows, and the rule from histories to them.
    steps
        Steps with their past, and where each vehicle was when the service used the report.
    loss
        What it costs to report a place where another is true.

    Raises
    ------
    MismatchError
        If the mechanism has other rows or outputs.
    """
    if (mechanism.row_count, mechanism.output_count) != (len(rows), len(rows.zone)):
        raise MismatchError(
            f"A mechanism of {mechanism.row_count} rows and {mechanism.output_count} outputs does not belong to "
            f"{len(rows)} rows and {len(rows.zone)} places."
        )
    steps = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    return by_vehicle(steps, step_losses(mechanism.probabilities, rows, steps, loss))


def step_losses(probabilities: Floats, rows: ZoneRows, steps: Steps, loss: PlaceLoss) -> Floats:
    """Return the expected loss of each step, shape (n,).

    Parameters
    ----------
    probabilities
        Of the places of the zone in each row, shape (S, K).
    rows, steps, loss
        As in `vehicle_losses`; all steps in the zone.
    """
    if not len(steps):
        return np.empty(0)
    later, position = np.unique(steps.next_place, return_inverse=True)
    expected = probabilities @ loss(later, rows.zone).values.T
    of_step: Floats = expected[rows.row_of(steps.histories), position]
    return of_step


def by_vehicle(steps: Steps, of_step: Floats) -> VehicleLosses:
    """Sum the losses of steps by vehicle."""
    vehicle, whose = np.unique(steps.vehicle, return_inverse=True)
    return VehicleLosses(
        vehicle.astype(np.int32),
        np.bincount(whose, minlength=len(vehicle)).astype(np.float64),
        np.bincount(whose, of_step, len(vehicle)).astype(np.float64),
    )


def measure(losses: VehicleLosses) -> Measured | None:
    """Return the mean loss of a step with its 95 % confidence interval; None without steps."""
    if not len(losses.vehicle):
        return None
    loss, low, high = ratio_interval(losses.loss, losses.steps)
    return Measured(
        steps=int(losses.steps.sum()), vehicles=len(losses.vehicle), loss=loss, low=max(0.0, low), high=high
    )


def ratio_interval(above: Floats, below: Floats) -> tuple[float, float, float]:
    """Return Σ above / Σ below over independent units, with its 95 % confidence interval (of one unit: all numbers)."""
    ratio = float(above.sum() / below.sum())
    units = len(above)
    if units < 2:
        return ratio, -math.inf, math.inf
    residual = above - ratio * below
    error = math.sqrt(units / (units - 1) * float(residual @ residual)) / float(below.sum())
    half = float(stdtrit(units - 1, (1 + _LEVEL) / 2)) * error
    return ratio, ratio - half, ratio + half


Whole = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Disclosure:
    """How far off an attacker is on average, metres, in one zone and regime; None without steps of that kind."""

    zone_error_m: float | None
    """An attacker who knows the zone alone."""
    report_error_m: float | None
    """An attacker who knows the zone and the report."""
    crossing_share: float
    """Of the steps, the share whose place before was in another zone."""
    crossing_error_m: float | None
    """At these, an attacker who knows both zones alone."""
    crossing_report_error_m: float | None
    """At these, an attacker who knows both zones and the report."""


def zone_disclosure(mechanism: Mechanism, rows: ZoneRows, counts: HistoryCounts, zone_of: Indices) -> Disclosure:
    """Measure what the zone discloses.

    Parameters
    ----------
    mechanism, rows
        Of the zone and regime.
    counts
        Histories of training walks, of one regime; those elsewhere are left out.
    zone_of
        The number of the zone of each place, shape (P,).
    """
    lat, lon = rows.places_e7[rows.zone].T * 1e-7
    attacker = _Attacker(haversine_m(lat[:, None], lon[:, None], lat, lon), mechanism.probabilities)
    counts = counts.where(np.isin(counts.histories[:, 0], rows.zone))
    place = np.searchsorted(rows.zone, counts.histories[:, 0])
    row = rows.row_of(counts.histories) if len(counts.histories) else np.empty(0, np.int32)
    before = zone_of[counts.histories[:, 1]] if counts.histories.shape[1] > 1 else zone_of[counts.histories[:, 0]]
    crossing = before != zone_of[counts.histories[:, 0]]
    steps, crossings = float(counts.count.sum()), float(counts.count[crossing].sum())
    known = attacker.errors(place, row, counts.count) if steps else (None, None)
    at_border = np.zeros(2)
    for zone in np.unique(before[crossing]).tolist():
        entered = crossing & (before == zone)
        count = counts.count[entered]
        at_border += np.array(attacker.errors(place[entered], row[entered], count)) * count.sum()
    return Disclosure(
        zone_error_m=known[0],
        report_error_m=known[1],
        crossing_share=crossings / steps if steps else 0.0,
        crossing_error_m=float(at_border[0] / crossings) if crossings else None,
        crossing_report_error_m=float(at_border[1] / crossings) if crossings else None,
    )


class _Attacker:
    def __init__(self, between_m: Floats, probabilities: Floats) -> None:
        self._between_m, self._probabilities = between_m, probabilities

    def errors(self, place: Whole, row: Whole, count: Whole) -> tuple[float, float]:
        """Return the mean error without and with the report, for histories with these counts."""
        joint = np.zeros((len(self._between_m), len(self._probabilities)))
        np.add.at(joint, (place, row), count / count.sum())
        alone = (joint.sum(axis=1) @ self._between_m).min()
        with_report = (self._between_m @ (joint @ self._probabilities)).min(axis=0).sum()
        return float(alone), float(with_report)
