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

__all__ = ["banded_factor", "banded_solve", "factor", "inverse", "multiply", "solve"]


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


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def factor(matrix: Floats | Singles) -> bool:
    """Replace a matrix by its Cholesky factor; return False where it is not positive definite to working precision."""
    size = len(matrix)
    info = ctypes.c_int(0)
    _potrf[matrix.itemsize](ctypes.byref(_LOWER), _int(size), matrix.ctypes.data, _int(size), ctypes.byref(info))
    return info.value == 0


def inverse(factored: Floats | Singles) -> None:
    """Replace a Cholesky factor by the inverse of its matrix."""
    size = len(factored)
    info = ctypes.c_int(0)
    _potri[factored.itemsize](ctypes.byref(_LOWER), _int(size), factored.ctypes.data, _int(size), ctypes.byref(info))


def multiply(matrix: Singles, vector: Floats) -> Singles:
    """Return the product of a float32 matrix and a vector, in float32."""
    size = len(matrix)
    right = vector.astype(np.float32)
    product = np.empty_like(right)
    _symv(
        ctypes.byref(_LOWER),
        _int(size),
        ctypes.byref(_ONE),
        matrix.ctypes.data,
        _int(size),
        right.ctypes.data,
        _int(1),
        ctypes.byref(_ZERO),
        product.ctypes.data,
        _int(1),
    )
    return product


def solve(factored: Floats, vector: Floats) -> None:
    """Replace a vector (C-contiguous) by the solution of the factored system."""
    size = len(factored)
    info = ctypes.c_int(0)
    _potrs(
        ctypes.byref(_LOWER),
        _int(size),
        _int(1),
        factored.ctypes.data,
        _int(size),
        vector.ctypes.data,
        _int(size),
        ctypes.byref(info),
    )


def banded_factor(band: Floats) -> bool:
    """Replace a banded matrix, `band[i, j - i]` for i ≤ j, by its Cholesky factor; return False where that fails."""
    size, width = band.shape
    info = ctypes.c_int(0)
    _pbtrf(ctypes.byref(_LOWER), _int(size), _int(width - 1), band.ctypes.data, _int(width), ctypes.byref(info))
    return info.value == 0


def banded_solve(factored: Floats, vector: Floats) -> None:
    """Replace a vector (C-contiguous) by the solution of the factored banded system."""
    size, width = factored.shape
    info = ctypes.c_int(0)
    _pbtrs(
        ctypes.byref(_LOWER),
        _int(size),
        _int(width - 1),
        _int(1),
        factored.ctypes.data,
        _int(width),
        vector.ctypes.data,
        _int(size),
        ctypes.byref(info),
    )
