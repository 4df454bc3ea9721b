from __future__ import annotations

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.mechanism.baselines import const_opt, exponential
from tests.mechanism.baselines.problems import line, optimum, plane


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("eta", [0.8, np.inf])
def test_it_lies_between_the_exponential_mechanism_and_the_optimum(epsilon: float, eta: float) -> None:
    case = plane(1, epsilon=epsilon, eta_km=eta)
    losses = [
        const_opt(case.problem, case.distance, near_km=near).expected_loss(case.problem)
        for near in (0.0, 0.5, 1.0, np.inf)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] <= exponential(case.problem, case.distance).expected_loss(case.problem) * (1 + 1e-6)
    assert losses[1] > losses[-1]
    assert losses[-1] == pytest.approx(optimum(case.problem), rel=1e-6)


def test_far_outputs_fall_as_in_the_exponential_mechanism() -> None:
    case = plane(2)
    near_km = 0.7
    ratio = const_opt(case.problem, case.distance, near_km=near_km).probabilities
    ratio = ratio / exponential(case.problem, case.distance).probabilities
    for output in range(case.problem.output_count):
        far = case.distance[:, output] > near_km
        np.testing.assert_allclose(ratio[far, output], ratio[far, output].mean(), rtol=1e-4, atol=1e-6)


def test_rows_in_one_place_stay_equal() -> None:
    case = plane(3, twins=True)
    mechanism = const_opt(case.problem, case.distance, near_km=0.5)
    assert (mechanism.weights[0] == mechanism.weights[1]).all()


def test_a_problem_that_no_solver_would_finish_is_refused() -> None:
    with pytest.raises(ParameterError, match="small problems"):
        const_opt(line(300), line(300).distance_km, near_km=1.0)


def test_a_radius_must_not_be_negative() -> None:
    with pytest.raises(ParameterError, match="near_km"):
        const_opt(line(2), np.zeros((2, 2)), near_km=np.nan)
