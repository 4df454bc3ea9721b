"""What one report tells somebody who knows where the city ends, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m

__all__ = ["WholeCity", "laplace_per_km2"]

_ACROSS: Final = 31
_REPORTS: Final = 300
"""Drawn for an average; its standard error is a few percent."""
_SEED: Final = 0
_LEAST_KM2: Final = 1e-4


@dataclass(frozen=True)
class WholeCity:
    """A rectangle in which all coordinates are equally probable beforehand.

    A recipient knows where the city ends. Noise that reaches beyond it does not make them look for a vehicle there.
    """

    south: float
    west: float
    north: float
    east: float
    """Degrees; less than `west` where it crosses 180° of longitude."""

    @cached_property
    def size_km(self) -> tuple[float, float]:
        """From west to east and from south to north."""
        middle, width = (self.south + self.north) / 2, (self.east - self.west) % 360
        return (
            float(haversine_m(middle, 0.0, middle, width)) / 1000,
            float(haversine_m(self.south, 0.0, self.north, 0.0)) / 1000,
        )

    @property
    def area_km2(self) -> float:
        """Of the rectangle; places along one street have some, too."""
        return max(self.size_km[0] * self.size_km[1], _LEAST_KM2)

    def unreported_km(self) -> float:
        """Return how far off the best guess is without any report, on average."""
        return float(self._between.mean(axis=0).min())

    def reported_km(self, epsilon: float) -> float:
        """Return how far off the best guess is after one report with ε per km, on average."""
        rng = np.random.default_rng(_SEED)
        radius, angle = rng.gamma(2, 1 / epsilon, _REPORTS), rng.uniform(0, 2 * math.pi, _REPORTS)
        noise = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        reports = rng.uniform((0.0, 0.0), self.size_km, (_REPORTS, 2)) + noise
        likelihood = (
            laplace_per_km2(epsilon, _apart(reports, self._points)) + 1e-300
        )  # far beyond the city, a report tells nothing
        posterior = likelihood / likelihood.sum(axis=1, keepdims=True)
        return float((posterior @ self._between).min(axis=1).mean())

    def mean_per_km2(self, epsilon: float, lat: float, lon: float) -> float:
        """Return the mean over the city of the density of noise around a coordinate, degrees."""
        middle = (self.south + self.north) / 2
        north = float(haversine_m(self.south, 0.0, lat, 0.0)) / 1000 * (1 if lat >= self.south else -1)
        degrees = (lon - self.west + 180) % 360 - 180
        east = float(haversine_m(middle, 0.0, middle, degrees)) / 1000 * (1 if degrees >= 0 else -1)
        return float(laplace_per_km2(epsilon, _apart(np.array([[east, north]]), self._points)).mean())

    @cached_property
    def _points(self) -> Floats:
        """Points of a grid, km east and north of the corner, shape (n, 2)."""
        east, north = ((np.arange(_ACROSS) + 0.5) * (side / _ACROSS) for side in self.size_km)
        return np.stack(np.meshgrid(east, north), axis=-1).reshape(-1, 2)

    @cached_property
    def _between(self) -> Floats:
        return _apart(self._points, self._points)


def laplace_per_km2(epsilon: float, distance_km: npt.ArrayLike) -> Floats:
    """Return the density of planar Laplace noise of ε per km at distances in km, per square kilometre."""
    return np.asarray(epsilon**2 / (2 * math.pi) * np.exp(-epsilon * np.asarray(distance_km, np.float64)))


def _apart(points: Floats, others: Floats) -> Floats:
    return np.asarray(np.hypot(*(points[:, None] - others).transpose(2, 0, 1)))
