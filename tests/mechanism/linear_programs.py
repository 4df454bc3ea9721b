"""Small problems and what HiGHS makes of them: the raw answers that repair has to live with."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from geoblanket._arrays import Floats
from geoblanket.mechanism.problem import Problem

__all__ = ["make_problem", "random_problem", "solve"]


def make_problem(**arguments: Any) -> Problem:
    """Make a problem from whatever NumPy takes for an array."""
    return Problem(**arguments)


def random_problem(
    seed: int, *, epsilon: float, rows: int = 6, outputs: int = 5, twin_km: float | None = None, eta_km: float = np.inf
) -> Problem:
    """Rows and outputs in a square of 2 km; with `twin_km`, the second row is so far from the first."""
    rng = np.random.default_rng(seed)
    places = rng.random((rows, 2)) * 2
    if twin_km is not None:
        places[1] = places[0] + [twin_km, 0]
    targets = rng.random((outputs, 2)) * 2
    prior = rng.random(rows)
    return Problem(
        loss=np.linalg.norm(places[:, None] - targets, axis=2),
        prior=prior / prior.sum(),
        distance_km=np.linalg.norm(places[:, None] - places, axis=2),
        epsilon=epsilon,
        eta_km=eta_km,
    )


def solve(problem: Problem, *, method: str = "simplex", iterations: int | None = None) -> tuple[Floats, str]:
    """Return the answer of HiGHS to the whole linear program, as it comes, and its status."""
    rows, outputs = problem.loss.shape
    bound = np.minimum(np.exp(problem.log_bound), 1e9)
    first, second = np.nonzero(problem.constrained)
    pairs = len(first)
    # Constraints q[i, k] - a q[j, k] <= 0 for each pair and output, then the rows' sums.
    pair, output = np.divmod(np.arange(pairs * outputs), outputs)
    columns = np.stack([first[pair] * outputs + output, second[pair] * outputs + output], axis=1).ravel()
    values = np.stack([np.ones(len(pair)), -bound[first, second][pair]], axis=1).ravel()
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = rows * outputs, pairs * outputs + rows
    program.col_cost_ = (problem.prior[:, None] * problem.loss).ravel()
    program.col_lower_, program.col_upper_ = np.zeros(rows * outputs), np.full(rows * outputs, highspy.kHighsInf)
    program.row_lower_ = np.concatenate([np.full(pairs * outputs, -highspy.kHighsInf), np.ones(rows)])
    program.row_upper_ = np.concatenate([np.zeros(pairs * outputs), np.ones(rows)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate(
        [np.arange(pairs * outputs) * 2, 2 * pairs * outputs + np.arange(rows + 1) * outputs]
    )
    program.a_matrix_.index_ = np.concatenate([columns, np.arange(rows * outputs)])
    program.a_matrix_.value_ = np.concatenate([values, np.ones(rows * outputs)])
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("solver", method)
    if iterations is not None:
        solver.setOptionValue("presolve", "off")
        solver.setOptionValue("simplex_iteration_limit", iterations)
        solver.setOptionValue("ipm_iteration_limit", iterations)
        solver.setOptionValue("pdlp_iteration_limit", iterations)
    solver.passModel(program)
    solver.run()
    answer = np.array(solver.getSolution().col_value)
    if answer.size != rows * outputs:
        answer = np.full(rows * outputs, np.nan)
    return answer.reshape(rows, outputs), str(solver.getModelStatus()).rpartition(".k")[2]
