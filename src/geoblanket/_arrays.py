"""Arrays by what they hold: one name for each type, the same in every module."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Floats", "Indices", "Ints", "Octets", "Positions"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
"""Whole numbers: weights, millimetres, counts, times."""
Indices = npt.NDArray[np.int32]
"""Nodes, edges and places by number, as road graphs, walks and bundles hold them."""
Positions = npt.NDArray[np.intp]
"""Where something is in an array, as NumPy tells it."""
Bools = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
