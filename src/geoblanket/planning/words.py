"""A plan in words: what to do, how far off a recipient is, what it costs, and the commands that do it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from geoblanket.build.city_lattice import HOLD_M
from geoblanket.planning.on_the_road import RoadErrors
from geoblanket.planning.schedules import MONTH_NIGHTS, area_in_degrees, every, schedule_commands
from geoblanket.planning.search import Plan, Rated

__all__ = ["commands", "in_words", "plan_facts", "radius_in_words"]

_FEET = {533.4: "1,750 ft", 563.88: "1,850 ft"}


def in_words(plan: Plan) -> list[str]:
    """Return what to do and why, in sentences for people."""
    schedule, road = plan.recommended.schedule, plan.recommended.road
    sentences = [
        f"Report every {every(schedule.interval_s)} at ε = {schedule.epsilon:g} per km, held within {HOLD_M:g} m.",
        f"On the road, a recipient who tracks the vehicle is then {_metres(road.error_m)} off on average (± "
        f"{math.ceil(road.standard_error_m):,} m). Without any report it would be "
        f"{_metres(plan.no_report_road.error_m)} off.",
        "At rest it stays about as far off as on the road, however long the stay: hold repeats the last report.",
        f"One report costs {schedule.report:g} per km, and so does a stay. An hour on the road costs "
        f"{schedule.hour:g} at most.",
        f"A home needs a fence. After {MONTH_NIGHTS} nights without one, an attacker is "
        f"{_metres(plan.bare_home_m)} off on average (ε adds up to {MONTH_NIGHTS * schedule.epsilon:g} per km).",
        f"With a fence of {plan.fence_km:g} km, an attacker who sees nights only stays about "
        f"{_metres(plan.fenced_home_m)} off, after a month as after years. The ways in and out tell more.",
    ]
    if others := plan.tied[1:]:
        listed = ", ".join(
            f"every {every(rated.schedule.interval_s)} at ε = {rated.schedule.epsilon:g} "
            f"({rated.road.error_m:,.0f} ± {rated.road.standard_error_m:.0f} m)"
            for rated in others
        )
        sentences.append(f"Tied with it, as far as the simulation can tell: {listed}. The smaller ε is recommended.")
    if plan.need_m is not None:
        given = ", ".join(f"{limit:.3g} per {name}" for name, limit in plan.budgets.given().items())
        sentences.append(f"An error of {plan.need_m:,.0f} m needs no more than {given}.")
    return sentences


def commands(plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None) -> list[str]:
    """Return the commands that make the bundle, a ledger and the fence of this plan.

    Parameters
    ----------
    roads
        The file of the road graph; None: the area of the places is given instead.
    program
        How this program is called.
    folder
        Where the commands will run: what they write gets names that are free there. None: anywhere.
    """
    where = f"--roads {shlex.quote(roads)}" if roads is not None else f"--area={area_in_degrees(plan.area)}"
    schedule = plan.recommended.schedule
    return schedule_commands(schedule, where, radius_km=plan.fence_km, program=program, folder=folder)


def plan_facts(
    plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None
) -> dict[str, Any]:
    """Return a plan as JSON values; the parameters are those of `commands`."""
    return {
        "recommended": _rated(plan.recommended),
        "hold_m": HOLD_M,
        "home": {
            "nights": MONTH_NIGHTS,
            "without_a_fence_m": round(plan.bare_home_m, 1),
            "fence_radius_km": plan.fence_km,
            "with_the_fence_m": round(plan.fenced_home_m, 1),
        },
        "without_any_report": {"on_the_road": _errors(plan.no_report_road)},
        "budgets_per_km": plan.budgets.given(),
        "need_m": plan.need_m,
        "tied": [_rated(rated) for rated in plan.tied],
        "candidates": [_rated(rated) for rated in plan.candidates],
        "epsilon_by_interval": [_rated(rated) for rated in plan.grid],
        "intervals_s_that_trips_are_too_short_for": list(plan.skipped_s),
        "order_of_the_motion_model": plan.order,
        "judged_by": plan.judged_by,
        "in_words": in_words(plan),
        "commands": commands(plan, roads=roads, program=program, folder=folder),
    }


def _rated(rated: Rated) -> dict[str, Any]:
    schedule = rated.schedule
    return {
        "epsilon_per_km": schedule.epsilon,
        "interval_s": schedule.interval_s,
        "cost_per_km": {"report": schedule.report, "hour": schedule.hour},
        "on_the_road": _errors(rated.road),
    }


def _errors(errors: RoadErrors) -> dict[str, Any]:
    return {
        "error_m": round(errors.error_m, 1),
        "standard_error_m": round(errors.standard_error_m, 1),
        "share_within": {f"{radius:g} m": round(share, 4) for radius, share in errors.within.items()},
        "error_of_steps_m": round(errors.error_of_steps_m, 1),
        "trips": errors.trips,
        "steps": errors.steps,
    }


def radius_in_words(radius_m: float) -> str:
    """Return a radius as people know it."""
    feet = _FEET.get(radius_m)
    return f"{radius_m:.0f} m" if feet is None else f"{radius_m:.0f} m ({feet})"


def _metres(metres: float) -> str:
    """Return an error, to two digits that count."""
    if metres < 1:
        return "less than 1 m"
    digits = max(math.floor(math.log10(metres)) - 1, 0)
    return f"{round(metres, -digits):,.0f} m"
