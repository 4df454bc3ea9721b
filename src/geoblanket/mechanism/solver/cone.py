"""The cone that all outputs share: which columns of probabilities keep the promise between every two rows.

A column q ≥ 0 (one output's probability in each row) lies in the cone C when q_i ≤ e^{x_ij} q_j for every constrained
pair, x_ij = ε·d_ij. A mechanism is private when each of its columns lies in C; the columns are tied together only by
the rows' sums. Everything that depends on the rows alone is computed once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from geoblanket._arrays import Bools, Floats, Positions

__all__ = ["EXPONENT_CAP", "Cone"]


EXPONENT_CAP = 44.0
"""Ratios beyond e^44 ≈ 10^19 are cut to that in the search: the stronger constraint is safe, the loss not measurable.
Bounds do not use the pairs that were cut."""

_NEVER = 1e250
"""Stands for the ratio of a pair without a constraint: finite, so that products with zero stay zero."""

_NEAREST = 12
"""Rows nearest to each, whose pairs are active from the start: with fewer, more pairs join on the way; with more, steps
take longer."""
_TIGHT = 0.3
"""Of a pair's slack: where less is left the pair becomes active. With less, steps are cut short by pairs that are not
active; with more, pairs become active that do not matter."""


@dataclass(frozen=True, eq=False)
class Cone:
    """Constrained pairs of rows and their ratios.

    Parameters
    ----------
    exponent
        x_ij = ε·d_ij, dimensionless, symmetric, shape (rows, rows); inf where the pair is not constrained. Off the
        diagonal it is positive: rows at distance 0 are merged before.
    original_rows
        How many rows there were before any were merged, for the error margins of bounds; 0: as many as now.
    """

    exponent: Floats
    original_rows: int = 0
    constrained: Bools = field(init=False)

    def __post_init__(self) -> None:
        constrained = np.isfinite(self.exponent)
        np.fill_diagonal(constrained, False)
        object.__setattr__(self, "constrained", constrained)
        object.__setattr__(self, "original_rows", self.original_rows or self.size)

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.exponent)

    @cached_property
    def excess(self) -> Floats:
        """e^x − 1, exact for small x; huge where there is no constraint."""
        return np.where(self.constrained, np.expm1(np.minimum(self.exponent, EXPONENT_CAP)), _NEVER)

    @cached_property
    def ratio(self) -> Floats:
        """e^x; huge where there is no constraint."""
        return np.where(self.constrained, np.exp(np.minimum(self.exponent, EXPONENT_CAP)), _NEVER)

    @cached_property
    def tight_ratio(self) -> Floats:
        """The ratio beyond which a pair counts as tight: less than 30 % of its slack is left."""
        return 1.0 + (1.0 - _TIGHT) * self.excess

    @cached_property
    def nearest(self) -> Positions:
        """The other rows of each, nearest first, shape (rows, rows − 1)."""
        order = np.argsort(np.where(self.constrained, self.exponent, np.inf), axis=1, kind="stable")
        rows = np.arange(self.size)[:, None]
        nearest: Positions = order[order != rows].reshape(self.size, self.size - 1)
        return nearest

    @cached_property
    def starting_pairs(self) -> Bools:
        """Each row with its nearest 12, and the other way round: where the search begins."""
        near = np.zeros_like(self.constrained)
        near[np.arange(self.size)[:, None], self.nearest[:, :_NEAREST]] = True
        near |= near.T
        return near & self.constrained

    def restricted(self, rows: Positions) -> Cone:
        """Return the cone over some of the rows."""
        return Cone(self.exponent[np.ix_(rows, rows)], self.original_rows)
