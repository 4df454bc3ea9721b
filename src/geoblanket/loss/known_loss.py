"""A loss whose table was computed once, for the places that matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Indices
from geoblanket.loss.place_loss import LossTable, PlaceLoss

__all__ = ["KnownLoss"]


@dataclass(frozen=True, eq=False)
class KnownLoss:
    """A loss that is known for some true places and some reported ones; see `PlaceLoss`."""

    true_places: Indices
    """Ascending, shape (L,)."""
    reported: Indices
    """Ascending, shape (K,)."""
    table: LossTable
    name: str
    unit: str

    @classmethod
    def of(cls, loss: PlaceLoss, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> KnownLoss:
        """Compute the table of a loss."""
        rows, columns = (np.unique(np.asarray(places, np.int32)) for places in (true_places, reported))
        return cls(rows, columns, loss(rows, columns), loss.name, loss.unit)

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the part of the table for these places, which must be among the known ones."""
        rows, columns = np.searchsorted(self.true_places, true_places), np.searchsorted(self.reported, reported)
        return LossTable(self.table.values[np.ix_(rows, columns)])

    @property
    def largest_error(self) -> float:
        """The largest standard error of the table; 0 if it is exact."""
        error = self.table.standard_error
        return 0.0 if error is None else float(error.max(initial=0.0))
