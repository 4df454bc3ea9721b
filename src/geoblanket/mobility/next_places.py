"""Where a vehicle is next: distributions over places, smoothed so that what was seen seldom is not taken as certain.

A group of histories that was seen c times, followed by k different places, trusts its own counts by c / (c + k) and the
distribution of the larger group that it belongs to for the rest (Witten and Bell, 1991). The largest groups, single
places, fall back on places near by.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse import csr_array, diags_array, vstack

from geoblanket._arrays import Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.roads.places import Places

__all__ = ["Distributions", "backed_off", "near_places"]

Distributions = csr_array[np.float64, tuple[int, int]]
"""Sparse rows over all places that sum to 1."""

_CELLS: Final = 1 << 22
"""Pairs of places at a time."""


def backed_off(counts: Distributions, fallback: Distributions) -> Distributions:
    """Mix counts, shape (n, P), with the distributions of larger groups, shape (n, P), by Witten and Bell's weights."""
    seen = np.asarray(counts.sum(axis=1), np.float64)
    kinds = np.diff(counts.indptr).astype(np.float64)
    both = np.where(seen > 0, seen + kinds, 1.0)
    own = diags_array(1.0 / both) @ counts
    rest = diags_array(np.where(seen > 0, kinds / both, 1.0)) @ fallback
    return csr_array(own + rest)


def near_places(places: Places, of: Indices, *, reach_m: float, typical_m: float) -> Distributions:
    """Return distributions that fall with the distance: where nothing was seen, a vehicle is still somewhere near.

    Parameters
    ----------
    of
        Places, shape (n,).
    reach_m
        Places further away than this, in metres, have no probability.
    typical_m
        The probability falls by a factor e over this distance, metres.
    """
    lat, lon = places.lat, places.lon
    parts = []
    size = max(1, _CELLS // max(1, len(places)))
    for start in range(0, max(len(of), 1), size):
        some = of[start : start + size]
        distance = haversine_m(lat[some][:, None], lon[some][:, None], lat, lon)
        weight: Floats = np.where(distance <= reach_m, np.exp(-distance / typical_m), 0.0)
        parts.append(csr_array(weight / weight.sum(axis=1, keepdims=True)))
    return csr_array(vstack(parts, format="csr"))
