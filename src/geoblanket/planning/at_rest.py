"""How far off a recipient is of a vehicle that was at one place for an hour.

It rests near a place, not at it. Two recipients try, and the better one counts. One knows how often trips start at each
place. The other knows no places: it takes the point that fits all reports best. The hour is a whole period of the
anchor, or part of a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.spatial import KDTree

from geoblanket._arrays import Floats
from geoblanket.planning.judged_trips import JudgedTrips
from geoblanket.planning.on_the_road import LATTICE_SHARE, RADII_M, laplace_m
from geoblanket.planning.schedules import HOUR_S, Schedule
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.motion_model import MotionModel

__all__ = ["RestErrors", "rest_errors"]

_MOST_VEHICLES: Final = 500
_MOST_CELLS: Final = 5e7
_HALF_WIDTH: Final = 6
_STEP: Final = 0.8
"""Of the standard deviation of the best guess: where it and the shift may be is pictured on such a grid."""
_PICTURED: Final = (2 * _HALF_WIDTH + 1) ** 2


@dataclass(frozen=True)
class RestErrors:
    """How far off a recipient is after an hour at rest."""

    error_m: float
    standard_error_m: float
    within: Mapping[float, float]
    """How often the error is at most so many metres."""
    vehicles: int


def rest_errors(schedule: Schedule | None, model: MotionModel, trips: JudgedTrips, *, seed: int = 0) -> RestErrors:
    """Let vehicles rest for an hour where trips start, and find them.

    Parameters
    ----------
    schedule
        How they report; None: not at all.
    """
    rng = np.random.default_rng(seed)
    count = int(min(_MOST_VEHICLES, max(_MOST_CELLS / (_PICTURED * model.place_count), 100)))
    at = trips.place[rng.choice(trips.starts, count)]
    truth = model.xy_m[at] + _beside(model, rng, count)
    prior = np.log(np.maximum(model.to_places @ model.start, 1e-12).astype(np.float64))
    if schedule is None:
        point = Estimator(model).points(np.exp(prior).astype(np.float32)[:, None])
        return _errors([point - truth])
    reports = max(int(HOUR_S // schedule.interval_s), 1)
    shape = (count, reports)
    noise = laplace_m(LATTICE_SHARE * schedule.epsilon, rng.gamma(2.0, 1.0, shape), rng.uniform(0, 2 * np.pi, shape))
    points = truth[:, None] + noise
    if schedule.anchor_epsilon is not None:
        radius, angle = rng.gamma(2.0, 1.0, (count, 1)), rng.uniform(0, 2 * np.pi, (count, 1))
        points = points + laplace_m(schedule.anchor_epsilon, radius, angle)
    places, anywhere = np.empty((model.place_count, count), np.float32), np.empty((count, 2))
    for vehicle in range(count):
        grid, belief = _pictured(points[vehicle], LATTICE_SHARE * schedule.epsilon)
        anywhere[vehicle] = belief @ grid
        logs = prior + _from_places(schedule, model.xy_m, points[vehicle], grid, belief)
        places[:, vehicle] = np.exp(logs - logs.max())
    return _errors([Estimator(model).points(places) - truth, anywhere - truth])


def _beside(model: MotionModel, rng: np.random.Generator, count: int) -> Floats:
    """Return how far from its place each vehicle rests, metres: at most half of the distance between places."""
    if model.place_count < 2:
        return np.zeros((count, 2))
    apart_m = np.asarray(KDTree(model.xy_m).query(model.xy_m, k=[2])[0])
    radius = float(np.median(apart_m)) / 2 * np.sqrt(rng.random(count))
    angle = rng.uniform(0, 2 * np.pi, count)
    beside: Floats = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return beside


def _pictured(points: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Return points where the vehicle, with its shift, may be, and how probable they are; metres."""
    deviation_m = np.sqrt(2 / len(points)) * 1000 / epsilon
    axis = np.arange(-_HALF_WIDTH, _HALF_WIDTH + 1) * (_STEP * deviation_m)
    grid = np.median(points, axis=0) + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logs = -epsilon / 1000 * _apart_m(points, grid).sum(axis=0)
    belief = np.exp(logs - logs.max())
    return grid, belief / belief.sum()


def _from_places(schedule: Schedule, places: Floats, points: Floats, grid: Floats, belief: Floats) -> Floats:
    """Return how probable all reports are from each place, logarithms up to a constant, shape (P,)."""
    if schedule.anchor_epsilon is None:
        fits: Floats = -LATTICE_SHARE * schedule.epsilon / 1000 * _apart_m(points, places).sum(axis=0)
        return fits
    likely = belief > 1e-4
    shift_m = _apart_m(grid[likely], places)
    nearest = shift_m.min()
    chance = belief[likely] @ np.exp(-schedule.anchor_epsilon / 1000 * (shift_m - nearest))
    logs: Floats = np.log(np.maximum(chance, 1e-300))
    return logs


def _apart_m(points: Floats, others: Floats) -> Floats:
    """Return the distances of all pairs, shape (points, others)."""
    apart: Floats = np.hypot(points[:, None, 0] - others[:, 0], points[:, None, 1] - others[:, 1])
    return apart


def _errors(tries: list[Floats]) -> RestErrors:
    errors = [np.hypot(apart[:, 0], apart[:, 1]) for apart in tries]
    best = min(errors, key=lambda error: float(error.mean()))
    return RestErrors(
        error_m=float(best.mean()),
        standard_error_m=float(best.std() / np.sqrt(len(best))),
        within={radius: max(float((error <= radius).mean()) for error in errors) for radius in RADII_M},
        vehicles=len(best),
    )
