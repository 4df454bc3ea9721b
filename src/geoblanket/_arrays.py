"""Arrays by what they hold: one name for each type, the same in every module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
"""Whole numbers: weights, millimetres, counts, times."""
Indices = npt.NDArray[np.int32]
"""Nodes, edges and places by number, as road graphs, walks and bundles hold them."""
Positions = npt.NDArray[np.intp]
"""Positions in an array, as NumPy returns them."""
Bools = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]
Singles = npt.NDArray[np.float32]
"""Probabilities: single precision is enough for them, and takes half the memory and time."""


class ArrayTable:
    """For dataclasses whose fields are arrays of the same length: a table, whose rows can be chosen and joined."""

    def where(self, chosen: Bools | Ints | Positions) -> Self:
        """Return some of the rows."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))  # type: ignore[arg-type]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one part after the other."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))  # type: ignore[arg-type]
