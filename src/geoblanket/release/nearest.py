"""The place that a location belongs to: the nearest one, by the rule of `mechanism.history_rule.history_table`.

All places are compared, whichever is the nearest, so that the time it takes does not reveal the location.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from geoblanket._arrays import Indices
from geoblanket.mechanism.history_rule.history_table import COSINE_UNIT, HALF_TURN_E7, squared_distance

__all__ = ["NearestPlace"]

_SWAPPED_E7: Final = 100_000_000
"""Ten degrees: no vehicle is that far from all places and yet among them once latitude and longitude are exchanged."""
_AMONG_E7: Final = 1_000_000
"""A tenth of a degree from the outermost places still counts as among them."""


class NearestPlace:
    """Finds the nearest of some places.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        lat, lon = places_e7.astype(np.float64).T
        self._lat, self._lon = np.ascontiguousarray(lat), np.ascontiguousarray(lon)
        self._box = (float(lat.min()), float(lat.max()), float(lon.min()), float(lon.max()))

    def seems_exchanged(self, lat_e7: int, lon_e7: int) -> bool:
        """Return whether latitude and longitude are clearly exchanged: no vehicle can be there."""
        return not self._within(lat_e7, lon_e7, _SWAPPED_E7) and self._within(lon_e7, lat_e7, _AMONG_E7)

    def of(self, lat_e7: int, lon_e7: int) -> int:
        """Return the place nearest to a location in 1e-7 degrees, wherever on Earth it is."""
        # NumPy takes floats off an array twice as fast as whole numbers, to the same result.
        around = self._box[3] - lon_e7 > HALF_TURN_E7 or lon_e7 - self._box[2] > HALF_TURN_E7
        scale = round(math.cos(math.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
        north, east = self._lat - float(lat_e7), self._lon - float(lon_e7)
        return int(squared_distance(north, east, scale, around=around).argmin())

    def _within(self, lat_e7: float, lon_e7: float, margin_e7: int) -> bool:
        south, north, west, east = self._box
        return south - margin_e7 <= lat_e7 <= north + margin_e7 and west - margin_e7 <= lon_e7 <= east + margin_e7
