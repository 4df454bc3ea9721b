"""How far off a recipient is on the road: trips are reported, and followed as a tracker follows them.

Reports are drawn in floating point, from a seed: planar Laplace noise at the share of ε that the cells of a lattice
leave of it. This is an estimate for choosing; devices draw exactly, from a lattice that was verified. All schedules
have the same trips and the same draws up to their scales, so that their errors can be compared more closely than their
standard errors say. Every report is a new draw: hold repeats those of a vehicle that waits, but places are further
apart than it reaches.

An error counts at every step of the motion model from the first report of a trip on, with a report or without. A trip
ends, and a vehicle that reports rarely is seen less often long after a report than it would be if it drove on: every
time since the last report counts alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from geoblanket._arrays import ArrayTable, Floats, Ints
from geoblanket.planning.judged_trips import JudgedTrips
from geoblanket.planning.schedules import Schedule
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import LaplaceObservations

__all__ = ["LATTICE_SHARE", "RADII_M", "RoadErrors", "TickErrors", "laplace_m", "tick_errors"]

RADII_M: Final = (100.0, 250.0, 533.4, 563.88)
"""The last two are 1,750 and 1,850 feet: what laws of the United States call precise geolocation."""
LATTICE_SHARE: Final = 0.993
"""Of ε, what cells of 200/ε metres leave."""


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
    error_at_reports_m: float
    """Mean at the steps that report, metres. With hold a vehicle at rest tells no more than its last report."""
    error_of_steps_m: float
    """Mean over all steps of the trips as they are, metres."""
    within: Mapping[float, float]
    """How often the error is at most this many metres."""
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
            error_at_reports_m=float(of_age[0]),
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
        What the recipient knows of how vehicles move.
    seed
        The same seed gives the same draws, whatever the schedule.
    """
    every = 1 if schedule is None else model.steps_in(schedule.interval_s)
    # Without any report all is prediction; the observation model is then never asked.
    epsilon = 1.0 if schedule is None else LATTICE_SHARE * schedule.epsilon
    rng, steps = np.random.default_rng(seed), len(trips.place)
    noise_m = laplace_m(epsilon, rng.gamma(2.0, 1.0, steps), rng.uniform(0, 2 * np.pi, steps))
    # A trip may start at any time since the last report; it counts from its first report on.
    first = np.floor(rng.random(len(trips)) * every).astype(np.int64)
    trip = np.repeat(np.arange(len(trips), dtype=np.int64), trips.lengths)
    since: Ints = np.arange(steps, dtype=np.int64) - trips.starts[trip] - first[trip]
    kept = since >= 0
    trip, since, truth = trip[kept], since[kept], model.xy_m[trips.place[kept]]
    lat, lon = model.to_degrees(truth + noise_m[kept])
    beliefs = BeliefFilter(model, LaplaceObservations(lat, lon, model, epsilon=epsilon, interval_s=model.interval_s))
    age, estimator, error_m = since % every, Estimator(model), np.empty(len(trip))
    output = np.where((age == 0) & (schedule is not None), np.arange(len(trip)), NO_REPORT)

    def note(positions: Ints, belief: Singles) -> None:
        apart = estimator.points(beliefs.places(belief)) - truth[positions]
        error_m[positions] = np.hypot(apart[:, 0], apart[:, 1])

    follow(beliefs, Sequences(since, output, np.flatnonzero(np.diff(trip, prepend=-1))), note)
    return TickErrors(error_m, age, trip)
