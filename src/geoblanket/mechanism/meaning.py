"""What an ε per kilometre means: odds at distances that people know, and how far off reports are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S, NIGHT_S
from geoblanket.mechanism.lattice.lattice import Lattice

__all__ = [
    "DISTANCES_KM",
    "HOME_M_PER_KM",
    "AtRest",
    "Errors",
    "fenced_in_words",
    "fenced_m",
    "found_km",
    "laplace_errors",
    "lattice_at_rest",
    "lattice_in_words",
    "odds",
    "odds_in_words",
    "times_in_words",
]

DISTANCES_KM = (0.1, 0.5, 1.0)
_NIGHTS = {"night": 1, "week": 7, "month": 30}
_NEARLY_1 = 1.2
"""Below it two digits of the whole would say 1: what is above 1 is what counts."""


def odds(epsilon: float, distance_km: float) -> float:
    """Return how many times as probable a report is, at most, from one of two locations this far apart."""
    return math.exp(min(epsilon * distance_km, 700.0))


def odds_in_words(epsilon: float, *, between: Literal["location", "history"] = "location") -> str:
    """Return what ε means for two locations, or two histories of one, at distances that people know, in a sentence."""
    parts = [f"{times_in_words(odds(epsilon, km))} at {_distance(km)}" for km in DISTANCES_KM]
    pair = {"location": "locations", "history": "histories"}[between]
    factors = f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"One report changes the odds between two {pair} by at most a factor of {factors}."


@dataclass(frozen=True)
class Errors:
    """How far planar Laplace noise goes, kilometres."""

    mean_km: float
    median_km: float
    most_km: float
    """95 % of reports are nearer."""


def laplace_errors(epsilon: float) -> Errors:
    """Return how far reports with planar Laplace noise of ε per kilometre lie from the truth."""
    if not epsilon > 0:
        raise ParameterError("ε must be above 0 per km.")
    # The distance r has the density ε²·r·e^(−ε·r), so that (1 + ε·r)·e^(−ε·r) of the reports are further away.
    return Errors(mean_km=2 / epsilon, median_km=1.678347 / epsilon, most_km=4.743865 / epsilon)


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


HOME_M_PER_KM: Final = 570.0
"""The attacker's mean error for each km of ρ, by nights only, with a prior over homes. `python -m benchmarks.home`
measured 293, 581 and 819 m at ρ = .5, 1 and 1.5 km."""


def fenced_m(radius_km: float) -> float:
    """Return how far off the best guess of a fenced place is, on average, after any number of reports, metres.

    The reports tell the centre c of the fence. It was drawn uniformly within ρ of the place, so without a prior over
    homes the place is uniform within ρ of c. The best guess is then c, and its mean error 2ρ/3. A prior over homes
    helps (`HOME_M_PER_KM`). This is for nights only: the ways in and out tell more.

    Parameters
    ----------
    radius_km
        ρ: how far the centre may lie from the place, kilometres.
    """
    return HOME_M_PER_KM * radius_km


def fenced_in_words(radius_km: float, delta: float) -> str:
    """Return what a fence promises, and what it does not, for people.

    Parameters
    ----------
    radius_km
        ρ: how far the centre may lie from the place, kilometres.
    delta
        δ of two places 100 m apart.
    """
    return (
        "Reports from inside tell nothing more about the place, however many there are. An attacker who sees nights "
        f"only stays about {_two_digits(fenced_m(radius_km))} off, after any number of nights "
        f"(δ = {100 * delta:.1f} % for two places 100 m apart, once). The ways in and out still tell something: a "
        "larger fence tells less."
    )


@dataclass(frozen=True)
class AtRest:
    """What reports tell of a vehicle at rest: the one place where nights are counted, and put into words."""

    epsilon: float
    """ε of a report, per kilometre."""
    interval_s: float
    """From one report to the next, seconds."""
    hold_m: float = 0.0
    """Within this distance of the last draw its report is repeated at no cost, metres; 0: every report is drawn."""

    @property
    def night_cost(self) -> float:
        """What a night at one place costs, per kilometre: one report if it is held, in whole millionths as ledgers."""
        return round(self._draws(NIGHT_S) * self.epsilon, 6)

    @property
    def found_m(self) -> dict[str, float]:
        """How far off the best guess is on average after an hour, a night, a week and a month of nights, metres.

        Each night is a return, and so a draw of its own. Knowledge of streets or habits brings the guess nearer.
        """
        draws = {"hour": self._draws(HOUR_S)} | {name: n * self._draws(NIGHT_S) for name, n in _NIGHTS.items()}
        return {name: 1000 * found_km(self.epsilon, count) for name, count in draws.items()}

    def _draws(self, seconds: float) -> int:
        """Return how many reports are drawn in a stay."""
        return 1 if self.hold_m else math.ceil(seconds / self.interval_s)

    def in_words(self, *, hour_m: float | None = None) -> str:
        """Return how near reports lead after a stay and after nights, and what they cost, for people.

        Parameters
        ----------
        hour_m
            The error after an hour, metres, where it was estimated with knowledge of the city; None: by the formula.
        """
        found = {name: _two_digits(metres) for name, metres in self.found_m.items()}
        cost = {name: f"{round(n * self.night_cost, 6):,g} per km" for name, n in _NIGHTS.items()}
        hour = found["hour"] if hour_m is None else _two_digits(hour_m)
        stay = (
            f"A stay costs one report, however long: a recipient of all reports is about {hour} off ({cost['night']}). "
            "Each return is a new draw."
            if self.hold_m
            else f"Every report at rest is a new draw: a recipient of all reports is about {hour} off after an hour at "
            f"one place and {found['night']} after a night ({cost['night']})."
        )
        return (
            f"{stay} After a week of nights the recipient is {found['week']} off ({cost['week']}), after a month "
            f"{found['month']} ({cost['month']}). A fence of 1 km keeps a home about {_two_digits(fenced_m(1))} off, "
            "however many nights are seen. Knowledge of streets and habits brings a guess nearer."
        )


def lattice_at_rest(lattice: Lattice, interval_s: float) -> AtRest:
    """Return what a lattice tells of a vehicle at rest that reports at this interval, seconds."""
    return AtRest(lattice.epsilon, interval_s, lattice.hold_m)


def lattice_in_words(lattice: Lattice, interval_s: float) -> list[str]:
    """Return what a lattice promises and costs, in sentences for people; the last is about a vehicle at rest.

    Parameters
    ----------
    lattice
        The lattice, verified.
    interval_s
        Seconds from one report to the next.
    """
    errors = laplace_errors(lattice.epsilon)
    return [
        odds_in_words(lattice.epsilon),
        f"Half of the reports are within {_distance(errors.median_km)} of the truth, 95 % within "
        f"{_distance(errors.most_km)}.",
        f"An hour on the road, one report every {interval_s:g} s, adds up to "
        f"{lattice.epsilon * HOUR_S / interval_s:g} per km at most.",
        lattice_at_rest(lattice, interval_s).in_words(),
    ]


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
