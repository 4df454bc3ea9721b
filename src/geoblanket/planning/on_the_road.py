"""How far off a recipient is on the road: trips are reported, and followed as a tracker follows them.

Reports are drawn in floating point, from a seed: planar Laplace noise at the share of ε that the cells of a lattice
leave of it, and an anchor where there is one. This is an estimate for choosing; devices draw exactly, from a lattice
that was verified. All schedules have the same trips and the same draws up to their scales, so that their errors can be
compared more closely than their standard errors say.

An error counts at every step of the motion model from the first report of a trip on, with a report or without. A trip
ends, and a vehicle that reports rarely is seen less often long after a report than it would be if it drove on: every
time since the last report counts alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.sparse import csr_array, diags_array

from geoblanket._arrays import ArrayTable, Bools, Floats, Ints
from geoblanket.planning.judged_trips import JudgedTrips
from geoblanket.planning.schedules import Schedule
from geoblanket.tracking.belief import BeliefFilter, Shifts
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.following import NO_REPORT, Sequences, follow
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import LaplaceSight

__all__ = ["LATTICE_SHARE", "RADII_M", "RoadErrors", "TickErrors", "cells_of", "laplace_m", "tick_errors"]

RADII_M: Final = (100.0, 250.0, 533.4, 563.88)
"""The last two are 1,750 and 1,850 feet: what laws of the United States call precise geolocation."""
LATTICE_SHARE: Final = 0.993
"""Of ε, what cells of 200/ε metres leave."""
_STEP_OF_ANCHOR: Final = 1.2
_STEP_OF_REPORT: Final = 2.8
"""Shifts are told apart on a grid of these shares of 1/ε₀ and 1/ε, whichever is less."""
_MOST_SHIFTS: Final = 250
_SHIFT_REACH: Final = 7.5
"""Of 1/ε₀: 99.5 % of shifts are nearer."""
_NOISE_REACH: Final = 6.6
"""Of 1/ε: 99 % of reports are nearer."""
_FAST_M_S: Final = 20.0
_WORTH_A_PART: Final = 0.7
_LONGEST_PERIODS: Final = 3
"""Periods that a judged trip can touch: it lasts up to two hours or so."""


@dataclass(frozen=True, eq=False)
class TickErrors(ArrayTable):
    """Errors at the steps of trips."""

    error_m: Floats
    """Shape (n,)."""
    age: Ints
    """Steps since the last report, shape (n,)."""
    trip: Ints
    """Shape (n,)."""


@dataclass(frozen=True)
class RoadErrors:
    """How far off a recipient is on the road."""

    error_m: float
    """Mean over every time since the last report alike, metres."""
    standard_error_m: float
    """Of the mean, over trips that are independent."""
    error_of_steps_m: float
    """Mean over all steps of the trips as they are, metres."""
    within: Mapping[float, float]
    """How often the error is at most so many metres."""
    trips: int
    steps: int

    @classmethod
    def of(cls, errors: TickErrors) -> RoadErrors:
        """Summarise the errors at steps."""
        seen = np.bincount(errors.age)
        weight = 1.0 / (len(seen) * np.maximum(seen, 1)[errors.age])
        weight /= weight.sum()
        of_age = np.bincount(errors.age, errors.error_m) / np.maximum(seen, 1)
        by_trip = np.bincount(errors.trip, weight * (errors.error_m - of_age[errors.age]))
        return cls(
            error_m=float(weight @ errors.error_m),
            standard_error_m=float(np.sqrt((by_trip**2).sum())),
            error_of_steps_m=float(errors.error_m.mean()),
            within={radius: float(weight @ (errors.error_m <= radius)) for radius in RADII_M},
            trips=len(np.unique(errors.trip)),
            steps=len(errors.trip),
        )


def laplace_m(epsilon: float, radius: Floats, angle: Floats) -> Floats:
    """Return planar Laplace noise, metres east and north, shape (..., 2).

    Parameters
    ----------
    epsilon
        Per kilometre.
    radius
        Draws of the gamma distribution with shape 2 and scale 1.
    angle
        Draws of 0 to 2π.
    """
    noise: Floats = (1000 / epsilon * radius)[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return noise


def tick_errors(schedule: Schedule | None, model: MotionModel, trips: JudgedTrips, *, seed: int = 0) -> TickErrors:
    """Report trips and follow them.

    Parameters
    ----------
    schedule
        How they report; None: not at all.
    model
        What the recipient knows of how vehicles move; order 1 where there is an anchor, which needs the memory.
    seed
        The same seed gives the same draws, whatever the schedule.
    """
    reported = _Reported.of(schedule, model, trips, seed)
    if schedule is None or schedule.anchor_epsilon is None:
        return _followed(schedule, model, reported)
    parts = [
        _followed(schedule, nearby, reported.where(some)) for nearby, some in _neighbourhoods(model, reported, schedule)
    ]
    return TickErrors.joined(parts)


@dataclass(frozen=True, eq=False)
class _Reported(ArrayTable):
    """Trips as they were reported, from their first report on."""

    trip: Ints
    slot: Ints
    age: Ints
    lat: Floats
    lon: Floats
    """Where the vehicle was, degrees."""
    reported_lat: Floats
    reported_lon: Floats
    """What it reported, where `age` is 0."""

    @classmethod
    def of(cls, schedule: Schedule | None, model: MotionModel, trips: JudgedTrips, seed: int) -> _Reported:
        every = 1 if schedule is None else model.steps_in(schedule.interval_s)
        rng = np.random.default_rng(seed)
        steps, count = len(trips.place), len(trips)
        radius, angle = rng.gamma(2.0, 1.0, steps), rng.uniform(0, 2 * np.pi, steps)
        first, begins = np.floor(rng.random(count) * every).astype(np.int64), rng.random(count)
        shift_radius = rng.gamma(2.0, 1.0, (count, _LONGEST_PERIODS))
        shift_angle = rng.uniform(0, 2 * np.pi, (count, _LONGEST_PERIODS))
        trip = np.repeat(np.arange(count, dtype=np.int64), trips.lengths)
        step: Ints = np.arange(steps, dtype=np.int64) - trips.starts[trip]
        xy_m = model.xy_m[trips.place]
        slot = step
        if schedule is not None:
            xy_m = xy_m + laplace_m(LATTICE_SHARE * schedule.epsilon, radius, angle)
        if schedule is not None and schedule.anchor_epsilon is not None:
            slots = schedule.anchor_period_s / model.interval_s
            # A trip may start at any time of a period.
            slot = step + np.floor(begins * slots).astype(np.int64)[trip]
            period = np.minimum((slot / slots).astype(np.int64), _LONGEST_PERIODS - 1)
            xy_m = xy_m + laplace_m(schedule.anchor_epsilon, shift_radius, shift_angle)[trip, period]
        reported_lat, reported_lon = model.to_degrees(xy_m)
        kept = step >= first[trip]
        age = (step - first[trip]) % every
        lat, lon = model.lat[trips.place], model.lon[trips.place]
        return cls(trip, slot, age, lat, lon, reported_lat, reported_lon).where(kept)

    @property
    def starts(self) -> Ints:
        """Where each trip starts."""
        return np.flatnonzero(np.append(True, self.trip[1:] != self.trip[:-1]))


def _followed(schedule: Schedule | None, model: MotionModel, reported: _Reported) -> TickErrors:
    # Without any report all is prediction; the sight is then never asked.
    epsilon = 1.0 if schedule is None else LATTICE_SHARE * schedule.epsilon
    sight = LaplaceSight(
        reported.reported_lat, reported.reported_lon, model, epsilon=epsilon, interval_s=model.interval_s
    )
    beliefs = BeliefFilter(model, sight, None if schedule is None else _shifts(schedule))
    told = np.full(len(reported.age), schedule is not None) & (reported.age == 0)
    output = np.where(told, np.arange(len(told)), NO_REPORT)
    truth, estimator, error_m = model.to_plane(reported.lat, reported.lon), Estimator(model), np.empty(len(told))

    def note(positions: Ints, belief: Singles) -> None:
        apart = estimator.points(beliefs.places(belief)) - truth[positions]
        error_m[positions] = np.hypot(apart[:, 0], apart[:, 1])

    follow(beliefs, Sequences(reported.slot, output, reported.starts), note)
    return TickErrors(error_m, reported.age, reported.trip)


def _shifts(schedule: Schedule) -> Shifts | None:
    """Return the shifts of an anchor that are told apart: coarser than a tracker's, where it makes no difference."""
    if schedule.anchor_epsilon is None:
        return None
    scale_m = 1000 / schedule.anchor_epsilon
    step_m = min(_STEP_OF_ANCHOR * scale_m, _STEP_OF_REPORT * 1000 / schedule.epsilon)
    reach_m = _SHIFT_REACH * scale_m
    step_m = max(step_m, reach_m * (np.pi / _MOST_SHIFTS) ** 0.5)
    axis = np.arange(-(reach_m // step_m), reach_m // step_m + 1) * step_m
    metres = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    metres = metres[np.hypot(*metres.T) <= reach_m]
    chances = np.exp(-np.hypot(*metres.T) / scale_m)
    return Shifts(metres, (chances / chances.sum()).astype(np.float32), schedule.anchor_period_s * 1000)


def _neighbourhoods(
    model: MotionModel, reported: _Reported, schedule: Schedule
) -> Iterator[tuple[MotionModel, Bools | Ints]]:
    """Yield models of the places that a trip's reports can come from, with the steps of the trips.

    A belief over all places and shifts of a large city would be mostly zeros.
    """
    reach_m = _reach_m(schedule)
    xy_m = model.to_plane(reported.reported_lat, reported.reported_lon)
    everywhere = np.zeros(len(reported.trip), bool)
    ends = np.append(reported.starts[1:], len(reported.trip))
    for start, end in zip(reported.starts.tolist(), ends.tolist(), strict=True):
        points = xy_m[start:end][reported.age[start:end] == 0]
        low, high = np.median(points, axis=0) - reach_m, np.median(points, axis=0) + reach_m
        low, high = np.minimum(low, points.min(axis=0)), np.maximum(high, points.max(axis=0))
        near = ((model.xy_m >= low) & (model.xy_m <= high)).all(axis=1)
        if near.mean() > _WORTH_A_PART or near.sum() < 2:
            everywhere[start:end] = True
        else:
            yield _part(model, near), np.arange(start, end)
    if everywhere.any():
        yield model, everywhere


def _part(model: MotionModel, near: Bools) -> MotionModel:
    """Return a model of order 1 of some places: moves that lead elsewhere are left out."""
    kept = np.flatnonzero(near)
    inside = csr_array(model.moves.as_scipy[kept][:, kept])
    stuck = np.asarray(inside.sum(axis=1)).ravel() <= 0
    moves = csr_array(inside + diags_array(stuck.astype(np.float32)))
    moves.eliminate_zeros()
    moves.data /= np.repeat(np.asarray(moves.sum(axis=1)).ravel(), np.diff(moves.indptr))
    start = model.start[kept] + np.float32(1e-9)
    return MotionModel(
        places_e7=model.places_e7[kept],
        places_identity="",
        interval_s=model.interval_s,
        states=np.arange(len(kept), dtype=np.int32)[:, None],
        start=start / start.sum(),
        offsets=moves.indptr.astype(np.int64),
        targets=moves.indices.astype(np.int32),
        chances=moves.data.astype(np.float32),
    )


def _reach_m(schedule: Schedule) -> float:
    """Return how far from its reports a vehicle can be, nearly always."""
    noise_km = _NOISE_REACH / schedule.epsilon
    shift_km = 0.0 if schedule.anchor_epsilon is None else _SHIFT_REACH / schedule.anchor_epsilon
    return 1000 * (noise_km + shift_km) + _FAST_M_S * schedule.interval_s


def cells_of(schedule: Schedule, model: MotionModel) -> float:
    """Return how large a belief is, about: what the work for a step depends on."""
    shifts = _shifts(schedule)
    if shifts is None:
        return float(len(model))
    middle = np.abs(model.xy_m - np.median(model.xy_m, axis=0)).max(axis=1)
    return float((middle <= _reach_m(schedule)).sum() * len(shifts.chances))
