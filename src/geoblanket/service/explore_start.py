"""What to do for somebody who knows a distance and no ε: the page's first view asks, and this answers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S, check_epsilon
from geoblanket.mechanism.meaning import found_km, laplace_errors
from geoblanket.planning.commands import area_in_degrees
from geoblanket.planning.schedules import round_down
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
            # Twice the ε has half the noise.
            needed = laplace_errors(1.0).median_km / (wish.off_m / 1000)
            epsilon = round_down(check_epsilon(needed, name="The ε for reports this far off"))
        except ParameterError as error:
            raise Refused(TOO_NEAR) from error
        return JSONResponse({**_facts(wish, epsilon), **_in_this_city(explorer, wish, epsilon)})


def _facts(wish: Wish, epsilon: float) -> dict[str, Any]:
    """Return what a lattice with hold tells of a report, an hour and a home, with a fence if there is a home."""
    report = laplace_errors(1.0)
    return {
        "epsilon": epsilon,
        "interval_s": wish.interval_s,
        "median_m": 1000 * report.median_km / epsilon,
        "most_m": 1000 * report.most_km / epsilon,
        "home_m": {str(nights): 1000 * found_km(epsilon, nights) for nights in _NIGHTS},
        # An attacker who knows the centre is as far off as a point of the disc is from it, on average.
        "fenced_m": 1000 * _RADIUS_KM * 2 / 3 if wish.home else None,
        "hour_cost": _hour_cost(wish, epsilon),
    }


def _hour_cost(wish: Wish, epsilon: float) -> float:
    return round(math.ceil(HOUR_S / wish.interval_s) * epsilon, 6)


def _in_this_city(explorer: Explorer, wish: Wish, epsilon: float) -> dict[str, Any]:
    """Return the commands for this city, and the bundle that is served whose ε comes nearest."""
    lattices, area = explorer.lattices, explorer.area
    if area is None:
        if not lattices:
            raise Refused(NOT_FOUND)
        area = next(iter(lattices.values())).lattice.spec.plane.corners
    commands = [
        f"geoblanket lattice --area={area_in_degrees(area)} --epsilon {epsilon:g} --interval {wish.interval_s:g} "
        "--out city.bundle",
        f"geoblanket ledger create car.ledger --budget {_hour_cost(wish, epsilon):.6g} --window {HOUR_S}",
    ]
    if wish.home:
        commands.append(f"geoblanket fence add --ledger car.ledger --radius-km {_RADIUS_KM:g} --name home")

    def unlike(sha256: str) -> float:
        return abs(math.log(lattices[sha256].lattice.epsilon / epsilon))

    return {"commands": commands, "nearest": min(lattices, key=unlike, default=None)}
