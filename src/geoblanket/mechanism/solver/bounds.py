"""Lower bounds on the optimum that hold in spite of rounding.

The linear program is: minimise Σ_k w_k·q_k over columns q_k ∈ C with Σ_k q_k = 1 in each row. For any λ, any
multipliers y_k ≥ 0 on constrained pairs and any weights u > 0 on rows, with (Gq)_p = a_p q_j − q_i for the pair
p = (i, j), let s_k = w_k − Gᵀy_k, the *slack* of output k. Every feasible mechanism has

    Σ_k w_k·q_k = Σ_k (s_k + Gᵀy_k)·q_k ≥ Σ_k s_k·q_k = Σλ + Σ_k (s_k − λ)·q_k
                ≥ Σλ + (Σu)·min_{k,i} (s_k − λ)_i / u_i,

because Gq_k ≥ 0, q_k ≥ 0, Σ_k q_k = 1 and Σ_k u·q_k = Σu. So a bound needs no optimal multipliers, only honest
slacks: `slack_below` never returns more than the true value.

Rounding. Let ρ = 2^-53. Floating-point sums of n non-negative terms in any order err by at most (n − 1)ρ/(1 − nρ) of
the sum. P_i = Σ a_p y_p (pairs with j = i) and N_i = Σ y_p (pairs with that row as their i) have at most n < rows terms
each. The ratio a is computed from the exponent x ≤ 44, which itself carries at most 4 roundings: relative error at
most 4·44ρ, plus 4 units in the last place for exp, plus one for the product with y. The cost w is a product of two
floats, or a sum of m such: m roundings, m ≤ rows merged. The three additions w − P + N err by ρ of a partial result
each, all at most |w| + P + N (λ is subtracted from the result by the caller, who rounds down again). Altogether the
error is at most (n + m + 200)ρ·(|w| + P + N); we take off (2·rows + 256)·2ρ·(|w| + P + N), more than twice that.
Underflow costs at most 2^-1074 per term, covered by 1e-290.
"""

from __future__ import annotations

import math

import numpy as np

from geoblanket._arrays import Floats

__all__ = ["slack_below", "sum_below", "with_slack"]

_ROUNDING = 2.0**-53
_TINY = 1e-290


def slack_below(cost: Floats, gained: Floats, given: Floats, *, rows: int) -> Floats:
    """Return w − P + N rounded down far enough to be at most its true value.

    Parameters
    ----------
    cost, gained, given
        w, P = Σ a_p y_p and N = Σ y_p, as computed, of one shape.
    rows
        How many rows the original problem has (before merging).
    """
    margin = (2 * rows + 256) * 2 * _ROUNDING
    below: Floats = (cost - gained + given) - (margin * (np.abs(cost) + gained + given) + _TINY)
    return below


def sum_below(values: Floats) -> float:
    """Return the sum, rounded down."""
    return math.nextafter(math.fsum(values.ravel().tolist()), -math.inf)


def with_slack(duals: Floats, worst: float, weight: Floats) -> float:
    """Return Σλ + (Σu)·worst, rounded down; `worst` is at most the true min (s_k − λ)_i / u_i over all outputs k."""
    side = -math.inf if worst >= 0.0 else math.inf
    mass = math.nextafter(math.fsum(weight.tolist()), side)
    return math.nextafter(sum_below(duals) + math.nextafter(mass * worst, -math.inf), -math.inf)
