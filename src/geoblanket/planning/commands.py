"""The commands that do what a schedule says."""

from __future__ import annotations

import math
from pathlib import Path

from geoblanket.planning.schedules import HOUR_S, Schedule

__all__ = ["area_in_degrees", "schedule_commands"]


def schedule_commands(
    schedule: Schedule, where: str, *, program: str = "geoblanket", folder: Path | None = None
) -> list[str]:
    """Return the commands that make the bundle and a ledger for a schedule.

    Parameters
    ----------
    schedule
        How to report.
    where
        The option that tells the area.
    program
        How this program is called.
    folder
        Where the commands will run: what they write gets names that are free there. None: anywhere.
    """
    anchor = "--no-anchor"
    ledger = f"--budget {schedule.hour:.6g} --window {HOUR_S}"
    if schedule.anchor_epsilon is not None:
        anchor = f"--anchor-epsilon {schedule.anchor_epsilon:g} --anchor-period {schedule.anchor_period_s}"
        ledger += f" --anchor-budget {schedule.anchors_of_hour:.6g}"
    return [
        f"{program} lattice {where} --epsilon {schedule.epsilon:g} --interval {schedule.interval_s:g} {anchor} "
        f"--out {_free('city', '.bundle', folder)}",
        f"{program} ledger create {_free('car', '.ledger', folder)} {ledger}",
    ]


def _free(stem: str, suffix: str, folder: Path | None) -> str:
    """Return the name of a file that is not there yet: neither a bundle nor a ledger is overwritten."""
    names = (f"{stem}{number}{suffix}" for number in ("", *map("-{}".format, range(2, 1000))))
    return next(name for name in names if folder is None or not any(folder.glob(f"{name}*")))


def area_in_degrees(area: tuple[float, float, float, float]) -> str:
    """Return south, west, north and east as an option takes them, rounded outwards to some ten metres."""
    south, west, north, east = area
    outwards = (math.floor(south * 1e4), math.floor(west * 1e4), math.ceil(north * 1e4), math.ceil(east * 1e4))
    return ",".join(f"{value / 1e4:.4f}" for value in outwards)
