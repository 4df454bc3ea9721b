"""Small problems on the plane, and the optimum of their linear program by an independent solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from geoblanket._arrays import Floats
from geoblanket.mechanism.problem import Problem


@dataclass(frozen=True)
class Plane:
    """A problem whose rows and outputs are points, and whose loss is their distance."""

    problem: Problem
    rows: Floats
    outputs: Floats

    @property
    def distance(self) -> Floats:
        return cdist(self.rows, self.outputs)


def plane(
    seed: int, *, rows: int = 9, outputs: int = 7, epsilon: float = 2.0, eta_km: float = np.inf, twins: bool = False
) -> Plane:
    random = np.random.default_rng(seed)
    where = random.uniform(0, 2, (rows, 2))
    if twins:
        where[1] = where[0]
        where[2] = where[3] + [1e-3, 0]
    targets = random.uniform(0, 2, (outputs, 2))
    problem = Problem(
        loss=cdist(where, targets),
        prior=random.dirichlet(np.ones(rows)),
        distance_km=cdist(where, where),
        epsilon=epsilon,
        eta_km=eta_km,
    )
    return Plane(problem, where, targets)


def line(count: int, *, epsilon: float = 1.0) -> Problem:
    """Points one kilometre apart; outputs are the rows."""
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    return Problem(loss=distance, prior=np.full(count, 1 / count), distance_km=distance, epsilon=epsilon)


def optimum(problem: Problem) -> float:
    """Return the least expected loss of any mechanism, by SciPy's linear programming.

    Ratios above e^20 are left out, as no solver could handle them: a relaxation, so that it stays a lower bound.
    """
    rows, outputs = problem.loss.shape
    row, other = np.nonzero(problem.constrained & (problem.log_bound < 20))
    ratio = np.exp(problem.log_bound[row, other])
    pairs = np.arange(len(row))
    privacy = sparse.csr_array(
        (np.concatenate([np.ones(len(row)), -ratio]), (np.tile(pairs, 2), np.concatenate([row, other]))),
        shape=(len(row), rows),
    )
    result = linprog(
        (problem.prior[:, None] * problem.loss).T.ravel(),
        A_ub=sparse.kron(sparse.eye_array(outputs), privacy).toarray(),
        b_ub=np.zeros(outputs * len(row)),
        A_eq=np.tile(np.eye(rows), outputs),
        b_eq=np.ones(rows),
        method="highs-ds",
    )
    assert result.success
    assert result.fun is not None
    return result.fun
