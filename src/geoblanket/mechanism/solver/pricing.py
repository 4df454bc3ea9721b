"""Whether outputs that were left out could lower the loss: a proven bound for each.

Given the rows' multipliers λ, an output with cost w is worth adding only if t = min {(w − λ)·q : q ∈ C, u·q = 1} is
negative, with any weights u > 0 on rows. Leaving out outputs with t ≥ −δ costs at most δ·Σu (see `linear_program`).
Easy cases are settled by `push`, which looks for multipliers by passing surplus to deficits between near rows, all
outputs at once; the others by the interior-point method with a single column.

A band makes that cheaper. In the order of reverse Cuthill–McKee, near rows have near numbers. With no pairs but those
inside a band, Newton's matrix is banded, and its factor costs rows × band² instead of rows³. Fewer constraints make the
cone larger, so a lower bound over it holds for the true cone too; that a column exists in it proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from geoblanket._arrays import Bools, Floats, Positions
from geoblanket.mechanism.solver import lapack
from geoblanket.mechanism.solver.blocks import Block
from geoblanket.mechanism.solver.interior_point import PathFollower, Pool, power_of_two
from geoblanket.mechanism.solver.linear_program import EXPONENT_CAP, Cone

PRICES_AT_ONCE = 16
"""Outputs priced between two reports of progress: enough work for all threads, little enough to stop soon."""
_ROUNDING = 2.0**-53
_MOST_RANKS = 32
"""How many of its nearest rows a row in deficit asks: further ones have little to give, as their ratio is larger."""
_MOST_ITERATIONS = 40
"""Of the interior-point method for one output: a bound that is not settled by then stays as it is, and holds."""
_WORTH_A_BAND = 150
"""With as many rows or fewer, factoring the whole matrix takes little, and no band is tried."""
_MOST_BAND = 0.4
"""Of the rows: a wider band saves too little to be tried first."""
_WIDENING = 3
"""How many times wider the band of the worst outputs is: their bounds limit that of the whole problem."""


@dataclass(frozen=True)
class Price:
    """What is known of t for one output: proven to be at least `below`; some column in the cone reaches `above`."""

    below: float
    above: float


def push(cone: Cone, reduced: Floats, weight: Floats, target: float) -> Floats:
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
    """
    excess = reduced - target * weight
    ranks = min(_MOST_RANKS, cone.size - 1)
    roundings = 4 * ranks + 2 * cone.size + 2 * cone.original_rows + 512
    margin = roundings * 2 * _ROUNDING * (np.abs(reduced) + abs(target) * weight)
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
            in_deficit = (working < 0).any(axis=1)
            excess[open_outputs] = working
            open_outputs, working = open_outputs[in_deficit], working[in_deficit]
            if not len(open_outputs):
                break
    excess[open_outputs] = working
    below: Floats = target + np.minimum(0.0, ((excess - margin) / weight).min(axis=1))
    return np.nextafter(below, -np.inf)


def _pass_on(excess: Floats, taker: Positions, giver: Positions, ratio: Floats) -> None:
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


class Pricer:
    """Bounds t for one output after another.

    Parameters
    ----------
    cone, weight
        As for `push`.
    """

    def __init__(self, cone: Cone, weight: Floats) -> None:
        self.cone, self.weight = cone, weight

    def price(self, reduced: Floats, target: float) -> Price:
        """Bound t until it is proven to be at least `target` or seen to be less.

        Parameters
        ----------
        reduced
            w − λ of the output, shape (rows,).
        target
            The value to prove.
        """
        if self.band is not None:
            relaxed = self._search(reduced, target, np.inf, self.band)
            if relaxed.below >= target:
                return Price(relaxed.below, np.inf)
        return self._search(reduced, target, np.inf, None)

    def price_sharply(self, reduced: Floats, target: float, tolerance: float, *, wide: bool) -> float:
        """Return a lower bound on t that is at least `target`, or else near t.

        Near means within `tolerance` of its value for the pairs in a band alone; the wider band comes nearer and takes
        longer.
        """
        return self._search(reduced, target, tolerance, self.wide_band if wide else self.band).below

    @cached_property
    def band(self) -> _Band | None:
        """The pairs of near rows, unless that would save nothing."""
        return self._usable_band(1)

    @cached_property
    def wide_band(self) -> _Band | None:
        """A wider band, unless it saves nothing."""
        return self._usable_band(_WIDENING)

    def _usable_band(self, widening: int) -> _Band | None:
        if self.cone.size <= _WORTH_A_BAND:
            return None
        band = _Band(self.cone, widening=widening)
        return band if band.width < _MOST_BAND * self.cone.size else None

    def _search(self, reduced: Floats, target: float, tolerance: float, band: _Band | None) -> Price:
        scale = power_of_two(reduced)
        start = np.full((1, self.cone.size), 1.0 / self.weight.sum())
        cost = reduced[None] * scale
        if band is None:
            search = _Column(Block(self.cone, cost, start), self.weight)
        else:
            search = _Column(_BandBlock(band, cost[:, band.order], start), self.weight[band.order])
        for _ in range(_MOST_ITERATIONS):
            less = search.above < target * scale and search.above - search.below < tolerance * scale
            if search.below >= target * scale or less or search.stalled:
                break
            try:
                search.advance(1.0)
            except np.linalg.LinAlgError:
                break
        return Price(search.below / scale, search.above / scale)


class _Column(PathFollower):
    """The interior-point method for one column in the cone with u·q = 1; its duals are τ·u for a number τ."""

    def __init__(self, block: Block, weight: Floats) -> None:
        size = float(np.abs(block.cost * block.columns).sum())
        super().__init__([block], Pool(None), 10.0 * max(size, 1e-300) / block.pair_count)
        self.block, self.weight, self.below = block, weight, -np.inf
        self._after_step(1.0)
        self.duals = self.below * weight

    @property
    def above(self) -> float:
        """The value of the column."""
        return float(np.vdot(self.block.cost, self.block.columns) / (self.block.columns[0] @ self.weight))

    def _after_step(self, primal: float) -> None:  # noqa: ARG002 (the column is up to date)
        below = float((self.block.dual_slack()[0] / self.weight).min())
        self.below = max(self.below, float(np.nextafter(below, -np.inf)))

    def _factorise(self) -> None:
        self.block.factorise(with_inverse=False)
        self.response = self.block.response_to(self.weight)
        self.missing = 1.0 - float(self.block.columns[0] @ self.weight)

    def _solve(self, targets: Sequence[Floats] | None, *, refinements: int) -> Floats:  # noqa: ARG002 (one is exact)
        total = self.block.solve(self.duals, None if targets is None else targets[0])
        change = (self.missing - float(total @ self.weight)) / float(self.response @ self.weight)
        self.block.step += change * self.response
        return change * self.weight


class _Band:
    """The rows of a cone in an order in which near rows are near, and the pairs within `width` of each other.

    Parameters
    ----------
    cone
        The rows' cone.
    widening
        How many times as wide the band is as it takes to hold the pairs of nearest rows.
    """

    def __init__(self, cone: Cone, *, widening: int = 1) -> None:
        pairs = csr_array(cone.starting_pairs)
        self.order: Positions = np.asarray(reverse_cuthill_mckee(pairs, symmetric_mode=True), dtype=np.intp)
        self.cone = cone.restricted(self.order)
        low, high = np.nonzero(self.cone.constrained & cone.starting_pairs[np.ix_(self.order, self.order)])
        self.starting_pairs = np.zeros_like(cone.constrained)
        self.starting_pairs[low, high] = True
        self.width = min(widening * int(np.abs(low - high).max()), cone.size - 1)

    @cached_property
    def tight_ratio(self) -> Floats:
        """`Cone.tight_ratio` in the band, shape (rows, 2·width + 1): column c is the pair with row + c − width."""
        rows = self.cone.size
        other = np.arange(rows)[:, None] + np.arange(-self.width, self.width + 1)
        inside = (other >= 0) & (other < rows)
        ratio = np.full(other.shape, np.inf)
        ratio[inside] = self.cone.tight_ratio[np.nonzero(inside)[0], other[inside]]
        return ratio


class _BandBlock(Block):
    """A single output, in the order and with the pairs of a band."""

    def __init__(self, band: _Band, cost: Floats, columns: Floats) -> None:
        self.band = band
        super().__init__(band.cone, cost, columns, active=band.starting_pairs[None])

    @property
    def _width(self) -> int:
        return self.band.width + 1

    def _place(self, first: Positions, second: Positions) -> Positions:
        return second - first

    def _no_pairs(self) -> Bools:
        return np.zeros((1, self.rows, 2 * self.band.width + 1), bool)

    def _activate(self, output: Positions, low: Positions, high: Positions) -> None:
        self.active[output, low, high - low + self.band.width] = True

    def _crossing(self, output: int, column: Floats) -> tuple[Positions, Positions]:
        padded = np.pad(column, self.band.width, constant_values=1.0)
        others = np.lib.stride_tricks.sliding_window_view(padded, 2 * self.band.width + 1)
        crossing = column[:, None] > self.band.tight_ratio * others
        crossing &= ~self.active[output]
        low, place = np.nonzero(crossing)
        return low, low + place - self.band.width

    def _try_factor(self, matrix: Floats, diagonal: Floats) -> bool:
        matrix[:, 0] = diagonal
        return lapack.banded_factor(matrix)

    def _solve_in_place(self, right: Floats) -> None:
        lapack.banded_solve(self.factors[0], right[0])
