"""The lattice: planar Laplace noise over a whole city, exact, between coordinates.

A coordinate becomes a point x of the frame (`plane`), whose opposite edges are joined: a torus of `side` units, with
the metric d that wraps round. Outputs are the centres y of square cells of n units; n divides the side. With the kernel
E of `kernel` and D = 2^62, a cell has the weight

    W(y | x) = max(c, ⌊M(u)·E(d(x, y))⌋),        and what is missing to D goes to one cell, the sink.

c is the *floor*: no cell is possible from one coordinate and impossible from another. M(u), the *multiplier*, depends
only on u, where x lies within its cell: shifting x by whole cells only renames the cells, as the frame has no edge.
So there are n² multipliers, and by symmetry about n²/8.

Why it keeps the promise
------------------------
Let x ≠ x' be d ≥ 1 units apart, u and u' where they lie in their cells, d(u, u') ≤ d the distance of u and u' on the
torus of one cell, ε₁ = ε in units, a = `slope(rate)`, r(u) = D − Σ_y max(c, ⌊M(u)·E(d(x, y))⌋), and
κ = ε₁ − a − 1/c − 2^-27. It is enough that

    (1)  κ ≥ 0 and M(u) ≤ (1 + κ·d(u, u'))·M(u')            for all u, u'
    (2)  0 < r(u) ≤ (1 + ε₁·d(u, u'))·r(u')                 for all u, u'.

*Cells.* Let t = M(u)·2^(−z/2^24) without the mantissa's rounding, which loses less than 2^-28 of it, and likewise t'.
By the triangle inequality |d(x, y) − d(x', y)| ≤ d, so t/t' ≤ e^(a·d)·M(u)/M(u') (kernel, 1). If ⌊M(u)·E⌋ ≤ c, then
W(y | x) = c ≤ W(y | x'). Otherwise W(y | x) ≤ t ≤ e^(a·d)·M(u)/M(u')·t', and
W(y | x') ≥ max(c, ⌊(1 − 2^-28)·t'⌋) ≥ (1 − 2^-28)·t'·c/(c + 1), as max(c, v − 1) ≥ v·c/(c + 1) for every v. So
W(y | x)/W(y | x') ≤ e^(a·d + 1/c + 2^-27)·M(u)/M(u'), and by (1), 1 + κ·d(u, u') ≤ e^(κ·d) and d ≥ 1, that is at most
e^((a + 1/c + 2^-27 + κ)·d) = e^(ε₁·d).
*Sink.* Its weight is such a weight plus r, and r(u)/r(u') ≤ e^(ε₁·d) by (2): so is the ratio of the sums.
*Coordinates.* The torus' distance is at most the plane's, and that is at most the distance on the sphere plus the
rounding of both coordinates (`plane`). ∎

Far away all weights are c: only a *window* of cells around x is computed, with c outside it. This is the same W, for
`verifier` checks that M(u)·E is at most c beyond the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism.lattice.kernel import exponents, mantissas
from geoblanket.mechanism.lattice.plane import Plane

__all__ = ["DENOMINATOR", "SINK_BASE", "LatticeSpec", "Window", "octant_count"]

DENOMINATOR: Final = 2**62
SINK_BASE: Final = 2**44
"""Weight that the sink has in every row on top of its own: 4 in a million of the probability, so that what rounding
adds to it, below 2^33, never matters."""


def octant_count(cell_units: int) -> int:
    """Return how many positions within a cell differ, up to its eight symmetries."""
    half = cell_units // 2
    return (half + 1) * (half + 2) // 2


@dataclass(frozen=True, eq=False)
class LatticeSpec:
    """The numbers that define a lattice. Nothing is promised of them before `verifier.verify_lattice` accepted them."""

    plane: Plane
    epsilon_micro: int
    """ε in millionths per kilometre."""
    cell_units: int
    """n: units from edge to edge of a cell."""
    rate: int
    """ρ of the kernel."""
    shift: int
    """Weights are multiplier · mantissa / 2^(shift + exponent)."""
    floor: int
    """c: the least weight of a cell."""
    half_window: int
    """Cells from the middle of the window to its edge; a smaller frame is its own window."""
    multipliers: Indices = field(repr=False)
    """M, by position within the cell, |u₁| ≥ |u₂| from its centre, at |u₁|·(|u₁| + 1)/2 + |u₂|."""

    @cached_property
    def cells_across(self) -> int:
        """Cells from edge to edge of the frame."""
        return self.plane.side // self.cell_units

    @cached_property
    def cell_count(self) -> int:
        """All cells."""
        return self.cells_across**2

    @cached_property
    def window(self) -> Window:
        """The cells around a point whose weights are computed."""
        return Window(self)


class Window:
    """Weights of the cells around a point, up to symmetry: offsets from its cell, and their squared distances.

    A point lies (a, b) units from the centre of its cell. Reflected and exchanged, 0 ≤ b ≤ a: the *octant*. There, the
    cell at the offset (i, j) is (i·n − a, j·n − b) away.
    """

    def __init__(self, spec: LatticeSpec) -> None:
        across = spec.cells_across
        length = min(2 * spec.half_window + 1, across)
        self.offsets: Ints = np.arange(length) - length // 2
        """Offsets of the cells along one side, ascending."""
        side, n = spec.plane.side, spec.cell_units
        distances = np.abs(self.offsets * n - np.arange(n // 2 + 1)[:, None])
        self.squares: Ints = np.minimum(distances, side - distances) ** 2
        """Squared distance along one axis, shape (n // 2 + 1, length)."""
        self.outside = spec.cell_count - length**2
        """How many cells lie outside the window."""
        self._spec = spec

    def weights(self, a: Ints | int, b: Ints | int) -> Ints:
        """Return the weights of all cells of the window for positions 0 ≤ b ≤ a, shape (..., length, length).

        The first axis of cells goes with b, the second with a.
        """
        squares = self.squares[b][..., :, None] + self.squares[a][..., None, :]
        return self._weights(squares, a, b)

    def row_weights(self, a: Ints | int, b: Ints | int, row: Ints | int) -> Ints:
        """Return the weights of one row of the window, shape (..., length)."""
        squares = self.squares[b, row][..., None] + self.squares[a]
        return self._weights(squares, a, b, cells=1)

    def _weights(self, squares: Ints, a: Ints | int, b: Ints | int, cells: int = 2) -> Ints:
        spec = self._spec
        m, exponent = mantissas(exponents(squares, spec.rate))
        multiplier = spec.multipliers[np.asarray(a) * (np.asarray(a) + 1) // 2 + b].astype(np.int64)
        m *= multiplier[(..., *[None] * cells)]
        exponent += spec.shift
        m >>= np.minimum(exponent, 62, out=exponent)
        return np.maximum(m, spec.floor, out=m)

    def row_sums(self, a: int, b: int) -> Ints:
        """Return the sums of the window's rows for a position, shape (length,)."""
        sums: Ints = self.weights(a, b).sum(axis=1)
        return sums

    def total(self, row_sums: Ints) -> Ints:
        """Return the weight of all cells, without what is missing to 2^62, from the sums of rows (last axis)."""
        total: Ints = row_sums.sum(axis=-1) + self.outside * self._spec.floor
        return total
