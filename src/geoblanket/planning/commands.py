"""The commands that do what a schedule says."""

from __future__ import annotations

import math

from geoblanket.planning.schedules import HOUR_S, Schedule

__all__ = ["area_in_degrees", "schedule_commands"]


def schedule_commands(schedule: Schedule, where: str) -> list[str]:
    """Return the commands that make the bundle and a ledger for a schedule; the option `where` tells the area."""
    anchor = "--no-anchor"
    ledger = f"--budget {schedule.hour:.6g} --window {HOUR_S}"
    if schedule.anchor_epsilon is not None:
        anchor = f"--anchor-epsilon {schedule.anchor_epsilon:g} --anchor-period {schedule.anchor_period_s}"
        ledger += f" --anchor-budget {schedule.anchors_of_hour:.6g}"
    return [
        f"geoblanket lattice {where} --epsilon {schedule.epsilon:g} --interval {schedule.interval_s:g} {anchor} "
        "--out city.bundle",
        f"geoblanket ledger create car.ledger {ledger}",
    ]


def area_in_degrees(area: tuple[float, float, float, float]) -> str:
    """Return south, west, north and east as an option takes them, rounded outwards to some ten metres."""
    south, west, north, east = area
    outwards = (math.floor(south * 1e4), math.floor(west * 1e4), math.ceil(north * 1e4), math.ceil(east * 1e4))
    return ",".join(f"{value / 1e4:.4f}" for value in outwards)
