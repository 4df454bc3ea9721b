from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.baselines import exponential
from geoblanket.mechanism.problem import Problem
from tests.mechanism.baselines.problems import line, plane


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_the_published_form_is_the_formula_even_where_the_constant_mechanism_costs_less(epsilon: float) -> None:
    case = plane(1, epsilon=epsilon)
    weights = np.exp(-case.problem.epsilon * case.distance / 2)
    mechanism = exponential(case.problem, case.distance)
    np.testing.assert_allclose(mechanism.probabilities, weights / weights.sum(axis=1, keepdims=True), atol=2e-9)


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.1, 20), twins=st.booleans(), eta=st.sampled_from([0.5, np.inf]))
@settings(max_examples=25, deadline=None)
def test_the_published_form_stays_below_epsilon_and_the_calibrated_spends_it(
    seed: int, epsilon: float, twins: bool, eta: float
) -> None:
    case = plane(seed, epsilon=epsilon, twins=twins, eta_km=eta)
    published = exponential(case.problem, case.distance)
    calibrated = exponential(case.problem, case.distance, calibrated=True)
    assert published.certificate.epsilon_effective <= epsilon
    if case.problem.constrained.any():
        assert calibrated.certificate.epsilon_effective >= 0.99 * case.problem.epsilon_micro / 1e6


def test_between_two_rows_the_calibrated_form_is_randomised_response() -> None:
    mechanism = exponential(line(2), [[0, 1], [1, 0]], calibrated=True)
    right = math.e / (1 + math.e)
    np.testing.assert_allclose(mechanism.probabilities, [[right, 1 - right], [1 - right, right]], atol=1e-6)


def test_distances_that_break_the_triangle_inequality_scale_the_noise() -> None:
    """The outputs tell the rows apart by 1 km although the rows are only 100 m apart."""
    problem = Problem(loss=np.ones((2, 2)), prior=np.full(2, 0.5), distance_km=0.1 * (1 - np.eye(2)), epsilon=1.0)
    mechanism = exponential(problem, [[0, 1], [1, 0]])
    right = np.exp(0.1) / (1 + np.exp(0.1))
    assert mechanism.probabilities[0, 0] == pytest.approx(right, abs=1e-6)


def test_rows_that_are_never_told_apart_allow_any_scale() -> None:
    problem = Problem(loss=np.ones((2, 2)), prior=np.full(2, 0.5), distance_km=1 - np.eye(2), epsilon=1.0)
    mechanism = exponential(problem, [[0, 1], [0, 1]], calibrated=True)
    np.testing.assert_allclose(mechanism.probabilities, [[1, 0], [1, 0]], atol=1e-6)


@pytest.mark.parametrize("distance", [np.ones((2, 3)), -np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_distances_to_outputs_are_checked(distance: Floats) -> None:
    with pytest.raises(ParameterError, match="output_distance_km"):
        exponential(line(2), distance)
