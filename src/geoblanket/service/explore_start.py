"""What to do for somebody who knows a distance and no ε: the page's first view asks, and this answers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket.errors import ParameterError
from geoblanket.mechanism.meaning import laplace_errors
from geoblanket.planning.by_distance import schedule_by_distance
from geoblanket.planning.commands import area_in_degrees, schedule_commands
from geoblanket.planning.schedules import Schedule
from geoblanket.service.explorer import Explorer
from geoblanket.service.refusals import NOT_FOUND, Refusal, Refused

__all__ = ["TOO_NEAR", "add_start_route"]

TOO_NEAR: Final = Refusal(
    422, "too_near", "Reports that near need a larger ε than devices accept: ask for more metres."
)


class Wish(BaseModel):
    """How somebody would like to report."""

    model_config = ConfigDict(extra="forbid")

    off_m: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
    """Half of all single reports are this far off or further."""
    interval_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]
    parks: bool
    """Whether the vehicle parks where nobody should know."""


def add_start_route(routes: APIRouter, explorer: Explorer) -> None:
    """Add what the first view asks."""

    @routes.post("/explore/start")
    def start(wish: Wish) -> Response:
        try:
            schedule = schedule_by_distance(wish.off_m / 1000, interval_s=wish.interval_s, anchored=wish.parks)
        except ParameterError as error:
            raise Refused(TOO_NEAR) from error
        return JSONResponse({**_facts(schedule), **_in_this_city(explorer, schedule)})


def _facts(schedule: Schedule) -> dict[str, Any]:
    # An anchor has the report's ε here, and twice the ε half the noise: nothing is computed anew for each wish.
    report = laplace_errors(1.0, None if schedule.anchor_epsilon is None else 1.0)
    return {
        "epsilon": schedule.epsilon,
        "anchor_epsilon": schedule.anchor_epsilon,
        "interval_s": schedule.interval_s,
        "median_m": 1000 * report.median_km / schedule.epsilon,
        "most_m": 1000 * report.most_km / schedule.epsilon,
        "parked_m": schedule.at_rest.found_m,
        "hour_cost": schedule.hour,
        "night_cost": schedule.night,
    }


def _in_this_city(explorer: Explorer, schedule: Schedule) -> dict[str, Any]:
    """Return the commands for this city, and the bundle that is served and comes nearest: with an anchor or without."""
    lattices, area = explorer.lattices, explorer.area
    if area is None:
        if not lattices:
            raise Refused(NOT_FOUND)
        area = next(iter(lattices.values())).lattice.spec.plane.corners

    def unlike(sha256: str) -> tuple[bool, float]:
        lattice = lattices[sha256].lattice
        other_kind = (lattice.anchor is None) != (schedule.anchor_epsilon is None)
        return other_kind, abs(math.log(lattice.epsilon / schedule.epsilon))

    return {
        "commands": schedule_commands(schedule, f"--area={area_in_degrees(area)}"),
        "nearest": min(lattices, key=unlike, default=None),
    }
