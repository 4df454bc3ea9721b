"""Schedules of reports and their costs, and the fence around a home.

All costs are in ε per kilometre, as in a ledger. One report costs ε, and an hour on the road costs ε for each report.
With hold (`geoblanket.release.hold`) a stay costs ε once, however long it is. Each return is a new draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S, LARGEST_EPSILON, SMALLEST_EPSILON
from geoblanket.mechanism.promise import HOME_M_PER_KM, fenced_m, found_km

MONTH_NIGHTS: Final = 30
_FENCES_KM: Final = (0.1, 10.0)


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
    units = ((HOUR_S, "h"), (60, "min"), (1, "s"))
    return next(f"{seconds / unit:g} {name}" for unit, name in units if seconds % unit == 0 or unit == 1)


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
