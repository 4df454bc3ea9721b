"""What the web page asks about lattices. Coordinates are sent in bodies, so that none stands in a URL or a log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket.errors import ParameterError
from geoblanket.service.explore_home import live_at_home
from geoblanket.service.explore_lattice import ExploredLattice
from geoblanket.service.explore_ways import Way, drive, replay_way, street_drive
from geoblanket.service.explorer import Explorer
from geoblanket.service.refusals import NO_BUNDLE, Refusal, Refused

__all__ = ["NO_LATTICE", "NO_TRIP", "add_lattice_routes"]

NO_LATTICE: Final = Refusal(422, "no_lattice", "This bundle has zones and no lattice: ask about its places.")
NO_TRIP: Final = Refusal(404, "no_such_trip", "There is no such trip to replay.")

NO_FENCE: Final = Refusal(422, "no_fence", "No fence can lie there: it is too near to a pole.")

_Degrees = {"allow_inf_nan": False, "strict": True}


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    bundle: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    lat: Annotated[float, Field(ge=-90, le=90, **_Degrees)]
    lon: Annotated[float, Field(ge=-180, le=180, **_Degrees)]


class ReportedAt(_Question):
    """What was reported from there; null: draw a report."""

    report: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]] | None


class Home(_Question):
    """A home, and what is done to hide it."""

    interval_s: Annotated[float, Field(ge=10, le=28_800, allow_inf_nan=False)]
    hold: bool
    radius_km: Annotated[float, Field(ge=0.1, le=10)] | None
    """Of the fence; null: there is none."""


class Drive(_Question):
    """A way to replay: a made-up drive, or a walk by its number."""

    way: Literal["drive"] | Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]


def add_lattice_routes(routes: APIRouter, explorer: Explorer) -> None:
    """Add what can be asked about bundles with a lattice."""

    @routes.post("/explore/lattice/outlook")
    def outlook(asked: _Question) -> Response:
        explored = _lattice(explorer, asked.bundle)
        heat = explored.heat(asked.lat, asked.lon)
        return JSONResponse({"heat": heat.as_dict(), **_figures(explored, asked)})

    @routes.post("/explore/lattice/conclusion")
    def conclusion(asked: ReportedAt) -> Response:
        explored = _lattice(explorer, asked.bundle)
        if asked.report is None:
            lat, lon = explored.draw(asked.lat, asked.lon)
        else:
            lat, lon = explored.snapped(*asked.report)
        before, after = explored.near_truth(asked.lat, asked.lon, (lat, lon))
        return JSONResponse(
            {
                "report": [lat, lon],
                "heat": explored.heat(lat, lon).as_dict(),
                "before": before,
                "after": after,
                **_figures(explored, asked),
            }
        )

    @routes.post("/explore/lattice/home")
    def home(asked: Home) -> Response:
        explored = _lattice(explorer, asked.bundle)
        live = partial(
            live_at_home, explored.lattice, asked.lat, asked.lon, interval_s=asked.interval_s, hold=asked.hold
        )
        with explorer.replaying():
            try:
                fenced = None if asked.radius_km is None else live(radius_km=asked.radius_km)
            except ParameterError as error:
                raise Refused(NO_FENCE) from error
            bare = live(radius_km=None)
        return JSONResponse({"bare": bare, "fenced": fenced})

    @routes.post("/explore/lattice/replay")
    def replay(asked: Drive) -> Response:
        explored = _lattice(explorer, asked.bundle)
        way = _way(explorer, explored, asked)
        with explorer.replaying():
            replayed = replay_way(explored, way, explorer.motion.of(explored.bundle))
        return JSONResponse(replayed)


def _figures(explored: ExploredLattice, asked: _Question) -> dict[str, Any]:
    plane = explored.lattice.spec.plane
    return {
        **explored.figures,
        "exact": explored.own_cell(asked.lat, asked.lon),
        "inside": plane.holds(asked.lat, asked.lon),
    }


def _way(explorer: Explorer, explored: ExploredLattice, asked: Drive) -> Way:
    if asked.way == "drive":
        lattice, at, interval_s = explored.lattice, (asked.lat, asked.lon), explored.interval_s
        known = None if explorer.graph is None else street_drive(lattice, explorer.graph, *at, interval_s=interval_s)
        return drive(lattice, *at, interval_s=interval_s) if known is None else known
    trip, places = explorer.trips.get(asked.way), explorer.places
    if trip is None or places is None:
        raise Refused(NO_TRIP)
    way = Way.of_trip(trip, places).in_slots(explored.interval_s)
    if explorer.streets is None or way.nodes is None:
        return way
    return replace(way, lines=explorer.streets.lines(way.nodes))


def _lattice(explorer: Explorer, sha256: str) -> ExploredLattice:
    explored = explorer.lattices.get(sha256)
    if explored is None:
        raise Refused(NO_LATTICE if sha256 in explorer.bundles else NO_BUNDLE)
    return explored
