"""A primal–dual interior-point method for columns in a cone, tied together only by the rows' sums.

For each output k Newton's matrix is H_k = Gᵀ diag(y/g) G, rows × rows; eliminating the columns leaves one system for
the rows' multipliers λ, (Σ_k H_k⁻¹) dλ = (1 − Σ_k q_k) − Σ_k H_k⁻¹ b_k. An iteration costs one Cholesky factor and one
inverse per output, however many pairs are constrained. Every iterate lies strictly inside the cone for *all* pairs,
so the search can stop at any time with a private mechanism, and its multipliers give a proven bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from geoblanket import _lapack
from geoblanket._arrays import Bools, Floats
from geoblanket.mechanism.solver.blocks import Block
from geoblanket.mechanism.solver.bounds import sum_below
from geoblanket.mechanism.solver.cone import Cone
from geoblanket.mechanism.solver.newton import PathFollower, Pool

__all__ = ["Iterate", "Search", "Stop", "power_of_two"]

_NUMBERS_PER_BLOCK = 4096
"""Outputs × rows that a thread works on at a time: smaller blocks cost more calls, larger ones leave cores idle."""
_MOST_ITERATIONS = 100
"""An end for a search that neither reaches its gap nor stalls."""


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


class Search(PathFollower):
    """Minimises Σ w·q over columns in the cone whose rows sum to 1; can be resumed.

    Parameters
    ----------
    cone
        At least two rows, each constrained with at least one other.
    cost
        w ≥ 0, shape (outputs, rows).
    threads
        See `newton.pool`.
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

    def _begin(self, blocks: list[Block], threads: Pool, barrier: float) -> None:
        pairs = sum(block.pair_count for block in blocks)
        loss = sum(float(np.vdot(block.cost, block.columns)) for block in blocks)
        super().__init__(blocks, threads, barrier * max(loss, 1e-300) / pairs)
        self.best_bound, self.best_duals = -np.inf, np.zeros_like(self.duals)
        self.spare = np.zeros(blocks[0].rows)
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
            try:
                self.advance(iterate.gap)
            except np.linalg.LinAlgError:
                # As far as floating-point numbers go: the iterate is still private and its bound still holds.
                self.give_up()
        return self.iterate()

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
        self.response = np.zeros((size, size))
        for part in self.threads.each(lambda block: block.factorise(), self.blocks):
            self.response += part
        self.response.flat[:: size + 1] *= 1.0 + 1e-14
        if not _lapack.factor(self.response):
            raise np.linalg.LinAlgError("The system of the rows' multipliers is not positive definite.")
        self.missing = 1.0 - np.sum([block.unknowns.sum(axis=0) for block in self.blocks], axis=0)

    def _solve(self, targets: Sequence[Floats] | None, *, refinements: int) -> Floats:
        wanted = [None] * len(self.blocks) if targets is None else targets
        numbers = range(len(self.blocks))
        total = np.sum(list(self.threads.each(lambda n: self.blocks[n].solve(self.duals, wanted[n]), numbers)), axis=0)
        dual_step = np.zeros_like(self.duals)
        for _ in range(1 + refinements):
            change = self.missing - total
            _lapack.solve(self.response, change)
            dual_step += change
            total = np.sum(self._each(lambda block: block.respond(change)), axis=0)  # noqa: B023 (used at once)
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
