"""What ε a mechanism really spends: the worst ln(ratio) / distance over pairs of rows, from the exact weights.

For rows s and s' at distance d and an output y, ln(W[s, y] / W[s', y]) = ln(1 + (W[s, y] − W[s', y]) / W[s', y]). The
difference is exact, in integers; turning it into a float, the reciprocal, the product and the logarithm each add a
relative error of a few 2^-53, and `log1p` passes relative errors on without making them larger. So the result is right
to 2^-48 of itself, however near two rows are, and is given as a lower and an upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._display import short_repr
from geoblanket.errors import MismatchError
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["WorstPair", "effective_epsilon", "worst_pair"]


_RELATIVE_ERROR: Final = 2.0**-48
_ZERO: Final = 2.0**-600
"""Stands for a weight of 0 below a ratio: the ratio is then above all that weights can make."""
_LARGEST_RATIO: Final = 2.0**63
_BLOCK: Final = 1 << 17
"""Ratios at a time: a megabyte, which stays in the processor's cache."""


@dataclass(frozen=True)
class WorstPair:
    """The pair of rows and the output that are easiest to tell apart for their distance.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.evaluate import effective_epsilon
    >>> worst = effective_epsilon(result.mechanism)
    >>> worst.row != worst.other_row, 0.99 < worst.epsilon <= 1.0
    (True, True)
    """

    epsilon: float
    """ln(ratio) / distance, per kilometre, rounded up; `inf` where an output is possible from one row only, or rows at
    distance 0 differ; 0 where no output tells any pair apart."""
    low: float
    """The same, rounded down."""
    row: int
    other_row: int
    """`output` is more probable from `row` than from this one."""
    output: int
    distance_km: float

    def __repr__(self) -> str:
        rows = f"rows {self.row:,} and {self.other_row:,}"
        return short_repr(
            self, f"ε = {self.epsilon:.6g} per km", rows, f"output {self.output:,}", f"{self.distance_km:.4g} km apart"
        )


@checked
def effective_epsilon(mechanism: Mechanism) -> WorstPair:
    """Return the worst pair of a verified mechanism. Its ε is never above the promised one.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.evaluate import effective_epsilon
    >>> effective_epsilon(result.mechanism).epsilon <= 1.0
    True
    """
    worst = worst_pair(mechanism.weights, distance_mm=mechanism.distance_mm, eta_mm=mechanism.eta_mm)
    return replace(worst, epsilon=min(worst.epsilon, mechanism.epsilon), low=min(worst.low, mechanism.epsilon))


@checked
def worst_pair(weights: Ints, *, distance_mm: Ints, eta_mm: int) -> WorstPair:
    """Return the worst pair of any integer weights, verified or not.

    Parameters
    ----------
    weights
        int64, shape (S, K), from 0 to 2^62.
    distance_mm
        Row distances in millimetres, int64, shape (S, S).
    eta_mm
        Rows further apart than this, in millimetres, are not compared.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket.evaluate import worst_pair
    >>> mechanism = result.mechanism
    >>> worst = worst_pair(mechanism.weights, distance_mm=mechanism.distance_mm, eta_mm=mechanism.eta_mm)
    >>> 0.99 < worst.epsilon <= 1.0
    True
    """
    if distance_mm.shape != (len(weights), len(weights)):
        raise MismatchError(f"{len(weights)} rows do not belong to distances of the shape {distance_mm.shape}.")
    reciprocal = 1.0 / np.where(weights == 0, _ZERO, weights.astype(np.float64))
    worst, pair = -1.0, (0, 0)
    for row in range(len(weights)):
        others = np.flatnonzero(distance_mm[row] <= eta_mm)
        others = others[others != row]
        if not len(others):
            continue
        leak = _per_km(_largest_excess(weights, reciprocal, row, others), distance_mm[row, others])
        here = int(leak.argmax())
        if leak[here] > worst:
            worst, pair = float(leak[here]), (row, int(others[here]))
    row, other = pair
    worst = max(worst, 0.0)
    margin = 0.0 if math.isinf(worst) else worst * _RELATIVE_ERROR
    return WorstPair(
        epsilon=worst + margin,
        low=worst - margin,
        row=row,
        other_row=other,
        output=int(((weights[row] - weights[other]) * reciprocal[other]).argmax()),
        distance_km=float(distance_mm[row, other]) / 1e6,
    )


def _largest_excess(weights: Ints, reciprocal: Floats, row: int, others: Positions) -> Floats:
    """Return, for each other row, the largest ratio over outputs minus 1."""
    step = max(1, _BLOCK // weights.shape[1])
    result = np.empty(len(others))
    for start in range(0, len(others), step):
        some = others[start : start + step]
        excess = (weights[row] - weights[some]).astype(np.float64)
        excess *= reciprocal[some]
        excess.max(axis=1, out=result[start : start + step])
    return result


def _per_km(excess: Floats, distance_mm: Ints) -> Floats:
    """Return ln(1 + excess) / distance per kilometre: 0 for equal rows, however near."""
    log_ratio = np.log1p(np.maximum(excess, 0.0))
    log_ratio[excess > _LARGEST_RATIO] = np.inf
    kilometres = distance_mm / 1e6
    # Rows at distance 0 must be equal: any difference is infinitely much for it.
    result: Floats = np.where(log_ratio > 0, np.inf, 0.0)
    np.divide(log_ratio, kilometres, out=result, where=kilometres > 0)
    return result
