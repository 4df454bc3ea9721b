from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket.errors import MismatchError
from geoblanket.mechanism.baselines import constant, exponential, remap
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from tests.mechanism.baselines.problems import line, plane


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.1, 20))
@settings(max_examples=25, deadline=None)
def test_remapping_never_costs_and_a_second_time_changes_nothing(seed: int, epsilon: float) -> None:
    case = plane(seed, epsilon=epsilon, twins=True)
    before = exponential(case.problem, case.distance)
    after = remap(before, case.problem)
    assert after.expected_loss(case.problem) <= before.expected_loss(case.problem) * (1 + 1e-12)
    assert after.certificate.epsilon_effective <= before.certificate.epsilon_effective * (1 + 1e-9)
    again = remap(after, case.problem)
    assert again.expected_loss(case.problem) == pytest.approx(after.expected_loss(case.problem), rel=1e-12)


def test_every_output_gets_its_best_replacement() -> None:
    case = plane(8)
    before = exponential(case.problem, case.distance)
    joint = before.probabilities * case.problem.prior[:, None]
    best = sum((joint[:, [y]] * case.problem.loss).sum(axis=0).min() for y in range(case.problem.output_count))
    assert remap(before, case.problem).expected_loss(case.problem) == pytest.approx(best, rel=1e-9)


def test_outputs_may_be_others_than_the_mechanisms() -> None:
    case = plane(9)
    problem = Problem(
        loss=case.problem.loss[:, :2],
        prior=case.problem.prior,
        distance_km=case.problem.distance_km,
        epsilon=9.0,
    )
    result = remap(exponential(case.problem, case.distance), problem)
    assert result.weights.shape == (9, 2)
    assert result.epsilon == case.problem.epsilon  # the promise stays the mechanism's own


def test_what_tells_nothing_becomes_constant() -> None:
    case = plane(10)
    weights = np.full(case.problem.loss.shape, 2**62 // 7)
    weights[:, 0] += 2**62 - weights[0].sum()
    uniform = Mechanism.verified(
        weights,
        distance_mm=case.problem.distance_mm,
        epsilon_micro=case.problem.epsilon_micro,
        eta_mm=case.problem.eta_mm,
    )
    np.testing.assert_array_equal(remap(uniform, case.problem).weights, constant(case.problem).weights)


def test_another_number_of_rows_is_refused() -> None:
    case = plane(1)
    with pytest.raises(MismatchError, match="9 rows"):
        remap(exponential(case.problem, case.distance), line(3))
