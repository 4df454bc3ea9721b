from __future__ import annotations

import numpy as np
import pytest

from geoblanket.build.measures import Measured, VehicleLosses, measure, ratio_interval, vehicle_losses
from geoblanket.build.rows import make_problem, make_rows
from geoblanket.errors import MismatchError
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism import optimise
from tests.build.worlds import counted, grid, straight_on

TOWN = grid(5, 4)
ZONE = np.array([6, 7, 8, 11, 12, 13], np.int32)
LOSS = StraightLine(TOWN)
ROWS = make_rows(TOWN, ZONE, counted(straight_on(TOWN, 4000)), reach_m=700.0, context="order:1", max_rows=40)
MECHANISM = optimise(make_problem(ROWS, LOSS, epsilon=4.0), gap=0.01).mechanism


def test_against_a_plain_loop() -> None:
    steps = straight_on(TOWN, 500, seed=1)
    total, count = 0.0, 0
    for history, place in zip(steps.histories, steps.next_place, strict=True):
        if history[0] in ZONE:
            row = int(ROWS.row_of(history[None])[0])
            total += float(MECHANISM.probabilities[row] @ LOSS([place], ZONE).values[0])
            count += 1
    found = measure(vehicle_losses(MECHANISM, ROWS, steps, LOSS))
    assert found is not None
    assert found.steps == count
    assert found.loss == pytest.approx(total / count)
    assert found.vehicles == 20
    assert found.low < found.loss < found.high


def test_on_the_walks_it_was_made_from_the_loss_is_that_of_the_design() -> None:
    problem = make_problem(ROWS, LOSS, epsilon=4.0)
    found = measure(vehicle_losses(MECHANISM, ROWS, straight_on(TOWN, 4000), LOSS))
    assert found is not None
    # Smoothing is all that is between them.
    assert found.loss == pytest.approx(MECHANISM.expected_loss(problem), rel=0.05)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    steps = rng.integers(5, 60, 40)
    vehicle = np.repeat(np.arange(40), steps)
    held = 0
    for _ in range(400):
        losses = 1.0 + rng.normal(0, 0.3, 40)[vehicle] + rng.normal(0, 0.5, len(vehicle))
        _, low, high = ratio_interval(np.bincount(vehicle, losses).astype(np.float64), steps.astype(np.float64))
        held += low <= 1.0 <= high
    # 95 % of 400, within three standard deviations and a little for few vehicles.
    assert 360 <= held <= 393


def test_steps_of_one_vehicle_have_no_interval_and_no_steps_no_loss() -> None:
    one = measure(VehicleLosses(np.array([7], np.int32), np.array([2.0]), np.array([4.0])))
    assert one == Measured(steps=2, vehicles=1, loss=2.0, low=0.0, high=np.inf)
    assert measure(vehicle_losses(MECHANISM, ROWS, straight_on(TOWN, 50).where(np.zeros(50, bool)), LOSS)) is None


def test_the_same_vehicle_in_two_zones_counts_once() -> None:
    one = VehicleLosses(np.array([2, 5], np.int32), np.array([3.0, 1.0]), np.array([6.0, 2.0]))
    other = VehicleLosses(np.array([1, 5], np.int32), np.array([4.0, 2.0]), np.array([1.0, 9.0]))
    both = VehicleLosses.joined([one, other])
    assert both.vehicle.tolist() == [1, 2, 5]
    assert both.steps.tolist() == [4.0, 3.0, 3.0]
    assert both.loss.tolist() == [1.0, 6.0, 11.0]
    assert measure(VehicleLosses.joined([])) is None


def test_a_mechanism_of_other_rows_is_refused() -> None:
    other = make_rows(TOWN, ZONE, counted(straight_on(TOWN, 100)), reach_m=700.0, context="none")
    with pytest.raises(MismatchError, match="does not belong"):
        vehicle_losses(MECHANISM, other, straight_on(TOWN, 10), LOSS)
