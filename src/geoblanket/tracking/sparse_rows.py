"""Sparse matrices and their products: by SciPy where it is installed, and by NumPy alone on a small device.

Both give the same products up to rounding; SciPy's come several times sooner. Attributes are named as in SciPy's
`csr_array`.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices, Ints, Singles

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["SparseRows"]

_Entries = npt.NDArray[np.floating[Any]]


class SparseRows:
    """A sparse matrix, row by row.

    Parameters
    ----------
    data
        The entries of all rows, row after row, shape (M,).
    indices
        Their columns, shape (M,).
    indptr
        Where each row starts, and at last M, shape (rows + 1,).
    columns
        How many columns there are.
    """

    def __init__(self, data: Singles, indices: Indices, indptr: Ints, columns: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (len(indptr) - 1, columns)

    @classmethod
    def of_entries(
        cls, data: Singles, rows: Ints | Indices, indices: Ints | Indices, shape: tuple[int, int]
    ) -> SparseRows:
        """Return a matrix of entries in any order; those of the same row and column add up."""
        order = np.argsort(rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        return cls(data[order], indices[order].astype(np.int32), indptr, shape[1])

    @cached_property
    def row_numbers(self) -> Ints:
        """The row of each entry, shape (M,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def T(self) -> SparseRows:  # noqa: N802
        """The matrix with rows and columns exchanged."""
        return SparseRows.of_entries(self.data, self.indices, self.row_numbers, self.shape[::-1])

    def __matmul__(self, values: _Entries) -> npt.NDArray[Any]:
        """Return the product with a vector, or with the columns of a dense matrix."""
        if _has_scipy():
            product: npt.NDArray[Any] = self.as_scipy @ values
            return product
        if values.ndim == 1:
            return (self @ values[:, None])[:, 0]
        # The first entries of all rows at once, then the second ones, and so on: the longest rows come first, so that
        # the rows that have an entry left are always those at the start.
        order, passes = self._passes
        sums = np.zeros((self.shape[0], values.shape[1]), np.result_type(self.data, values))
        for data, indices in passes:
            sums[: len(data)] += data[:, None] * values[indices]
        result = np.empty_like(sums)
        result[order] = sums
        return result

    @cached_property
    def as_scipy(self) -> csr_array[np.float32, tuple[int, int]]:
        """The same as SciPy has it, on the same memory: not to be changed."""
        from scipy.sparse import csr_array

        # Offsets of the type of the indices: SciPy would turn both into the larger one, and take longer.
        indptr = self.indptr.astype(np.int32) if len(self.data) < 1 << 31 else self.indptr
        return csr_array((self.data, self.indices, indptr), shape=self.shape)

    def toarray(self) -> Singles:
        """Return it as a dense matrix."""
        dense = np.zeros(self.shape, self.data.dtype)
        np.add.at(dense, (self.row_numbers, self.indices), self.data)
        return dense

    @cached_property
    def _passes(self) -> tuple[Ints, list[tuple[_Entries, Indices]]]:
        """Return the rows, longest first, and the n-th entries and columns of all rows that have so many."""
        length = np.diff(self.indptr)
        order = np.argsort(-length, kind="stable")
        start, longest_first = self.indptr[order], length[order]
        passes = []
        for number in range(int(longest_first.max(initial=0))):
            entry = start[: int(np.searchsorted(-longest_first, -number))] + number
            passes.append((self.data[entry], self.indices[entry]))
        return order, passes


@cache
def _has_scipy() -> bool:
    try:
        import scipy.sparse  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True
