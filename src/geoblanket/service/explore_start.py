"""What to do for somebody who knows a distance and no ε: the page's first view asks, and this answers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket.errors import ParameterError
from geoblanket.mechanism.meaning import fenced_m, laplace_errors
from geoblanket.planning.schedules import Schedule, area_in_degrees, schedule_by_distance, schedule_commands
from geoblanket.service.explorer import Explorer
from geoblanket.service.refusals import NOT_FOUND, Refusal, Refused

__all__ = ["TOO_NEAR", "add_start_route"]

TOO_NEAR: Final = Refusal(
    422, "too_near", "Reports that near need a larger ε than devices accept: ask for more metres."
)

_NIGHTS: Final = (1, 7, 30)
_RADIUS_KM: Final = 1.0
"""Of the fence that is advised."""


class Wish(BaseModel):
    """How somebody would like to report."""

    model_config = ConfigDict(extra="forbid")

    off_m: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
    """Half of all single reports are this far off or further."""
    interval_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]
    home: bool
    """Whether the vehicle returns to a place that nobody should know."""


def add_start_route(routes: APIRouter, explorer: Explorer) -> None:
    """Add what the first view asks."""

    @routes.post("/explore/start")
    def start(wish: Wish) -> Response:
        try:
            schedule = schedule_by_distance(wish.off_m / 1000, interval_s=wish.interval_s)
        except ParameterError as error:
            raise Refused(TOO_NEAR) from error
        return JSONResponse({**_facts(schedule), **_in_this_city(explorer, schedule, home=wish.home)})


def _facts(schedule: Schedule) -> dict[str, Any]:
    """Return what a lattice with hold tells of a report, of an hour, and of a home without a fence."""
    report = laplace_errors(schedule.epsilon)
    return {
        "epsilon": schedule.epsilon,
        "interval_s": schedule.interval_s,
        "median_m": 1000 * report.median_km,
        "most_m": 1000 * report.most_km,
        "home_m": {str(nights): schedule.found_m(nights) for nights in _NIGHTS},
        "hour_cost": schedule.hour,
    }


def _in_this_city(explorer: Explorer, schedule: Schedule, *, home: bool) -> dict[str, Any]:
    """Return the fence for a home, the commands for this city, and the bundle that is served whose ε comes nearest."""
    lattices, area = explorer.lattices, explorer.area
    if area is None:
        if not lattices:
            raise Refused(NOT_FOUND)
        area = next(iter(lattices.values())).lattice.spec.plane.corners
    radius_km = _RADIUS_KM if home else None

    def unlike(sha256: str) -> float:
        return abs(math.log(lattices[sha256].lattice.epsilon / schedule.epsilon))

    return {
        "fence": {"radius_km": radius_km, "home_m": fenced_m(radius_km)} if radius_km else None,
        "commands": schedule_commands(schedule, f"--area={area_in_degrees(area)}", radius_km=radius_km),
        "nearest": min(lattices, key=unlike, default=None),
    }
