from __future__ import annotations

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows, make_rows
from geoblanket.lab.evaluate.methods import METHODS, Method, Task, make
from geoblanket.loss.standard import StraightLine
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from tests.build.worlds import counted, grid, straight_on

PLACES = grid(4, 3, pitch_m=500.0)
STEPS = straight_on(PLACES, 3000)


def rows_of(context: str) -> ZoneRows:
    zone = np.arange(len(PLACES))
    return make_rows(
        PLACES, zone, counted(STEPS), reach_m=1200.0, context=context, history_weights=[1.0, 0.5], max_rows=130
    )


def task_of(context: str, epsilon: float) -> Task:
    rows = rows_of(context)
    loss = rows.next_place.toarray() @ StraightLine(PLACES)(np.arange(len(PLACES)), rows.zone).values
    problem = Problem.in_millimetres(loss=loss, prior=rows.prior, distance_mm=rows.distance_mm, epsilon=epsilon)
    return Task(problem, rows, gap=0.01, time_limit_s=20.0, near_km=0.8)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_each_keeps_the_promise_and_none_beats_the_optimum(epsilon: float) -> None:
    plain = task_of("none", epsilon)
    optimum = make(METHODS["lp"], plain)
    assert optimum.lower_bound is not None
    for key, method in METHODS.items():
        if method.uses_past:
            continue
        made = make(method, plain)
        if made.mechanism is None:
            assert key == "tight"
            assert "does not exist" in made.note
            continue
        assert made.mechanism.epsilon == epsilon
        assert made.mechanism.certificate.epsilon_effective <= epsilon
        assert made.mechanism.expected_loss(plain.problem) >= optimum.lower_bound
        assert made.seconds > 0


def test_the_past_helps() -> None:
    found = {}
    for context in ("none", "order:1"):
        task = task_of(context, 4.0)
        made = make(METHODS["lp" if context == "none" else "lp_markov1"], task)
        assert isinstance(made.mechanism, Mechanism)
        found[context] = made.mechanism.expected_loss(task.problem)
    assert found["order:1"] < 0.9 * found["none"]


def test_calibrated_exponential_spends_all_and_costs_less_than_as_published() -> None:
    task = task_of("none", 2.0)
    published, calibrated = (make(METHODS[key], task).mechanism for key in ("expmech_published", "expmech"))
    assert published is not None
    assert calibrated is not None
    assert calibrated.certificate.epsilon_effective == pytest.approx(2.0, rel=1e-6)
    assert published.certificate.epsilon_effective < 1.9
    assert calibrated.expected_loss(task.problem) < published.expected_loss(task.problem)


def test_planes_and_distances_agree() -> None:
    task = task_of("order:1", 1.0)
    rows_xy, outputs_xy = task.positions_km
    plane = np.linalg.norm(rows_xy[:, None] - outputs_xy, axis=2)
    assert np.allclose(plane, task.output_distance_km, rtol=1e-3, atol=1e-6)
    row, output = 7, 5
    place = task.rows.histories[row, 0]
    other = task.rows.zone[output]
    apart = haversine_m(PLACES.lat[place], PLACES.lon[place], PLACES.lat[other], PLACES.lon[other]) / 1000
    assert task.output_distance_km[row, output] == pytest.approx(float(apart), abs=1e-4)


def test_a_method_that_breaks_its_promise_is_told_and_not_used() -> None:
    def liar(task: Task) -> Mechanism:
        weights = np.zeros((len(task.rows), len(task.rows.zone)), np.int64)
        weights[np.arange(len(task.rows)), np.arange(len(task.rows))] = 2**62
        return Mechanism.verified(
            weights,
            distance_mm=task.problem.distance_mm,
            epsilon_micro=task.problem.epsilon_micro,
            eta_mm=task.problem.eta_mm,
        )

    made = make(Method("liar", "Liar", liar), task_of("none", 1.0))
    assert made.mechanism is None
    assert made.note
