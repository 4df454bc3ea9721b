"""The public plane of a city: coordinates as whole units of a square frame, without stretching any distance.

The frame is a square of `side` units, its south-western corner given in 1e-7 degrees. A coordinate is rounded to 1e-7
degrees, then to a unit: x = ⌊east·(lon − west)/2^30 + ½⌋, y = ⌊north·(lat − south)/2^30 + ½⌋, clamped into the frame.

Why no distance is stretched
----------------------------
On the sphere of radius R a path from p to p' has the length ∫ R·√(dφ² + cos²φ·dλ²). In the plane, before rounding, it
has ∫ √(n²·dφ² + e²·dλ²) with n ≤ R and e ≤ R·cos φ* (in units, by the choice of the scales), which is at most the
former wherever |φ| ≤ φ*. φ* is the largest latitude on any great circle between two coordinates of the frame: for a
frame whose edges lie at latitudes of at most φₑ and which is Λ wide, tan φ* ≤ tan φₑ / cos(Λ/2). So the straight line
in the plane is at most as long as the image of the shortest path, and that is at most as long as the path. ∎

Rounding moves each coordinate by at most ½ unit in x and y, and by at most half of 1e-7 degrees before: together by
less than `rounding_mm`, which the promise adds to the distance for each of two coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.errors import InputError, ParameterError

_SCALE_BITS: Final = 30
_FULL_CIRCLE_E7: Final = 3_600_000_000
_RADIUS_MM: Final = 6_371_008_800
_LARGEST_LATITUDE_E7: Final = 850_000_000
"""Beyond 85° a city's east and west are too unlike a plane's."""
_LARGEST_WIDTH_E7: Final = 900_000_000
_PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510")


@dataclass(frozen=True)
class Plane:
    """A square frame on the Earth, in whole units."""

    south_e7: int
    """Latitude of the southern edge, 1e-7 degrees."""
    west_e7: int
    """Longitude of the western edge, 1e-7 degrees, from −180° to below 180°."""
    unit_mm: int
    """Millimetres in a unit."""
    side: int
    """Units from edge to edge."""

    @cached_property
    def north_scale(self) -> int:
        """Units in 1e-7 degrees of latitude, times 2^30, rounded down."""
        return int(_units_in_1e_7_degrees(self.unit_mm) * 2**_SCALE_BITS)

    @cached_property
    def east_scale(self) -> int:
        """Units in 1e-7 degrees of longitude at the latitude where they are shortest, times 2^30, rounded down."""
        with localcontext() as context:
            context.prec = 50
            edge = max(abs(self.south_e7), abs(self.north_e7))
            cos_edge = _cos(Decimal(edge).scaleb(-7))
            flat = cos_edge * _cos(Decimal(self._widest_e7(cos_edge)).scaleb(-7) / 2)
            cos_largest = flat / (flat * flat + 1 - cos_edge * cos_edge).sqrt()
            exact = _units_in_1e_7_degrees(self.unit_mm) * cos_largest * 2**_SCALE_BITS
            return int(exact * (1 - Decimal("1e-30")))

    def _widest_e7(self, cos_edge: Decimal) -> int:
        """Return a width, 1e-7 degrees, which `check` compares with the true one: that depends on the scale."""
        return int(Decimal(self.side) / (_units_in_1e_7_degrees(self.unit_mm) * cos_edge) * Decimal("1.05"))

    @cached_property
    def north_e7(self) -> int:
        """Latitude of the northern edge, 1e-7 degrees, rounded away."""
        return self.south_e7 + -(-(self.side << _SCALE_BITS) // self.north_scale)

    @cached_property
    def width_e7(self) -> int:
        """Degrees of longitude from edge to edge, 1e-7, rounded up."""
        return -(-(self.side << _SCALE_BITS) // self.east_scale)

    @cached_property
    def rounding_mm(self) -> int:
        """How far a coordinate can lie from the point of the frame that stands for it, millimetres, rounded up."""
        return math.isqrt(self.unit_mm * self.unit_mm // 2) + 1 + 8  # half of 1e-7 degrees, twice, is below 8 mm

    def check(self) -> None:
        """Raise `ParameterError` where there is no such frame on the Earth."""
        if not 1 <= self.unit_mm <= 10**6 or not 1 <= self.side <= 2**31:
            raise ParameterError("A frame needs units of 1 mm to 1 km and 1 to 2^31 of them from edge to edge.")
        if not -_FULL_CIRCLE_E7 // 2 <= self.west_e7 < _FULL_CIRCLE_E7 // 2:
            raise ParameterError("The western edge of a frame must lie between −180° and 180°.")
        if max(abs(self.south_e7), abs(self.north_e7)) > _LARGEST_LATITUDE_E7:
            raise ParameterError(
                "The frame, margin included, reaches beyond 85° of latitude, where a plane is no picture of the Earth. "
                "Take a smaller area, or a larger ε: the margin is 10/ε km."
            )
        widest_e7 = self._widest_e7(_cos(Decimal(max(abs(self.south_e7), abs(self.north_e7))).scaleb(-7)))
        if widest_e7 > _LARGEST_WIDTH_E7 or self.width_e7 > widest_e7:
            raise ParameterError(
                f"The frame, margin included, is about {widest_e7 / 1e7:.0f}° wide where it is nearest to a pole, too "
                "much for a plane. Take a smaller area, or a larger ε: the margin is 10/ε km."
            )

    def units(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> tuple[Ints, Ints]:
        """Return x and y of coordinates in degrees, shape of the input; outside the frame, of its nearest point.

        Raises
        ------
        InputError
            A coordinate is not finite, or beyond ±90° or ±180°.
        """
        lat, lon = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
        if not (np.all(np.abs(lat) <= 90) and np.all(np.abs(lon) <= 180)):
            raise InputError("a coordinate is not on Earth: latitude −90 to 90, longitude −180 to 180 degrees")
        return self.units_e7(np.rint(lat * 1e7).astype(np.int64), np.rint(lon * 1e7).astype(np.int64))

    def units_e7(self, lat_e7: Ints, lon_e7: Ints) -> tuple[Ints, Ints]:
        """Return x and y of coordinates in 1e-7 degrees."""
        middle = self.west_e7 + self.width_e7 // 2
        east = (lon_e7 - middle + _FULL_CIRCLE_E7 // 2) % _FULL_CIRCLE_E7 - _FULL_CIRCLE_E7 // 2 + self.width_e7 // 2
        # Clamped before the product too, which is then below 2^62: from afar it would exceed 64 bits with small units.
        east = np.clip(east, 0, self.width_e7)
        north = np.clip(lat_e7 - self.south_e7, 0, self.north_e7 - self.south_e7)
        half = 1 << _SCALE_BITS - 1
        x = east * self.east_scale + half >> _SCALE_BITS
        y = north * self.north_scale + half >> _SCALE_BITS
        return np.clip(x, 0, self.side - 1), np.clip(y, 0, self.side - 1)

    def unit_of_e7(self, lat_e7: int, lon_e7: int) -> tuple[int, int]:
        """Return x and y of one coordinate in 1e-7 degrees: what `units_e7` does, for one report at a time."""
        half_circle, half_width = _FULL_CIRCLE_E7 // 2, self.width_e7 // 2
        east = (lon_e7 - self.west_e7 - half_width + half_circle) % _FULL_CIRCLE_E7 - half_circle + half_width
        half = 1 << _SCALE_BITS - 1
        x = east * self.east_scale + half >> _SCALE_BITS
        y = (lat_e7 - self.south_e7) * self.north_scale + half >> _SCALE_BITS
        return min(max(x, 0), self.side - 1), min(max(y, 0), self.side - 1)

    def e7_of_unit(self, x: int, y: int) -> tuple[int, int]:
        """Return latitude and longitude of a point of the frame, 1e-7 degrees: the inverse of `unit_of_e7`."""
        lat_e7 = self.south_e7 + ((y << _SCALE_BITS + 1) + self.north_scale) // (2 * self.north_scale)
        lon_e7 = self.west_e7 + ((x << _SCALE_BITS + 1) + self.east_scale) // (2 * self.east_scale)
        return lat_e7, (lon_e7 + _FULL_CIRCLE_E7 // 2) % _FULL_CIRCLE_E7 - _FULL_CIRCLE_E7 // 2

    def holds(self, lat: float, lon: float) -> bool:
        """Return whether a coordinate in degrees lies in the frame."""
        east = (round(lon * 1e7) - self.west_e7) % _FULL_CIRCLE_E7
        return self.south_e7 <= round(lat * 1e7) <= self.north_e7 and east <= self.width_e7

    @property
    def corners(self) -> tuple[float, float, float, float]:
        """South, west, north and east of the frame, degrees."""
        (south, north), (west, east) = self.degrees([0, self.side], [0, self.side])
        return float(south), float(west), float(north), float(east)

    @property
    def where(self) -> str:
        """Where the frame is, in words: its corners, to some hundred metres."""
        south, west, north, east = self.corners
        return f"{_degrees(south, 'NS')} {_degrees(west, 'EW')} to {_degrees(north, 'NS')} {_degrees(east, 'EW')}"

    def holds_many(self, lat: Floats, lon: Floats) -> Bools:
        """Return which coordinates in degrees lie in the frame."""
        lat_e7 = np.rint(lat * 1e7).astype(np.int64)
        east = (np.rint(lon * 1e7).astype(np.int64) - self.west_e7) % _FULL_CIRCLE_E7
        inside: Bools = (self.south_e7 <= lat_e7) & (lat_e7 <= self.north_e7) & (east <= self.width_e7)
        return inside

    def degrees(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return latitude and longitude of points of the frame, degrees; longitudes from −180 to 180."""
        lat = (self.south_e7 + np.asarray(y) * (2**_SCALE_BITS / self.north_scale)) / 1e7
        lon = (self.west_e7 + np.asarray(x) * (2**_SCALE_BITS / self.east_scale)) / 1e7
        return lat, (lon + 180) % 360 - 180


def plane_over(
    *, south: float, west: float, north: float, east: float, margin_km: float, unit_mm: int, cell_units: int
) -> Plane:
    """Return the square frame around an area, with a margin, a whole number of cells wide.

    Parameters
    ----------
    south, west, north, east
        The area, degrees; east may be less than west where it crosses 180°.
    margin_km
        Room on every side, kilometres.
    unit_mm, cell_units
        Millimetres in a unit, and units in a cell.
    """
    per_degree_km = float(_PI) * _RADIUS_MM / 1e6 / 180
    width = (east - west) % 360
    nearest_to_equator = 0.0 if south * north <= 0 else min(abs(south), abs(north))
    across_km = per_degree_km * max(north - south, width * math.cos(math.radians(nearest_to_equator)))
    cell_mm = unit_mm * cell_units
    cells = math.ceil((across_km + 2 * margin_km) * 1e6 / cell_mm)
    half_side = cells * cell_mm / 1e6 / 2 / per_degree_km
    plane = Plane(
        south_e7=round(((south + north) / 2 - half_side) * 1e7), west_e7=0, unit_mm=unit_mm, side=cells * cell_units
    )
    plane.check()
    west_e7 = round((west + width / 2) * 1e7) - plane.width_e7 // 2
    return replace(plane, west_e7=(west_e7 + _FULL_CIRCLE_E7 // 2) % _FULL_CIRCLE_E7 - _FULL_CIRCLE_E7 // 2)


def _degrees(value: float, letters: str) -> str:
    return f"{abs(value):.3f}° {letters[value < 0]}"


def _units_in_1e_7_degrees(unit_mm: int) -> Decimal:
    with localcontext() as context:
        context.prec = 50
        return _PI * _RADIUS_MM / 180 / 10**7 / unit_mm * (1 - Decimal("1e-40"))


def _cos(degrees: Decimal) -> Decimal:
    """Return the cosine of an angle below 90°, right to more than 40 digits."""
    x = degrees * _PI / 180
    term = total = Decimal(1)
    for index in range(1, 60, 2):
        term = -term * x * x / (index * (index + 1))
        total += term
    return total
