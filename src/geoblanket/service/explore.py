"""The routes of the web page: its files, the map library from its own package, and what it asks the service for.

Places that somebody looks at are sent in bodies, so that none stands in a URL or a log.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError
from geoblanket.release.budget import Budget
from geoblanket.roads.places import Places
from geoblanket.service.entity_tags import KnownTags, is_known
from geoblanket.service.explore_bundle import Conclusion, ExploredBundle, Outlook, ZoneView
from geoblanket.service.explore_lattice_routes import NO_TRIP, add_lattice_routes
from geoblanket.service.explore_replay import Replay, replay
from geoblanket.service.explore_replay import Trip as HeldOutTrip
from geoblanket.service.explore_start import add_start_route
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

_KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_WINDOW_S: Final = 3600.0

_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Place = Annotated[int, Field(ge=0, lt=1 << 31, strict=True)]
_Accepted = Annotated[str, Header(alias="Accept-Encoding")]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid")


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


class Trip(_Question):
    """A trip to replay with a bundle."""

    bundle: _Hash
    trip: int = Field(ge=0, lt=1 << 63, strict=True)
    budget: float = Field(gt=0, le=1e9, allow_inf_nan=False)


def router(explorer: Explorer) -> APIRouter:
    """Return the routes of the page. They are its own, and not part of the interface that is described."""
    _page_files(), _device_files()  # what is missing is told when the service starts, not by the first request
    routes = APIRouter(include_in_schema=False)
    _add_files(routes)
    _add_map(routes, explorer)
    _add_questions(routes, explorer)
    add_lattice_routes(routes, explorer)
    add_start_route(routes, explorer)
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
    def replayed(asked: Trip) -> Response:
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


def _replayed(
    explorer: Explorer, places: Places, trip: HeldOutTrip, replayed: Replay, model: MotionModel
) -> dict[str, Any]:
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
