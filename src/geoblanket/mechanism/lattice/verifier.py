"""Whether the numbers of a lattice keep their promise: the conditions of `spec`, checked completely, in integers.

It shares no code with the maker, nor with what draws: distances, kernel and sums are computed anew here, from the
definitions. All that is read is taken to be made by an enemy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from geoblanket._arrays import Ints
from geoblanket.errors import LatticeViolation, MechanismError
from geoblanket.mechanism.lattice.spec import LatticeSpec

_TOTAL: Final = 2**62
_SINK_BASE: Final = 2**44
_LOG_2_ABOVE: Final = Fraction("0.6931471805599453095")
_LEAST_USED: Final = Fraction(95, 100)
"""A lattice that uses a smaller share of ε keeps the promise too, but `making` never leaves that much."""
_MOST_CELLS: Final = 2**26
_MOST_UNITS_IN_CELL: Final = 1024
_MOST_WORK: Final = 2**30
"""Weights of cells that are summed, and pairs of multipliers that are compared, at most: half a minute."""


@dataclass(frozen=True)
class LatticeCertificate:
    """What was verified of a lattice, exactly."""

    epsilon_micro: int
    """ε in millionths per kilometre."""
    epsilon_effective: float
    """What the proof needs, per kilometre, rounded up; never above ε."""
    cells: int
    positions: int
    """Positions within a cell: all pairs of them were checked."""
    rounding_mm: int
    """What the promise adds to the distance for each of two coordinates, millimetres."""


def verify_lattice(spec: LatticeSpec) -> tuple[LatticeCertificate, Ints]:
    """Verify a lattice; return what was verified, and the sum of all weights for each position within a cell.

    Raises
    ------
    LatticeViolation
        The numbers do not keep the promise.
    MechanismError
        The numbers cannot be a lattice.
    """
    _check_form(spec)
    epsilon = Fraction(spec.epsilon_micro * spec.plane.unit_mm, 10**12)
    steps = Fraction(spec.rate * (2**11 + 1), 2**20) + 1
    slope = _LOG_2_ABOVE * steps / 2**24 + Fraction(1, spec.floor) + Fraction(1, 2**27)
    if slope > epsilon:
        raise LatticeViolation("The kernel of the lattice falls faster than ε allows")
    steepest = _check_multipliers(spec, epsilon - slope)
    if slope + steepest < epsilon * _LEAST_USED:
        raise MechanismError("The lattice uses less of ε than one that was made for it: its numbers were edited.")
    totals = _totals(spec)
    _check_sink(totals, epsilon)
    _check_window(spec)
    in_km = float((slope + steepest) * 10**6 / spec.plane.unit_mm)
    return (
        LatticeCertificate(
            epsilon_micro=spec.epsilon_micro,
            epsilon_effective=min(math.nextafter(in_km, math.inf), spec.epsilon_micro / 10**6),
            cells=spec.cell_count,
            positions=spec.cell_units**2,
            rounding_mm=spec.plane.rounding_mm,
        ),
        totals,
    )


def _check_form(spec: LatticeSpec) -> None:
    n, plane = spec.cell_units, spec.plane
    plane.check()
    half = n // 2
    across, rest = divmod(plane.side, max(n, 1))
    window = min(2 * spec.half_window + 1, across)
    reach = min(window * n, plane.side) // 2 + n
    for sound, what in (
        (1 <= n <= _MOST_UNITS_IN_CELL, "the size of a cell"),
        (rest == 0, "the frame, which is not a whole number of cells wide"),
        (across**2 <= _MOST_CELLS, "the number of cells"),
        (1 <= spec.half_window < _MOST_UNITS_IN_CELL, "the window"),
        (2 * reach**2 < 2**30, "the window, which is too wide"),
        (0 < spec.epsilon_micro <= 10**9, "ε"),
        (spec.rate > 0 and spec.rate * math.isqrt(2 * reach**2 << 22) < 2**62, "the rate"),
        (0 <= spec.shift < 62, "the shift"),
        (spec.floor >= 1 and spec.floor * across**2 < _TOTAL, "the floor"),
        (spec.multipliers.shape == ((half + 1) * (half + 2) // 2,), "the number of multipliers"),
        (spec.multipliers.dtype == np.int32 and bool((spec.multipliers > 0).all()), "the multipliers"),
        ((half + 1) ** 2 * max(window, n) ** 2 // 2 <= _MOST_WORK, "the work to verify it"),
    ):
        if not sound:
            raise MechanismError(f"The numbers of the lattice cannot be one: wrong is {what}.")


def _check_multipliers(spec: LatticeSpec, kappa: Fraction) -> Fraction:
    """Check (1) for all pairs of positions in a cell; return the steepest ratio found, by unit."""
    n = spec.cell_units
    table = np.empty((n, n), np.int64)
    for east in range(n):
        for north in range(n):
            small, large = sorted((min(east, n - east), min(north, n - north)))
            table[east, north] = spec.multipliers[large * (large + 1) // 2 + small]
    steepest = Fraction(0)
    for east in range(n // 2 + 1):
        for north in range(east + 1):
            if east == 0:
                continue
            distance = Fraction(math.isqrt((east**2 + north**2) << 32), 2**16)
            # By symmetry of the table this shift stands for its reflections too, and the other direction is a shift.
            shifted = np.roll(np.roll(table, east, axis=0), north, axis=1)
            allowed = min(math.floor(kappa * distance * 2**31), 2**31)
            if bool(((shifted - table << 31) > allowed * table).any()):
                raise LatticeViolation(
                    "The multipliers of the lattice change faster within a cell than ε allows: its cells are too "
                    "coarse, or its rate is too large"
                )
            worst = int(np.argmax(shifted / table))
            above = int(shifted.flat[worst]) - int(table.flat[worst])
            steepest = max(steepest, Fraction(max(above, 0), int(table.flat[worst])) / distance)
    return min(steepest, kappa)


def _totals(spec: LatticeSpec) -> Ints:
    """Return the sum of all cells' weights for each position in the octant, in the order of the multipliers."""
    n, side, across = spec.cell_units, spec.plane.side, spec.plane.side // spec.cell_units
    window = min(2 * spec.half_window + 1, across)
    centres = (np.arange(window) - window // 2) * n
    coarse, fine = _powers()
    totals = []
    for large in range(n // 2 + 1):
        east = _wrapped(centres - large, side)
        for small in range(large + 1):
            north = _wrapped(centres - small, side)
            scaled = np.add.outer(north * north, east * east) << 22
            root = np.sqrt(scaled).astype(np.int64)
            root -= root * root > scaled
            root += (root + 1) * (root + 1) <= scaled
            z = root * spec.rate >> 20
            mantissa = coarse[(z & 0xFFFFFF) >> 12] * fine[z & 0xFFF] >> 31
            multiplier = int(spec.multipliers[large * (large + 1) // 2 + small])
            weights = np.maximum((mantissa * multiplier) >> np.minimum((z >> 24) + spec.shift, 62), spec.floor)
            if float(weights.sum(dtype=np.float64)) > 1.25 * _TOTAL:
                raise LatticeViolation("The weights of the lattice are more than a whole")
            totals.append(int(weights.sum()) + (across**2 - window**2) * spec.floor)
            if totals[-1] > _TOTAL:
                raise LatticeViolation("The weights of the lattice are more than a whole")
    return np.array(totals, np.int64)


def _wrapped(differences: Ints, side: int) -> Ints:
    """Return distances along one axis of the torus."""
    return np.abs((differences + side // 2) % side - side // 2)


def _check_sink(totals: Ints, epsilon: Fraction) -> None:
    """Check (2): what the sink gets on top is at least its base, and nearly the same from everywhere."""
    least, most = _TOTAL - int(totals.max()), _TOTAL - int(totals.min())
    if least < _SINK_BASE:
        raise LatticeViolation("The weights of the lattice leave less to the sink than they must")
    if most > 2 * _SINK_BASE:
        raise MechanismError("The weights of the lattice do not add up: its numbers do not belong together.")
    # Different positions are at least one unit apart.
    if Fraction(most, least) > 1 + epsilon:
        raise LatticeViolation("What the sink of the lattice gets varies more than ε allows")


def _check_window(spec: LatticeSpec) -> None:
    """Check that the formula gives no cell outside the window more than the floor."""
    n, across = spec.cell_units, spec.plane.side // spec.cell_units
    if 2 * spec.half_window + 1 >= across:
        return
    nearest = (spec.half_window + 1) * n - n // 2
    z = math.isqrt(nearest**2 << 22) * spec.rate >> 20
    coarse, fine = _powers()
    part = z % 2**24
    mantissa = int(coarse[part >> 12]) * int(fine[part & 4095]) >> 31
    # The mantissa may be rounded down by 2^-28 of it, 8 at most; further away the exact value is smaller.
    if (mantissa + 9) * int(spec.multipliers.max()) >> (z >> 24) + spec.shift > spec.floor:
        raise LatticeViolation("Cells outside the window of the lattice would weigh more than its floor")


@cache
def _powers() -> tuple[Ints, Ints]:
    """Return 2^31·2^(−i/2^12) and 2^31·2^(−i/2^24), rounded down, for i below 2^12."""
    with localcontext() as context:
        context.prec = 40
        tables = []
        for places in (12, 24):
            ratio = (Decimal(2).ln() / 2**places * -1).exp()
            tables.append(np.array([math.floor(2**31 * ratio**i) for i in range(2**12)], np.int64))
    return tables[0], tables[1]
