"""The place that a location belongs to: the nearest one, by a rule on which every machine agrees.

A degree of longitude counts as many degrees of latitude as the cosine of the location's latitude, rounded to 2^-20. All
that follows are sums and products of whole numbers of 1e-7 degrees, which floats hold exactly within nine degrees, and
round in the same way everywhere beyond. Of equally near places the first one counts. All places are compared, whichever
is the nearest: the time does not tell where it is.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from geoblanket._geodesy import Floats
from geoblanket.mechanism._bundle_domain import Indices

__all__ = ["NearestPlace", "cosine"]

_COSINE_UNIT: Final = 2.0**-20
_TURN_E7: Final = 3_600_000_000
_SWAPPED_E7: Final = 100_000_000
"""Ten degrees: no vehicle is so far from all places, and would be among them with latitude and longitude exchanged."""
_AMONG_E7: Final = 1_000_000
"""A tenth of a degree from the outermost places still counts as among them."""


def cosine(lat_e7: Floats) -> Floats:
    """Return what a degree of longitude counts at latitudes in 1e-7 degrees."""
    rounded: Floats = np.rint(np.cos(np.radians(lat_e7 * 1e-7)) / _COSINE_UNIT) * _COSINE_UNIT
    return rounded


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
        """Return whether latitude and longitude are exchanged, so clearly that no vehicle can be there."""
        return not self._within(lat_e7, lon_e7, _SWAPPED_E7) and self._within(lon_e7, lat_e7, _AMONG_E7)

    def of(self, lat_e7: int, lon_e7: int) -> int:
        """Return the place nearest to a location in 1e-7 degrees, wherever on Earth it is."""
        # NumPy takes floats off an array twice as fast as whole numbers, to the same result.
        east = self._lon - float(lon_e7)
        if self._box[3] - lon_e7 > _TURN_E7 // 2 or lon_e7 - self._box[2] > _TURN_E7 // 2:
            east -= np.rint(east / _TURN_E7) * _TURN_E7
        east *= round(math.cos(math.radians(lat_e7 * 1e-7)) / _COSINE_UNIT) * _COSINE_UNIT
        east *= east
        north = self._lat - float(lat_e7)
        north *= north
        north += east
        return int(north.argmin())

    def _within(self, lat_e7: float, lon_e7: float, margin_e7: int) -> bool:
        south, north, west, east = self._box
        return south - margin_e7 <= lat_e7 <= north + margin_e7 and west - margin_e7 <= lon_e7 <= east + margin_e7
