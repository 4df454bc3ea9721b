"""What a lattice does at a coordinate on the map: where reports fall, what one tells, and what many nights tell.

A city has some hundred thousand cells. The page is sent those around a point, and no more of them than it can draw.

A home over many nights is measured on simulated lives. Each life draws a fence of its own, comes home every evening,
and reports by the lattice of the bundle. With hold a night is one draw; without it every report of the night is one.
The attacker knows the mechanism, and takes the point that fits all reports so far best. Streets and habits would help
beyond that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.meaning import Errors, laplace_errors
from geoblanket.release.fence import NO_FENCES, Fence, Fences
from geoblanket.service.explore_map import points
from geoblanket.service.store import ServedBundle

__all__ = ["ExploredLattice", "WholeCity", "live_at_home"]

_POINTS_ACROSS: Final = 31
_DRAWN_REPORTS: Final = 300
"""Drawn for an average; its standard error is a few percent."""
_SEED: Final = 0
_LEAST_KM2: Final = 1e-4
_BLOCKS_ACROSS: Final = 71
"""Blocks of cells from edge to edge of what is sent."""
_REACH: Final = 1.3
"""How far it reaches, times the distance within which 95 % of reports lie."""
_NEAR_KM: Final = 0.25
_SMALL_NOISE: Final = 1 / 20
"""Of the city's shorter side: reports that are off by less hardly ever reach beyond it."""
_NIGHTS: Final = 30
_MOST_LIVES, _LEAST_LIVES = 200, 12
_MOST_DRAWS: Final = 200_000
"""Of all lives together, about as many as a page can wait for."""
_ROUNDS: Final = 20
"""Each halves how far the best point is missed by, about."""
_NEAREST_KM: Final = 1e-3
"""A report at the estimate itself counts as this far from it, so that its weight is finite."""


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
        radius, angle = rng.gamma(2, 1 / epsilon, _DRAWN_REPORTS), rng.uniform(0, 2 * math.pi, _DRAWN_REPORTS)
        noise = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        reports = rng.uniform((0.0, 0.0), self.size_km, (_DRAWN_REPORTS, 2)) + noise
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
        east, north = ((np.arange(_POINTS_ACROSS) + 0.5) * (side / _POINTS_ACROSS) for side in self.size_km)
        return np.stack(np.meshgrid(east, north), axis=-1).reshape(-1, 2)

    @cached_property
    def _between(self) -> Floats:
        return _apart(self._points, self._points)


def laplace_per_km2(epsilon: float, distance_km: npt.ArrayLike) -> Floats:
    """Return the density of planar Laplace noise of ε per km at distances in km, per square kilometre."""
    return np.asarray(epsilon**2 / (2 * math.pi) * np.exp(-epsilon * np.asarray(distance_km, np.float64)))


def _apart(points: Floats, others: Floats) -> Floats:
    return np.asarray(np.hypot(*(points[:, None] - others).transpose(2, 0, 1)))


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
        cells = max(math.ceil(2 * reach_m / self.lattice.cell_m / _BLOCKS_ACROSS), 1)
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


def live_at_home(
    lattice: Lattice, lat: float, lon: float, *, interval_s: float, hold: bool, radius_km: float | None
) -> dict[str, Any]:
    """Return what thirty nights at a home tell, as JSON values: means over many lives, and one life to draw.

    Parameters
    ----------
    lat, lon
        The home, degrees.
    interval_s
        Seconds from one report to the next; with hold it makes no difference.
    hold
        Whether reports at rest are held, so that a night is one draw.
    radius_km
        ρ of the fence around the home, kilometres; None: there is none.

    Raises
    ------
    ParameterError
        If no fence can lie there.
    """
    reports = 1 if hold else max(round(NIGHT_S / interval_s), 1)
    lives = int(np.clip(_MOST_DRAWS // (_NIGHTS * reports), _LEAST_LIVES, _MOST_LIVES))
    fences = [NO_FENCES if radius_km is None else _fenced(lat, lon, radius_km) for _ in range(lives)]
    at_e7 = [fence.apply_e7(round(lat * 1e7), round(lon * 1e7)) for fence in fences]
    seen_lat, seen_lon = np.repeat(np.array(at_e7) * 1e-7, _NIGHTS * reports, axis=0).T
    reported_lat, reported_lon = lattice.centers(lattice.draw_many(seen_lat, seen_lon))
    # Kilometres east and north of the home: an attacker's figures do not depend on where that is.
    scale = np.array([111.195 * np.cos(np.radians(lat)), 111.195])
    reported = np.column_stack([reported_lon - lon, reported_lat - lat]).reshape(lives, _NIGHTS, reports, 2) * scale
    guesses = _guesses(reported)
    off_m = 1000 * np.hypot(*np.moveaxis(guesses, -1, 0))
    shown = guesses[0] / scale
    fence = next(iter(fences[0]), None)
    return {
        "lives": lives,
        "draws": reports,
        "fence": None if fence is None else _fence_facts(fence),
        "error_m": np.round(off_m.mean(axis=0), 1).tolist(),
        "circle_m": np.round(np.quantile(off_m, 0.9, axis=0), 1).tolist(),
        "reports": points(
            *(values.reshape(lives, _NIGHTS, reports)[0, :, -1] for values in (reported_lat, reported_lon))
        ),
        "guesses": points(lat + shown[:, 1], lon + shown[:, 0]),
        "guess_error_m": np.round(haversine_m(lat, lon, lat + shown[:, 1], lon + shown[:, 0]), 1).tolist(),
    }


def _guesses(reported: Floats) -> Floats:
    """Return the guess after each night, shape (lives, nights, 2), from reports, (lives, nights, reports, 2)."""
    lives, nights, reports, _ = reported.shape
    if reports == 1:
        return np.stack([best_fit(reported[:, :night, 0]) for night in range(1, nights + 1)], axis=1)
    # The mean of equally good guesses is as good as the point that fits all of their many reports.
    nightly = best_fit(reported.reshape(-1, reports, 2)).reshape(lives, nights, 2)
    mean: Floats = nightly.cumsum(axis=1) / np.arange(1, nights + 1)[:, None]
    return mean


def _fence_facts(fence: Fence) -> dict[str, Any]:
    center = [fence.lon_e7 / 1e7, fence.lat_e7 / 1e7]
    return {"center": center, "radius_m": fence.radius_m, "delta_100_m": fence.delta(0.1)}


def _fenced(lat: float, lon: float, radius_km: float) -> Fences:
    return NO_FENCES.with_place(lat, lon, radius_km=radius_km)[0]


def best_fit(reported: Floats) -> Floats:
    """Return the point with the least sum of distances to the reports of each life: the likeliest by Laplace noise.

    Parameters
    ----------
    reported
        Reports in a plane, shape (lives, reports, 2).
    """
    guess: Floats = reported.mean(axis=1)
    for _ in range(_ROUNDS):  # Weiszfeld's method
        weight = 1 / np.maximum(np.hypot(*np.moveaxis(reported - guess[:, None], -1, 0)), _NEAREST_KM)
        guess = (weight[..., None] * reported).sum(axis=1) / weight.sum(axis=1)[:, None]
    return guess
