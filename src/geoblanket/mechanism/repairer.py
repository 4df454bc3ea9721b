"""From any table of numbers to integer weights that keep the promise, and what that costs.

A solver's answer is not a mechanism: it breaks the promise by its tolerance, which between tiny probabilities is no
small matter, and a solver that ran out of time may answer anything. Here any input becomes a mechanism over 2^62:

1. What is not a probability (NaN, infinite, negative) counts as 0; rows without any are the mean of the others; rows at
   distance 0 are averaged. Each row is rounded to integers W that sum to D', a little less than D = 2^62.
2. For each output, a_y is the least that must be added to *all* rows: at least
   (W_sy − L·W_s'y) / (L − 1) for every constrained pair, and 0, where L = p/2^96 ≤ e^(ε·d) from `exponential`.
3. W_sy + a_y for all s; what is missing to D goes to one output, the same for all rows: the best if nothing were known.

Why it keeps the promise
------------------------
All rows get the same amounts, so all sum to D. For c ≥ a_y: W_s + c ≤ L·(W_s' + c) if and only if
W_s − L·W_s' ≤ (L − 1)·c, which holds by the choice of a_y; the last step only makes c larger. Weights stay integers, so
that it holds exactly. ∎

Floats that are large enough
----------------------------
Any integer a_y above the true bound will do, so it is computed in floats that are rounded up. u = 2^-53, and
F ≤ (1 − 16u)·L from `exponential`. If W_s > W_s', the bound falls as L grows (its derivative is
(W_s' − W_s)/(L − 1)²), so that F in the place of L gives more; if not, the bound is at most 0. Computed is
((1 + 64u)·W_s − F·W_s')·(1/(F − 1)). Where this matters, F·W_s' ≤ (1 + 65u)·W_s, so that the conversions and the
product are wrong by at most 5u·W_s; the subtraction, the reciprocal and the last product by a factor of at least
1 − 5u, which is at most 6u·W_s/(F − 1). Together less than the 64u·W_s/(F − 1) that were put in: the result is at least
the true bound. What is left of these 64u is why the float filter of the verifier passes nearly all of a repaired
mechanism.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError
from geoblanket.mechanism.exponential_bounds import bounds_for
from geoblanket.mechanism.problem import Problem

_DENOMINATOR: Final = 2**62
_RESERVE: Final = 2**32  # of 2^62: room for the added weights of a good start, 1e-9 of the probability
_LEAST_TOTAL: Final = 2**40  # with less left of the input, it is not worth keeping
_MOST_ADDED: Final = 0.01
_ATTEMPTS: Final = 4
_BLOCK: Final = 1 << 17
_WORTH_THREADS: Final = 10_000_000


@dataclass(frozen=True, eq=False)
class Repaired:
    """Integer weights that keep the promise, and what the repair cost.

    Examples
    --------
    With the `problem` and the `result` in the examples of `Problem` and `optimise`:

    >>> from geoblanket.mechanism import repair
    >>> repaired = repair(result.mechanism.probabilities, problem)
    >>> repaired.constant, f"{repaired.loss_after - repaired.loss_before:.6f} km"
    (False, '0.000000 km')
    """

    weights: Ints
    """Shape (S, K), read-only; every row sums to 2^62."""
    added: float
    """The share of every row's probability that is the same in all rows, added to keep the promise."""
    sink: int
    """The output that took the rest of the rounding: the best constant one."""
    unusable: int
    """Entries of the input that were NaN, infinite or negative, and counted as 0."""
    constant: bool
    """Whether the constant mechanism replaced the input, because it costs less than the repaired input."""
    loss_before: float
    """Expected loss of the input, its rows normalised; it keeps no promise, so it may be below the optimum."""
    loss_after: float
    """Expected loss of the weights."""

    def __repr__(self) -> str:
        rows, outputs = self.weights.shape
        added = f"{self.added:.2g} of each row added"
        return short_repr(
            self,
            counted(rows, "row"),
            counted(outputs, "output"),
            added,
            f"loss {self.loss_before:.4g} → {self.loss_after:.4g}",
        )


@checked
def repair(probabilities: npt.ArrayLike, problem: Problem) -> Repaired:
    """Return integer weights near `probabilities` that keep the promise of `problem`, whatever the input.

    If the repair would make more than 1 % of each row the same in all rows, and the constant mechanism, which always
    sends the same best output, costs less, the constant mechanism is returned instead.

    Parameters
    ----------
    probabilities
        Shape (S, K): what a solver found, or anything else.

    Raises
    ------
    ParameterError
        They are not numbers, or not in the shape of the problem's loss.

    Examples
    --------
    With the `problem` in the example of `Problem`:

    >>> import numpy as np
    >>> from geoblanket import repair
    >>> repaired = repair(np.eye(3), problem)
    >>> repaired.weights.sum(axis=1).tolist() == [2**62] * 3
    True
    >>> repaired.loss_after >= repaired.loss_before
    True
    """
    given = np.asarray(probabilities, dtype=np.float64)
    if given.shape != problem.loss.shape:
        raise ParameterError(f"probabilities must have the shape {problem.loss.shape} of the loss. Got {given.shape}.")
    merged = problem.merged()
    clean, unusable = _cleaned(given, problem)
    expected = merged.prior @ merged.loss
    sink = int(expected.argmin())
    loss_before = _expected_loss(clean, merged)

    weights, added = _with_constant(clean, merged, sink)
    loss_after = _expected_loss(weights, merged) / _DENOMINATOR
    constant = added > _MOST_ADDED and loss_after > expected[sink]
    if constant:
        weights = np.zeros_like(weights)
        weights[:, sink] = _DENOMINATOR
        added, loss_after = 1.0, float(expected[sink])
    weights = weights[problem.row_class]
    weights.setflags(write=False)
    return Repaired(weights, added, sink, unusable, bool(constant), loss_before, loss_after)


def _expected_loss(table: Floats | Ints, problem: Problem) -> float:
    return float(problem.prior @ np.einsum("sk,sk->s", table.astype(np.float64), problem.loss))


def _cleaned(given: Floats, problem: Problem) -> tuple[Floats, int]:
    """Return a distribution for each class of rows, and how many entries were unusable."""
    usable = np.isfinite(given) & (given >= 0)
    values = np.where(usable, given, 0.0)
    largest = values.max(axis=1, keepdims=True)
    # The largest entry is divided out first, so that no sum overflows or vanishes.
    np.divide(values, largest, out=values, where=largest > 0)
    total = values.sum(axis=1, keepdims=True)
    np.divide(values, total, out=values, where=total > 0)
    empty = total[:, 0] == 0
    if empty.any():
        values[empty] = 1 / values.shape[1] if empty.all() else values[~empty].mean(axis=0)
    if len(problem.merged().loss) < len(values):
        values = problem.class_means(values)
    values /= values.sum(axis=1, keepdims=True)
    return values, int(np.count_nonzero(~usable))


def _with_constant(clean: Floats, problem: Problem, sink: int) -> tuple[Ints, float]:
    """Round, and add to all rows alike what makes every constraint hold; return the weights and the share added."""
    total = _DENOMINATOR - _RESERVE
    for _ in range(_ATTEMPTS):
        weights = _rounded(clean, total)
        needed = _needed(weights, problem)
        if total + sum(needed) <= _DENOMINATOR:
            weights += np.array(needed, dtype=np.int64)
            weights[:, sink] += _DENOMINATOR - total - sum(needed)
            return weights, (_DENOMINATOR - total) / _DENOMINATOR
        # What is needed grows with the total: with this one, both fit.
        total = total * (_DENOMINATOR - _RESERVE) // (total + sum(needed))
        if total < _LEAST_TOTAL:
            break
    weights = np.zeros(clean.shape, dtype=np.int64)
    weights[:, sink] = _DENOMINATOR
    return weights, 1.0


def _rounded(probabilities: Floats, total: int) -> Ints:
    """Round distributions to integers that sum to `total`; the largest of a row takes what rounding left."""
    weights = np.floor(probabilities * total).astype(np.int64)
    weights[np.arange(len(weights)), probabilities.argmax(axis=1)] += total - weights.sum(axis=1)
    return weights


def _needed(weights: Ints, problem: Problem) -> list[int]:
    """Return, for each output, an integer that is enough to add to all rows."""
    bounds = bounds_for(problem.epsilon_micro)
    raised = weights * (1 + 2.0**-47)
    plain = weights.astype(np.float64)
    step = max(1, _BLOCK // weights.shape[1])

    def needed_by(row: int) -> Floats:
        others = np.flatnonzero(problem.constrained[row])
        ratio = bounds.lower_floats(problem.distance_mm[row, others])
        scale = 1 / (ratio - 1)
        most = np.zeros(weights.shape[1])
        for start in range(0, len(others), step):
            block = slice(start, start + step)
            excess = plain[others[block]]
            excess *= ratio[block, None]
            np.subtract(raised[row], excess, out=excess)
            excess *= scale[block, None]
            np.maximum(most, excess.max(axis=0), out=most)
        return most

    most = np.zeros(weights.shape[1])
    if len(weights) * weights.size < _WORTH_THREADS:
        for row in range(len(weights)):
            np.maximum(most, needed_by(row), out=most)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for needed in pool.map(needed_by, range(len(weights))):
                np.maximum(most, needed, out=most)
    return [int(amount) + 1 if amount > 0 else 0 for amount in most.tolist()]
