"""What an ε per kilometre means: odds at distances that people know, and how far off reports are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.lattice.lattice import Lattice

__all__ = [
    "DISTANCES_KM",
    "Errors",
    "found_km",
    "laplace_errors",
    "lattice_in_words",
    "odds",
    "odds_in_words",
    "times_in_words",
]

DISTANCES_KM = (0.1, 0.5, 1.0)
_POINTS = 2048
_SPAN = 24.0
_HOUR_S = 3600.0
_NIGHT_S = 8 * _HOUR_S
_NEARLY_1 = 1.2
"""Below it two digits of the whole would say 1: what is above 1 is what counts."""


def odds(epsilon: float, distance_km: float) -> float:
    """Return how many times as probable a report is, at most, from one of two locations this far apart."""
    return math.exp(min(epsilon * distance_km, 700.0))


def odds_in_words(epsilon: float, *, between: Literal["location", "history"] = "location") -> str:
    """Return what ε means for two locations, or two histories of one, at distances that people know, in a sentence."""
    parts = [f"{times_in_words(odds(epsilon, km))} times for {_distance(km)}" for km in DISTANCES_KM]
    return (
        f"Whatever is reported, it is at most so many times as probable from one {between} as from another: "
        f"{', '.join(parts[:-1])} and {parts[-1]} between them."
    )


@dataclass(frozen=True)
class Errors:
    """How far planar Laplace noise goes, kilometres."""

    mean_km: float
    median_km: float
    most_km: float
    """95 % of reports are nearer."""


@lru_cache(maxsize=64)
def laplace_errors(epsilon: float, anchor_epsilon: float | None = None) -> Errors:
    """Return how far reports with planar Laplace noise lie from the truth.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre.
    anchor_epsilon
        ε₀ of an anchor that is added, per kilometre; None: there is none.
    """
    if not epsilon > 0 or (anchor_epsilon is not None and not anchor_epsilon > 0):
        raise ParameterError("ε must be above 0 per km.")
    least = epsilon if anchor_epsilon is None else min(epsilon, anchor_epsilon)
    # On a plane of points, by the discrete Fourier transform: the sum of two noises has the product of theirs.
    axis = (np.arange(_POINTS) - _POINTS // 2) * (_SPAN / least / _POINTS * 2)
    distance = np.hypot(axis, axis[:, None])
    density = _transformed(np.exp(-epsilon * distance))
    if anchor_epsilon is not None:
        density = density * _transformed(np.exp(-anchor_epsilon * distance))
    mass = np.fft.fftshift(np.fft.irfft2(density, s=distance.shape)).ravel()
    order = np.argsort(distance.ravel(), kind="stable")
    below = np.cumsum(mass[order]) / mass.sum()
    sorted_km = distance.ravel()[order]
    median, most = (float(sorted_km[np.searchsorted(below, share)]) for share in (0.5, 0.95))
    return Errors(float(mass @ distance.ravel() / mass.sum()), median, most)


def found_km(epsilon: float, draws: float) -> float:
    """Return how far off the best guess of a point is, on average, from independent reports of it, kilometres.

    Exact for one report, and what it tends to for many. Knowledge of streets and habits helps beyond that.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre.
    draws
        How many reports there are, at least one.
    """
    if draws <= 1:
        return 2 / epsilon
    # The point that fits n reports best is off by √2/(ε·√n) along an axis, by √(π/2) times as much over both.
    return math.sqrt(math.pi / draws) / epsilon


def lattice_in_words(lattice: Lattice, interval_s: float) -> list[str]:
    """Return what a lattice promises and costs, in sentences for people.

    Parameters
    ----------
    lattice
        The lattice, verified.
    interval_s
        Seconds from one report to the next.
    """
    anchor = lattice.anchor
    errors = laplace_errors(lattice.epsilon, None if anchor is None else anchor.epsilon)
    an_hour = lattice.epsilon * _HOUR_S / interval_s
    sentences = [
        odds_in_words(lattice.epsilon),
        f"Half of the reports are within {_distance(errors.median_km)} of the truth, 95 % within "
        f"{_distance(errors.most_km)}.",
    ]
    if anchor is None:
        parked_km = found_km(lattice.epsilon, _HOUR_S / interval_s)
        return [
            *sentences,
            f"An hour of reports, one every {interval_s:g} s, adds up to {an_hour:g} per km, on the road or parked. "
            "Without an anchor the noise averages out: a car that is parked for an hour is found to within "
            f"{_distance(parked_km)} or so, and the longer it stays the nearer.",
        ]
    return [
        *sentences,
        f"An hour on the road, one report every {interval_s:g} s, adds up to {an_hour:g} per km at most.",
        _night_in_words(lattice),
    ]


def _night_in_words(lattice: Lattice) -> str:
    """Return what a night at home gives away, with an anchor."""
    night = lattice.anchor_cost(_NIGHT_S)
    if lattice.anchor is not None and night == 0:
        return (
            f"A night of 8 hours at home is part of one anchor's period. It gives away {lattice.anchor.epsilon:g} "
            "per km, however many reports, to those who know nothing else about that period, and as much as on the "
            "road to those who know where its other reports were made."
        )
    apart_km = 0.1 + 2 * lattice.certificate.rounding_mm / 10**6
    return (
        f"A night of 8 hours at home gives away {night:g} per km, however many reports: of two homes 100 m apart, one "
        f"becomes at most {times_in_words(odds(night, apart_km))} times as probable as the other. The periods of "
        "arrival and departure give away more to those who know where their other reports were made."
    )


def _transformed(values: Floats) -> npt.NDArray[np.complex128]:
    return np.fft.rfft2(np.fft.ifftshift(values / values.sum()))


def times_in_words(value: float) -> str:
    """Return how many times as probable something is, at most, to two digits that count."""
    if value < _NEARLY_1:
        above = max(value - 1, 1e-9)
        digits = 1 - math.floor(math.log10(above))
        return f"{1 + math.ceil(above * 10**digits) / 10**digits:.{digits}f}"
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}" if value < 1e6 else "a million or more"


def _distance(km: float) -> str:
    return f"{1000 * km:.0f} m" if km < 1 else f"{km:.3g} km"
