"""Whether outputs that were left out could lower the loss: a proven bound for each.

Given the rows' multipliers λ, an output with cost w is worth adding only if t = min {(w − λ)·q : q ∈ C, u·q = 1} is
negative, with any weights u > 0 on rows. Leaving out outputs with t ≥ −δ costs at most δ·Σu (see `bounds`). Most
outputs are settled by `push`, which looks for multipliers by passing surplus to deficits between near rows, all
outputs at once; the others by the interior-point method with a single column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket.mechanism.blocks import Block
from geoblanket.mechanism.cone import EXPONENT_CAP, Cone, Floats, Ints

__all__ = ["Price", "price", "push"]

_ROUNDING = 2.0**-53
_MOST_RANKS = 100
_MOST_ITERATIONS = 40
_FRACTION = 0.95
_CORRECTORS = 2


@dataclass(frozen=True)
class Price:
    """What is known of t for one output: proven to be at least `below`; some column in the cone reaches `above`."""

    below: float
    above: float


def push(cone: Cone, reduced: Floats, weight: Floats, target: float, *, original_rows: int) -> Floats:
    """Return proven lower bounds on t for many outputs, sharp only where t ≥ target is easy to see.

    Each row in deficit, e_i = (w − λ − target·u)_i < 0, takes multipliers y on pairs (i, j) with rows j that have a
    surplus, nearest first: e_i grows by y and e_j shrinks by a_ij·y, never below 0. Rows never change sign but to 0 and
    never grow in size, so that each of the at most 2 changes per rank rounds by at most 2^-53 of the first |e|, and the
    sums over the rows that take from one by at most `rows` times that; twice the total is taken off as a margin.

    Parameters
    ----------
    cone
        The rows' cone.
    reduced
        w − λ for each output, shape (outputs, rows).
    weight
        u > 0, shape (rows,).
    target
        The value to prove.
    original_rows
        How many rows there were before merging.
    """
    excess = reduced - target * weight
    ranks = min(_MOST_RANKS, cone.size - 1)
    margin = (
        (4 * ranks + 2 * cone.size + 2 * original_rows + 512) * 2 * _ROUNDING * (np.abs(reduced) + abs(target) * weight)
    )
    open_outputs = np.flatnonzero((excess < 0).any(axis=1))
    working = excess[open_outputs]
    rows = np.arange(cone.size)
    for rank in range(ranks):
        giver = cone.nearest[:, rank]
        exponent = cone.exponent[rows, giver]
        usable = exponent <= EXPONENT_CAP
        # Rounded up: a larger ratio than the true one only weakens the bound.
        ratio = np.exp(np.minimum(exponent, EXPONENT_CAP)) * (1.0 + 1e-13)
        _pass_on(working, rows[usable], giver[usable], ratio[usable])
        if rank % 8 == 7:
            left = (working < 0).any(axis=1)
            excess[open_outputs] = working
            open_outputs, working = open_outputs[left], working[left]
            if not len(open_outputs):
                break
    excess[open_outputs] = working
    below: Floats = target + np.minimum(0.0, ((excess - margin) / weight).min(axis=1))
    return np.nextafter(below, -np.inf)


def _pass_on(excess: Floats, taker: Ints, giver: Ints, ratio: Floats) -> None:
    """Let each taker in deficit take from its giver; givers asked by several share evenly."""
    wanted = np.maximum(-excess[:, taker], 0.0)
    asking = wanted > 0.0
    if not asking.any():
        return
    outputs, rows = excess.shape
    flat = (np.arange(outputs)[:, None] * rows + giver)[asking]
    askers = np.bincount(flat, minlength=excess.size)
    share = np.maximum(excess.ravel(), 0.0) / np.maximum(askers, 1)
    pair_ratio = np.broadcast_to(ratio, asking.shape)[asking]
    taken = np.minimum(wanted[asking], share[flat] / pair_ratio * (1.0 - 1e-13))
    paid = np.bincount(flat, taken * pair_ratio, excess.size).reshape(excess.shape)
    given = np.zeros_like(wanted)
    given[asking] = taken
    excess -= paid
    excess[:, taker] += given


def price(cone: Cone, reduced: Floats, weight: Floats, target: float, *, original_rows: int) -> Price:
    """Bound t for one output, until it is proven to be at least `target` or seen to be less.

    Parameters
    ----------
    cone, weight, target, original_rows
        As for `push`.
    reduced
        w − λ of the output, shape (rows,).
    """
    scale = float(np.exp2(-np.floor(np.log2(max(np.abs(reduced).mean(), 1e-250)))))
    search = _Column(cone, reduced * scale, weight, original_rows)
    target = target * scale
    below, above = -np.inf, np.inf
    for _ in range(_MOST_ITERATIONS):
        dual_slack = search.block.dual_slack()[0]
        below = max(below, float((dual_slack / weight).min()))
        above = search.value()
        if below < target <= above:
            left = dual_slack[None] - target * weight
            if (left > -0.05 * np.abs(search.block.cost)).all():
                below = max(below, search.push(target))
        if below >= target or above < target:
            break
        try:
            search.advance()
        except np.linalg.LinAlgError:
            break
    return Price(float(np.nextafter(below, -np.inf)) / scale, above / scale)


class _Column:
    """The interior-point method for one column in the cone with u·q = 1."""

    def __init__(self, cone: Cone, reduced: Floats, weight: Floats, original_rows: int) -> None:
        self.weight = weight
        self.original_rows = original_rows
        start = np.full((1, cone.size), 1.0 / weight.sum())
        self.block = Block(cone, reduced[None], start, original_rows=original_rows)
        self.barrier = 10.0 * float(np.abs(reduced * start).sum()) / self.block.pair_count
        self.block.start(self.barrier)
        self.dual = float((self.block.dual_slack() / weight).min())

    def value(self) -> float:
        return float(np.vdot(self.block.cost, self.block.columns) / (self.block.columns[0] @ self.weight))

    def push(self, target: float) -> float:
        """Mend the deficits that are left after the multipliers so far."""
        slack = self.block.dual_slack()
        return float(push(self.block.cone, slack, self.weight, target, original_rows=self.original_rows)[0])

    def advance(self) -> None:
        block = self.block
        block.factorise(with_inverse=False)
        response = block.response_to(self.weight)
        missing = 1.0 - float(block.columns[0] @ self.weight)
        self._solve(None, response, missing)
        limits, centring = block.predictor()
        primal, dual = min(1.0, 1.0 / max(limits.primal, 1e-30)), min(1.0, 1.0 / max(limits.dual, 1e-30))
        after = centring.now + primal * centring.primal + dual * centring.dual + primal * dual * centring.both
        self.barrier = centring.now / block.pair_count
        target = float(np.clip((after / centring.now) ** 3, 1e-3, 1.0)) * self.barrier
        targets = block.mehrotra_targets(target, self.barrier)
        dual_step = self._solve(targets, response, missing)
        primal, dual = self._lengths(targets)
        for _ in range(_CORRECTORS):
            if min(primal, dual) > 0.9:
                break
            kept = block.step, block.dual_change
            centred = block.centred_targets(targets, min(1.0, primal + 0.3), min(1.0, dual + 0.3), target)
            new_dual_step = self._solve(centred, response, missing)
            new_primal, new_dual = self._lengths(centred)
            better = new_primal + new_dual - primal - dual
            if better < 0.02:
                block.step, block.dual_change = kept
                break
            targets, dual_step, primal, dual = centred, new_dual_step, new_primal, new_dual
            if better < 0.1:
                break
        primal = min(primal, _FRACTION / max(block.find_tight(primal), 1e-30))
        self.barrier = max(target, (1.0 - min(primal, dual)) * self.barrier)
        block.advance(primal, dual, self.barrier)
        self.dual += dual * dual_step

    def _solve(self, targets: Floats | None, response: Floats, missing: float) -> float:
        total = self.block.solve(self.dual * self.weight, targets)
        dual_step = (missing - float(total @ self.weight)) / float(response @ self.weight)
        self.block.step += dual_step * response
        return dual_step

    def _lengths(self, targets: Floats) -> tuple[float, float]:
        limits = self.block.limits(targets)
        return min(1.0, _FRACTION / max(limits.primal, 1e-30)), min(1.0, _FRACTION / max(limits.dual, 1e-30))
