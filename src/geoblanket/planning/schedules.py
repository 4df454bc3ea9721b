"""Schedules of reports and their costs, and the fence around a home.

All costs are in ε per kilometre, as in a ledger. One report costs ε, and an hour on the road costs ε for each report.
With hold (`geoblanket.release.hold`) a stay costs ε once, however long it is. Each return is a new draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S, LARGEST_EPSILON, SMALLEST_EPSILON, check_epsilon
from geoblanket.mechanism.promise import HOME_M_PER_KM, fenced_m, found_km, laplace_errors

__all__ = [
    "HOME_M",
    "HOUR_S",
    "MONTH_NIGHTS",
    "Budgets",
    "Schedule",
    "affordable",
    "area_in_degrees",
    "every",
    "fence_km",
    "round_down",
    "round_up",
    "schedule_by_distance",
    "schedule_commands",
]

MONTH_NIGHTS: Final = 30
HOME_M: Final = 570.0
"""The default of an attacker's mean error about a home, metres: a fence of 1 km."""
_FENCES_KM: Final = (0.1, 10.0)
_LARGEST_BUDGET: Final = 1e6
_SPOKEN: Final = {"hour": "an hour", "report": "a report"}


@checked
@dataclass(frozen=True)
class Budgets:
    """The largest costs of an hour on the road and of a report, ε per kilometre; None: no limit.

    Examples
    --------
    >>> from geoblanket.planning import Budgets
    >>> budgets = Budgets(hour=240)
    >>> budgets.given()
    {'hour': 240}
    """

    hour: float | None = None
    """An hour on the road."""
    report: float | None = None
    """One report."""

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if all(value is None for value in given.values()):
            raise ParameterError("A plan needs a limit: give at least one of hour and report, ε per km.")
        for name, value in given.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and (not is_number or not 0 < value <= _LARGEST_BUDGET):
                raise ParameterError(
                    f"What {_SPOKEN[name]} may cost must be above 0 and at most {_LARGEST_BUDGET:,.0f} per km. Got "
                    f"{value} instead."
                )

    def given(self) -> dict[str, float]:
        """Return the limits that are set, by name."""
        limits = {"hour": self.hour, "report": self.report}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def times(self, factor: float) -> Budgets:
        """Return all limits times a factor, up to the largest limit that is allowed."""
        return Budgets(**{name: min(limit * factor, _LARGEST_BUDGET) for name, limit in self.given().items()})


@checked
@dataclass(frozen=True)
class Schedule:
    """How often a vehicle reports by a lattice, and with which ε.

    Examples
    --------
    >>> from geoblanket.planning import Schedule
    >>> schedule = Schedule(epsilon=4.0, interval_s=60)
    >>> schedule.hour  # what an hour on the road costs, ε per km
    240.0
    >>> round(schedule.found_m(30))  # how near 30 nights at one place lead, metres
    81
    """

    epsilon: float
    """ε of a report, per kilometre."""
    interval_s: float
    """From one report to the next, seconds."""

    @property
    def report(self) -> float:
        """What one report costs, and with hold a whole stay."""
        return self.epsilon

    @property
    def hour(self) -> float:
        """What an hour on the road costs at most."""
        # In whole millionths, as ledgers count: 6 times 0.7 is 4.2.
        return round(math.ceil(HOUR_S / self.interval_s) * self.epsilon, 6)

    def found_m(self, returns: int) -> float:
        """Return an attacker's mean error about a place without a fence after some stays, metres."""
        return 1000 * found_km(self.epsilon, returns)

    def within(self, budgets: Budgets) -> bool:
        """Return whether all costs are within the budgets."""
        pairs = ((self.hour, budgets.hour), (self.report, budgets.report))
        return all(limit is None or cost <= limit * (1 + 1e-12) for cost, limit in pairs)


def affordable(budgets: Budgets, *, intervals_s: Sequence[float]) -> Iterator[Schedule]:
    """Yield, for each interval, the schedule with the largest ε within the budgets, rounded down to two digits.

    A larger ε is never less useful, so smaller ones are not tried.
    """
    for interval_s in intervals_s:
        limits = [LARGEST_EPSILON if budgets.report is None else budgets.report]
        if budgets.hour is not None:
            limits.append(budgets.hour / Schedule(1.0, interval_s).hour)
        epsilon = round_down(min(limits))
        if epsilon >= SMALLEST_EPSILON:
            yield Schedule(epsilon, interval_s)


def schedule_by_distance(off_km: float, *, interval_s: float) -> Schedule:
    """Return the schedule by which half of all single reports are this far off or further.

    This follows from planar Laplace noise alone. A plan also estimates what a tracker learns from a trip.

    Parameters
    ----------
    off_km
        The median distance from a report to the truth, kilometres.
    interval_s
        Seconds from one report to the next.

    Raises
    ------
    ParameterError
        If devices would refuse the ε that this needs.
    """
    # The noise is proportional to 1/ε.
    needed = laplace_errors(1.0).median_km / off_km
    return Schedule(round_down(check_epsilon(needed, name="The ε for reports this far off")), interval_s)


def fence_km(home_m: float) -> float:
    """Return the radius ρ of the fence that a home needs, kilometres, rounded up to two digits.

    Parameters
    ----------
    home_m
        The least mean error about the home of an attacker who sees nights only, metres.
    """
    least_m, most_m = (fenced_m(radius_km) for radius_km in _FENCES_KM)
    if not 0 < home_m <= most_m:
        raise ParameterError(
            f"The distance to keep a home off must be above 0 and at most {most_m:,.0f} m, for fences have a radius of "
            f"at most {_FENCES_KM[1]:g} km. Got {home_m:g} m instead."
        )
    return round_up(max(home_m, least_m) / HOME_M_PER_KM)


def every(seconds: float) -> str:
    """Return an interval in words."""
    return f"{seconds:g} s" if seconds < 60 or seconds % 60 else f"{seconds / 60:g} min"


def schedule_commands(
    schedule: Schedule,
    where: str,
    *,
    radius_km: float | None = None,
    program: str = "geoblanket",
    folder: Path | None = None,
) -> list[str]:
    """Return the commands that make the bundle and a ledger for a schedule, and the fence of a home.

    Parameters
    ----------
    schedule
        The schedule.
    where
        The option that gives the area.
    radius_km
        The radius of the fence, kilometres; None: no fence. Its command asks for the place.
    program
        The name of this program.
    folder
        The folder in which the commands will run: their output files get free names there. None: any folder.
    """
    ledger = _free("car", ".ledger", folder)
    fence = [] if radius_km is None else [f"{program} fence add --ledger {ledger} --radius-km {radius_km:g}"]
    return [
        f"{program} lattice {where} --epsilon {schedule.epsilon:g} --interval {schedule.interval_s:g} "
        f"--out {_free('city', '.bundle', folder)}",
        f"{program} ledger create {ledger} --budget {schedule.hour:.6g} --window {HOUR_S}",
        *fence,
    ]


def _free(stem: str, suffix: str, folder: Path | None) -> str:
    """Return a free file name in a folder, because bundles and ledgers are never overwritten."""
    names = (f"{stem}{number}{suffix}" for number in ("", *map("-{}".format, range(2, 1000))))
    return next(name for name in names if folder is None or not any(folder.glob(f"{name}*")))


def area_in_degrees(area: tuple[float, float, float, float]) -> str:
    """Return south, west, north and east for an option, rounded outwards to about ten metres."""
    south, west, north, east = area
    outwards = (math.floor(south * 1e4), math.floor(west * 1e4), math.ceil(north * 1e4), math.ceil(east * 1e4))
    return ",".join(f"{value / 1e4:.4f}" for value in outwards)


def round_up(value: float) -> float:
    """Round up to two significant digits."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.ceil(value * scale * (1 - 1e-12)) / scale


def round_down(epsilon: float) -> float:
    """Round down to two significant digits, and to the largest ε that devices accept."""
    epsilon = min(epsilon, LARGEST_EPSILON)
    if epsilon < SMALLEST_EPSILON / 10:
        return 0.0
    scale = 10.0 ** (1 - math.floor(math.log10(epsilon)))
    return round(math.floor(epsilon * scale * (1 + 1e-12)) / scale, 6)
