"""The whole linear program, given to HiGHS as it is: for small problems, and as the reference in tests.

Its answer is not trusted: the mechanism is repaired and verified like any other, and the bound is computed here from
the multipliers that HiGHS returns, with the true ratios, whatever HiGHS thinks of its own accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import highspy
import numpy as np

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.solver.linear_program import EXPONENT_CAP, LinearProgram, slack_below, sum_below

LARGEST_RATIO = 1e9
"""Larger coefficients break LP solvers; the smaller ratio is a stronger constraint, so it is safe."""
MOST_CONSTRAINTS = 20_000_000
"""A limit on memory and time: the matrix has twice as many coefficients."""


SparseRows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A sparse matrix by rows: where each row begins, columns, values."""


@dataclass(frozen=True, eq=False)
class HighsAnswer:
    """What HiGHS returned."""

    timed_out: bool
    columns: Floats | None
    """Shape (outputs, rows), not to be trusted; None if there is no answer."""
    bound: float
    """A proven lower bound, from its multipliers; 0 if there are none."""


def solve_with_highs(program: LinearProgram, *, time_limit_s: float, solver: str = "choose") -> HighsAnswer:
    """Solve the plain linear program.

    Parameters
    ----------
    program
        The problem.
    time_limit_s
        Seconds that HiGHS may take.
    solver
        HiGHS's own option: "choose", "simplex" or "ipm".

    Raises
    ------
    ParameterError
        The linear program has more than 20 million constraints.
    """
    outputs, size = program.cost.shape
    low, high = np.nonzero(program.cone.constrained)
    constraints = len(low) * outputs
    if constraints > MOST_CONSTRAINTS:
        raise ParameterError(
            f"The plain linear program has {constraints:,} constraints, more than {MOST_CONSTRAINTS:,}. "
            "Use the method 'structured'."
        )
    scale = 1.0 / max(float(np.abs(program.cost).mean()), 1e-250)
    highs = run_highs(
        program.cost.ravel() * scale,
        _matrix(program, low, high),
        np.concatenate([np.zeros(constraints), np.ones(size)]),
        np.concatenate([np.full(constraints, np.inf), np.ones(size)]),
        largest=1.0,
        time_limit_s=time_limit_s,
        solver=solver,
    )
    solution = highs.getSolution()
    columns = np.array(solution.col_value, dtype=np.float64)
    duals = np.array(solution.row_dual, dtype=np.float64)
    return HighsAnswer(
        highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit,
        columns.reshape(outputs, size) if columns.size == outputs * size else None,
        _bound(program, low, high, duals[:constraints] / scale) if duals.size == constraints + size else 0.0,
    )


def run_highs(
    cost: Floats,
    matrix: SparseRows,
    lower: Floats,
    upper: Floats,
    *,
    smallest: float | Floats = 0.0,
    largest: float | Floats = math.inf,
    time_limit_s: float = math.inf,
    solver: str = "choose",
) -> highspy.Highs:
    """Minimise cost·x over smallest ≤ x ≤ largest with lower ≤ matrix·x ≤ upper; return HiGHS as it ended."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(lower)
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = np.full(len(cost), smallest), np.full(len(cost), largest)
    model.row_lower_, model.row_upper_ = lower, upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = matrix
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("time_limit", max(0.0, time_limit_s))
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("threads", 1)  # the same answer on every run
    highs.passModel(model)
    highs.run()
    return highs


def _matrix(program: LinearProgram, low: np.ndarray, high: np.ndarray) -> SparseRows:
    outputs, size = program.cost.shape
    pairs = len(low)
    ratio = np.minimum(program.cone.ratio[low, high], LARGEST_RATIO)
    first = size * np.arange(outputs)[:, None]
    # a·q_j − q_i ≥ 0 for each output and pair, then Σ_k q_k = 1 for each row.
    index = np.concatenate(
        [
            np.stack([first + high, first + low], axis=-1).ravel(),
            (np.arange(size)[:, None] + size * np.arange(outputs)).ravel(),
        ]
    )
    value = np.concatenate(
        [np.tile(np.stack([ratio, -np.ones(pairs)], axis=-1).ravel(), outputs), np.ones(size * outputs)]
    )
    starts = np.concatenate([2 * np.arange(pairs * outputs), 2 * pairs * outputs + outputs * np.arange(size + 1)])
    return starts, index, value


def _bound(program: LinearProgram, low: np.ndarray, high: np.ndarray, duals: Floats) -> float:
    """Return the bound that any multipliers give, negative or wrong ones counted as 0."""
    outputs, size = program.cost.shape
    usable = program.cone.exponent[low, high] <= EXPONENT_CAP
    multiplier = np.where(np.isfinite(duals), np.maximum(duals, 0.0), 0.0).reshape(outputs, -1) * usable
    ratio = program.cone.ratio[low, high]
    gained = np.array([np.bincount(high, ratio * values, size) for values in multiplier])
    given = np.array([np.bincount(low, values, size) for values in multiplier])
    slack = slack_below(program.cost, gained, given, rows=program.cone.original_rows)
    return max(0.0, sum_below(slack.min(axis=0)))
