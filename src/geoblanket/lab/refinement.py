"""A second stage for a zone: it lets histories that shared a row report differently, where their losses differ.

The first stage finds a mechanism over coarse rows. The second stage splits each coarse row into fine rows by one more
earlier place and lets these differ. On average they report as before: for each coarse row and each output, the mean
over its fine rows, weighted by the prior, is kept. The promise then holds between the fine rows, and the loss can only
fall. Because the means are kept, it may stay above the least loss over fine rows.

All rows are split by the same earlier places, each of which stands for the places nearest to it. Two fine rows with
the same earlier place are then as far apart as their coarse rows, so both can follow what that place says of the loss.
If each row were split by places of its own, a part of one would touch several parts of another, and hardly any part
could change.
"""

from __future__ import annotations

from typing import Final

import highspy
import numpy as np
from scipy.sparse import coo_array, csr_array, eye_array, kron, vstack

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows, rows_of_histories
from geoblanket.errors import ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.highs import LARGEST_RATIO, run_highs
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.roads.places import Places

__all__ = ["refine", "split_rows"]

_MOST_FINE_ROWS: Final = 480
"""More would take the linear program of the second stage minutes."""
_MOST_PARTS: Final = 4
"""A row is split into at most this many parts."""
_MOST_CONSTRAINTS = 500_000
_ROUNDED_MM = 2
"""Distances are rounded down: the way over a third row may look this much longer than it is, millimetres."""


def split_rows(
    coarse: ZoneRows,
    places: Places,
    counts: HistoryCounts,
    *,
    reach_m: float,
    history_weights: tuple[float, ...],
) -> ZoneRows:
    """Split each row by one more earlier place.

    Parameters
    ----------
    coarse
        The rows of a zone.
    places, reach_m
        Those that the rows were made with.
    counts
        Histories of training walks with more earlier places than the rows look at; those elsewhere are left out.
    history_weights
        Weights of earlier places in distances. No row looks further back than there are weights.

    Returns
    -------
    fine
        At most 480 rows, so that the second stage takes seconds. The coarse rows themselves if no vehicle came from
        elsewhere, or there are no weights for a longer past.

    Raises
    ------
    ParameterError
        If there would be more rows even with two parts of each.
    """
    seen = counts.where(np.isin(counts.histories[:, 0], coarse.zone))
    longest = min(len(history_weights), counts.largest)
    for parts in range(_MOST_PARTS, 1, -1):
        listed = _split(coarse.histories, places, seen, longest, parts)
        if len(listed) == len(coarse):
            return coarse
        if len(listed) <= _MOST_FINE_ROWS:
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
        f"{len(coarse):,} rows would be split into {len(listed):,}, more than {_MOST_FINE_ROWS:,}. Give the first "
        "stage fewer rows, or make zones smaller."
    )


def _split(listed: Indices, places: Places, seen: HistoryCounts, longest: int, parts: int) -> Indices:
    """Replace each listed history by histories with one more earlier place."""
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
    """Choose places near which the places seen at a lag lie on average, one after the other."""
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


def refine(mechanism: Mechanism, problem: Problem, coarse: Indices, *, time_limit_s: float = 60.0) -> Mechanism:
    """Let the fine rows of each coarse row differ, at the least expected loss.

    Parameters
    ----------
    mechanism
        Over coarse rows.
    problem
        Promise and loss over fine rows, with the same outputs, ε and η. No two fine rows may be nearer to each other
        than their coarse rows are.
    coarse
        The coarse row of each fine row, shape (fine rows,).
    time_limit_s
        Longest time of the search, seconds. After it, each fine row reports as its coarse row.

    Returns
    -------
    refined
        A mechanism over fine rows, verified for the problem. It never loses more than the mechanism whose fine rows
        report as their coarse rows.

    Raises
    ------
    GuaranteeViolation
        If two fine rows are nearer to each other than their coarse rows.
    ParameterError
        If the linear program is too large: this is for small zones.
    """
    copied = Mechanism.from_weights(mechanism.weights[coarse], problem)
    used = np.flatnonzero(mechanism.weights.any(axis=0))
    change = _solve(problem, coarse, used, copied.probabilities[:, used], time_limit_s)
    if change is None:
        return copied
    table = copied.probabilities.copy()
    table[:, used] = np.maximum(table[:, used] + change, 0.0)
    repaired = Mechanism.from_probabilities(table / table.sum(axis=1, keepdims=True), problem)
    return min(copied, repaired, key=lambda mechanism: mechanism.expected_loss(problem))


def _solve(problem: Problem, rows: Indices, used: Ints, start: Floats, time_limit_s: float) -> Floats | None:
    """Return changes of fine rows over the used outputs, not yet repaired; None if there is no optimum in time.

    The unknowns are changes, not probabilities: no change then keeps every constraint exactly. Solvers with tolerances
    would take the narrow set of mechanisms with given means for empty.
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
    means = _means(problem.prior, rows)
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
    """Return the constrained pairs of rows, without those that follow from two others by way of a third row."""
    distance = np.where(problem.constrained, problem.distance_mm, np.inf)
    needed = problem.constrained.copy()
    for row, far in enumerate(distance):
        near = np.flatnonzero(np.isfinite(far))
        to, on = far[near, None], distance[near]
        needed[row] &= ~((to + on <= far + _ROUNDED_MM) & (to < far) & (on < far)).any(axis=0)
    return needed | needed.T


def _sums(prior: Floats, rows: Indices) -> csr_array[np.float64, tuple[int, int]]:
    """Select the fine rows that must sum to 1, without the last of each coarse row, for which the means ensure it."""
    probable = np.flatnonzero(prior > 0)
    _, last = np.unique(rows[probable][::-1], return_index=True)
    follows = probable[::-1][last]
    return csr_array(eye_array(len(prior), format="csr")[np.setdiff1d(np.arange(len(prior)), follows)])


def _means(prior: Floats, rows: Indices) -> csr_array[np.float64, tuple[int, int]]:
    """Return the weights by which fine rows make up coarse ones; improbable coarse rows are left out."""
    probable = np.flatnonzero(prior > 0)
    used, position = np.unique(rows[probable], return_inverse=True)
    mass = np.bincount(position, prior[probable])
    return csr_array((prior[probable] / mass[position], (position, probable)), shape=(len(used), len(prior)))
