"""From the rows of a zone and a loss to the problem that a mechanism solves."""

from __future__ import annotations

import math

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket.build.rows import ZoneRows
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.mechanism.problem import Problem

__all__ = ["make_problem", "row_loss"]


def row_loss(rows: ZoneRows, loss: PlaceLoss) -> Floats:
    """Return what each output costs where each row is true, shape (S, K): the mean over where the vehicle is then."""
    used = np.unique(rows.next_place.indices).astype(np.int32)
    values = loss(used, rows.zone).values
    return np.asarray(rows.next_place[:, used] @ values)


@checked
def make_problem(rows: ZoneRows, loss: PlaceLoss, *, epsilon: float, eta_km: float = math.inf) -> Problem:
    """Return the problem of a zone; its outputs are the places of the zone, in order.

    Parameters
    ----------
    rows
        Rows with their prior, next places and distances.
    loss
        The cost of reporting a place when another is true.
    epsilon
        ε per kilometre.
    eta_km
        The largest distance at which rows are constrained, kilometres.

    Examples
    --------
    With the `places` and the `rows` in the example of `make_rows`:

    >>> from geoblanket.build import make_problem
    >>> from geoblanket.loss.standard import StraightLine
    >>> problem = make_problem(rows, StraightLine(places), epsilon=2.0, eta_km=5.0)
    >>> problem.loss.shape == (len(rows), 8)
    True
    """
    return Problem.in_millimetres(
        loss=row_loss(rows, loss), prior=rows.prior, distance_mm=rows.distance_mm, epsilon=epsilon, eta_km=eta_km
    )
