from __future__ import annotations

import numpy as np
import pytest

from geoblanket.errors import MechanismError
from geoblanket.mechanism.baselines import const_opt, constant, exponential, planar_laplace, remap, tight_constraints
from tests.mechanism.baselines.problems import optimum, plane


def test_the_best_single_output_spends_nothing() -> None:
    case = plane(1)
    mechanism = constant(case.problem)
    assert mechanism.expected_loss(case.problem) == pytest.approx((case.problem.prior @ case.problem.loss).min())
    assert mechanism.certificate.epsilon_effective < 1e-9
    assert (np.count_nonzero(mechanism.weights, axis=1) == 1).all()


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 15.0])
@pytest.mark.parametrize("eta", [0.6, np.inf])
def test_no_mechanism_is_below_the_optimum(epsilon: float, eta: float) -> None:
    tight = 0
    for seed in range(4):
        case = plane(seed, epsilon=epsilon, eta_km=eta)
        problem = case.problem
        found = [
            constant(problem),
            exponential(problem, case.distance),
            exponential(problem, case.distance, calibrated=True),
            planar_laplace(problem, case.rows, case.outputs),
            const_opt(problem, case.distance, near_km=0.6),
        ]
        try:
            found.append(tight_constraints(problem))
            tight += 1
        except MechanismError:
            pass
        least = optimum(problem)
        for mechanism in [*found, *(remap(one, problem) for one in found)]:
            assert mechanism.expected_loss(problem) >= least * (1 - 1e-6)
    assert tight or epsilon < 15
