"""The place that a location belongs to: the nearest one, by integer arithmetic, so that every machine agrees.

A degree of longitude counts as many degrees of latitude as the cosine of the location's latitude, in 2^-20. Of equally
near places the first one counts. All places are compared, whichever is the nearest: the time does not tell where it is.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket.errors import ParameterError
from geoblanket.mechanism._bundle_domain import Indices

__all__ = ["NearestPlace"]

Ints = npt.NDArray[np.int64]

_COSINE_BITS: Final = 20
_HALF_TURN_E7: Final = 1_800_000_000
_SWAPPED_E7: Final = 100_000_000
"""Ten degrees: a location this far from all places that would be among them with latitude and longitude exchanged."""


class NearestPlace:
    """Finds the nearest of some places.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        lat, lon = places_e7.astype(np.int64).T
        self._lat, self._lon = np.ascontiguousarray(lat), np.ascontiguousarray(lon)
        self._box = (int(lat.min()), int(lat.max()), int(lon.min()), int(lon.max()))

    def refuse_exchanged(self, lat_e7: int, lon_e7: int) -> None:
        """Raise ParameterError if latitude and longitude are exchanged, so clearly that no vehicle can be there."""
        if not self._within(lat_e7, lon_e7, _SWAPPED_E7) and self._within(lon_e7, lat_e7, 0):
            raise ParameterError("Latitude and longitude are exchanged. Give the latitude first.")

    def of(self, lat_e7: int, lon_e7: int) -> int:
        """Return the place nearest to a location in 1e-7 degrees, wherever on Earth it is."""
        cosine = round(math.cos(math.radians(lat_e7 * 1e-7)) * (1 << _COSINE_BITS))
        east = self._lon - lon_e7
        if self._box[3] - lon_e7 > _HALF_TURN_E7 or lon_e7 - self._box[2] > _HALF_TURN_E7:
            east = (east + _HALF_TURN_E7) % (2 * _HALF_TURN_E7) - _HALF_TURN_E7
        east *= cosine
        east >>= _COSINE_BITS
        east *= east
        north = self._lat - lat_e7
        north *= north
        north += east
        return int(north.argmin())

    def _within(self, lat_e7: int, lon_e7: int, margin_e7: int) -> bool:
        south, north, west, east = self._box
        return south - margin_e7 <= lat_e7 <= north + margin_e7 and west - margin_e7 <= lon_e7 <= east + margin_e7
