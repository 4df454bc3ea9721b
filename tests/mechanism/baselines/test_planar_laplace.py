from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.special import lambertw

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.baselines import planar_laplace
from geoblanket.mechanism.problem import Problem
from tests.mechanism.baselines.problems import Plane, line, plane


def drawn(case: Plane, row: int, draws: int) -> Floats:
    """Return how often each output is nearest to a noisy point, the published way of drawing the noise."""
    random = np.random.default_rng(7)
    angle, share = random.uniform(0, 2 * np.pi, draws), random.uniform(0, 1, draws)
    radius = -(lambertw((share - 1) / math.e, -1).real + 1) / case.problem.epsilon
    points = case.rows[row] + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.bincount(cKDTree(case.outputs).query(points)[1], minlength=len(case.outputs)) / draws


@pytest.mark.parametrize("outputs", [2, 3, 12])
def test_it_is_the_published_noise_given_to_the_nearest_output(outputs: int) -> None:
    case = plane(3, outputs=outputs)
    mechanism = planar_laplace(case.problem, case.rows, case.outputs)
    for row in range(3):
        np.testing.assert_allclose(mechanism.probabilities[row], drawn(case, row, 400_000), atol=0.004)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 8.0])
def test_it_spends_at_most_epsilon_and_repair_changes_little(epsilon: float) -> None:
    case = plane(4, rows=20, outputs=20, epsilon=epsilon)
    coarse = planar_laplace(case.problem, case.rows, case.outputs)
    fine = planar_laplace(case.problem, case.rows, case.outputs, rays=8192)
    assert fine.certificate.epsilon_effective <= epsilon
    assert abs(coarse.probabilities - fine.probabilities).max() < 1e-3


def test_twin_rows_outputs_in_one_place_and_outputs_on_a_line() -> None:
    case = plane(5, twins=True)
    outputs = np.array([[0.0, 0], [1, 0], [2, 0], [1, 0], [3, 0], [4, 0], [5, 0]])
    mechanism = planar_laplace(case.problem, case.rows, outputs)
    assert (mechanism.weights[0] == mechanism.weights[1]).all()
    assert mechanism.probabilities[:, 3].max() < 1e-6
    straight = drawn(Plane(case.problem, case.rows, outputs), 4, 400_000)
    np.testing.assert_allclose(mechanism.probabilities[4], straight, atol=0.004)


def test_smaller_row_distances_mean_more_noise() -> None:
    case = plane(6)
    halved = Problem(
        loss=case.problem.loss, prior=case.problem.prior, distance_km=case.problem.distance_km / 2, epsilon=4.0
    )
    np.testing.assert_allclose(
        planar_laplace(halved, case.rows, case.outputs).probabilities,
        planar_laplace(case.problem, case.rows, case.outputs).probabilities,
        atol=1e-3,
    )


def test_a_single_output_is_always_given() -> None:
    problem = Problem(loss=np.ones((2, 1)), prior=np.full(2, 0.5), distance_km=1 - np.eye(2), epsilon=1.0)
    assert (planar_laplace(problem, [[0, 0], [1, 0]], [[0, 0]]).probabilities == 1).all()


def test_bad_positions_are_refused() -> None:
    with pytest.raises(ParameterError, match="row_xy_km"):
        planar_laplace(line(2), np.full((2, 2), np.inf), [[0, 0], [1, 1]])
    with pytest.raises(ParameterError, match="rays"):
        planar_laplace(line(2), [[0, 0], [1, 0]], [[0, 0], [1, 0]], rays=3)
