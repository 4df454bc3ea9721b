"""Losses of a user's own: a table over all places, or a function of places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import LossTable, check_places

__all__ = ["FunctionLoss", "TableLoss"]


@checked
@dataclass(frozen=True, eq=False)
class TableLoss:
    """A table with a loss for each true place (row) and reported place (column).

    Parameters
    ----------
    values
        Losses, finite and not negative, shape (P, P) for P places.
    unit
        Their unit.
    name
        What is lost.
    """

    values: Floats
    unit: str
    name: str = "table"

    def __post_init__(self) -> None:
        values = LossTable(self.values).values
        if values.shape[0] != values.shape[1]:
            raise ParameterError(f"A table of losses over all places must be square. Got {values.shape} instead.")
        object.__setattr__(self, "values", values)

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the part of the table for these places; see `PlaceLoss`."""
        rows = check_places(true_places, len(self.values), "true places")
        columns = check_places(reported, len(self.values), "reported places")
        return LossTable(self.values[np.ix_(rows, columns)])

    def __repr__(self) -> str:
        return short_repr(self, self.name, f"in {self.unit}", counted(len(self.values), "place"))


@checked
@dataclass(frozen=True, eq=False)
class FunctionLoss:
    """A function that gives the loss of each reported place for each true one.

    Parameters
    ----------
    function
        Takes indices of true places (L,) and of reported places (K,); returns losses, finite and not negative, of shape
        (L, K).
    place_count
        How many places there are.
    unit
        The unit of the losses.
    name
        What is lost.
    """

    function: Callable[[Indices, Indices], npt.ArrayLike]
    place_count: int
    unit: str
    name: str = "function"

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return what the function says about these places, checked; see `PlaceLoss`."""
        rows = check_places(true_places, self.place_count, "true places")
        columns = check_places(reported, self.place_count, "reported places")
        table = LossTable(np.asarray(self.function(rows, columns)))
        if table.values.shape != (len(rows), len(columns)):
            raise ParameterError(
                f"A loss function must return shape {len(rows), len(columns)}, a row a true place and a column a "
                f"reported one. {self.name!r} returned {table.values.shape} instead."
            )
        return table

    def __repr__(self) -> str:
        return short_repr(self, self.name, f"in {self.unit}", counted(self.place_count, "place"))
