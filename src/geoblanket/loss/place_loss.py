"""Losses over places: a table, finite and not negative, behind one interface, and the losses of a user's own.

A loss says what the service loses if a vehicle is at place l and reports place y. The loss of a row of a mechanism is
the mean over the next place, p(l | row) @ table, and does not belong here. Only NumPy is needed here: trackers use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError


@checked
@dataclass(frozen=True, eq=False)
class LossTable:
    """What each reported place costs for each true one. The arrays are read-only.

    Raises
    ------
    ParameterError
        If a loss is negative, infinite or not a number, or the shapes do not fit.
    """

    values: Floats
    """The loss, in the unit of the loss that made the table, shape (L, K)."""
    standard_error: Floats | None = None
    """How uncertain each value is, if it is a mean over a sample, in the same unit, shape (L, K); None if it is exact.

    All values come from one sample, so their errors go together. The standard error of a weighted mean of values, with
    weights that are not negative, is at most the weighted mean of their standard errors. It is estimated from the
    sample itself, so it knows nothing of rare tasks that were not drawn."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _checked(self.values, "loss"))
        if self.standard_error is not None:
            object.__setattr__(self, "standard_error", _checked(self.standard_error, "standard error"))
            if self.standard_error.shape != self.values.shape:
                raise ParameterError(
                    "A table of losses and their standard errors must have one shape. "
                    f"Got {self.values.shape} and {self.standard_error.shape} instead."
                )

    def __repr__(self) -> str:
        true, reported = self.values.shape
        exact = "exact" if self.standard_error is None else "over a sample of tasks"
        return short_repr(self, f"{counted(true, 'true place')} by {reported:,} reported", exact)


class PlaceLoss(Protocol):
    """What a reported place costs the service where another one is true."""

    @property
    def name(self) -> str:
        """What is lost, in a few words."""

    @property
    def unit(self) -> str:
        """The unit of the loss."""

    def __call__(self, true_places: npt.ArrayLike, reported: npt.ArrayLike) -> LossTable:
        """Return the loss of each reported place for each true one.

        Parameters
        ----------
        true_places
            Indices of places, shape (L,).
        reported
            Indices of places, shape (K,).

        Returns
        -------
        table
            Of shape (L, K).
        """


def check_places(indices: npt.ArrayLike, count: int, name: str) -> Indices:
    """Return indices of places as an array, or raise ParameterError if they are not from 0 to `count` - 1."""
    given = np.asarray(indices)
    if given.ndim != 1 or (len(given) and not np.issubdtype(given.dtype, np.integer)):
        raise ParameterError(
            f"The {name} must be a one-dimensional array of indices of places. "
            f"Got shape {given.shape} and type {given.dtype} instead."
        )
    if len(given) and not (given.min() >= 0 and given.max() < count):
        raise ParameterError(
            f"The {name} must be indices of places from 0 to {count - 1}. "
            f"Got values from {given.min()} to {given.max()} instead."
        )
    return given.astype(np.int32)


def _checked(values: npt.ArrayLike, name: str) -> Floats:
    try:
        table = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"A table of losses must hold numbers. The {name} does not.") from None
    if table.ndim != 2:
        raise ParameterError(
            f"A table of losses must have a row for each true place and a column for each reported one. "
            f"The {name} has shape {table.shape} instead."
        )
    wrong = ~(np.isfinite(table) & (table >= 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ParameterError(
            f"The {name} must be finite and not negative. Got {np.count_nonzero(np.isnan(table))} values that are not "
            f"numbers, {np.count_nonzero(np.isinf(table))} infinite and {np.count_nonzero(table < 0)} negative ones "
            f"of {table.size}, the first in row {row} and column {column}."
        )
    table.setflags(write=False)
    return table


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
