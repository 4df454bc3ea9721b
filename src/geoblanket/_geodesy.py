"""Distances and directions on the Earth.

All of geoblanket measures on the sphere of the Earth's mean radius, with the Haversine formula, because the
privacy guarantee is stated in that metric. Against the WGS84 ellipsoid it is off by at most 0.6 %.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["EARTH_RADIUS_M", "Floats", "haversine_m", "local_degrees", "local_metres"]

Floats = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius of the Earth (IUGG), metres."""


def haversine_m(lat1: npt.ArrayLike, lon1: npt.ArrayLike, lat2: npt.ArrayLike, lon2: npt.ArrayLike) -> Floats:
    """Return great-circle distances in metres between points in degrees; arguments broadcast."""
    phi1, phi2 = np.radians(lat1), np.radians(lat2)
    half_dphi = (phi2 - phi1) / 2
    half_dlambda = np.radians(np.subtract(lon2, lon1)) / 2
    h = np.sin(half_dphi) ** 2 + np.cos(phi1) * np.cos(phi2) * np.sin(half_dlambda) ** 2
    distances: Floats = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
    return distances


def local_metres(
    lat: npt.ArrayLike, lon: npt.ArrayLike, *, origin_lat: float, origin_lon: float
) -> tuple[Floats, Floats]:
    """Project degrees to metres east (x) and north (y) of an origin, equirectangular.

    Good for a city: within 50 km of the origin, distances are right to about 0.5 % at 45° latitude.
    """
    scale = np.radians(1.0) * EARTH_RADIUS_M
    x: Floats = (np.asarray(lon, dtype=np.float64) - origin_lon) * (scale * np.cos(np.radians(origin_lat)))
    y: Floats = (np.asarray(lat, dtype=np.float64) - origin_lat) * scale
    return x, y


def local_degrees(
    x: npt.ArrayLike, y: npt.ArrayLike, *, origin_lat: float, origin_lon: float
) -> tuple[Floats, Floats]:
    """Return the latitudes and longitudes of points that `local_metres` projected."""
    scale = np.radians(1.0) * EARTH_RADIUS_M
    lat: Floats = np.asarray(y, dtype=np.float64) / scale + origin_lat
    lon: Floats = np.asarray(x, dtype=np.float64) / (scale * np.cos(np.radians(origin_lat))) + origin_lon
    return lat, lon
