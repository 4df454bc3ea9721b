"""The routes of the web page: its files, the map library from its own package, and what it asks the service for.

Places that somebody looks at are sent in bodies, so that none stands in a URL or a log.
"""

from __future__ import annotations

import gzip
import math
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, FastAPI, Header, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.promise import fenced_m, laplace_errors
from geoblanket.planning.schedules import Schedule, area_in_degrees, schedule_by_distance, schedule_commands
from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.limits import NO_BUNDLE, NO_ZONES, NOT_FOUND, Refusal, Refused
from geoblanket.serve.service.explorer import ExploredLattice, ExploredZones, Explorer
from geoblanket.serve.service.replay import Way, live_at_home, made_up_drive, replay

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The map library draws in workers that it makes from its own text (blob:); nothing comes from another host."""
_HEADERS: Final = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cache-Control": "no-cache",
    # The page may ask the browser where it is, which the reader has to allow, and which stays in the page.
    "Permissions-Policy": "geolocation=(self), camera=(), microphone=()",
}

NO_PLACE: Final = Refusal(422, "no_such_place", "This place is in no zone of the bundle, in that regime.")
NO_LATTICE: Final = Refusal(422, "no_lattice", "This bundle has zones and no lattice: ask about its places.")
NO_TRIP: Final = Refusal(404, "no_such_trip", "There is no such trip to replay.")
NO_ROADS: Final = Refusal(422, "no_roads", "Drives need roads near by: serve the bundle with --roads.")
NO_FENCE: Final = Refusal(422, "no_fence", "No fence can lie there: it is too near to a pole.")
TOO_NEAR: Final = Refusal(
    422, "too_near", "Reports that near need a larger ε than devices accept: ask for more metres."
)

_NIGHTS: Final = (1, 7, 30)
_RADIUS_KM: Final = 1.0
"""Of the fence that is advised."""

_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Place = Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class AtPlace(_Question):
    """A place on the map and the one before it (null: there is no history), for one bundle with zones."""

    bundle: _Hash
    place: _Place
    previous: _Place | None
    regime: str = Field(max_length=200)


class AtCoordinate(_Question):
    """A coordinate on the map, degrees, for one bundle with a lattice."""

    bundle: _Hash
    lat: Annotated[float, Field(ge=-90, le=90, strict=True)]
    lon: Annotated[float, Field(ge=-180, le=180, strict=True)]


class Home(AtCoordinate):
    """A home, and what is done to hide it."""

    interval_s: Annotated[float, Field(ge=10, le=28_800)]
    hold: bool
    radius_km: Annotated[float, Field(ge=0.1, le=10)] | None
    """Of the fence; null: there is none."""


class Drive(AtCoordinate):
    """A way to replay: a made-up drive by a lattice, or a trip by its number."""

    way: Literal["drive"] | Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]


class Wish(_Question):
    """How somebody would like to report."""

    off_m: Annotated[float, Field(gt=0, le=100_000)]
    """Half of all single reports are this far off or further."""
    interval_s: Annotated[float, Field(ge=1, le=86_400)]
    home: bool
    """Whether the vehicle returns to a place that nobody should know."""


def add_page(app: FastAPI, explorer: Explorer) -> None:
    """Add the page to the service. Its routes are its own, and not part of the interface that is described."""
    page = _PageFiles(directory=Path(__file__).parent / "page")
    for path, files in (("/page", page), ("/device", _device_files()), ("/map", _map_library())):
        app.mount(path, GZipMiddleware(files, compresslevel=5))
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    _add_city(routes, explorer)
    _add_questions(routes, explorer)
    app.include_router(routes)


def _add_city(routes: APIRouter, explorer: Explorer) -> None:
    """Add what the page asks for in the beginning."""

    @routes.get("/explore/overview")
    def overview() -> Response:
        return JSONResponse(explorer.overview())

    @routes.get("/explore/roads")
    def roads(accepted: Annotated[str, Header(alias="Accept-Encoding")] = "") -> Response:
        if explorer.roads is None:
            raise Refused(NOT_FOUND)
        headers, content = {"Vary": "Accept-Encoding"}, explorer.roads
        if "gzip" in accepted:
            headers["Content-Encoding"] = "gzip"
        else:
            content = gzip.decompress(content)
        return Response(content, media_type="application/geo+json", headers=headers)

    @routes.post("/explore/start")
    def start(wish: Wish) -> Response:
        try:
            schedule = schedule_by_distance(wish.off_m / 1000, interval_s=wish.interval_s)
        except ParameterError as error:
            raise Refused(TOO_NEAR) from error
        return JSONResponse({**_schedule_facts(schedule), **_in_this_city(explorer, schedule, home=wish.home)})


def _add_questions(routes: APIRouter, explorer: Explorer) -> None:
    """Add what can be asked about a bundle."""

    @routes.post("/explore/place")
    def place(asked: AtPlace) -> Response:
        outlook = _zones(explorer, asked.bundle).outlook(asked.place, asked.previous, asked.regime)
        if outlook is None:
            raise Refused(NO_PLACE)
        return JSONResponse(outlook)

    @routes.post("/explore/coordinate")
    def coordinate(asked: AtCoordinate) -> Response:
        explored = _lattice(explorer, asked.bundle)
        inside = explored.lattice.spec.plane.holds(asked.lat, asked.lon)
        return JSONResponse({"heat": explored.heat(asked.lat, asked.lon), "inside": inside})

    @routes.post("/explore/home")
    def home(asked: Home) -> Response:
        live = partial(
            live_at_home,
            _lattice(explorer, asked.bundle).lattice,
            asked.lat,
            asked.lon,
            interval_s=asked.interval_s,
            hold=asked.hold,
        )
        with explorer.replaying():
            try:
                fenced = None if asked.radius_km is None else live(radius_km=asked.radius_km)
            except ParameterError as error:
                raise Refused(NO_FENCE) from error
            return JSONResponse({"bare": live(radius_km=None), "fenced": fenced})

    @routes.post("/explore/replay")
    def replayed(asked: Drive) -> Response:
        explored, graph = explorer.lattices.get(asked.bundle) or _zones(explorer, asked.bundle), explorer.graph
        if graph is None:
            raise Refused(NO_ROADS)
        way = _way(explorer, explored, graph, asked)
        with explorer.replaying():
            model = explorer.motion.of(explored.bundle)
            if model is None:
                raise Refused(NO_ROADS)
            return JSONResponse(replay(explored.bundle, graph, way, model))


def _way(explorer: Explorer, explored: ExploredLattice | ExploredZones, graph: RoadGraph, asked: Drive) -> Way:
    if asked.way != "drive":
        if (trip := explorer.trips.get(asked.way)) is None:
            raise Refused(NO_TRIP)
        return trip.in_slots(explored.bundle.needed_clock().interval_s)
    if not isinstance(explored, ExploredLattice):
        raise Refused(NO_LATTICE)
    way = made_up_drive(explored.lattice, graph, asked.lat, asked.lon, interval_s=explored.interval_s)
    if way is None:
        raise Refused(NO_ROADS)
    return way


def _zones(explorer: Explorer, sha256: str) -> ExploredZones:
    if (explored := explorer.zones.get(sha256)) is None:
        raise Refused(NO_ZONES if sha256 in explorer.lattices else NO_BUNDLE)
    return explored


def _lattice(explorer: Explorer, sha256: str) -> ExploredLattice:
    if (explored := explorer.lattices.get(sha256)) is None:
        raise Refused(NO_LATTICE if sha256 in explorer.zones else NO_BUNDLE)
    return explored


def _schedule_facts(schedule: Schedule) -> dict[str, Any]:
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


class _PageFiles(StaticFiles):
    """The files of a folder, with the page's headers."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers.update(_HEADERS)
        return response


def _device_files() -> StaticFiles:
    """Return the module that reports in the browser: a part of an installed package, elsewhere in a checkout."""
    installed = Path(__file__).parent / "device"
    folder = installed if installed.is_dir() else Path(__file__).parents[4] / "clients" / "javascript" / "src"
    if not folder.is_dir():
        raise InputError("the device of the web page is not there", hint="Install geoblanket again")
    return _PageFiles(directory=folder)


def _map_library() -> StaticFiles:
    """Return the files of MapLibre GL JS, as the Python package `maplibre` carries them; it is not imported."""
    package = find_spec("maplibre")
    folders = [Path(folder) / "srcjs" for folder in (package and package.submodule_search_locations) or ()]
    if not folders or not (folders[0] / "maplibre-gl.js").is_file():
        raise InputError(
            "the map library of the web page is not there", hint="Install it with: pip install 'geoblanket[service]'"
        )
    return _PageFiles(directory=folders[0])
