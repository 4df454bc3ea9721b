"""The routes of the web page: its files, the map library from its own package, and what it asks the service for.

Places that somebody looks at are sent in bodies, so that none stands in a URL or a log.
"""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.meaning import fenced_m, laplace_errors
from geoblanket.planning.schedules import Schedule, area_in_degrees, schedule_by_distance, schedule_commands
from geoblanket.release.budget import Budget
from geoblanket.roads.places import Places
from geoblanket.service.bundles import KnownTags, is_known
from geoblanket.service.explore_bundle import Conclusion, ExploredBundle, Outlook, ZoneView
from geoblanket.service.explore_lattice import ExploredLattice, live_at_home
from geoblanket.service.explore_replay import Replay, Trip, Way, drive, replay, replay_way, street_drive
from geoblanket.service.explore_tracking import model_facts, tracked_json
from geoblanket.service.explorer import Explorer, Prior
from geoblanket.service.refusals import NO_BUNDLE, NO_ZONES, NOT_FOUND, Refusal, Refused
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import plain_model

__all__ = ["PAGE_POLICY", "router"]

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The map library draws in workers that it makes from its own text (blob:); nothing comes from another host."""

PERMISSIONS: Final = "geolocation=(self), camera=(), microphone=()"
"""The page may ask the browser where it is, which the reader has to allow, and which stays in the page."""

NO_PLACE: Final = Refusal(422, "no_such_place", "This place is in no zone of the bundle, in that regime.")
NO_REPORT: Final = Refusal(422, "no_such_report", "That place is not reported from here.")
NO_BUDGET: Final = Refusal(422, "no_budget", "The budget is not enough for a single report.")
NO_LATTICE: Final = Refusal(422, "no_lattice", "This bundle has zones and no lattice: ask about its places.")
NO_TRIP: Final = Refusal(404, "no_such_trip", "There is no such trip to replay.")
NO_FENCE: Final = Refusal(422, "no_fence", "No fence can lie there: it is too near to a pole.")
TOO_NEAR: Final = Refusal(
    422, "too_near", "Reports that near need a larger ε than devices accept: ask for more metres."
)

_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_WINDOW_S: Final = 3600.0
_NIGHTS: Final = (1, 7, 30)
_RADIUS_KM: Final = 1.0
"""Of the fence that is advised."""

_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Place = Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]
_Accepted = Annotated[str, Header(alias="Accept-Encoding")]
_Degrees = {"allow_inf_nan": False, "strict": True}


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Everywhere(_Question):
    """A place on the map and the one before it (null: there is no history), for every bundle."""

    place: _Place
    previous: _Place | None
    regime: str = Field(max_length=200)
    """Of reports with history."""
    prior: Prior


class AtPlace(Everywhere):
    """The same for one bundle, in the regime that is asked for."""

    bundle: _Hash


class Reported(AtPlace):
    """What was reported from there; null: draw a report."""

    output: _Place | None


class TripAsked(_Question):
    """A trip to replay with a bundle."""

    bundle: _Hash
    trip: int = Field(ge=0, lt=1 << 63, strict=True)
    budget: float = Field(gt=0, le=1e9, allow_inf_nan=False)


class AtCoordinate(_Question):
    """A coordinate on the map, degrees, for one bundle with a lattice."""

    bundle: _Hash
    lat: Annotated[float, Field(ge=-90, le=90, **_Degrees)]
    lon: Annotated[float, Field(ge=-180, le=180, **_Degrees)]


class ReportedAt(AtCoordinate):
    """What was reported from there; null: draw a report."""

    report: tuple[Annotated[float, Field(ge=-90, le=90)], Annotated[float, Field(ge=-180, le=180)]] | None


class Home(AtCoordinate):
    """A home, and what is done to hide it."""

    interval_s: Annotated[float, Field(ge=10, le=28_800, allow_inf_nan=False)]
    hold: bool
    radius_km: Annotated[float, Field(ge=0.1, le=10)] | None
    """Of the fence; null: there is none."""


class Drive(AtCoordinate):
    """A way to replay: a made-up drive, or a walk by its number."""

    way: Literal["drive"] | Annotated[int, Field(ge=0, lt=1 << 63, strict=True)]


class Wish(_Question):
    """How somebody would like to report."""

    off_m: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
    """Half of all single reports are this far off or further."""
    interval_s: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]
    home: bool
    """Whether the vehicle returns to a place that nobody should know."""


def router(explorer: Explorer) -> APIRouter:
    """Return the routes of the page. They are its own, and not part of the interface that is described."""
    _page_files(), _device_files()  # what is missing is told when the service starts, not by the first request
    routes = APIRouter(include_in_schema=False)
    _add_files(routes)
    _add_map(routes, explorer)
    _add_questions(routes, explorer)
    _add_lattice_questions(routes, explorer)
    _add_start(routes, explorer)
    return routes


def _add_files(routes: APIRouter) -> None:
    @routes.get("/")
    async def page(accepted: _Accepted = "", known: KnownTags = None) -> Response:
        answer = _page_file(_page_files(), "index.html", accepted, known)
        answer.headers["Permissions-Policy"] = PERMISSIONS
        return answer

    @routes.get("/page/{name}")
    async def file(name: str, accepted: _Accepted = "", known: KnownTags = None) -> Response:
        return _page_file(_page_files(), name, accepted, known)

    @routes.get("/device/{name}")
    async def device(name: str, accepted: _Accepted = "", known: KnownTags = None) -> Response:
        return _page_file(_device_files(), name, accepted, known)


def _add_map(routes: APIRouter, explorer: Explorer) -> None:
    @routes.get("/explore/overview")
    def overview() -> Response:
        return JSONResponse(explorer.overview())

    @routes.get("/explore/roads")
    def roads(accepted: _Accepted = "") -> Response:
        return _geojson(explorer.roads, accepted)

    @routes.get("/explore/cells")
    def cells(accepted: _Accepted = "") -> Response:
        return _geojson(None if explorer.cells is None else explorer.cells.geojson(), accepted)

    @routes.get("/explore/borders/{sha256}")
    def borders(sha256: str, accepted: _Accepted = "") -> Response:
        bundle = _bundle(explorer, sha256)
        return _geojson(None if explorer.cells is None else explorer.cells.borders(bundle.zone), accepted)


def _add_questions(routes: APIRouter, explorer: Explorer) -> None:
    @routes.post("/explore/outlook")
    def outlook(asked: AtPlace) -> Response:
        explored = _bundle(explorer, asked.bundle)
        view = _view(explored, asked.place, asked.regime, asked.previous)
        return JSONResponse(_outlook(explorer, explored, view, asked))

    @routes.post("/explore/conclusion")
    def conclusion(asked: Reported) -> Response:
        view = _view(_bundle(explorer, asked.bundle), asked.place, asked.regime, asked.previous)
        prior = explorer.prior(asked.prior, view, asked.previous)
        output = asked.output
        if output is None:
            column = view.bundled.mechanism.sample(view.row(asked.place, asked.previous))
            output = int(view.bundled.output_places[column])
        if not (prior * view.likelihood(output, asked.previous)).sum() > 0:
            raise Refused(NO_REPORT)
        return JSONResponse({"output": output, **_json(view.conclude(output, asked.previous, prior))})

    @routes.post("/explore/choices")
    def choices(asked: Everywhere) -> Response:
        rows = []
        for sha256, explored in explorer.bundles.items():
            regime = explored.start if asked.previous is None and explored.start else asked.regime
            view = explored.view(asked.place, regime) if asked.place < len(explored.zone) else None
            if view is not None:
                rows.append({"bundle": sha256, **_figures(explorer, explored, view, asked)})
        return JSONResponse({"choices": rows})

    @routes.post("/explore/replay")
    def replayed(asked: TripAsked) -> Response:
        explored, trip = _bundle(explorer, asked.bundle), explorer.trips.get(asked.trip)
        if trip is None or explorer.places is None:
            raise Refused(NO_TRIP)
        budget = Budget(asked.budget, _WINDOW_S)
        if budget.micro < max(explored.bundle.costs):
            raise Refused(NO_BUDGET)
        with explorer.replaying():
            model = explorer.motion.of(explored.bundle) or plain_model(explored.bundle)
            replayed = replay(trip, explored, explorer.places, model, budget=budget)
        return JSONResponse(_replayed(explorer, explorer.places, trip, replayed, model))


def _add_lattice_questions(routes: APIRouter, explorer: Explorer) -> None:
    """Add what can be asked about bundles with a lattice."""

    @routes.post("/explore/lattice/outlook")
    def outlook(asked: AtCoordinate) -> Response:
        explored = _lattice(explorer, asked.bundle)
        heat = explored.heat(asked.lat, asked.lon)
        return JSONResponse({"heat": heat.as_dict(), **_lattice_figures(explored, asked)})

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
                **_lattice_figures(explored, asked),
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


def _add_start(routes: APIRouter, explorer: Explorer) -> None:
    """Add what the first view asks."""

    @routes.post("/explore/start")
    def start(wish: Wish) -> Response:
        try:
            schedule = schedule_by_distance(wish.off_m / 1000, interval_s=wish.interval_s)
        except ParameterError as error:
            raise Refused(TOO_NEAR) from error
        return JSONResponse({**_schedule_facts(schedule), **_in_this_city(explorer, schedule, home=wish.home)})


def _replayed(explorer: Explorer, places: Places, trip: Trip, replayed: Replay, model: MotionModel) -> dict[str, Any]:
    lat, lon = places.lat[trip.places], places.lon[trip.places]
    outputs = np.array([place or 0 for place in replayed.released])
    off_m = haversine_m(lat, lon, places.lat[outputs], places.lon[outputs])
    made = [place is not None for place in replayed.released]
    return {
        "times": [time.isoformat(timespec="seconds") for time in trip.times],
        "true": trip.places.tolist(),
        "lines": None if explorer.streets is None else explorer.streets.lines(places.nodes[trip.places]),
        "released": replayed.released,
        "error_m": [round(error, 1) if there else None for error, there in zip(off_m.tolist(), made, strict=True)],
        "left": replayed.left,
        "model": model_facts(model),
        "tracked": tracked_json(replayed.tracked, lat, lon),
        "zones": tracked_json(replayed.from_zones, lat, lon),
        "without": tracked_json(replayed.unreported, lat, lon),
    }


def _outlook(explorer: Explorer, explored: ExploredBundle, view: ZoneView, asked: Everywhere) -> dict[str, Any]:
    outlook = _json(view.outlook(asked.place, asked.previous))
    return {**outlook, "places": len(view.places), **_figures(explorer, explored, view, asked)}


def _json(values: Outlook | Conclusion) -> dict[str, Any]:
    """Return the fields as JSON values, arrays as lists."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(values).items()}


def _figures(explorer: Explorer, explored: ExploredBundle, view: ZoneView, asked: Everywhere) -> dict[str, Any]:
    record = explored.zone_record(view)
    prior = explorer.prior(asked.prior, view, asked.previous)
    return {
        "error_m": view.outlook(asked.place, asked.previous).error_m,
        "recipient_error_m": view.recipient_error_m(asked.previous, prior),
        "zone_error_m": view.zone_error_m(prior),
        "unreported_error_m": explorer.unreported_error_m(asked.prior, view, asked.previous),
        "loss": None if record is None else record.loss,
        "lower_bound": None if record is None else record.lower_bound,
        "unit": None if record is None else record.unit,
    }


def _bundle(explorer: Explorer, sha256: str) -> ExploredBundle:
    explored = explorer.bundles.get(sha256)
    if explored is None:
        raise Refused(NO_ZONES if sha256 in explorer.lattices else NO_BUNDLE)
    return explored


def _view(explored: ExploredBundle, place: int, regime: str, previous: int | None) -> ZoneView:
    count = len(explored.zone)
    view = explored.view(place, regime) if place < count and (previous is None or previous < count) else None
    if view is None:
        raise Refused(NO_PLACE)
    return view


def _lattice_figures(explored: ExploredLattice, asked: AtCoordinate) -> dict[str, Any]:
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


def _geojson(content: bytes | None, accepted: str) -> Response:
    if content is None:
        raise Refused(NOT_FOUND)
    return _response(content, accepted, media_type="application/geo+json", headers={})


def _response(content: bytes, accepted: str, *, media_type: str, headers: dict[str, str]) -> Response:
    """Answer with bytes, compressed if the client takes them so."""
    headers = {**headers, "Vary": "Accept-Encoding"}
    if "gzip" in accepted:
        content, headers["Content-Encoding"] = _squeezed(content), "gzip"
    return Response(content, media_type=media_type, headers=headers)


@lru_cache(maxsize=64)
def _squeezed(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=5, mtime=0)


def _page_file(known_files: Mapping[str, bytes], name: str, accepted: str, known: str | None) -> Response:
    content = known_files.get(name)
    if content is None:
        raise Refused(NOT_FOUND)
    tag = f"{_hash(content)}{'-gzip' if 'gzip' in accepted else ''}"  # compressed, it is another sequence of bytes
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache", "ETag": f'"{tag}"'}
    if is_known(tag, known):
        return Response(status_code=304, headers={**headers, "Vary": "Accept-Encoding"})
    return _response(content, accepted, media_type=_KINDS[Path(name).suffix], headers=headers)


@lru_cache(maxsize=64)
def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def _page_files() -> dict[str, bytes]:
    """Return every file of the page by its name: nothing else can be asked for, whatever the name."""
    folder = files("geoblanket.service").joinpath("page")
    own = {file.name: file.read_bytes() for file in folder.iterdir() if Path(file.name).suffix in _KINDS}
    return {**own, **_library()}


@cache
def _device_files() -> dict[str, bytes]:
    """Return the module that reports in the browser: a part of an installed package, elsewhere in a checkout."""
    installed = Path(str(files("geoblanket.service"))) / "device"
    checked_out = Path(__file__).parents[3] / "clients" / "javascript" / "src"
    folder = installed if installed.is_dir() else checked_out
    if not folder.is_dir():
        raise InputError("the device of the web page is not there", hint="Install geoblanket again")
    return {file.name: file.read_bytes() for file in folder.glob("*.js")}


def _library() -> dict[str, bytes]:
    """Return the files of MapLibre GL JS, as the Python package `maplibre` carries them; it is not imported."""
    package = find_spec("maplibre")
    folders = [Path(folder) / "srcjs" for folder in (package and package.submodule_search_locations) or ()]
    try:
        return {name: (folders[0] / name).read_bytes() for name in ("maplibre-gl.js", "maplibre-gl.css")}
    except (IndexError, OSError) as error:
        raise InputError(
            "the map library of the web page is not there", hint="Install it with: pip install 'geoblanket[service]'"
        ) from error
