"""Distances and directions on the Earth.

All of geoblanket measures on the sphere of the Earth's mean radius, with the Haversine formula, because the
privacy guarantee is stated in that metric. Against the WGS84 ellipsoid it is off by at most 0.6 %.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius of the Earth (IUGG), metres."""
MPH_M_S = 0.44704
"""One mile an hour, metres per second."""


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


def local_degrees(x: npt.ArrayLike, y: npt.ArrayLike, *, origin_lat: float, origin_lon: float) -> tuple[Floats, Floats]:
    """Return the latitudes and longitudes of points that `local_metres` projected."""
    scale = np.radians(1.0) * EARTH_RADIUS_M
    lat: Floats = np.asarray(y, dtype=np.float64) / scale + origin_lat
    lon: Floats = np.asarray(x, dtype=np.float64) / (scale * np.cos(np.radians(origin_lat))) + origin_lon
    return lat, lon


def unit_vectors(lat: npt.ArrayLike, lon: npt.ArrayLike) -> Floats:
    """Return points in degrees as vectors from the Earth's centre, of length 1, shape (n, 3).

    The straight line between two of them grows with the great-circle distance: nearest is nearest, and nothing special
    happens at 180° of longitude or at the poles.
    """
    phi, lam = np.radians(lat), np.radians(lon)
    cos_phi = np.cos(phi)
    return np.stack([cos_phi * np.cos(lam), cos_phi * np.sin(lam), np.sin(phi)], axis=-1)
