"""What others do to a coordinate, as samplers for comparisons: floating point, and seeded; not for release.

A sampler begins with a vehicle, and reports coordinates from then on. Some remember something between reports, such as
an offset that stays for an hour: `next_hour` tells them that one has passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from geoblanket._arrays import Floats, Positions
from geoblanket._geodesy import local_degrees
from geoblanket.errors import ParameterError

__all__ = ["CoarseLocation", "FloatLaplace", "Reporter", "Sampler", "TableSampler"]

_METRES_PER_DEGREE: Final = 111_000
"""As Android has it."""
_NEW_WEIGHT: Final = 0.03
_OLD_WEIGHT: Final = math.sqrt(1 - _NEW_WEIGHT**2)


class Reporter(Protocol):
    """Reports of one vehicle."""

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from each of some coordinates, in the order of time, degrees, shape (N,)."""

    def next_hour(self) -> None:
        """Let an hour pass."""


class Sampler(Protocol):
    """A way to report."""

    @property
    def promise(self) -> str:
        """What it promises, or that it promises nothing, in words."""

    def begin(self, rng: np.random.Generator) -> Reporter:
        """Begin with a vehicle."""


@dataclass(frozen=True)
class FloatLaplace:
    """Planar Laplace noise as people use it: a continuous draw by polar coordinates, in floating point.

    (Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013: the radius has the density ε²·r·e^(−ε·r).)
    """

    epsilon: float
    """Per kilometre."""

    @property
    def promise(self) -> str:
        """What it promises, in words."""
        return (
            f"ε = {self.epsilon:g} per km between coordinates, for real numbers. Not for what is computed: which "
            "floating-point numbers can be reported at all depends on the true coordinate. Repeated reports add up, "
            "and their noise averages out."
        )

    def begin(self, rng: np.random.Generator) -> Reporter:
        """Begin with a vehicle."""
        return _LaplaceReporter(self.epsilon, rng)


@dataclass(frozen=True)
class _LaplaceReporter:
    epsilon: float
    rng: np.random.Generator

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        radius = self.rng.gamma(2.0, 1000 / self.epsilon, np.shape(lat))
        angle = self.rng.uniform(0.0, 2 * np.pi, np.shape(lat))
        origin_lat, origin_lon = np.asarray(lat), np.asarray(lon)
        north, east = local_degrees(radius * np.cos(angle), radius * np.sin(angle), origin_lat=0.0, origin_lon=0.0)
        return origin_lat + north, origin_lon + east / np.cos(np.radians(origin_lat))

    def next_hour(self) -> None:
        """Nothing stays."""


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
    def promise(self) -> str:
        """What it promises, in words."""
        return (
            f"Nothing. Reports are points of a grid of {self.accuracy_m / 1000:g} km. Two locations on the two sides "
            "of an edge are told apart for certain by whoever knows the offset, which hides where the edges are and is "
            "nearly the same all day."
        )

    @property
    def deviation_m(self) -> float:
        """Standard deviation of the offset along each axis, metres."""
        return self.accuracy_m / 4

    def begin(self, rng: np.random.Generator) -> Reporter:
        """Begin with a vehicle."""
        return _CoarseReporter(self, rng)

    def snapped(self, lat: Floats, lon: Floats, east_m: Floats, north_m: Floats) -> tuple[Floats, Floats]:
        """Return what is reported from coordinates, degrees, with known offsets, metres."""
        moved_lon = lon + east_m / (_METRES_PER_DEGREE * np.cos(np.radians(lat)))
        step = self.accuracy_m / _METRES_PER_DEGREE
        snapped_lat = np.round((lat + north_m / _METRES_PER_DEGREE) / step) * step
        across = step / np.cos(np.radians(snapped_lat))
        return snapped_lat, np.round(moved_lon / across) * across


class _CoarseReporter:
    def __init__(self, sampler: CoarseLocation, rng: np.random.Generator) -> None:
        self._sampler, self._rng = sampler, rng
        self._offset_m = rng.normal(0.0, sampler.deviation_m, 2)

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        east, north = self._offset_m
        return self._sampler.snapped(np.asarray(lat), np.asarray(lon), east, north)

    def next_hour(self) -> None:
        new = self._rng.normal(0.0, self._sampler.deviation_m, 2)
        self._offset_m = _OLD_WEIGHT * self._offset_m + _NEW_WEIGHT * new


@dataclass(frozen=True, eq=False)
class TableSampler:
    """A table of probabilities between places, such as *peaks*: the place that is reported from each place."""

    lat: Floats
    """Of places, degrees."""
    lon: Floats
    probabilities: Floats
    """Of the places (columns) that are reported from each place (rows)."""
    promise: str

    def begin(self, rng: np.random.Generator) -> Reporter:
        """Begin with a vehicle."""
        return _TableReporter(self, rng)


@dataclass(frozen=True, eq=False)
class _TableReporter:
    table: TableSampler
    rng: np.random.Generator

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        table, places = self.table, self._nearest(np.asarray(lat), np.asarray(lon))
        reported = [self.rng.choice(len(table.lat), p=table.probabilities[place]) for place in places]
        return table.lat[reported], table.lon[reported]

    def next_hour(self) -> None:
        """Nothing stays."""

    def _nearest(self, lat: Floats, lon: Floats) -> Positions:
        across = np.cos(np.radians(self.table.lat.mean()))
        apart = np.hypot(self.table.lat - lat[:, None], (self.table.lon - lon[:, None]) * across)
        nearest: Positions = apart.argmin(axis=1)
        return nearest
