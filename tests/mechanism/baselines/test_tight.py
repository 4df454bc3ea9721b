from __future__ import annotations

import numpy as np
import pytest

from geoblanket.errors import MechanismError, ParameterError
from geoblanket.mechanism.baselines import tight_constraints
from geoblanket.mechanism.problem import Problem
from tests.mechanism.baselines.problems import line, optimum, plane


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_on_a_line_it_is_the_truncated_geometric_mechanism(epsilon: float) -> None:
    problem = line(7, epsilon=epsilon)
    alpha = np.exp(-epsilon)
    truth = alpha**problem.distance_km * (1 - alpha) / (1 + alpha)
    truth[:, [0, -1]] = alpha ** problem.distance_km[:, [0, -1]] / (1 + alpha)
    mechanism = tight_constraints(problem, remapped=False)
    np.testing.assert_allclose(mechanism.probabilities, truth, atol=2e-9)
    assert mechanism.certificate.epsilon_effective == pytest.approx(epsilon, rel=1e-6)


def test_on_a_line_remapping_makes_it_optimal() -> None:
    """Ghosh, Roughgarden and Sundararajan: the remapped geometric mechanism is optimal for every prior."""
    random = np.random.default_rng(1)
    distance = line(6).distance_km
    for _ in range(5):
        problem = Problem(loss=distance**1.5, prior=random.dirichlet(np.ones(6)), distance_km=distance, epsilon=0.7)
        assert tight_constraints(problem).expected_loss(problem) == pytest.approx(optimum(problem), rel=1e-6)


def test_within_eta_peaks_fall_along_chains() -> None:
    free = tight_constraints(line(6), remapped=False)
    distance = line(6).distance_km
    problem = Problem(loss=distance, prior=np.full(6, 1 / 6), distance_km=distance, epsilon=1.0, eta_km=1.0)
    np.testing.assert_allclose(tight_constraints(problem, remapped=False).probabilities, free.probabilities, atol=2e-9)


def test_parts_without_a_chain_are_told_apart() -> None:
    distance = np.array([[0, 1, 50], [1, 0, 50], [50, 50, 0]], float)
    problem = Problem(loss=distance, prior=np.full(3, 1 / 3), distance_km=distance, epsilon=1.0, eta_km=5.0)
    mechanism = tight_constraints(problem)
    assert mechanism.probabilities[2, 2] == pytest.approx(1, abs=1e-8)
    assert "2 parts" in mechanism.guarantee


def test_rows_in_one_place_share_their_peak() -> None:
    case = plane(2, rows=6, outputs=6, epsilon=30.0, twins=True)
    for remapped in (True, False):
        mechanism = tight_constraints(case.problem, remapped=remapped)
        assert (mechanism.weights[0] == mechanism.weights[1]).all()


def test_it_may_not_exist_and_needs_rows_as_outputs() -> None:
    with pytest.raises(MechanismError, match="does not exist"):
        tight_constraints(plane(3, rows=25, epsilon=0.5).problem)
    with pytest.raises(ParameterError, match="outputs must be the rows"):
        tight_constraints(plane(3, epsilon=30.0).problem, remapped=False)
