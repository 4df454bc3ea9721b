from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import pytest

from geoblanket._arrays import Indices
from geoblanket.errors import GuaranteeViolation, ParameterError
from geoblanket.lab import refinement
from geoblanket.lab.refinement import refine
from geoblanket.mechanism import Mechanism, Problem, optimise


def a_split(seed: int, *, coarse_count: int = 5, outputs: int = 4) -> tuple[Mechanism, Problem, Indices]:
    """Coarse rows on a line, each split in one to three fine ones whose losses differ."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(coarse_count, dtype=np.int32), rng.integers(1, 4, coarse_count))
    where = rows * 1.0 + rng.uniform(0, 0.5, len(rows))
    distance = np.floor(np.abs(where[:, None] - where) * 1e6) / 1e6
    loss = np.abs(where[:, None] - np.linspace(0, coarse_count, outputs)) + rng.uniform(0, 2, (len(rows), outputs))
    prior = rng.dirichlet(np.ones(len(rows)))
    fine = Problem(loss, prior, distance, epsilon=1.5, eta_km=3.0)
    together = (rows[:, None] == np.arange(coarse_count)).astype(float)
    mass = together.T @ prior
    nearest = np.array([
        [distance[np.ix_(rows == one, rows == other)].min() if one != other else 0.0 for other in range(coarse_count)]
        for one in range(coarse_count)
    ])  # fmt: skip
    coarse = Problem(together.T @ (prior[:, None] * loss) / mass[:, None], mass, nearest, epsilon=1.5, eta_km=3.0)
    return optimise(coarse, gap=1e-3).mechanism, fine, rows


def copied_loss(mechanism: Mechanism, fine: Problem, rows: Indices) -> float:
    """The expected loss if each fine row reports as its coarse row."""
    return Mechanism.from_weights(mechanism.weights[rows], fine).expected_loss(fine)


def largest_change_of_means(refined: Mechanism, mechanism: Mechanism, fine: Problem, rows: Indices) -> float:
    worst = 0.0
    for coarse in np.unique(rows[fine.prior > 0]):
        inside = rows == coarse
        mean = fine.prior[inside] @ refined.probabilities[inside] / fine.prior[inside].sum()
        worst = max(worst, float(np.abs(mean - mechanism.probabilities[coarse]).max()))
    return worst


def least_loss(problem: Problem, *, kept: tuple[Mechanism, Indices] | None) -> float:
    """The optimum as CVXPY and Clarabel see it, written as in the paper; `kept`: with the marginals of a mechanism."""
    cp: Any = cvxpy
    table = cp.Variable(problem.loss.shape, nonneg=True)
    constraints = [cp.sum(table, axis=1) == 1]
    for row, other in np.argwhere(problem.constrained):
        constraints.append(table[row] <= np.exp(problem.log_bound[row, other]) * table[other])
    if kept is not None:
        mechanism, rows = kept
        for coarse in np.unique(rows):
            inside = np.flatnonzero(rows == coarse)
            mean = sum(problem.prior[row] * table[row] for row in inside)
            constraints.append(mean == problem.prior[inside].sum() * mechanism.probabilities[coarse])
    model = cp.Problem(cp.Minimize(cp.sum(cp.multiply(problem.prior[:, None] * problem.loss, table))), constraints)
    model.solve(solver=cp.CLARABEL)
    return float(model.value)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_optimum_of_the_papers_program(seed: int) -> None:
    mechanism, fine, rows = a_split(seed)
    found = refine(mechanism, fine, rows)
    expected = least_loss(fine, kept=(mechanism, rows))
    assert found.expected_loss(fine) == pytest.approx(expected, rel=1e-5)
    assert found.expected_loss(fine) >= least_loss(fine, kept=None) - 1e-6
    assert found.expected_loss(fine) <= copied_loss(mechanism, fine, rows)
    assert found.certificate.epsilon_effective <= 1.5


def test_it_gains_where_the_loss_differs_within_a_row() -> None:
    mechanism, fine, rows = a_split(0)
    found = refine(mechanism, fine, rows)
    assert found.expected_loss(fine) < 0.9995 * copied_loss(mechanism, fine, rows)


@pytest.mark.parametrize("seed", range(3))
def test_means_are_kept(seed: int) -> None:
    mechanism, fine, rows = a_split(seed)
    found = refine(mechanism, fine, rows)
    assert largest_change_of_means(found, mechanism, fine, rows) < 1e-6


def test_constraints_that_follow_from_others_are_left_out_and_kept_all_the_same() -> None:
    """Rows on a line: neighbours are enough."""
    size = 30
    where = np.arange(size) * 0.1
    apart = np.floor(np.abs(where[:, None] - where) * 1e6) / 1e6
    rng = np.random.default_rng(0)
    fine = Problem(rng.uniform(0, 1, (size, 3)), np.full(size, 1 / size), apart, epsilon=2.0, eta_km=5.0)
    assert refinement._needed(fine).sum() == 2 * (size - 1)
    one = Problem(np.ones((1, 3)), np.ones(1), np.zeros((1, 1)), epsilon=2.0, eta_km=5.0)
    mechanism = Mechanism.from_probabilities([[0.2, 0.3, 0.5]], one)
    rows = np.zeros(size, np.int32)
    found = refine(mechanism, fine, rows)
    assert found.expected_loss(fine) == pytest.approx(least_loss(fine, kept=(mechanism, rows)), rel=1e-4)


def test_improbable_rows_are_free_but_keep_the_promise() -> None:
    mechanism, fine, rows = a_split(1)
    prior = fine.prior.copy()
    prior[rows == rows[0]] = 0.0
    fine = Problem(fine.loss, prior / prior.sum(), fine.distance_km, epsilon=1.5, eta_km=3.0)
    found = refine(mechanism, fine, rows)
    assert found.expected_loss(fine) <= copied_loss(mechanism, fine, rows)
    assert largest_change_of_means(found, mechanism, fine, rows) < 1e-6


def test_without_time_the_coarse_rows_are_copied() -> None:
    mechanism, fine, rows = a_split(0)
    found = refine(mechanism, fine, rows, time_limit_s=0.0)
    assert (found.weights == mechanism.weights[rows]).all()


def test_rows_that_are_no_parts_are_refused() -> None:
    mechanism, fine, rows = a_split(0)
    near = Problem(fine.loss, fine.prior, fine.distance_km / 10, epsilon=1.5, eta_km=3.0)
    with pytest.raises(GuaranteeViolation):
        refine(mechanism, near, rows)


def test_too_large_a_program_is_refused() -> None:
    one = Problem(np.ones((1, 2)), np.ones(1), np.zeros((1, 1)), epsilon=1.5, eta_km=3.0)
    halves = Mechanism.from_probabilities([[0.5, 0.5]], one)
    many = Problem(np.ones((600, 2)), np.full(600, 1 / 600), 1 - np.eye(600), epsilon=1.5, eta_km=3.0)
    with pytest.raises(ParameterError, match="718,800 constraints, more than 500,000"):
        refine(halves, many, np.zeros(600, np.int32))
