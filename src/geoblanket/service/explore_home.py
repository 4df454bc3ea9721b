"""A home over many nights: how near its reports lead an attacker, measured on simulated lives.

Each life draws a fence of its own, comes home every evening, and reports by the lattice of the bundle. With hold a
night is one draw; without it every report of the night is one. The attacker knows the mechanism, and takes the point
that fits all reports so far best. Streets and habits would help beyond that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.costs import NIGHT_S
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.release.fence import NO_FENCES, Fence, Fences
from geoblanket.service.explore_tracking import points

__all__ = ["NIGHTS", "live_at_home"]

NIGHTS: Final = 30
_MOST_LIVES, _LEAST_LIVES = 200, 12
_MOST_DRAWS: Final = 200_000
"""Of all lives together, about as many as a page can wait for."""
_ROUNDS: Final = 20
"""Each halves how far the best point is missed by, about."""
_NEAREST_KM: Final = 1e-3
"""A report at the estimate itself counts as this far from it, so that its weight is finite."""


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
    lives = int(np.clip(_MOST_DRAWS // (NIGHTS * reports), _LEAST_LIVES, _MOST_LIVES))
    fences = [NO_FENCES if radius_km is None else _fenced(lat, lon, radius_km) for _ in range(lives)]
    at_e7 = [fence.apply_e7(round(lat * 1e7), round(lon * 1e7)) for fence in fences]
    seen_lat, seen_lon = np.repeat(np.array(at_e7) * 1e-7, NIGHTS * reports, axis=0).T
    told_lat, told_lon = lattice.centers(lattice.draw_many(seen_lat, seen_lon))
    # Kilometres east and north of the home: an attacker's figures do not depend on where that is.
    scale = np.array([111.195 * np.cos(np.radians(lat)), 111.195])
    told = np.column_stack([told_lon - lon, told_lat - lat]).reshape(lives, NIGHTS, reports, 2) * scale
    guesses = _guesses(told)
    off_m = 1000 * np.hypot(*np.moveaxis(guesses, -1, 0))
    shown = guesses[0] / scale
    fence = next(iter(fences[0]), None)
    return {
        "lives": lives,
        "draws": reports,
        "fence": None if fence is None else _fence_facts(fence),
        "error_m": np.round(off_m.mean(axis=0), 1).tolist(),
        "circle_m": np.round(np.quantile(off_m, 0.9, axis=0), 1).tolist(),
        "reports": points(*(values.reshape(lives, NIGHTS, reports)[0, :, -1] for values in (told_lat, told_lon))),
        "guesses": points(lat + shown[:, 1], lon + shown[:, 0]),
        "guess_error_m": np.round(haversine_m(lat, lon, lat + shown[:, 1], lon + shown[:, 0]), 1).tolist(),
    }


def _guesses(told: Floats) -> Floats:
    """Return the guess after each night, shape (lives, nights, 2), from reports, (lives, nights, reports, 2)."""
    lives, nights, reports, _ = told.shape
    if reports == 1:
        return np.stack([best_fit(told[:, :night, 0]) for night in range(1, nights + 1)], axis=1)
    # The mean of equally good guesses is as good as the point that fits all of their many reports.
    nightly = best_fit(told.reshape(-1, reports, 2)).reshape(lives, nights, 2)
    mean: Floats = nightly.cumsum(axis=1) / np.arange(1, nights + 1)[:, None]
    return mean


def _fence_facts(fence: Fence) -> dict[str, Any]:
    center = [fence.lon_e7 / 1e7, fence.lat_e7 / 1e7]
    return {"center": center, "radius_m": fence.radius_m, "delta_100_m": fence.delta(0.1)}


def _fenced(lat: float, lon: float, radius_km: float) -> Fences:
    return NO_FENCES.with_place(lat, lon, radius_km=radius_km)[0]


def best_fit(told: Floats) -> Floats:
    """Return the point with the least sum of distances to the reports of each life: the likeliest by Laplace noise.

    Parameters
    ----------
    told
        Reports in a plane, shape (lives, reports, 2).
    """
    guess: Floats = told.mean(axis=1)
    for _ in range(_ROUNDS):  # Weiszfeld's method
        weight = 1 / np.maximum(np.hypot(*np.moveaxis(told - guess[:, None], -1, 0)), _NEAREST_KM)
        guess = (weight[..., None] * told).sum(axis=1) / weight.sum(axis=1)[:, None]
    return guess
