"""Row distances: the smallest distance between the histories that use two rows, from the places' coordinates.

This one definition makes the promise hold for every pair of histories, whichever share a row: how much two rows may
differ is decided by the two histories of theirs that are nearest to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.problem import NEVER_MM

__all__ = ["row_distance_mm"]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

_DEGREE_E7 = 1e-7
_BLOCK_CELLS = 1 << 22


def row_distance_mm(
    places_e7: Indices, histories: Indices, history_rows: Indices, weights_micro: Sequence[int]
) -> Floats:
    """Return the distances of rows in millimetres, the smallest between their histories; `inf` for none.

    Time grows with the square of the number of histories; memory does not.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    histories
        The place at t, t − 1, ... of each history, shape (N, 1 + Γ); −1 stands for any place: it adds no distance.
    history_rows
        The row that each history uses, shape (N,); every row has one or more.
    weights_micro
        What each earlier place counts, in millionths, Γ values; `NEVER_MM` for a past that is known (differing pasts
        are infinitely far apart).
    """
    order = np.argsort(history_rows, kind="stable")
    rows = history_rows[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    columns = [
        _between_mm(places_e7, column, weight)
        for column, weight in zip(histories[order].T, (10**6, *weights_micro), strict=True)
    ]
    result = np.full((len(starts), len(starts)), np.inf)
    size = max(1, _BLOCK_CELLS // max(1, len(order)))
    for first in range(0, len(order), size):
        some = slice(first, min(first + size, len(order)))
        distance = np.zeros((some.stop - some.start, len(order)))
        for between, position in columns:
            distance += between[position[some]].take(position, axis=1)
        distance = np.minimum.reduceat(distance, starts, axis=1)
        row, here = np.unique(rows[some], return_index=True)
        nearest = np.minimum.reduceat(distance, here, axis=0)
        result[row] = np.minimum(result[row], nearest)
    return result


def _between_mm(places_e7: Indices, column: Indices, weight_micro: int) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return the weighted distances of the different places in a column, and the position of each one among them."""
    used, position = np.unique(column, return_inverse=True)
    lat, lon = (places_e7[used] * _DEGREE_E7).T
    between = haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000
    between[used < 0] = between[:, used < 0] = 0.0
    if weight_micro == NEVER_MM:
        between[between > 0] = np.inf
    else:
        between *= weight_micro / 1e6
    return between, position
