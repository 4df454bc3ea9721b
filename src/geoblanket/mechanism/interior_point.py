"""A primal–dual interior-point method for columns in a cone, tied together only by the rows' sums.

For each output k Newton's matrix is H_k = Gᵀ diag(y/g) G, rows × rows; eliminating the columns leaves one system for
the rows' multipliers λ, (Σ_k H_k⁻¹) dλ = (1 − Σ_k q_k) − Σ_k H_k⁻¹ b_k. An iteration costs one Cholesky factor and one
inverse per output, however many pairs are constrained. Every iterate lies strictly inside the cone for *all* pairs,
so the search can stop at any time with a private mechanism, and its multipliers give a proven bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from geoblanket import _lapack
from geoblanket.mechanism.blocks import Block, Centring, StepLimits
from geoblanket.mechanism.bounds import sum_below
from geoblanket.mechanism.cone import Bools, Cone, Floats

__all__ = ["Iterate", "Pool", "Search", "Stop", "pool"]

_NUMBERS_PER_BLOCK = 4096
_MOST_ITERATIONS = 100
_STALLED_STEP = 0.02
_STALLED_ITERATIONS = 5
_CORRECTORS = 3
_LEAST_CENTRING = 1e-3
_REFINE_BELOW_GAP = 1e-4

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Iterate:
    """A private mechanism and a bound.

    Parameters
    ----------
    columns
        Probabilities, shape (outputs, rows), strictly inside the cone; rows sum to 1 to rounding.
    loss
        Σ w·q.
    duals
        λ, shape (rows,): for each of these outputs λ ≤ w − Gᵀy in exact arithmetic.
    bound
        Σλ, rounded down: no mechanism with these outputs has a smaller loss.
    """

    columns: Floats
    loss: float
    duals: Floats
    bound: float

    @property
    def gap(self) -> float:
        """(loss − bound) / loss."""
        return (self.loss - self.bound) / max(self.loss, 1e-300)


Stop = Callable[[Iterate], bool]
"""Told of each iterate; returns True to end the search there."""


class Pool:
    """Threads for independent work; results come in the order of the items, however many threads there are."""

    def __init__(self, executor: ThreadPoolExecutor | None) -> None:
        self._executor = executor

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield `function(item)` for each item."""
        if self._executor is None or len(items) == 1:
            return map(function, items)
        return self._executor.map(function, items)


@contextmanager
def pool() -> Iterator[Pool]:
    """Make threads for the cores of this machine, and keep BLAS from making its own beside them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with threadpool_limits(limits=1, user_api="blas"):
        if cores == 1:
            yield Pool(None)
            return
        executor = ThreadPoolExecutor(cores)
        try:
            yield Pool(executor)
        finally:
            executor.shutdown(cancel_futures=True)


class Search:
    """Minimises Σ w·q over columns in the cone whose rows sum to 1; can be resumed.

    Parameters
    ----------
    cone
        At least two rows, each constrained with at least one other.
    cost
        w ≥ 0, shape (outputs, rows).
    threads
        See `pool`.
    columns
        A start strictly inside the cone with rows that sum to 1; None: every output equally likely.
    active
        Active pairs to start with for each output (None for the near neighbours).
    barrier
        The starting barrier, in multiples of the loss per pair.
    original_rows
        How many rows there were before merging (for error margins); None: as many as now.
    """

    def __init__(
        self,
        cone: Cone,
        cost: Floats,
        *,
        threads: Pool,
        columns: Floats | None = None,
        active: Sequence[Bools | None] | None = None,
        barrier: float = 10.0,
        original_rows: int | None = None,
    ) -> None:
        outputs, self.rows = cost.shape
        if columns is None:
            columns = np.full((outputs, self.rows), 1.0 / outputs)
        # A power of two: scaling costs no rounding error, and bounds stay exact.
        self.scale = float(np.exp2(-np.floor(np.log2(max(np.abs(cost).mean(), 1e-250)))))
        self.blocks = _make_blocks(cone, cost * self.scale, columns, active, original_rows or self.rows)
        self.threads = threads
        self.best_bound, self.best_duals = -np.inf, np.zeros(self.rows)
        self.short_steps = 0
        self.spare = np.zeros(self.rows)
        self.pairs = sum(block.pair_count for block in self.blocks)
        self.barrier = barrier * max(self.scale * float(np.vdot(cost, columns)), 1e-300) / self.pairs
        self._each(lambda block: block.start(self.barrier))
        self.duals = self._update_bound()

    def run(self, *, gap: float, stop: Stop | None = None) -> Iterate:
        """Search on until (loss − bound) / loss ≤ gap, or `stop` says so, or no more progress is made.

        Returns
        -------
        The last iterate, with the best bound.
        """
        for _ in range(_MOST_ITERATIONS):
            iterate = self.iterate()
            if iterate.gap <= gap or (stop is not None and stop(iterate)) or self.short_steps >= _STALLED_ITERATIONS:
                break
            try:
                self._advance(iterate.gap)
            except np.linalg.LinAlgError:
                # As far as floating-point numbers go: the iterate is still private and its bound still holds.
                self.short_steps = _STALLED_ITERATIONS
        return self.iterate()

    @property
    def stalled(self) -> bool:
        """Whether no more progress can be made."""
        return self.short_steps >= _STALLED_ITERATIONS

    @property
    def active(self) -> list[Bools]:
        """The active pairs of each output, for a later start from here."""
        return [own for block in self.blocks for own in block.active]

    def iterate(self) -> Iterate:
        """Return the mechanism now, and the best bound."""
        columns = np.concatenate([block.columns for block in self.blocks])
        cost = np.concatenate([block.cost for block in self.blocks])
        columns[(cost @ self.spare).argmin()] += self.spare
        loss = float(np.vdot(cost, columns))
        return Iterate(columns, loss / self.scale, self.best_duals / self.scale, self.best_bound / self.scale)

    def drop(self, kept: Bools) -> None:
        """Leave outputs out, and let the sum of their columns shrink to nothing over the next steps.

        Bounds from here on are for the outputs that stay. As the cone is closed under sums, what is left of the dropped
        columns can be added to any other: `iterate` does so, and stays private.
        """
        first = 0
        blocks = []
        for block in self.blocks:
            own = kept[first : first + block.outputs]
            self.spare = self.spare + block.columns[~own].sum(axis=0)
            if own.any():
                blocks.append(block.restricted(own))
            first += block.outputs
        self.blocks = blocks
        self.pairs = sum(block.pair_count for block in blocks)
        self.best_bound = -np.inf
        self._update_bound()

    def _advance(self, gap: float) -> None:
        """Take one predictor–corrector step, with up to three corrections towards the central path."""
        fraction = min(0.995, max(0.9, 1.0 - gap))
        self._factorise()
        self._solve(None, refinements=0)
        refinements = 1 if gap < _REFINE_BELOW_GAP else 0
        judged = self._each(Block.predictor)
        target = self._target(judged)
        targets = [block.mehrotra_targets(target, self.barrier) for block in self.blocks]
        dual_step = self._solve(targets, refinements=refinements)
        primal, dual = self._lengths(targets, fraction)
        for _ in range(_CORRECTORS):
            if min(primal, dual) > 0.9:
                break
            kept = [(block.step, block.dual_change) for block in self.blocks]
            longer = min(1.0, primal + 0.3), min(1.0, dual + 0.3)
            centred = [
                block.centred_targets(own, *longer, target) for block, own in zip(self.blocks, targets, strict=True)
            ]
            new_dual_step = self._solve(centred, refinements=refinements)
            new_primal, new_dual = self._lengths(centred, fraction)
            better = new_primal + new_dual - primal - dual
            if better < 0.02:
                for block, (step, change) in zip(self.blocks, kept, strict=True):
                    block.step, block.dual_change = step, change
                break
            targets, dual_step, primal, dual = centred, new_dual_step, new_primal, new_dual
            if better < 0.1:
                break
        self._take(primal, dual, dual_step, fraction, target)

    def _take(self, primal: float, dual: float, dual_step: Floats, fraction: float, target: float) -> None:
        if not np.isfinite(dual_step).all() or not all(np.isfinite(block.step).all() for block in self.blocks):
            raise np.linalg.LinAlgError("A step is not finite.")
        decrease = max(self._each(lambda block: block.find_tight(primal)))
        primal = min(primal, fraction / max(decrease, 1e-30))
        self.barrier = max(target, (1.0 - min(primal, dual)) * self.barrier)
        self._each(lambda block: block.advance(primal, dual, self.barrier))
        self.duals = self.duals + dual * dual_step
        self.spare = (1.0 - primal) * self.spare
        self.pairs = sum(block.pair_count for block in self.blocks)
        self.short_steps = self.short_steps + 1 if max(primal, dual) < _STALLED_STEP else 0
        self._update_bound()

    def _each(self, function: Callable[[Block], Result]) -> list[Result]:
        return list(self.threads.each(function, self.blocks))

    def _update_bound(self) -> Floats:
        duals: Floats = np.min([low.min(axis=0) for low in self._each(Block.dual_slack)], axis=0)
        bound = sum_below(duals)
        if bound > self.best_bound:
            self.best_bound, self.best_duals = bound, duals
        return duals

    def _factorise(self) -> None:
        self.response = np.zeros((self.rows, self.rows))
        for part in self.threads.each(Block.factorise, self.blocks):
            self.response += part
        self.response.flat[:: self.rows + 1] *= 1.0 + 1e-14
        if not _lapack.factor(self.response):
            raise np.linalg.LinAlgError("The system of the rows' multipliers is not positive definite.")
        self.missing = 1.0 - np.sum([block.columns.sum(axis=0) for block in self.blocks], axis=0)

    def _solve(self, targets: Sequence[Floats] | None, *, refinements: int) -> Floats:
        """Set every block's step for these targets; return the step of the rows' multipliers."""
        wanted = [None] * len(self.blocks) if targets is None else targets
        numbers = range(len(self.blocks))
        total = np.sum(list(self.threads.each(lambda n: self.blocks[n].solve(self.duals, wanted[n]), numbers)), axis=0)
        dual_step = np.zeros(self.rows)
        for _ in range(1 + refinements):
            change = self.missing - total
            _lapack.solve(self.response, change)
            dual_step += change
            total = np.sum(self._each(lambda block: block.respond(change)), axis=0)  # noqa: B023 (used at once)
        return dual_step

    def _lengths(self, targets: Sequence[Floats], fraction: float) -> tuple[float, float]:
        numbers = range(len(self.blocks))
        limits = list(self.threads.each(lambda number: self.blocks[number].limits(targets[number]), numbers))
        return _length([one.primal for one in limits], fraction), _length([one.dual for one in limits], fraction)

    def _target(self, judged: Sequence[tuple[StepLimits, Centring]]) -> float:
        """Return the barrier to aim at: small where the predictor comes far (Mehrotra's rule)."""
        primal, dual = _length([one.primal for one, _ in judged], 1.0), _length([one.dual for one, _ in judged], 1.0)
        now = sum(one.now for _, one in judged)
        after = now + sum(primal * one.primal + dual * one.dual + primal * dual * one.both for _, one in judged)
        self.barrier = now / self.pairs
        return float(np.clip((after / now) ** 3, _LEAST_CENTRING, 1.0)) * self.barrier


def _length(decreases: Sequence[float], fraction: float) -> float:
    """Return the longest step after which the share 1 − `fraction` is left of everything."""
    return min(1.0, fraction / max(1e-30, *decreases))


def _make_blocks(
    cone: Cone, cost: Floats, columns: Floats, active: Sequence[Bools | None] | None, original_rows: int
) -> list[Block]:
    outputs, rows = cost.shape
    per_block = max(1, _NUMBERS_PER_BLOCK // rows)
    blocks = []
    for first in range(0, outputs, per_block):
        part = slice(first, min(first + per_block, outputs))
        pairs = None
        if active is not None:
            pairs = np.array([cone.starting_pairs if own is None else own for own in active[part]])
        blocks.append(Block(cone, cost[part], columns[part].copy(), active=pairs, original_rows=original_rows))
    return blocks
