"""One step of the primal–dual interior-point method: Mehrotra's predictor and corrector, and Gondzio's corrections.

What ties the blocks of outputs together is left open: rows that sum to 1 (`interior_point`), or a single column with
u·q = 1 (`pricing`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from geoblanket._arrays import Floats
from geoblanket.mechanism.solver.blocks import Block, Centring, StepLimits

__all__ = ["PathFollower", "Pool", "pool"]

_STALLED_STEP = 0.02
_STALLED_STEPS = 5
"""After so many steps in a row, each shorter than `_STALLED_STEP`, floating-point numbers are taken to be spent."""
_CORRECTORS = 3
"""Gondzio's corrections in a step: each may lengthen it, and costs a solution with the same factors."""
_LEAST_CENTRING = 1e-3
"""The barrier shrinks to no less than this share in a step: far from the central path the next steps are short."""
_REFINE_BELOW_GAP = 1e-4
"""Nearer to the optimum Newton's systems are badly conditioned, and their solutions are refined once."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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
        primal, dual = self._lengths(targets, fraction)
        for _ in range(_CORRECTORS):
            if min(primal, dual) > 0.9:
                break
            kept = [block.saved() for block in self.blocks]
            longer = min(1.0, primal + 0.3), min(1.0, dual + 0.3)
            centred = [
                block.centred_targets(aim, *longer, target) for block, aim in zip(self.blocks, targets, strict=True)
            ]
            new_dual_step = self._solve(centred, refinements=refinements)
            new_primal, new_dual = self._lengths(centred, fraction)
            better = new_primal + new_dual - primal - dual
            if better < 0.02:
                for block, state in zip(self.blocks, kept, strict=True):
                    block.restore(state)
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
        self.pairs = sum(block.pair_count for block in self.blocks)
        self.short_steps = self.short_steps + 1 if max(primal, dual) < _STALLED_STEP else 0
        self._after_step(primal)

    def _each(self, function: Callable[[Block], Result]) -> list[Result]:
        return list(self.threads.each(function, self.blocks))

    def _lengths(self, targets: Sequence[Floats], fraction: float) -> tuple[float, float]:
        numbers = range(len(self.blocks))
        limits = list(self.threads.each(lambda number: self.blocks[number].limits(targets[number]), numbers))
        return _step_lengths(limits, fraction)

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
