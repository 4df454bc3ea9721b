"""The second stage for losses that depend on more of the past than a mechanism looks at.

The first stage finds a mechanism over coarse rows. Where the loss differs between the histories that share one, the
second splits each row into finer ones and lets these differ, while on average they report as before: for each coarse
row and each output, the mean over its fine rows, weighted by the prior, stays what it was. What is promised then holds
between the fine rows, and the loss can only get smaller. It is still an upper bound on the least loss over fine rows,
because the means are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, eye_array, kron, vstack

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import GuaranteeViolation, MismatchError, ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.highs import LARGEST_RATIO, run_highs

__all__ = ["Refined", "coarse_rows", "refine"]


_MOST_ROWS = 1_000
_MOST_CONSTRAINTS = 500_000
_ROUNDED_MM = 2
"""By as much a way over a third row may be longer than it is, since distances are rounded down."""


@dataclass(frozen=True, eq=False)
class Refined:
    """A mechanism over fine rows, verified, and what it gained."""

    mechanism: Mechanism
    loss: float
    """Its expected loss."""
    loss_before: float
    """The expected loss where each fine row reports as its coarse one."""
    marginal_error: float
    """The largest difference, in probability, between a coarse row and the mean of its fine rows: a trace of the exact
    repair."""


def coarse_rows(fine: ZoneRows, coarse: ZoneRows) -> Ints:
    """Return the coarse row of each fine one, shape (fine rows,).

    Raises
    ------
    MismatchError
        If the zones differ, or the histories of a fine row use several coarse ones.
    """
    if not np.array_equal(fine.places_e7, coarse.places_e7) or not np.array_equal(fine.zone, coarse.zone):
        raise MismatchError("Fine and coarse rows must be of the same zone.")
    result = coarse.row_of(fine.histories).astype(np.int64)
    back = fine.row_of(coarse.histories)
    wrong = back[result[back] != np.arange(len(coarse))]
    if len(wrong):
        raise MismatchError(
            f"{len(np.unique(wrong))} of {len(fine)} fine rows hold histories of several coarse ones, the first is row "
            f"{wrong.min()}. Make the coarse rows with the same counts and a shorter past."
        )
    return result


def refine(mechanism: Mechanism, problem: Problem, coarse: npt.ArrayLike, *, time_limit_s: float = 60.0) -> Refined:
    """Let fine rows differ within the coarse row that they come from, at the least expected loss.

    Parameters
    ----------
    mechanism
        Over coarse rows.
    problem
        Over fine rows, with the same outputs, ε and η: what is promised, and what is lost. No two fine rows may be
        nearer to each other than their coarse rows are.
    coarse
        The coarse row of each fine row, shape (fine rows,).
    time_limit_s
        Seconds that the search may take; if it takes longer, the fine rows stay as their coarse ones.

    Raises
    ------
    MismatchError
        If mechanism, problem and rows do not belong together.
    ParameterError
        If the linear program is too large: this is for small zones.
    """
    rows = _checked(mechanism, problem, coarse)
    copied = _copy(mechanism, problem, rows)
    used = np.flatnonzero(mechanism.weights.any(axis=0))
    change = _solve(problem, rows, used, copied.probabilities[:, used], time_limit_s)
    best = copied
    if change is not None:
        table = copied.probabilities.copy()
        table[:, used] = np.maximum(table[:, used] + change, 0.0)
        repaired = Mechanism.from_probabilities(table / table.sum(axis=1, keepdims=True), problem)
        best = min(copied, repaired, key=lambda mechanism: mechanism.expected_loss(problem))
    return Refined(
        mechanism=best,
        loss=best.expected_loss(problem),
        loss_before=copied.expected_loss(problem),
        marginal_error=_marginal_error(best.probabilities, mechanism.probabilities, problem.prior, rows),
    )


def _checked(mechanism: Mechanism, problem: Problem, coarse: npt.ArrayLike) -> Ints:
    rows = np.asarray(coarse)
    if rows.shape != (problem.row_count,) or not np.issubdtype(rows.dtype, np.integer):
        raise ParameterError(f"There must be a coarse row for each of the {problem.row_count} fine rows.")
    if rows.min() < 0 or rows.max() >= mechanism.row_count:
        raise ParameterError(f"Coarse rows must be from 0 to {mechanism.row_count - 1}.")
    if mechanism.output_count != problem.output_count:
        raise MismatchError(
            f"The mechanism has {mechanism.output_count} outputs, and the problem {problem.output_count}. "
            "They must be the same."
        )
    if (mechanism.epsilon_micro, mechanism.eta_mm) != (problem.epsilon_micro, problem.eta_mm):
        raise MismatchError("The mechanism and the problem must promise the same: ε and η differ.")
    return rows.astype(np.int64)


def _copy(mechanism: Mechanism, problem: Problem, rows: Ints) -> Mechanism:
    """Return the mechanism whose fine rows report as their coarse ones: where the second stage starts."""
    try:
        return Mechanism.from_weights(mechanism.weights[rows], problem)
    except GuaranteeViolation as error:
        raise MismatchError(
            f"Fine rows {error.row} and {error.other_row} are nearer to each other than their coarse rows are, so that "
            "they are not parts of these."
        ) from error


def _solve(problem: Problem, rows: Ints, used: Ints, start: Floats, time_limit_s: float) -> Floats | None:
    """Return by how much to change fine rows over the used outputs, not to be trusted; None without an optimum in time.

    Changes, not probabilities: no change at all then keeps every constraint exactly. Solvers with tolerances take the
    narrow set of mechanisms with given means for empty.
    """
    size, outputs = start.shape
    low, high = np.nonzero(_needed(problem))
    if len(low) * outputs > _MOST_CONSTRAINTS:
        raise ParameterError(
            f"The linear program of the refinement has {len(low) * outputs:,} constraints, more than "
            f"{_MOST_CONSTRAINTS:,}. Refine smaller zones."
        )
    ratio = np.exp(np.minimum(problem.log_bound[low, high], np.log(LARGEST_RATIO)))
    pair = np.arange(len(low))
    promise = csr_array(
        coo_array(
            (np.concatenate([np.ones(len(low)), -ratio]), (np.tile(pair, 2), np.concatenate([low, high]))),
            shape=(len(low), size),
        )
    )
    means, _ = _means(problem.prior, rows)
    each_output = eye_array(outputs)
    equal = vstack([kron(means, each_output), kron(_sums(problem.prior, rows), np.ones((1, outputs)))])
    matrix = csr_array(vstack([kron(promise, each_output), equal]))
    none = np.zeros(equal.shape[0])
    cost = (problem.prior[:, None] * problem.loss[:, used]).ravel()
    highs = run_highs(
        cost / max(float(np.abs(cost).mean()), 1e-250),
        (matrix.indptr, matrix.indices, matrix.data),
        np.concatenate([np.full(promise.shape[0] * outputs, -np.inf), none]),
        np.concatenate([np.maximum(0.0, -(promise @ start)).ravel(), none]),
        smallest=-start.ravel(),
        largest=1.0 - start.ravel(),
        time_limit_s=time_limit_s,
        solver="ipm",
    )
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(highs.getSolution().col_value, np.float64).reshape(size, outputs)


def _needed(problem: Problem) -> Bools:
    """Return the constrained pairs of rows without those that follow from others, by way of a third row between."""
    if problem.row_count > _MOST_ROWS:
        raise ParameterError(
            f"The refinement is for at most {_MOST_ROWS:,} rows. Got {problem.row_count:,}. Refine smaller zones."
        )
    distance = np.where(problem.constrained, problem.distance_mm, np.inf)
    needed = problem.constrained.copy()
    for row, far in enumerate(distance):
        near = np.flatnonzero(np.isfinite(far))
        to, on = far[near, None], distance[near]
        needed[row] &= ~((to + on <= far + _ROUNDED_MM) & (to < far) & (on < far)).any(axis=0)
    return needed | needed.T


def _sums(prior: Floats, rows: Ints) -> csr_array[np.float64, tuple[int, int]]:
    """Return the fine rows that must sum to 1, one in each row; for the last of a coarse row, the means see to it."""
    probable = np.flatnonzero(prior > 0)
    _, last = np.unique(rows[probable][::-1], return_index=True)
    follows = probable[::-1][last]
    return csr_array(eye_array(len(prior), format="csr")[np.setdiff1d(np.arange(len(prior)), follows)])


def _means(prior: Floats, rows: Ints) -> tuple[csr_array[np.float64, tuple[int, int]], Ints]:
    """Return the weights by which fine rows make up coarse ones, and which these are; improbable ones are left out."""
    probable = np.flatnonzero(prior > 0)
    used, position = np.unique(rows[probable], return_inverse=True)
    mass = np.bincount(position, prior[probable])
    share = prior[probable] / mass[position]
    return csr_array((share, (position, probable)), shape=(len(used), len(prior))), used


def _marginal_error(fine: Floats, coarse: Floats, prior: Floats, rows: Ints) -> float:
    means, used = _means(prior, rows)
    return float(np.abs(means @ fine - coarse[used]).max())
