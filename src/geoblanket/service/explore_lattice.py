"""What a lattice does at a coordinate that somebody picks on a map: where reports fall, and what one tells.

A city has some hundred thousand cells. The page is sent those around a point, and no more of them than it can draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.meaning import Errors, laplace_errors
from geoblanket.service.explore_guess import WholeCity, laplace_per_km2
from geoblanket.service.store import ServedBundle

__all__ = ["ExploredLattice", "Heat"]

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
        self.city = WholeCity(*(self.lattice.spec.plane.corners if area is None else area))

    @property
    def errors(self) -> Errors:
        """How far reports are off."""
        return laplace_errors(self.lattice.epsilon)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """The figures of a report, which are the same everywhere, as JSON values."""
        errors = self.errors
        return {
            "error_m": 1000 * errors.mean_km,
            "median_error_m": 1000 * errors.median_km,
            "most_error_m": 1000 * errors.most_km,
            "recipient_error_m": 1000 * self._recipient_km(),
            "unreported_error_m": self.unreported_error_m,
            "zone_error_m": None,
            "loss": None,
            "unit": None,
        }

    def _recipient_km(self) -> float:
        """Return how far off the best guess from one report is, with all coordinates of the city alike beforehand."""
        mean_km = self.errors.mean_km
        # Where noise is small against the city, nothing is a better guess than the report itself.
        if mean_km < _SMALL_NOISE * min(self.city.size_km):
            return mean_km
        return min(self.city.reported_km(self.lattice.epsilon), mean_km)

    def heat(self, lat: float, lon: float) -> Heat:
        """Return where reports from a coordinate fall, around it.

        The other way round it is where a report comes from, to somebody for whom all coordinates are alike: the noise
        is the same in both directions.

        Parameters
        ----------
        lat, lon
            Degrees; outside the frame, its nearest point counts.
        """
        spec = self.lattice.spec
        plane, n, across = spec.plane, spec.cell_units, spec.cells_across
        x, y = (int(value) for value in plane.units(lat, lon))
        reach_m = _REACH * 1000 * self.errors.most_km
        cells = max(math.ceil(2 * reach_m / self.lattice.cell_m / _MOST_ACROSS), 1)
        half = math.ceil(reach_m / self.lattice.cell_m / cells) * cells + cells // 2
        (left, columns), (low, rows) = (_blocks(value // n - half, 2 * half + 1, cells, across) for value in (x, y))
        whole = self.lattice.weights_at(x, y).reshape(across, across)
        part = whole[low : low + rows * cells, left : left + columns * cells]
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

    def own_cell(self, lat: float, lon: float) -> float:
        """Return how probable it is that the report is the cell of the coordinate itself."""
        spec = self.lattice.spec
        x, y = (int(value) for value in spec.plane.units(lat, lon))
        cell = (y // spec.cell_units) * spec.cells_across + x // spec.cell_units
        return int(self.lattice.weights_at(x, y)[cell]) / DENOMINATOR

    def draw(self, lat: float, lon: float) -> tuple[float, float]:
        """Draw a report from a coordinate: its latitude and longitude."""
        return self.lattice.center(self.lattice.draw(lat, lon))

    def snapped(self, lat: float, lon: float) -> tuple[float, float]:
        """Return the centre of the cell of a coordinate."""
        spec = self.lattice.spec
        x, y = (int(value) // spec.cell_units for value in spec.plane.units(lat, lon))
        return self.lattice.center(y * spec.cells_across + x)

    def near_truth(self, lat: float, lon: float, report: tuple[float, float]) -> tuple[float, float]:
        """Return how probable it is to a recipient that the vehicle is within 250 m of where it is.

        Before a report, with all coordinates of the city alike, and after it.
        """
        near_km2 = math.pi * _NEAR_KM**2
        away_km = float(haversine_m(lat, lon, *report)) / 1000
        steps = np.linspace(-_NEAR_KM, _NEAR_KM, 21)
        east, north = np.meshgrid(steps, steps)
        inside = np.hypot(east, north) <= _NEAR_KM
        epsilon = self.lattice.epsilon
        here = float(laplace_per_km2(epsilon, np.hypot(east[inside] + away_km, north[inside])).mean()) * near_km2
        # Of a lattice's noise much may lie beyond the city, where nobody looks for the vehicle.
        anywhere = min(self.city.mean_per_km2(epsilon, *report) * self.city.area_km2, 1.0)
        before = min(near_km2 / self.city.area_km2, 1.0)
        return before, min(here / anywhere, 1.0) if anywhere > 0 else before

    @property
    def unreported_error_m(self) -> float:
        """How far off the best guess is without a report, on average with all coordinates of the city alike, metres."""
        return 1000 * self.city.unreported_km()


def _blocks(start: int, length: int, cells: int, across: int) -> tuple[int, int]:
    """Return the first cell, and how many whole blocks there are, of a stretch that is cut off at the frame's edges."""
    first, end = max(start, 0), min(start + length, across)
    return first, max((end - first) // cells, 1)
