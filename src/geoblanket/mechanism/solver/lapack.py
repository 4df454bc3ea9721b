"""Cholesky factors by LAPACK in threads: `scipy.linalg.lapack` holds the interpreter's lock while it computes.

The routines are SciPy's own (`scipy.linalg.cython_lapack`), called through ctypes, which lets other Python threads run
meanwhile. All matrices are symmetric and C-contiguous; of each, only the upper triangle (rows above the diagonal) is
read and written, so that the other triangle may hold anything. Numbers are float64, or float32 where a matrix is: that
takes half the time.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from geoblanket._arrays import Floats, Singles

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

# A C-contiguous upper triangle is a column-major lower one.
_LOWER = ctypes.c_char(b"L")


def _routine(library: Any, name: str, arguments: int) -> Any:
    capsule = dict(library.__pyx_capi__)[name]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
    return prototype(_get_pointer(capsule, _get_name(capsule)))


_potrf = {4: _routine(cython_lapack, "spotrf", 5), 8: _routine(cython_lapack, "dpotrf", 5)}
_potri = {4: _routine(cython_lapack, "spotri", 5), 8: _routine(cython_lapack, "dpotri", 5)}
_potrs = _routine(cython_lapack, "dpotrs", 8)
_symv = _routine(cython_blas, "ssymv", 10)
_pbtrf, _pbtrs = _routine(cython_lapack, "dpbtrf", 6), _routine(cython_lapack, "dpbtrs", 9)
_ONE, _ZERO = ctypes.c_float(1.0), ctypes.c_float(0.0)


def _call(routine: Any, *arguments: Any) -> int:
    """Call a routine with arrays and numbers by reference; return the number that it leaves in its last argument."""
    given = [ctypes.c_int(value) if isinstance(value, int) else value for value in arguments]
    routine(*(value.ctypes.data if isinstance(value, np.ndarray) else ctypes.addressof(value) for value in given))
    return int(getattr(given[-1], "value", 0))


def factor(matrix: Floats | Singles) -> bool:
    """Replace a matrix by its Cholesky factor; return False where it is not positive definite to working precision."""
    size = len(matrix)
    return _call(_potrf[matrix.itemsize], _LOWER, size, matrix, size, 0) == 0


def inverse(factored: Floats | Singles) -> None:
    """Replace a Cholesky factor by the inverse of its matrix."""
    size = len(factored)
    _call(_potri[factored.itemsize], _LOWER, size, factored, size, 0)


def multiply(matrix: Singles, vector: Floats) -> Singles:
    """Return the product of a float32 matrix and a vector, in float32."""
    size = len(matrix)
    right = vector.astype(np.float32)
    product = np.empty_like(right)
    _call(_symv, _LOWER, size, _ONE, matrix, size, right, 1, _ZERO, product, 1)
    return product


def solve(factored: Floats, vector: Floats) -> None:
    """Replace a vector (C-contiguous) by the solution of the factored system."""
    size = len(factored)
    _call(_potrs, _LOWER, size, 1, factored, size, vector, size, 0)


def banded_factor(band: Floats) -> bool:
    """Replace a banded matrix, `band[i, j - i]` for i ≤ j, by its Cholesky factor; return False where that fails."""
    size, width = band.shape
    return _call(_pbtrf, _LOWER, size, width - 1, band, width, 0) == 0


def banded_solve(factored: Floats, vector: Floats) -> None:
    """Replace a vector (C-contiguous) by the solution of the factored banded system."""
    size, width = factored.shape
    _call(_pbtrs, _LOWER, size, width - 1, 1, factored, width, vector, size, 0)
