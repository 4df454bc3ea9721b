"""What a vehicle can have reached within one interval: the places at t − 1 that are worth a row of their own."""

from __future__ import annotations

import numpy as np

from geoblanket._arrays import Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError

__all__ = ["MAX_SPEED_M_S", "Reach", "reach_radius_m"]

MAX_SPEED_M_S = 35.0
"""No vehicle is faster, by default (126 km/h)."""


def reach_radius_m(*, interval_s: float, snapping_radius_m: float, max_speed_m_s: float = MAX_SPEED_M_S) -> float:
    """Return how far apart two places of a history can be in a straight line, metres.

    Each may lie as far from the vehicle as the snapping radius.
    """
    for name, value in (("interval_s", interval_s), ("max_speed_m_s", max_speed_m_s)):
        if not 0 < value < np.inf:
            raise ParameterError(f"{name} must be a positive number. Got {value} instead.")
    if not 0 <= snapping_radius_m < np.inf:
        raise ParameterError(f"snapping_radius_m must be zero or more metres. Got {snapping_radius_m} instead.")
    return max_speed_m_s * interval_s + 2 * snapping_radius_m


class Reach:
    """Which places lie within a radius of a place.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    radius_m
        The radius, metres, by great-circle distance.
    """

    def __init__(self, places_e7: Indices, radius_m: float) -> None:
        if not radius_m >= 0:
            raise ParameterError(f"The reach must be zero or more metres. Got {radius_m} instead.")
        self.radius_m = radius_m
        self._lat, self._lon = (places_e7 * 1e-7).T
        self._within: dict[int, Indices] = {}

    def of(self, place: int) -> Indices:
        """Return the places within reach of a place, itself among them, ascending."""
        if place not in self._within:
            distance = haversine_m(self._lat[place], self._lon[place], self._lat, self._lon)
            self._within[place] = np.flatnonzero(distance <= self.radius_m).astype(np.int32)
        return self._within[place]

    def distance_m(self, place: int, others: Indices) -> Floats:
        """Return how far some places are from a place, metres."""
        return haversine_m(self._lat[place], self._lon[place], self._lat[others], self._lon[others])
