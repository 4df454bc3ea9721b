"""The second stage of a zone, for losses that depend on more of the past than the mechanism of the first looks at.

The first stage finds a mechanism over coarse rows. Where the loss differs between the histories that share one, the
second splits each row into finer ones and lets these differ, while on average they report as before: for each coarse
row and each output, the mean over its fine rows, weighted by the prior, stays what it was. What is promised then holds
between the fine rows, and the loss can only get smaller. It is still an upper bound on the least loss over fine rows,
because the means are kept.

All rows are split by the same places further back, each of which stands for the places nearest to it. Two fine rows
that are split alike are then as far apart as their coarse rows, and both can follow what their common past says of the
loss. If rows were split by places of their own, a part of one would touch several parts of another, and hardly any
could move.

What is best over the fine rows is searched too, without keeping the means of the first stage. So the record has a
proven bound for refined rows as for any others, and says what keeping the means costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, eye_array, kron, vstack

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.build.record import Refinement
from geoblanket.build.rows import ZoneRows, rows_of_histories
from geoblanket.errors import GuaranteeViolation, MismatchError, ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.highs import LARGEST_RATIO, run_highs
from geoblanket.mechanism.solver.optimiser import OptimiseResult
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.roads.places import Places

__all__ = ["SecondStage", "coarse_rows", "refine", "second_stage", "split_rows"]

_MOST_FINE_ROWS: Final = 480
"""More would take the linear program of the second stage minutes."""
_MOST_PARTS: Final = 4
"""By as many places a row is split, at each place further back."""
_MOST_ROWS = 1_000
_MOST_CONSTRAINTS = 500_000
_ROUNDED_MM = 2
"""By as much a way over a third row may be longer than it is, since distances are rounded down."""
_LEAST_GAIN: Final = 1e-5
"""Share of the loss; for less it does not pay that one more place of the past counts in the budget."""
_USED: Final = 1e-3
"""An output that carries more of the probability counts as used."""


def split_rows(
    coarse: ZoneRows,
    places: Places,
    counts: HistoryCounts,
    *,
    further: int,
    reach_m: float,
    history_weights: tuple[float, ...],
    most_rows: int = _MOST_FINE_ROWS,
) -> ZoneRows:
    """Split each row by what vehicles passed before the places that it looks at.

    Parameters
    ----------
    coarse
        The rows of a zone.
    places, reach_m
        Those that they were made with.
    counts
        Histories of training walks with more earlier places than the rows look at; those elsewhere are left out.
    further
        How many more places each row looks at.
    history_weights
        What earlier places count in distances: no row looks further back than there are weights.
    most_rows
        With more than two parts of a row there are fewer parts instead.

    Returns
    -------
    fine
        The rows themselves if no vehicle came from elsewhere, or there are no weights for a longer past.

    Raises
    ------
    ParameterError
        If there would be more rows even with two parts of each.
    """
    seen = counts.where(np.isin(counts.histories[:, 0], coarse.zone))
    longest = min(len(history_weights), counts.largest)
    for parts in range(_MOST_PARTS, 1, -1):
        listed = coarse.histories
        for _ in range(further):
            listed = _split(listed, places, seen, longest, parts)
        if len(listed) == len(coarse):
            return coarse
        if len(listed) <= most_rows:
            return rows_of_histories(
                places,
                coarse.zone,
                listed,
                seen,
                reach_m=reach_m,
                history_weights=history_weights,
                context=f"{coarse.report.context}, refined",
                largest=longest,
            )
    raise ParameterError(
        f"{len(coarse):,} rows would be split into {len(listed):,}, more than {most_rows:,}. Give the first stage "
        "fewer rows, or make zones smaller."
    )


def _split(listed: Indices, places: Places, seen: HistoryCounts, longest: int, parts: int) -> Indices:
    """Return the listed histories, each replaced by those with one earlier place more."""
    length = (listed >= 0).sum(axis=1)
    centres = {lag: _centres(places, seen, lag, parts) for lag in np.unique(length).tolist() if lag <= longest}
    histories = [
        (*history[:lag], *centre)
        for history, lag in zip(listed.tolist(), length.tolist(), strict=True)
        for centre in ([(place,) for place in centres[lag]] if len(centres.get(lag, ())) > 1 else [()])
    ]
    width = max(map(len, histories))
    return np.array([[*history, *[-1] * (width - len(history))] for history in histories], np.int32)


def _centres(places: Places, seen: HistoryCounts, lag: int, parts: int) -> list[int]:
    """Return places to which those seen at a lag are near on average, chosen one after the other."""
    passed, inverse = np.unique(seen.histories[:, lag], return_inverse=True)
    count = np.bincount(inverse, seen.count, len(passed))
    lat, lon = places.lat[passed], places.lon[passed]
    distance_m = haversine_m(lat[:, None], lon[:, None], lat, lon)
    nearest_m = np.full(len(passed), np.inf)
    chosen: list[int] = []
    while len(chosen) < min(parts, len(passed)):
        best = int((count @ np.minimum(nearest_m[:, None], distance_m)).argmin())
        chosen.append(int(passed[best]))
        nearest_m = np.minimum(nearest_m, distance_m[:, best])
    return chosen


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


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The second stage of a zone: its mechanism, as `OptimiseResult` describes that of the first."""

    rows: ZoneRows
    mechanism: Mechanism
    outputs_used: int
    """How many outputs carry more than a thousandth of the probability."""
    record: Refinement

    @property
    def loss(self) -> float:
        """Expected loss in design."""
        return self.record.loss

    @property
    def lower_bound(self) -> float:
        """No mechanism for the fine rows has a smaller loss."""
        return self.record.lower_bound

    @property
    def gap(self) -> float:
        """(loss − lower bound over the same rows) / loss."""
        return max(0.0, 1 - self.lower_bound / self.loss) if self.loss > 0 else 0.0


def second_stage(
    first: Mechanism,
    coarse: ZoneRows,
    fine: ZoneRows,
    problem: Problem,
    best: OptimiseResult,
    *,
    time_limit_s: float,
) -> SecondStage:
    """Refine a mechanism.

    Parameters
    ----------
    first
        The mechanism of the first stage.
    coarse, fine
        Its rows, and their parts.
    problem
        That of the fine rows.
    best
        What was found for it without the first stage.
    time_limit_s
        Seconds that the linear program may take.

    Raises
    ------
    ParameterError
        If the linear program is too large.
    """
    refined = refine(first, problem, coarse_rows(fine, coarse), time_limit_s=time_limit_s)
    return SecondStage(
        rows=fine,
        mechanism=refined.mechanism,
        outputs_used=int((problem.prior @ refined.mechanism.probabilities > _USED).sum()),
        record=Refinement(
            used=refined.loss < (1 - _LEAST_GAIN) * refined.loss_before,
            rows=len(fine),
            loss_before=refined.loss_before,
            loss=refined.loss,
            # Either search may have stopped above the other.
            least_loss=min(best.loss, refined.loss),
            lower_bound=min(best.lower_bound, refined.loss),
            marginal_error=refined.marginal_error,
        ),
    )
