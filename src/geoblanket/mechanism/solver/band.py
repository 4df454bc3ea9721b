"""One output with only the pairs of rows that are near each other in a good order: cheaper, and still a valid bound.

In the order of reverse Cuthill–McKee, near rows have near numbers. With no pairs but those inside a band, Newton's
matrix is banded, and its factor costs rows × band² instead of rows³. Fewer constraints make the cone larger, so a lower
bound over it holds for the true cone too; that a column exists in it proves nothing.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from geoblanket import _lapack
from geoblanket._arrays import Bools, Floats, Positions
from geoblanket.mechanism.solver.blocks import Block
from geoblanket.mechanism.solver.cone import Cone

__all__ = ["Band", "BandBlock"]


class Band:
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


class BandBlock(Block):
    """A single output, in the order and with the pairs of a band."""

    def __init__(self, band: Band, cost: Floats, columns: Floats) -> None:
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
        return _lapack.banded_factor(matrix)

    def _solve_in_place(self, right: Floats) -> None:
        _lapack.banded_solve(self.factors[0], right[0])
