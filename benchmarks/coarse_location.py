"""Android's coarse location as a seeded sampler, for comparison only: it promises nothing.

Reports are points of a grid. Anyone who knows the offset can tell apart two locations on the two sides of a grid line.
The offset is nearly the same all day.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError

__all__ = ["CoarseLocation", "CoarseReporter"]

_METRES_PER_DEGREE: Final = 111_000
"""As Android has it."""
_NEW_WEIGHT: Final = 0.03
_OLD_WEIGHT: Final = math.sqrt(1 - _NEW_WEIGHT**2)


@dataclass(frozen=True)
class CoarseLocation:
    """What Android gives to applications that may only know the approximate location (its `LocationFudger`).

    An offset, normal with a standard deviation of a quarter of the accuracy along each axis, is added; each hour 3 % of
    it is renewed. Then latitude and longitude are rounded to a grid as wide as the accuracy.
    """

    accuracy_m: float = 2000.0

    def __post_init__(self) -> None:
        if not 200 <= self.accuracy_m <= 1e6:
            raise ParameterError(f"The accuracy must be from 200 m to 1,000 km. Got {self.accuracy_m:g} m instead.")

    @property
    def deviation_m(self) -> float:
        """Standard deviation of the offset along each axis, metres."""
        return self.accuracy_m / 4

    def begin(self, rng: np.random.Generator) -> CoarseReporter:
        """Begin with a vehicle."""
        return CoarseReporter(self, rng)

    def snapped(self, lat: Floats, lon: Floats, east_m: Floats, north_m: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from coordinates, degrees, with known offsets, metres."""
        moved_lon = lon + east_m / (_METRES_PER_DEGREE * np.cos(np.radians(lat)))
        step = self.accuracy_m / _METRES_PER_DEGREE
        snapped_lat = np.round((lat + north_m / _METRES_PER_DEGREE) / step) * step
        across = step / np.cos(np.radians(snapped_lat))
        return snapped_lat, np.round(moved_lon / across) * across


class CoarseReporter:
    """Reports of one vehicle, with an offset that stays for an hour."""

    def __init__(self, sampler: CoarseLocation, rng: np.random.Generator) -> None:
        self._sampler, self._rng = sampler, rng
        self._offset_m = rng.normal(0.0, sampler.deviation_m, 2)

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from each of some coordinates, in the order of time, degrees, shape (N,)."""
        east, north = self._offset_m
        return self._sampler.snapped(np.asarray(lat), np.asarray(lon), east, north)

    def next_hour(self) -> None:
        """Let an hour pass."""
        new = self._rng.normal(0.0, self._sampler.deviation_m, 2)
        self._offset_m = _OLD_WEIGHT * self._offset_m + _NEW_WEIGHT * new
