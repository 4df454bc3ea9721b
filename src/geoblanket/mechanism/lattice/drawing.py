"""Exact draws of cells: a word of 62 random bits leads to a cell, and each cell has as many words as it has weight.

The window's rows come first, each with the sum of its weights, then the cells outside the window, each with the floor,
then what is left, to the sink. A row is found from the sums of rows; only its own cells are computed after that. The
work is the same for every position and every word.
"""

from __future__ import annotations

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.mechanism.lattice.spec import LatticeSpec

__all__ = ["SINK", "Drawing"]

SINK = 0
"""The cell that gets what is missing to 2^62: in the south-western corner of the margin."""


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
