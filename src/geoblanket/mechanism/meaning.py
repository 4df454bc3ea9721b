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
from geoblanket.mechanism.costs import HOUR_S, NIGHT_S, periods_touched
from geoblanket.mechanism.lattice.lattice import Lattice

__all__ = [
    "DISTANCES_KM",
    "AtRest",
    "Errors",
    "found_km",
    "laplace_errors",
    "lattice_at_rest",
    "lattice_in_words",
    "odds",
    "odds_in_words",
    "times_in_words",
]

DISTANCES_KM = (0.1, 0.5, 1.0)
_POINTS = 2048
_SPAN = 24.0
_DAY_S = 24 * HOUR_S
_NIGHTS = {"night": 1, "week": 7, "month": 30}
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


@dataclass(frozen=True)
class AtRest:
    """What reports tell of a vehicle at rest: the one place where nights are counted, and put into words."""

    epsilon: float
    """ε of a report, per kilometre."""
    interval_s: float
    """From one report to the next, seconds."""
    anchor_epsilon: float | None = None
    """ε₀ of a period, per kilometre; None: no anchor."""
    anchor_period_s: float = HOUR_S
    """How long an anchor stays, seconds."""

    @property
    def night_cost(self) -> float:
        """What a night costs at most, per kilometre, in whole millionths, as ledgers count.

        A night can begin within a period, so that one of eight hours touches nine periods of an hour.
        """
        reports = math.ceil(NIGHT_S / self.interval_s) * self.epsilon
        if self.anchor_epsilon is not None:
            reports = min(reports, periods_touched(NIGHT_S, self.anchor_period_s) * self.anchor_epsilon)
        return round(reports, 6)

    @property
    def found_m(self) -> dict[str, float]:
        """How far off the best guess is on average after an hour, a night, a week and a month of nights, metres.

        An anchor's reports tell its shifted point at best: each period counts as one report with its ε₀. Knowledge of
        streets or habits brings the guess nearer.
        """
        return {"hour": 1000 * self._found_km(0)} | {name: 1000 * self._found_km(n) for name, n in _NIGHTS.items()}

    def _found_km(self, nights: int) -> float:
        """Return the mean error after a number of nights, or after a whole hour of the clock (0), kilometres."""
        if self.anchor_epsilon is None:
            return found_km(self.epsilon, (nights * NIGHT_S or HOUR_S) / self.interval_s)
        if nights == 0:
            return found_km(self.anchor_epsilon, HOUR_S / self.anchor_period_s)
        # Nights apart, or all of the time from the first to the last where periods are so long that nights share them.
        apart = nights * periods_touched(NIGHT_S, self.anchor_period_s)
        together = periods_touched((nights - 1) * _DAY_S + NIGHT_S, self.anchor_period_s)
        return found_km(self.anchor_epsilon, min(apart, together))

    def in_words(self, *, hour_m: float | None = None) -> str:
        """Return what a night costs, and how near reports lead after an hour and after nights, for people.

        Parameters
        ----------
        hour_m
            The error after an hour, metres, where it was estimated with knowledge of the city; None: by the formula.
        """
        found = {name: _two_digits(metres) for name, metres in self.found_m.items()}
        hour = found["hour"] if hour_m is None else _two_digits(hour_m)
        cost, caveat = (
            f"at most {self.night_cost:,g} per km, however many reports are made",
            (" Somebody who knows where other reports of a period were made learns more."),
        )
        if self.anchor_epsilon is None:
            cost, caveat = f"{self.night_cost:,g} per km: without an anchor every report counts", ""
        return (
            f"A night of 8 hours at one place costs {cost}. A recipient of all reports is about {hour} off after an "
            f"hour there and {found['night']} after a night. After a week of nights it is {found['week']}, after a "
            f"month {found['month']}.{caveat}"
        )


def lattice_at_rest(lattice: Lattice, interval_s: float) -> AtRest:
    """Return what a lattice tells of a vehicle at rest that reports at this interval, seconds."""
    anchor = lattice.anchor
    if anchor is None:
        return AtRest(lattice.epsilon, interval_s)
    return AtRest(lattice.epsilon, interval_s, anchor.epsilon, anchor.period_s)


def lattice_in_words(lattice: Lattice, interval_s: float) -> list[str]:
    """Return what a lattice promises and costs, in sentences for people; the last is about a vehicle at rest.

    Parameters
    ----------
    lattice
        The lattice, verified.
    interval_s
        Seconds from one report to the next.
    """
    anchor = lattice.anchor
    errors = laplace_errors(lattice.epsilon, None if anchor is None else anchor.epsilon)
    return [
        odds_in_words(lattice.epsilon),
        f"Half of the reports are within {_distance(errors.median_km)} of the truth, 95 % within "
        f"{_distance(errors.most_km)}.",
        f"An hour on the road, one report every {interval_s:g} s, adds up to "
        f"{lattice.epsilon * HOUR_S / interval_s:g} per km at most.",
        lattice_at_rest(lattice, interval_s).in_words(),
    ]


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


def _two_digits(metres: float) -> str:
    return f"{float(f'{metres:.2g}'):,g} m"
