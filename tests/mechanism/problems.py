"""Small problems of many kinds, and models of the same linear program that share nothing with the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.mechanism.problem import Problem


def some_seeds(count: int, *, of: int) -> list[Any]:
    """Return seeds of which the first few are in the default tests, and all in the slow ones."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= count else []) for seed in range(of)]


def whole_mm(distance_km: Floats) -> Floats:
    """Round to whole millimetres, so that the problem in integers is the one in floats."""
    rounded: Floats = (np.floor(np.minimum(distance_km, distance_km.T) * 1e6) + 0.25) / 1e6
    rounded[distance_km == 0.0] = 0.0
    np.fill_diagonal(rounded, 0.0)
    return rounded


def random_problem(
    seed: int, *, rows: int | None = None, outputs: int | None = None, largest_exponent: float = np.inf
) -> Problem:
    """Return a problem of random size, geometry, loss, ε and η; sometimes with near rows or rows of prior 0.

    `largest_exponent` limits ε·d: stock solvers fail where ratios e^(ε·d) are large.
    """
    rng = np.random.default_rng(seed)
    rows = rows or int(rng.integers(2, 14))
    outputs = outputs or int(rng.integers(2, 12))
    size_km = float(rng.choice([0.05, 0.5, 3.0]))
    points = rng.random((rows, 2)) * size_km
    if rows > 2 and rng.random() < 0.3:
        points[1] = points[0] + float(rng.choice([0.0, 2e-6, 1e-3]))
    distance = whole_mm(np.linalg.norm(points[:, None] - points[None], axis=2))
    prior = rng.dirichlet(np.full(rows, float(rng.choice([0.3, 1.0, 10.0]))))
    if rng.random() < 0.3:
        prior[rng.integers(rows)] = 0.0
        prior /= prior.sum()
    loss: Floats
    if rng.random() < 0.5:
        loss = rng.random((rows, outputs))
    else:
        places = points[rng.integers(0, rows, outputs)] + rng.normal(0.0, 0.1 * size_km, (outputs, 2))
        loss = np.linalg.norm(points[:, None] - places[None], axis=2)
    return Problem(
        loss=loss,
        prior=prior,
        distance_km=distance,
        epsilon=min(float(rng.choice([0.1, 1.0, 4.0, 20.0])), round(largest_exponent / max(distance.max(), 1e-3), 6)),
        eta_km=float(rng.choice([np.inf, 0.6 * size_km])),
    )


def optimum_by_cvxpy(problem: Problem) -> float:
    """Return the optimum of the linear program as CVXPY and Clarabel see it."""
    import cvxpy  # takes seconds, and most who import this module have no use for it

    cp: Any = cvxpy
    table = cp.Variable(problem.loss.shape, nonneg=True)
    constraints = [cp.sum(table, axis=1) == 1]
    for row in range(problem.row_count):
        for other in range(problem.row_count):
            distance_mm = int(problem.distance_mm[row, other])
            if row != other and distance_mm <= problem.eta_mm:
                ratio = np.exp(problem.epsilon_micro * distance_mm / 1e12)
                constraints.append(table[row] <= ratio * table[other])
    model = cp.Problem(cp.Minimize(cp.sum(cp.multiply(problem.prior[:, None] * problem.loss, table))), constraints)
    model.solve(solver=cp.CLARABEL)
    return float(model.value)


def grid_problem(side: int, *, cell_km: float = 0.5, epsilon: float = 1.0, eta_km: float = np.inf) -> Problem:
    """Return a square grid of places that are rows and outputs, with a prior that falls off from one corner."""
    axis = np.arange(side) * cell_km
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    prior = np.exp(-0.3 * np.linalg.norm(points, axis=1))
    return Problem(
        loss=distance, prior=prior / prior.sum(), distance_km=whole_mm(distance), epsilon=epsilon, eta_km=eta_km
    )


def history_problem(seed: int, *, places: int = 6, past: int = 3, before: int = 2, epsilon: float = 2.0) -> Problem:
    """Return a problem whose rows are a place now, a near one before and one near that; outputs are places."""
    rng = np.random.default_rng(seed)
    points = rng.random((places, 2)) * 1.5
    near = np.argsort(np.linalg.norm(points[:, None] - points[None], axis=2), axis=1)
    rows = points[[(now, one, two) for now in range(places) for one in near[now, :past] for two in near[one, :before]]]
    lag = np.linalg.norm(rows[:, None] - rows[None], axis=3)
    heading = 1.7 * rows[:, 0] - 0.5 * rows[:, 1] - 0.2 * rows[:, 2]
    prior = np.exp(-np.linalg.norm(rows[:, 0] - rows[:, 1], axis=1) / 0.4)
    return Problem(
        loss=np.linalg.norm(heading[:, None] - points[None], axis=2),
        prior=prior / prior.sum(),
        distance_km=whole_mm(lag @ np.array([1.0, 1.0, 0.5])),
        epsilon=epsilon,
    )
