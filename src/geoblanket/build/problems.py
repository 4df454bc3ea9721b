"""From the rows of a zone and a loss to the problem that a mechanism solves."""

from __future__ import annotations

import math

import numpy as np

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


def make_problem(rows: ZoneRows, loss: PlaceLoss, *, epsilon: float, eta_km: float = math.inf) -> Problem:
    """Return the problem of a zone; its outputs are the places of the zone, in order.

    Parameters
    ----------
    rows
        Rows, prior, where they lead and distances.
    loss
        What it costs to report a place where another is true.
    epsilon
        ε per kilometre.
    eta_km
        The largest distance at which rows are constrained, kilometres.
    """
    return Problem.in_millimetres(
        loss=row_loss(rows, loss), prior=rows.prior, distance_mm=rows.distance_mm, epsilon=epsilon, eta_km=eta_km
    )
