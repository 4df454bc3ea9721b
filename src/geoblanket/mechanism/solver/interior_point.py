"""A primal–dual interior-point method for columns in a cone, tied together only by the rows' sums.

For each output k Newton's matrix is H_k = Gᵀ diag(y/g) G, rows × rows; eliminating the columns leaves one system for
the rows' multipliers λ, (Σ_k H_k⁻¹) dλ = (1 − Σ_k q_k) − Σ_k H_k⁻¹ b_k. An iteration costs one Cholesky factor and one
inverse per output, however many pairs are constrained. Every iterate lies strictly inside the cone for *all* pairs,
so the search can stop at any time with a private mechanism, and its multipliers give a proven bound.

Large matrices are inverted in float32 until the gap is small. That changes steps, never proofs: slacks, multipliers and
bounds are float64, and each solution is refined until the rows' sums are kept.

A step is Mehrotra's predictor and corrector, with Gondzio's corrections. `PathFollower` leaves open what ties the
blocks of outputs together: rows that sum to 1 (`Search`), or a single column with u·q = 1 (`pricing`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from geoblanket._arrays import Bools, Floats
from geoblanket.mechanism.solver import lapack
from geoblanket.mechanism.solver.blocks import Block, Centring, ImpreciseError, StepLimits
from geoblanket.mechanism.solver.linear_program import Cone, sum_below

_STALLED_STEP = 0.02
_STALLED_STEPS = 5
"""After so many steps in a row, each shorter than `_STALLED_STEP`, floating-point numbers are taken to be spent."""
_CORRECTORS = 3
"""Gondzio's corrections in a step: each may lengthen it, and costs a solution with the same factors."""
_LEAST_CENTRING = 1e-3
"""The barrier shrinks to no less than this share in a step: far from the central path the next steps are short."""
_REFINE_BELOW_GAP = 1e-4
"""Nearer to the optimum Newton's systems are badly conditioned, and their solutions are refined once."""

_SINGLE_ROWS = 600
"""With fewer rows, float32 saves less than refining its solutions costs."""
_SINGLE_ABOVE_GAP = 2e-3
"""Nearer to the optimum Newton's systems need all digits of float64."""
_MOST_REFINEMENTS = 8
_ROWS_SUM_WITHIN = 1e-7
"""With float32 factors, steps are refined until rows sum to 1 so nearly: what is missing, the next step corrects."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_NUMBERS_PER_BLOCK = 4096
"""Outputs × rows that a thread works on at a time: smaller blocks cost more calls, larger ones leave cores idle."""
_MOST_ITERATIONS = 100
"""An end for a search that neither reaches its gap nor stalls."""


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


class PathFollower(ABC):
    """Blocks on their way to the optimum, near the central path where g·y is the same for all pairs.

    Parameters
    ----------
    blocks
        The outputs, strictly inside the cone.
    threads
        See `pool`.
    barrier
        g·y at the start.
    """

    def __init__(self, blocks: list[Block], threads: Pool, barrier: float) -> None:
        self.blocks, self.threads, self.barrier = blocks, threads, barrier
        self.pairs = sum(block.pair_count for block in blocks)
        self.short_steps = 0
        self.duals: Floats = np.zeros(blocks[0].unknowns.shape[1])
        self._each(lambda block: block.start(barrier))

    @property
    def stalled(self) -> bool:
        """Whether no more progress can be made."""
        return self.short_steps >= _STALLED_STEPS

    @abstractmethod
    def _factorise(self) -> None:
        """Factor Newton's matrices."""

    @abstractmethod
    def _solve(self, targets: Sequence[Floats] | None, *, refinements: int) -> Floats:
        """Set every block's step for targets of g·y (None: 0); return the step of the duals."""

    @abstractmethod
    def _after_step(self, primal: float) -> None:
        """Bring what depends on the blocks up to date after a step of this length."""

    def give_up(self) -> None:
        """Remember that floating-point numbers do not carry any further."""
        self.short_steps = _STALLED_STEPS

    def advance(self, gap: float) -> None:
        """Take one predictor–corrector step, with up to three corrections towards the central path."""
        fraction = min(0.995, max(0.9, 1.0 - gap))
        self._factorise()
        self._solve(None, refinements=0)
        refinements = 1 if gap < _REFINE_BELOW_GAP else 0
        judged = self._each(lambda block: block.predictor())
        target = self._target(judged)
        targets = [block.mehrotra_targets(target, self.barrier) for block in self.blocks]
        dual_step = self._solve(targets, refinements=refinements)
        primal, duals = self._lengths(targets, fraction)
        for _ in range(_CORRECTORS):
            dual = min(duals)
            if min(primal, dual) > 0.9:
                break
            kept = [block.saved() for block in self.blocks]
            longer = min(1.0, primal + 0.3), min(1.0, dual + 0.3)
            centred = [
                block.centred_targets(aim, *longer, target) for block, aim in zip(self.blocks, targets, strict=True)
            ]
            new_dual_step = self._solve(centred, refinements=refinements)
            new_primal, new_duals = self._lengths(centred, fraction)
            better = new_primal + min(new_duals) - primal - dual
            if better < 0.02:
                for block, state in zip(self.blocks, kept, strict=True):
                    block.restore(state)
                break
            targets, dual_step, primal, duals = centred, new_dual_step, new_primal, new_duals
            if better < 0.1:
                break
        self._take(primal, duals, dual_step, fraction, target)

    def _take(self, primal: float, duals: Sequence[float], dual_step: Floats, fraction: float, target: float) -> None:
        if not np.isfinite(dual_step).all() or not all(np.isfinite(block.step).all() for block in self.blocks):
            raise np.linalg.LinAlgError("A step is not finite.")
        decrease = max(self._each(lambda block: block.find_tight(primal)))
        primal = min(primal, fraction / max(decrease, 1e-30))
        dual = min(duals)
        self.barrier = max(target, (1.0 - min(primal, dual)) * self.barrier)
        # Only λ ties the multipliers of the blocks together: each goes as far as it can.
        numbers = range(len(self.blocks))
        list(self.threads.each(lambda n: self.blocks[n].advance(primal, duals[n], self.barrier), numbers))
        self.duals = self.duals + dual * dual_step
        self.pairs = sum(block.pair_count for block in self.blocks)
        self.short_steps = self.short_steps + 1 if max(primal, dual) < _STALLED_STEP else 0
        self._after_step(primal)

    def _each(self, function: Callable[[Block], Result]) -> list[Result]:
        return list(self.threads.each(function, self.blocks))

    def _lengths(self, targets: Sequence[Floats], fraction: float) -> tuple[float, list[float]]:
        """Return the length of the primal step, and that of each block's dual step."""
        numbers = range(len(self.blocks))
        limits = list(self.threads.each(lambda number: self.blocks[number].limits(targets[number]), numbers))
        return _step_lengths(limits, fraction)[0], [_step_lengths([limit], fraction)[1] for limit in limits]

    def _target(self, judged: Sequence[tuple[StepLimits, Centring]]) -> float:
        """Return the barrier to aim at: small where the predictor comes far (Mehrotra's rule)."""
        primal, dual = _step_lengths([limits for limits, _ in judged], 1.0)
        now = sum(part.now for _, part in judged)
        after = now + sum(primal * part.primal + dual * part.dual + primal * dual * part.both for _, part in judged)
        self.barrier = now / self.pairs
        return float(np.clip((after / now) ** 3, _LEAST_CENTRING, 1.0)) * self.barrier


def _step_lengths(limits: Sequence[StepLimits], fraction: float) -> tuple[float, float]:
    """Return the longest primal and dual steps that leave the share 1 − `fraction` of every slack and multiplier."""
    primal = max(1e-30, *(limit.primal for limit in limits))
    dual = max(1e-30, *(limit.dual for limit in limits))
    return min(1.0, fraction / primal), min(1.0, fraction / dual)


@dataclass(frozen=True, eq=False)
class Iterate:
    """A private mechanism and a bound.

    Parameters
    ----------
    columns
        Probabilities, shape (outputs, rows), strictly inside the cone; rows sum to 1 to rounding (with float32
        steps, to 1e-7).
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


class Search(PathFollower):
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
    ) -> None:
        if columns is None:
            columns = np.full(cost.shape, 1.0 / len(cost))
        self.scale = power_of_two(cost)
        self._begin(_make_blocks(cone, cost * self.scale, columns, active), threads, barrier)
        self.single = cone.size >= _SINGLE_ROWS

    def _begin(self, blocks: list[Block], threads: Pool, barrier: float) -> None:
        pairs = sum(block.pair_count for block in blocks)
        loss = sum(float(np.vdot(block.cost, block.columns)) for block in blocks)
        super().__init__(blocks, threads, barrier * max(loss, 1e-300) / pairs)
        self.best_bound, self.best_duals = -np.inf, np.zeros_like(self.duals)
        self.spare = np.zeros(blocks[0].rows)
        self.single, self.steps = False, 0
        self.duals = self._update_bound()

    def run(self, *, gap: float, stop: Stop | None = None) -> Iterate:
        """Search on until (loss − bound) / loss ≤ gap, or `stop` says so, or no more progress is made.

        Returns
        -------
        The last iterate, with the best bound.
        """
        for _ in range(_MOST_ITERATIONS):
            iterate = self.iterate()
            if iterate.gap <= gap or (stop is not None and stop(iterate)) or self.stalled:
                break
            self.steps += 1
            self._use_single(self.single and iterate.gap > _SINGLE_ABOVE_GAP)
            try:
                self.advance(iterate.gap)
            except ImpreciseError:
                self._use_single(False)
            except np.linalg.LinAlgError:
                # As far as floating-point numbers go: the iterate is still private and its bound still holds.
                self.give_up()
        return self.iterate()

    def _use_single(self, single: bool) -> None:
        self.single = single
        for block in self.blocks:
            block.single = single

    @property
    def active(self) -> list[Bools]:
        """The active pairs of each output, for a later start from here."""
        return [pairs for block in self.blocks for pairs in block.active]

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
            stays = kept[first : first + block.outputs]
            self.spare = self.spare + block.columns[~stays].sum(axis=0)
            if stays.any():
                blocks.append(block.restricted(stays))
            first += block.outputs
        self.blocks = blocks
        self.pairs = sum(block.pair_count for block in blocks)
        self.best_bound = -np.inf
        self._update_bound()

    def _after_step(self, primal: float) -> None:
        self.spare = (1.0 - primal) * self.spare
        self._update_bound()

    def _update_bound(self) -> Floats:
        duals: Floats = np.min([low.min(axis=0) for low in self._each(lambda block: block.dual_slack())], axis=0)
        bound = sum_below(duals)
        if bound > self.best_bound:
            self.best_bound, self.best_duals = bound, duals
        return duals

    def _factorise(self) -> None:
        size = len(self.duals)
        self.response: Floats = np.zeros((size, size))
        for part in self.threads.each(lambda block: block.factorise(), self.blocks):
            self.response += part
        self.response.flat[:: size + 1] *= 1.0 + 1e-14
        if not lapack.factor(self.response):
            raise np.linalg.LinAlgError("The system of the rows' multipliers is not positive definite.")
        self.missing = 1.0 - np.sum([block.unknowns.sum(axis=0) for block in self.blocks], axis=0)

    def _solve(self, targets: Sequence[Floats] | None, *, refinements: int) -> Floats:
        wanted = [None] * len(self.blocks) if targets is None else targets
        numbers = range(len(self.blocks))
        total = np.sum(list(self.threads.each(lambda n: self.blocks[n].solve(self.duals, wanted[n]), numbers)), axis=0)
        dual_step = np.zeros_like(self.duals)
        for number in range(_MOST_REFINEMENTS if self.single else 1 + refinements):
            change = self.missing - total
            if self.single and number and np.abs(change).max() < _ROWS_SUM_WITHIN:
                break
            lapack.solve(self.response, change)
            dual_step += change
            total = np.sum(self._each(lambda block: block.respond(change)), axis=0)  # noqa: B023 (used at once)
        else:
            if self.single and np.abs(self.missing - total).max() > _ROWS_SUM_WITHIN:
                raise ImpreciseError("The rows' sums cannot be kept in float32.")
        return dual_step


def power_of_two(cost: Floats) -> float:
    """Return a factor that brings costs to about 1; a power of two costs no rounding error, so bounds stay exact."""
    return float(np.exp2(-np.floor(np.log2(max(float(np.abs(cost).mean()), 1e-250)))))


def _make_blocks(cone: Cone, cost: Floats, columns: Floats, active: Sequence[Bools | None] | None) -> list[Block]:
    per_block = max(1, _NUMBERS_PER_BLOCK // cone.size)
    blocks = []
    for first in range(0, len(cost), per_block):
        part = slice(first, first + per_block)
        pairs = None
        if active is not None:
            pairs = np.array([cone.starting_pairs if given is None else given for given in active[part]])
        blocks.append(Block(cone, cost[part], columns[part].copy(), active=pairs))
    return blocks
