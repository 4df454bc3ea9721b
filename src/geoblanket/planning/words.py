"""A plan in words: what to do, what it gives, what it costs, and the commands that do it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from geoblanket.planning.at_rest import RestErrors
from geoblanket.planning.commands import area_in_degrees, schedule_commands
from geoblanket.planning.on_the_road import RoadErrors
from geoblanket.planning.schedules import DAY_S, every, stays
from geoblanket.planning.search import Plan, Rated

__all__ = ["commands", "in_words", "plan_facts", "radius_in_words"]

_FEET = {533.4: "1,750 ft", 563.88: "1,850 ft"}


def in_words(plan: Plan) -> list[str]:
    """Return what to do and why, in sentences for people."""
    schedule, road, rest = plan.recommended.schedule, plan.recommended.road, plan.recommended.rest
    sentences = [
        f"Report every {every(schedule.interval_s)} at ε = {schedule.epsilon:g} per km, "
        f"{'without an anchor' if schedule.anchor_epsilon is None else f'with an anchor of {stays(schedule)}'}.",
        f"On the road, a recipient who tracks the vehicle is then {_metres(road.error_m)} off on average (± "
        f"{math.ceil(road.standard_error_m):,} m), and {_metres(plan.no_report_road.error_m)} off without any report.",
        f"One report costs {schedule.report:g} per km, and an hour on the road {schedule.hour:g} at most.",
        schedule.at_rest.in_words(hour_m=None if rest is None else rest.error_m),
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
    return [*sentences, *_about_the_anchor(plan)]


def _about_the_anchor(plan: Plan) -> list[str]:
    schedule, rest = plan.recommended.schedule, plan.recommended.rest
    if schedule.anchor_epsilon is None:
        found = "" if rest is None else f": it is found to within {_metres(rest.error_m)} in an hour"
        hint = " Limit what a night may cost (--night), unless the vehicle never parks where it matters."
        return [f"Without an anchor, nothing protects a parked vehicle{found}.{hint if not plan.budgets.night else ''}"]
    sentences = []
    if schedule.anchor_period_s >= DAY_S:
        sentences.append(
            "An anchor of a day holds only against those who know nothing about the rest of that day. Others learn the "
            "shift from reports whose place they know."
        )
    bare = plan.without_anchor
    if bare is not None and bare.rest is not None:
        sentences.append(
            f"Without the anchor, the error on the road would be {_metres(bare.road.error_m)}. But a night would cost "
            f"{bare.schedule.night:,g} per km, and a parked vehicle be found to within {_metres(bare.rest.error_m)} in "
            "an hour."
        )
    day = plan.day
    if day is not None:
        sentences.append(
            f"If nobody knows where the vehicle is during the day, an anchor of a day (--private-day) with "
            f"ε₀ = {day.schedule.anchor_epsilon:g} per km gives {_metres(day.road.error_m)} on the road, and a "
            f"night costs {day.schedule.night:g}."
        )
    return sentences


def commands(plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None) -> list[str]:
    """Return the commands that make the bundle and a ledger for this plan.

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
    return schedule_commands(plan.recommended.schedule, where, program=program, folder=folder)


def plan_facts(
    plan: Plan, *, roads: str | None, program: str = "geoblanket", folder: Path | None = None
) -> dict[str, Any]:
    """Return a plan as JSON values; the parameters are those of `commands`."""
    return {
        "recommended": _rated(plan.recommended),
        "without_the_anchor": None if plan.without_anchor is None else _rated(plan.without_anchor),
        "anchor_of_a_day": None if plan.day is None else _rated(plan.day),
        "without_any_report": {
            "on_the_road": _errors(plan.no_report_road),
            "at_rest_for_an_hour": _errors(plan.no_report_rest),
        },
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
    anchor = None
    if schedule.anchor_epsilon is not None:
        anchor = {"epsilon_per_km": schedule.anchor_epsilon, "period_s": schedule.anchor_period_s}
    facts: dict[str, Any] = {
        "epsilon_per_km": schedule.epsilon,
        "interval_s": schedule.interval_s,
        "anchor": anchor,
        "cost_per_km": {"report": schedule.report, "hour": schedule.hour, "night": schedule.night},
        "parked_m": {name: round(metres, 1) for name, metres in schedule.at_rest.found_m.items()},
        "on_the_road": _errors(rated.road),
    }
    if rated.rest is not None:
        facts["at_rest_for_an_hour"] = _errors(rated.rest)
    return facts


def _errors(errors: RoadErrors | RestErrors) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "error_m": round(errors.error_m, 1),
        "standard_error_m": round(errors.standard_error_m, 1),
        "share_within": {_radius(radius): round(share, 4) for radius, share in errors.within.items()},
    }
    if isinstance(errors, RoadErrors):
        facts |= {"error_of_steps_m": round(errors.error_of_steps_m, 1), "trips": errors.trips, "steps": errors.steps}
    return facts


def radius_in_words(radius_m: float) -> str:
    """Return a radius as people know it."""
    feet = _FEET.get(radius_m)
    return f"{radius_m:.0f} m" if feet is None else f"{radius_m:.0f} m ({feet})"


def _radius(radius_m: float) -> str:
    return f"{radius_m:g} m"


def _metres(metres: float) -> str:
    """Return an error, to two digits that count."""
    if metres < 1:
        return "less than 1 m"
    digits = max(math.floor(math.log10(metres)) - 1, 0)
    return f"{round(metres, -digits):,.0f} m"
