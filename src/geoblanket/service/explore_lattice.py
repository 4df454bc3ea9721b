"""What a lattice does at a coordinate that somebody picks on a map: where reports fall, and what one tells.

A city has some hundred thousand cells. The page is sent those around a point, and no more of them than it can draw.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.lattice.anchor import Shift
from geoblanket.mechanism.lattice.lattice import NO_SHIFT
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.meaning import Errors, laplace_errors
from geoblanket.service.explore_guess import WholeCity
from geoblanket.service.store import ServedBundle

__all__ = ["ExploredLattice", "Heat", "Spread"]

_MOST_ACROSS: Final = 71
"""Blocks of cells from edge to edge of what is sent."""
_REACH: Final = 1.3
"""How far it reaches, times the distance within which 95 % of reports lie."""
_NEAR_KM: Final = 0.25
_HECTARES_IN_KM2: Final = 100.0
_SMALL_NOISE: Final = 1 / 20
"""Of the city's shorter side: reports that are off by less hardly ever reach beyond it."""


@dataclass(frozen=True, eq=False)
class Heat:
    """Blocks of cells around a point, from west to east, then from south to north."""

    south: float
    west: float
    """Corner of the first block, degrees."""
    north_step: float
    east_step: float
    """Size of a block, degrees."""
    columns: int
    cells: int
    """Cells from edge to edge of a block."""
    per_hectare: Floats
    """The probability of a hectare within each block, shape (blocks,)."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values, with as many digits as a colour needs."""
        rounded = [float(f"{value:.3g}") for value in self.per_hectare.tolist()]
        return {**vars(self), "per_hectare": rounded}


class Spread:
    """How probable planar Laplace noise is at a distance, with an anchor's added where there is one.

    Parameters
    ----------
    epsilon
        ε of a report, per km.
    anchor_epsilon
        ε₀ of the anchor, per km; None: there is none, or it is known.
    """

    _POINTS: Final = 1024
    _SPAN: Final = 24.0

    def __init__(self, epsilon: float, anchor_epsilon: float | None) -> None:
        self._epsilon, self._anchor_epsilon = epsilon, anchor_epsilon

    def per_km2(self, distance_km: npt.ArrayLike) -> Floats:
        """Return the density at distances in km, per square kilometre."""
        distance = np.asarray(distance_km, np.float64)
        if self._anchor_epsilon is None:
            return np.asarray(self._epsilon**2 / (2 * math.pi) * np.exp(-self._epsilon * distance))
        distances, density = self._profile
        return np.asarray(np.interp(distance, distances, density, right=0.0))

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw noise for an estimate, in floating point, shape (n, 2), km."""
        total = np.zeros((count, 2))
        for rate in (self._epsilon, self._anchor_epsilon):
            if rate is not None:
                radius, angle = rng.gamma(2, 1 / rate, count), rng.uniform(0, 2 * math.pi, count)
                total += radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        return total

    @cached_property
    def _profile(self) -> tuple[Floats, Floats]:
        """Distances, and the density of the sum of both noises there: the product of their transforms."""
        rates = [rate for rate in (self._epsilon, self._anchor_epsilon) if rate is not None]
        pitch = 2 * self._SPAN / min(rates) / self._POINTS
        axis = (np.arange(self._POINTS) - self._POINTS // 2) * pitch
        distance = np.fft.ifftshift(np.hypot(axis, axis[:, None]))
        product: npt.NDArray[np.complex128] = np.ones((self._POINTS, self._POINTS // 2 + 1), np.complex128)
        for rate in rates:
            noise = np.exp(-rate * distance)
            product *= np.fft.rfft2(noise / noise.sum())
        half = self._POINTS // 2
        density: Floats = np.maximum(np.fft.irfft2(product, s=distance.shape)[0, :half] / pitch**2, 0.0)
        return pitch * np.arange(half, dtype=np.float64), density


class ExploredLattice:
    """A bundle with a lattice, by coordinate.

    Parameters
    ----------
    served
        The bundle.
    area
        South, west, north and east of the city, degrees; None: of the lattice's frame, which reaches beyond the city.
    """

    def __init__(self, served: ServedBundle, area: tuple[float, float, float, float] | None = None) -> None:
        if served.bundle.lattice is None:
            raise ValueError("This bundle has no lattice.")
        self.facts, self.guarantee = served.facts, served.guarantee
        self.bundle = served.bundle
        self.lattice = served.bundle.lattice
        self.costs = served.bundle.costs
        self.interval_s: float = served.bundle.needed_clock().interval_s
        self._known_recipient_km: dict[bool, float] = {}
        self.city = WholeCity(*(self.lattice.spec.plane.corners if area is None else area))

    def errors(self, *, anchored: bool) -> Errors:
        """Return how far reports are off, with the anchor or without."""
        return laplace_errors(self.lattice.epsilon, self._anchor_epsilon(anchored))

    def figures(self, *, anchored: bool) -> dict[str, Any]:
        """Return the figures of a report, which are the same everywhere, as JSON values."""
        errors = self.errors(anchored=anchored)
        return {
            "error_m": 1000 * errors.mean_km,
            "median_error_m": 1000 * errors.median_km,
            "most_error_m": 1000 * errors.most_km,
            "recipient_error_m": 1000 * self._recipient_km(anchored),
            "unreported_error_m": self.unreported_error_m,
            "zone_error_m": None,
            "loss": None,
            "unit": None,
        }

    def _recipient_km(self, anchored: bool) -> float:
        """Return how far off the best guess from one report is, with all coordinates of the city alike beforehand."""
        if anchored not in self._known_recipient_km:
            mean_km, spread = self.errors(anchored=anchored).mean_km, self._spread(anchored)
            # Where noise is small against the city, nothing is a better guess than the report itself.
            is_small = mean_km < _SMALL_NOISE * min(self.city.size_km)
            guess_km = mean_km if is_small else self.city.reported_km(spread.per_km2, spread.draw)
            self._known_recipient_km[anchored] = min(guess_km, mean_km)
        return self._known_recipient_km[anchored]

    def heat(self, lat: float, lon: float, *, anchored: bool) -> Heat:
        """Return where reports from a coordinate fall, around it.

        The other way round it is where a report comes from, to somebody for whom all coordinates are alike: the noise
        is the same in both directions.

        Parameters
        ----------
        lat, lon
            Degrees; outside the frame, its nearest point counts.
        anchored
            Whether the anchor is part of the noise. Without it: what is left if it is known.
        """
        spec = self.lattice.spec
        plane, n, across = spec.plane, spec.cell_units, spec.cells_across
        x, y = (int(value) for value in plane.units(lat, lon))
        reach_m = _REACH * 1000 * self.errors(anchored=anchored).most_km
        cells = max(math.ceil(2 * reach_m / self.lattice.cell_m / _MOST_ACROSS), 1)
        half = math.ceil(reach_m / self.lattice.cell_m / cells) * cells + cells // 2
        (left, columns), (low, rows) = (_blocks(value // n - half, 2 * half + 1, cells, across) for value in (x, y))
        column = left + np.arange(columns * cells)
        row = low + np.arange(rows * cells)
        if anchored and self.lattice.anchor is not None:
            away = [_around(numbers * n + n // 2 - at, plane.side) for numbers, at in ((column, x), (row, y))]
            distance_km = np.hypot(away[0], away[1][:, None]) * (plane.unit_mm / 1e6)
            per_hectare = self._spread(True).per_km2(distance_km) / _HECTARES_IN_KM2
        else:
            whole = self.lattice.weights_at(x, y).reshape(across, across)
            part = whole[low : low + len(row), left : left + len(column)]
            per_hectare = part / DENOMINATOR / (self.lattice.cell_m / 100) ** 2
        blocks = per_hectare.reshape(rows, cells, columns, cells).mean(axis=(1, 3))
        (south, next_south), (west, next_west) = plane.degrees(
            [left * n, (left + cells) * n], [low * n, (low + cells) * n]
        )
        return Heat(
            south=float(south),
            west=float(west),
            north_step=float(next_south - south),
            east_step=float((next_west - west) % 360),
            columns=columns,
            cells=cells,
            per_hectare=blocks.ravel(),
        )

    def own_cell(self, lat: float, lon: float, *, anchored: bool) -> float:
        """Return how probable it is that the report is the cell of the coordinate itself."""
        spec = self.lattice.spec
        x, y = (int(value) for value in spec.plane.units(lat, lon))
        if anchored and self.lattice.anchor is not None:
            return float(self._spread(True).per_km2(0.0)) * (self.lattice.cell_m / 1000) ** 2
        cell = (y // spec.cell_units) * spec.cells_across + x // spec.cell_units
        return int(self.lattice.weights_at(x, y)[cell]) / DENOMINATOR

    def draw(self, lat: float, lon: float, *, anchored: bool) -> tuple[float, float]:
        """Draw a report from a coordinate, with an anchor of its own if asked for: its latitude and longitude."""
        shift = self.new_shift() if anchored else NO_SHIFT
        return self.lattice.center(self.lattice.draw(lat, lon, shift=shift))

    def new_shift(self) -> Shift:
        """Draw an anchor for the page: it is nobody's."""
        anchor = self.lattice.anchor
        return NO_SHIFT if anchor is None else anchor.draw(self.lattice.spec.plane.side, secrets.randbelow)

    def snapped(self, lat: float, lon: float) -> tuple[float, float]:
        """Return the centre of the cell of a coordinate."""
        spec = self.lattice.spec
        x, y = (int(value) // spec.cell_units for value in spec.plane.units(lat, lon))
        return self.lattice.center(y * spec.cells_across + x)

    def near_truth(self, lat: float, lon: float, report: tuple[float, float], *, anchored: bool) -> tuple[float, float]:
        """Return how probable it is to a recipient that the vehicle is within 250 m of where it is.

        Before a report, with all coordinates of the city alike, and after it.
        """
        near_km2 = math.pi * _NEAR_KM**2
        away_km = float(haversine_m(lat, lon, *report)) / 1000
        steps = np.linspace(-_NEAR_KM, _NEAR_KM, 21)
        east, north = np.meshgrid(steps, steps)
        inside = np.hypot(east, north) <= _NEAR_KM
        spread = self._spread(anchored)
        here = float(spread.per_km2(np.hypot(east[inside] + away_km, north[inside])).mean()) * near_km2
        # Of a lattice's noise much may lie beyond the city, where nobody looks for the vehicle.
        anywhere = min(self.city.mean_per_km2(spread.per_km2, *report) * self.city.area_km2, 1.0)
        before = min(near_km2 / self.city.area_km2, 1.0)
        return before, min(here / anywhere, 1.0) if anywhere > 0 else before

    @property
    def unreported_error_m(self) -> float:
        """How far off the best guess is without a report, on average with all coordinates of the city alike, metres."""
        return 1000 * self.city.unreported_km()

    def _anchor_epsilon(self, anchored: bool) -> float | None:
        return self.lattice.anchor.epsilon if anchored and self.lattice.anchor is not None else None

    def _spread(self, anchored: bool) -> Spread:
        return self._anchored_spread if anchored else Spread(self.lattice.epsilon, None)

    @cached_property
    def _anchored_spread(self) -> Spread:
        return Spread(self.lattice.epsilon, self._anchor_epsilon(True))


def _blocks(start: int, length: int, cells: int, across: int) -> tuple[int, int]:
    """Return the first cell, and how many whole blocks there are, of a stretch that is cut off at the frame's edges."""
    first, end = max(start, 0), min(start + length, across)
    return first, max((end - first) // cells, 1)


def _around(units: Ints, side: int) -> Ints:
    """Return differences along an axis as distances on the torus."""
    distances: Ints = np.minimum(units % side, -units % side)
    return distances
