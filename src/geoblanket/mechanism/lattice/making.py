"""From an area and ε to a lattice: the rate as large as the check of the multipliers allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import check_epsilon
from geoblanket.mechanism.lattice.kernel import LARGEST_SQUARE, exponents, mantissas, rate_for, slope
from geoblanket.mechanism.lattice.plane import Plane, plane_over
from geoblanket.mechanism.lattice.spec import DENOMINATOR, SINK_BASE, LatticeSpec, octant_count

LARGEST_CELLS: Final = 2**26
"""Cells of a frame, at most: a square of 8,192, which is 819 km at ε = 2 per km with cells of 200/ε m."""
_CELL_EPSILON_M: Final = 140.0
"""Cells are 140/ε m wide: the mean error is then .4 % above the limit (`limit`). With 200/ε m it would be .7 %, with
100/ε m .25 %; but draws that are not prepared take half as long, and twice as long."""
_LEAST_CELLS: Final = 100
_UNITS_IN_CELL: Final = 100
_LEAST_UNIT_MM: Final = 1000
_LARGEST_CELL_MM: Final = 10**8
_MARGIN_EPSILON_KM: Final = 10.0
"""The margin is 10/ε km wide: of 2,000 reports from the area's edge, one goes beyond it."""
_FLOOR_SHARE: Final = Fraction(1, 100_000)
"""Probability that all floors have together: .02 % of accuracy in a frame of 50 km, less in smaller ones."""
_ROUNDING: Final = Fraction(1, 2**27)
_ROUNDS: Final = 6
_NEGLIGIBLE: Final = 30.0
"""e^-30 of the kernel is too little to matter for a first guess."""
_TIGHT: Final = Fraction(97, 100)
"""A rate that uses so much of what it leaves to the multipliers is good enough."""
_HAIR: Final = Fraction(1001, 1000)
"""More than the steepness changes with the rate, from one round to the next."""


@dataclass(frozen=True)
class Area:
    """A part of the Earth between two parallels and two meridians, degrees."""

    south: float
    west: float
    north: float
    east: float
    """Less than `west` where the area crosses 180° of longitude."""

    def __post_init__(self) -> None:
        corners = (self.south, self.west, self.north, self.east)
        on_earth = -90 <= self.south <= 90 and -90 <= self.north <= 90 and max(abs(self.west), abs(self.east)) <= 180
        if not all(map(math.isfinite, corners)) or not on_earth:
            raise ParameterError("An area is SOUTH,WEST,NORTH,EAST in degrees: latitudes to ±90, longitudes to ±180.")
        if self.south > self.north:
            raise ParameterError("The area ends south of where it begins. It is SOUTH,WEST,NORTH,EAST.")

    @classmethod
    def around(cls, lat: float, lon: float, radius_km: float) -> Area:
        """Return the area within a distance of a point, kilometres north, south, east and west."""
        if not 0 < radius_km <= 2_000:
            raise ParameterError(f"The radius must be above 0 and at most 2,000 km. Got {radius_km:g} km instead.")
        in_degrees = radius_km / _KM_PER_DEGREE
        if not abs(lat) + in_degrees < 89:
            raise ParameterError("The area reaches a pole, where there is no east and west. Take a smaller radius.")
        across = in_degrees / math.cos(math.radians(lat))
        west, east = ((lon + step + 180) % 360 - 180 for step in (-across, across))
        return cls(lat - in_degrees, west, lat + in_degrees, east)


_KM_PER_DEGREE: Final = 111.19508


def spec_over(area: Area, *, epsilon: float, cell_m: float | None = None, progress: Progress = silent) -> LatticeSpec:
    """Return the numbers of a lattice over an area.

    Parameters
    ----------
    area
        What vehicles report from; a margin of 10/ε km comes on top.
    epsilon
        ε of a report, per kilometre.
    cell_m
        Metres from edge to edge of a cell; about 140/ε where none are given, or 200/ε in the largest frames.
    """
    check_epsilon(epsilon)
    wanted_mm = 1000 * (cell_m if cell_m is not None else _CELL_EPSILON_M / epsilon)
    if not _LEAST_UNIT_MM <= wanted_mm <= _LARGEST_CELL_MM:
        raise ParameterError(f"A cell must be from 1 m to 100 km wide. Got {wanted_mm / 1000:g} m instead.")
    unit_mm = max(_LEAST_UNIT_MM, round(wanted_mm / _UNITS_IN_CELL / 100) * 100)
    cell_units = max(round(wanted_mm / unit_mm), 1)
    plane = plane_over(
        south=area.south, west=area.west, north=area.north, east=area.east, margin_km=_MARGIN_EPSILON_KM / epsilon,
        unit_mm=unit_mm, cell_units=cell_units,
    )  # fmt: skip
    cells = (plane.side // cell_units) ** 2
    side_km, cell_km = plane.side * unit_mm / 10**6, cell_units * unit_mm / 10**6
    if cells < _LEAST_CELLS:
        raise ParameterError(
            f"The frame of {side_km:.3g} km has only {cells} cells of {cell_km:.3g} km, fewer than {_LEAST_CELLS}. "
            "Take a larger ε, smaller cells or a larger area."
        )
    if cells > LARGEST_CELLS and cell_m is None:
        return spec_over(area, epsilon=epsilon, cell_m=200 / epsilon, progress=progress)
    if cells > LARGEST_CELLS:
        raise ParameterError(
            f"The frame of {side_km:,.0f} km has {cells:,} cells of {1000 * cell_km:.3g} m, more than "
            f"{LARGEST_CELLS:,}. Take a smaller area, or cells of {1000 * side_km / LARGEST_CELLS**0.5:.0f} m or more."
        )
    return make_spec(plane, epsilon_micro=round(epsilon * 10**6), cell_units=cell_units, progress=progress)


def make_spec(plane: Plane, *, epsilon_micro: int, cell_units: int, progress: Progress = silent) -> LatticeSpec:
    """Return the numbers of a lattice on a frame; `verify_lattice` decides whether they keep the promise.

    Parameters
    ----------
    plane
        The frame; its side must be a whole number of cells.
    epsilon_micro
        ε in millionths per kilometre.
    cell_units
        Units from edge to edge of a cell.
    """
    epsilon = Fraction(epsilon_micro * plane.unit_mm, 10**12)
    floor = math.floor(DENOMINATOR * _FLOOR_SHARE / (plane.side // cell_units) ** 2)
    rounding = Fraction(1, floor) + _ROUNDING
    steepest = epsilon * _typical_steepness(float(epsilon) * cell_units, cell_units)
    best: LatticeSpec | None = None
    for attempt in range(_ROUNDS):
        progress("multipliers", attempt, None)
        rate = rate_for(epsilon - rounding - steepest)
        if steepest > epsilon / 2 or rate < 1:
            break
        spec = _with_multipliers(plane, epsilon_micro, cell_units, rate, floor)
        room, measured = epsilon - slope(rate) - rounding, Fraction(_steepest(spec.multipliers, cell_units))
        if measured <= room and (best is None or rate > best.rate):
            best = spec
        if room * _TIGHT < measured <= room:
            break
        steepest = measured * _HAIR
    if best is not None:
        return best
    raise ParameterError(
        f"Cells of {cell_units * plane.unit_mm / 1000:g} m are too coarse for ε = {epsilon_micro / 1e6:g} per km: more "
        f"than half of ε would be lost to them. About {1e6 * _CELL_EPSILON_M / epsilon_micro:.3g} m is right."
    )


def _typical_steepness(epsilon_cell: float, cell_units: int) -> Fraction:
    """Return the share of ε that the multipliers take, about, for cells of this size times ε.

    It is a fit, 0 to 2 % above what is measured from 11 to 100 units on: most lattices need one round.
    """
    return Fraction(0.159 * (1 - 1.1 / cell_units) * epsilon_cell**2).limit_denominator(10**9)


def _with_multipliers(plane: Plane, epsilon_micro: int, cell_units: int, rate: int, floor: int) -> LatticeSpec:
    start = np.full(octant_count(cell_units), 2**30, np.int32)
    first = LatticeSpec(plane, epsilon_micro, cell_units, rate, 0, floor, 1, start)
    # The weight at distance 0 is multiplier·2^31 / 2^shift; multipliers shall be from 2^29 to 2^30.
    top = DENOMINATOR / _kernel_sum(first)
    shift = math.floor(31 + 30 - math.log2(top))
    guess = math.floor(top * 2.0 ** (shift - 31))
    spec = replace(first, shift=shift, half_window=_half_window(first, shift, guess))
    return replace(spec, multipliers=_multipliers(spec, guess))


def _kernel_sum(spec: LatticeSpec) -> float:
    """Return the kernel's sum over all cells from a cell's centre, about."""
    steps = np.arange(spec.cells_across)
    axis = np.minimum(steps, spec.cells_across - steps)
    axis = axis[axis <= _NEGLIGIBLE / float(slope(spec.rate)) / spec.cell_units]
    distances = np.hypot(axis, axis[:, None]) * spec.cell_units
    return float(np.exp(-float(slope(spec.rate)) * distances).sum())


def _half_window(spec: LatticeSpec, shift: int, multiplier: int) -> int:
    """Return from how many cells on along an axis no weight is above the floor."""
    largest = multiplier + (multiplier >> 3)
    n = spec.cell_units
    for half in range(1, spec.cells_across // 2):
        nearest = (half + 1) * n - n // 2
        if 2 * (nearest + n) ** 2 >= LARGEST_SQUARE:
            raise ParameterError("The cells are too small for ε: take larger ones.")
        m, exponent = mantissas(exponents(np.array([nearest**2]), spec.rate))
        if int(m[0] + 9) * largest >> int(exponent[0]) + shift < spec.floor:
            return half
    return max(spec.cells_across // 2, 1)


def _multipliers(spec: LatticeSpec, guess: int) -> Indices:
    """Return, for each position, the largest multiplier with which all cells weigh at most 2^62 − `SINK_BASE`."""
    target = DENOMINATOR - SINK_BASE
    half = spec.cell_units // 2
    a, b = np.tril_indices(half + 1)
    result = np.full(len(a), guess, np.int64)
    for index in range(len(a)):
        squares = spec.window.squares[b[index]][:, None] + spec.window.squares[a[index]]
        m, exponent = mantissas(exponents(squares, spec.rate))
        exponent += spec.shift
        np.minimum(exponent, 62, out=exponent)
        result[index] = _largest(m.ravel(), exponent.ravel(), spec, target, int(result[index - 1] if index else guess))
    return result.astype(np.int32)


def _largest(m: Ints, exponent: Ints, spec: LatticeSpec, target: int, guess: int) -> int:
    floor, outside = spec.floor, spec.window.outside * spec.floor

    def total(multiplier: int) -> tuple[int, float]:
        """Return the weight of all cells, and how much it grows with the multiplier."""
        weights = m * multiplier >> exponent
        lowest = floor * int(np.count_nonzero(weights <= floor))
        inside = int(np.maximum(weights, floor, out=weights).sum())
        return inside + outside, (inside - lowest) / multiplier

    # Above the floor the total is linear in the multiplier, nearly: a few secants end at the step where it passes.
    for _ in range(60):
        known, gain = total(guess)
        step = math.floor((target - known) / gain)
        if step == 0 and known <= target:
            while total(guess + 1)[0] <= target:
                guess += 1
            return guess
        guess += step or -1
    raise ParameterError("No multiplier was found. This frame is too small for its ε.")


def _steepest(multipliers: Indices, n: int) -> float:
    """Return the largest (M(u)/M(u') − 1)/d(u, u'), rounded up a little."""
    position = np.arange(n)
    away = np.minimum(position, n - position)
    large, small = np.maximum(away[:, None], away), np.minimum(away[:, None], away)
    table = multipliers[large * (large + 1) // 2 + small].astype(np.float64)
    steepest = 0.0
    for dx in range(n // 2 + 1):
        for dy in range(dx + 1):
            if dx:
                ratio = float((np.roll(table, (dx, dy), (0, 1)) / table).max())
                steepest = max(steepest, (ratio - 1) / math.hypot(dx, dy))
    return steepest * (1 + 1e-9)
