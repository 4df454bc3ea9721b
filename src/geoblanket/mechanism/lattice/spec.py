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

Exact draws
-----------
A word of 62 random bits leads to a cell, and each cell has as many words as it has weight. The window's rows come
first, each with the sum of its weights, then the cells outside the window, each with the floor, then what is left, to
the sink. A row is found from the sums of rows; only its own cells are computed after that. The work is the same for
every position and every word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism.lattice.kernel import exponents, mantissas
from geoblanket.mechanism.lattice.plane import Plane

DENOMINATOR: Final = 2**62
SINK: Final = 0
"""The cell that gets what is missing to 2^62: in the south-western corner of the margin."""
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


class Drawing:
    """Draws from the weights of a lattice.

    Parameters
    ----------
    spec
        The lattice.
    prepare
        Compute the sums of rows of all positions now, some megabytes: a draw is then ten times as quick. Otherwise each
        draw computes those of its position.
    """

    def __init__(self, spec: LatticeSpec, *, prepare: bool) -> None:
        self._spec = spec
        self._window = spec.window
        self._length = len(spec.window.offsets)
        self._sums: Ints | None = None
        if prepare:
            half = spec.cell_units // 2
            self._sums = np.empty((len(spec.multipliers), self._length), np.int64)
            for index, (a, b) in enumerate(zip(*np.tril_indices(half + 1), strict=True)):
                np.cumsum(self._window.row_sums(int(a), int(b)), out=self._sums[index])
            self._sums.setflags(write=False)

    def totals(self) -> Ints:
        """Return the weight of all cells for each position, in the order of the multipliers."""
        half = self._spec.cell_units // 2
        sums = self._row_sums(*np.tril_indices(half + 1))
        totals: Ints = sums[:, -1] + self._window.outside * self._spec.floor
        return totals

    def cells(self, x: Ints, y: Ints, words: Ints) -> Ints:
        """Return the cell to which each word leads from each point of the frame, shape (N,)."""
        n, across, length = self._spec.cell_units, self._spec.cells_across, self._length
        column, row = x // n, y // n
        east, north = x - column * n - n // 2, y - row * n - n // 2
        swapped = np.abs(east) < np.abs(north)
        a = np.maximum(np.abs(east), np.abs(north))
        b = np.minimum(np.abs(east), np.abs(north))
        sums = self._row_sums(a, b)
        in_row = np.minimum(np.count_nonzero(sums <= words[:, None], axis=1), length - 1)
        before = np.where(in_row > 0, np.take_along_axis(sums, np.maximum(in_row - 1, 0)[:, None], 1)[:, 0], 0)
        within = np.cumsum(self._window.row_weights(a, b, in_row), axis=1)
        in_column = np.minimum(np.count_nonzero(within <= (words - before)[:, None], axis=1), length - 1)
        beyond = (words - sums[:, -1]) // self._spec.floor
        far_row, far_column = self._outside(np.clip(beyond, 0, self._window.outside - 1))
        is_near = words < sums[:, -1]
        first = np.where(is_near, in_column, far_column) - length // 2
        second = np.where(is_near, in_row, far_row) - length // 2
        offset_east, offset_north = np.where(swapped, second, first), np.where(swapped, first, second)
        column = (column + np.where(east < 0, -offset_east, offset_east)) % across
        row = (row + np.where(north < 0, -offset_north, offset_north)) % across
        return np.where(beyond >= self._window.outside, SINK, row * across + column)

    def cell(self, x: int, y: int, word: int) -> int:
        """Return the cell to which one word leads from a point: what `cells` does, for one report at a time."""
        n, across, length = self._spec.cell_units, self._spec.cells_across, self._length
        (column, east), (row, north) = divmod(x, n), divmod(y, n)
        east, north = east - n // 2, north - n // 2
        b, a = sorted((abs(east), abs(north)))
        sums = self._window_sums(a, b)
        inside = int(sums[-1])
        in_row = min(int(np.count_nonzero(sums <= word)), length - 1)
        before = int(sums[in_row - 1]) if in_row else 0
        within = np.cumsum(self._window.row_weights(a, b, in_row))
        in_column = min(int(np.count_nonzero(within <= word - before)), length - 1)
        beyond = (word - inside) // self._spec.floor
        if beyond >= self._window.outside and word >= inside:
            return SINK
        first, second = in_column, in_row
        if word >= inside:
            far_row, far_column = self._outside(np.array(beyond))
            first, second = int(far_column), int(far_row)
        if abs(east) < abs(north):
            first, second = second, first
        offset_east, offset_north = first - length // 2, second - length // 2
        column = (column + (-offset_east if east < 0 else offset_east)) % across
        row = (row + (-offset_north if north < 0 else offset_north)) % across
        return row * across + column

    def _window_sums(self, a: int, b: int) -> Ints:
        if self._sums is None:
            return np.cumsum(self._window.row_sums(a, b))
        sums: Ints = self._sums[a * (a + 1) // 2 + b]
        return sums

    def _row_sums(self, a: Ints, b: Ints) -> Ints:
        """Return cumulative sums of the rows of the window for each position, shape (N, length)."""
        if self._sums is not None:
            sums: Ints = self._sums[a * (a + 1) // 2 + b]
            return sums
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        return np.stack([np.cumsum(self._window.row_sums(large, small)) for large, small in pairs])

    def _outside(self, index: Ints) -> tuple[Ints, Ints]:
        """Return row and column of cells outside the window, counted from its corner."""
        across, length = self._spec.cells_across, self._length
        beside = across - length
        above = beside * across
        in_rows_above = index < above
        rest = np.maximum(index - above, 0)
        row = np.where(in_rows_above, length + index // across, rest // max(beside, 1))
        column = np.where(in_rows_above, index % across, length + rest % max(beside, 1))
        return row, column
