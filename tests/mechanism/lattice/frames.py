"""Small frames, for tests that look at every cell and every pair."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Ints
from geoblanket.mechanism.lattice.making import make_spec
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.lattice.spec import LatticeSpec
from geoblanket.mechanism.verifier import Certificate, verify

EPSILON_MICRO = 2_000_000


def small_plane(cells: int, *, unit_mm: int = 10_000, cell_units: int = 10, south: float = 41.1) -> Plane:
    return Plane(south_e7=round(south * 1e7), west_e7=-86_000_000, unit_mm=unit_mm, side=cells * cell_units)


def small_spec(
    cells: int = 31, *, unit_mm: int = 10_000, cell_units: int = 10, epsilon_micro: int = EPSILON_MICRO
) -> LatticeSpec:
    """Return a lattice of cells of 100 m, in a frame of 3.1 km."""
    plane = small_plane(cells, unit_mm=unit_mm, cell_units=cell_units)
    return make_spec(plane, epsilon_micro=epsilon_micro, cell_units=cell_units)


def slow_weights(spec: LatticeSpec, x: int, y: int) -> Ints:
    """Return the weights of all cells as the definition says, by Python's integers and mpmath, wrapped by hand."""
    import math

    import mpmath

    n, side, across = spec.cell_units, spec.plane.side, spec.plane.side // spec.cell_units
    mpmath.mp.prec = 200
    two = mpmath.mpf(2)

    def mantissa(z: int) -> int:
        part = z % 2**24
        coarse = int(mpmath.floor(2**31 * two ** (-mpmath.mpf(part >> 12) / 2**12)))
        fine = int(mpmath.floor(2**31 * two ** (-mpmath.mpf(part & 4095) / 2**24)))
        return coarse * fine >> 31

    def from_middle(value: int) -> int:
        away = value % n - n // 2
        return abs(away)

    large, small = sorted((from_middle(x), from_middle(y)), reverse=True)
    multiplier = int(spec.multipliers[large * (large + 1) // 2 + small])
    weights = []
    for row in range(across):
        for column in range(across):
            east = min((column * n + n // 2 - x) % side, (x - column * n - n // 2) % side)
            north = min((row * n + n // 2 - y) % side, (y - row * n - n // 2) % side)
            z = math.isqrt((east**2 + north**2) << 22) * spec.rate >> 20
            weights.append(max(spec.floor, mantissa(z) * multiplier >> spec.shift + (z >> 24)))
    weights[0] += 2**62 - sum(weights)
    return np.array(weights, np.int64)


def check_pairs(weights: Ints, lat: Floats, lon: Floats, *, epsilon_micro: int, add_mm: int) -> Certificate:
    """Run the general verifier over rows that stand for coordinates, the distances being those on the sphere."""
    from geoblanket._geodesy import haversine_m

    metres = haversine_m(lat[:, None], lon[:, None], lat, lon)
    distance_mm: npt.NDArray[np.int64] = np.floor(metres * 1000).astype(np.int64) + add_mm
    distance_mm = np.minimum(distance_mm, distance_mm.T)
    np.fill_diagonal(distance_mm, 0)
    return verify(weights, distance_mm=distance_mm, epsilon_micro=epsilon_micro, eta_mm=2**62)
