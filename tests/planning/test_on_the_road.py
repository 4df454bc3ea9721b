from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.build.city_lattice import make_lattice
from geoblanket.mechanism.lattice.kernel import slope
from geoblanket.planning.on_the_road import LATTICE_SHARE, RADII_M, RoadErrors, TickErrors, laplace_m, tick_errors
from geoblanket.planning.schedules import Schedule
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow
from tests.planning.worlds import jumping, still, walking


def test_each_time_since_a_report_counts_alike() -> None:
    errors = TickErrors(np.array([100.0, 200.0, 300.0, 500.0]), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))
    found = RoadErrors.of(errors)
    assert found.error_m == pytest.approx((200 + 500) / 2)
    assert found.error_of_steps_m == pytest.approx(275)
    assert found.error_at_reports_m == pytest.approx(200)
    # Trip 0 lies 100 below its mean at age 0, trip 1 as much above, each with a weight of 1/6.
    assert found.standard_error_m == pytest.approx(np.hypot(100 / 6, 100 / 6))
    assert found.within[250.0] == pytest.approx(2 / 6)
    assert (found.trips, found.steps) == (2, 4)


def test_where_nothing_is_remembered_only_the_report_of_a_step_tells_anything() -> None:
    judges = jumping()
    blind = RoadErrors.of(tick_errors(None, judges.model, judges.trips)).error_m
    once = RoadErrors.of(tick_errors(Schedule(4.0, 30.0), judges.model, judges.trips))
    fourth = RoadErrors.of(tick_errors(Schedule(4.0, 120.0), judges.model, judges.trips))
    assert fourth.error_m == pytest.approx((once.error_m + 3 * blind) / 4, rel=0.02)
    assert once.error_m == pytest.approx(_single_error_m(judges.model.xy_m, 4.0), rel=0.03)


def _single_error_m(xy_m: np.ndarray, epsilon: float) -> float:
    """The error of the best point from one report, every place alike probable: plain Bayes, by trying points."""
    rng, rate = np.random.default_rng(8), LATTICE_SHARE * epsilon / 1000
    axis = np.linspace(xy_m.min() - 100, xy_m.max() + 100, 90)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    apart = np.hypot(*(points[:, None] - xy_m).transpose(2, 0, 1))
    errors = []
    for _ in range(1500):
        truth = xy_m[rng.integers(len(xy_m))]
        angle = rng.uniform(0, 2 * np.pi)
        report = truth + rng.gamma(2, 1 / rate) * np.array([np.cos(angle), np.sin(angle)])
        belief = np.exp(-rate * np.hypot(*(xy_m - report).T))
        errors.append(np.hypot(*(points[(apart @ belief).argmin()] - truth)))
    return float(np.mean(errors))


def test_where_nobody_moves_reports_add_up() -> None:
    judges = still()
    errors = tick_errors(Schedule(2.0, 30.0), judges.model, judges.trips)
    step = np.arange(len(errors.trip)) % 60
    assert errors.error_m[step < 3].mean() > 3 * errors.error_m[step > 40].mean()


@pytest.mark.usefixtures("fixed_randomness")
def test_a_verified_lattice_gives_the_same_errors_as_the_estimate(tmp_path: Path) -> None:
    """Reports drawn from a real lattice, and weighed as the tracker weighs them."""
    judges = walking(8, trips=120, steps=24)
    model, trips = judges.model, judges.trips
    corners = (model.lat.min(), model.lon.min(), model.lat.max(), model.lon.max())
    bundle = make_lattice(corners, tmp_path / "a.bundle", epsilon=8.0, interval_s=30.0, hold_m=0)
    lattice = bundle.lattice
    spec = lattice.spec
    assert float(slope(spec.rate)) * 1e6 / spec.plane.unit_mm / 8 == pytest.approx(LATTICE_SHARE, abs=0.003)
    trip = np.repeat(np.arange(len(trips)), trips.lengths)
    cells = lattice.draw_many_at(*spec.plane.units(model.lat[trips.place], model.lon[trips.place]))
    step = np.arange(len(trip)) - trips.starts[trip]
    beliefs, estimator, error_m = BeliefFilter.of(bundle, model), Estimator(model), np.empty(len(trip))

    def note(positions: np.ndarray, belief: np.ndarray) -> None:
        apart = estimator.points(beliefs.places(belief)) - model.xy_m[trips.place[positions]]
        error_m[positions] = np.hypot(*apart.T)

    follow(beliefs, Sequences(step, np.where(step % 2 == 0, cells, NO_REPORT), trips.starts), note)
    real = RoadErrors.of(TickErrors(error_m, step % 2, trip))
    estimate = RoadErrors.of(tick_errors(Schedule(8.0, 60.0), model, trips))
    spread = np.hypot(real.standard_error_m, estimate.standard_error_m)
    assert abs(real.error_m - estimate.error_m) < 3 * spread
    assert spread < 0.1 * real.error_m


def test_noise_is_planar_laplace() -> None:
    rng = np.random.default_rng(0)
    noise = laplace_m(4.0, rng.gamma(2.0, 1.0, 20_000), rng.uniform(0, 2 * np.pi, 20_000))
    radius = np.hypot(*noise.T)
    assert radius.mean() == pytest.approx(500, rel=0.02)
    for distance in RADII_M:
        known = 1 - (1 + distance / 250) * np.exp(-distance / 250)
        assert (radius <= distance).mean() == pytest.approx(known, abs=0.012)
