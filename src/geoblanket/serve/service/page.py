"""The routes of the web page: its files, the map library from its own package, and what it asks the service for.

Places that somebody looks at are sent in bodies, so that none stands in a URL or a log.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, FastAPI, Header, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from geoblanket.errors import InputError, ParameterError
from geoblanket.planning.plan import plan_facts
from geoblanket.planning.wishes import Wishes
from geoblanket.serve.limits import BAD_REQUEST, NOT_FOUND, Refusal, Refused
from geoblanket.serve.service.explorer import Explorer
from geoblanket.serve.service.settings import Setting

Reader = Literal["drivers", "officer"]
_PLANNED: Final = ("recommended", "wishes", "hold_m", "home", "in_words", "tells_something", "judged_by")
"""What the page shows of a plan."""
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

NO_PLAN: Final = Refusal(
    422, "no_plan", "These wishes cannot be meant: give distances above 0, and a share above 50 %."
)
NO_HANDOUT: Final = Refusal(422, "no_handout", "The page to hand on needs Matplotlib: install geoblanket[city].")
_HANDOUT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page to hand on has one style sheet, in itself, and no script."""

_Metres = Annotated[float, Field(gt=0, le=100_000, strict=True)]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class Coordinate(_Question):
    """A coordinate on the map, degrees."""

    lat: Annotated[float, Field(ge=-90, le=90, strict=True)]
    lon: Annotated[float, Field(ge=-180, le=180, strict=True)]


class Life(_Question):
    """How a vehicle reports, where its home is (null: somewhere), and which trip it drives (null: a made-up one)."""

    setting: Setting
    home: Coordinate | None
    trip: Annotated[int, Field(ge=0, lt=1 << 63, strict=True)] | None


class Wish(_Question):
    """What somebody wishes of reports; null: nothing."""

    home_m: _Metres | None
    sure: Annotated[float, Field(gt=0.5, lt=1, strict=True)] | None
    road_m: _Metres | None
    apart_m: _Metres = 100.0
    simulate: bool
    """Whether to simulate errors on the road, which takes some seconds."""


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
        return _geojson(explorer.roads, accepted)

    @routes.get("/explore/scenery")
    def scenery(accepted: Annotated[str, Header(alias="Accept-Encoding")] = "") -> Response:
        return _geojson(explorer.scenery, accepted)


def _add_questions(routes: APIRouter, explorer: Explorer) -> None:
    """Add what can be asked about settings and wishes."""

    @routes.post("/explore/consequences")
    def consequences(setting: Setting) -> Response:
        return JSONResponse(explorer.lattices.consequences(setting))

    @routes.post("/explore/life")
    def life(asked: Life) -> Response:
        at = None if asked.home is None else (asked.home.lat, asked.home.lon)
        return JSONResponse(explorer.life(asked.setting, at=at, trip=asked.trip))

    @routes.post("/explore/bundle")
    def bundle(setting: Setting) -> Response:
        return Response(explorer.lattices.bundle(setting).content, media_type="application/octet-stream")

    @routes.post("/explore/plan")
    def plan(asked: Wish) -> Response:
        try:
            wishes = Wishes(home_m=asked.home_m, sure=asked.sure, road_m=asked.road_m, apart_m=asked.apart_m)
        except ParameterError as error:
            raise Refused(NO_PLAN) from error
        made = explorer.plan(wishes, simulate=asked.simulate)
        facts = plan_facts(made)
        return JSONResponse({name: facts[name] for name in _PLANNED} | {"simulated": made.road is not None})

    @routes.get("/explore/handout/{reader}")
    def handed_on(reader: Reader, request: Request) -> Response:
        try:
            setting = Setting.model_validate_strings(dict(request.query_params))
        except ValidationError:
            raise Refused(BAD_REQUEST) from None
        try:
            from geoblanket.planning.handout import handout
        except ImportError as error:
            raise Refused(NO_HANDOUT) from error
        made = explorer.lattices.bundle(setting).bundle
        text = handout(made, reader=reader, fence_km=setting.fence_km)
        return HTMLResponse(text, headers={**_HEADERS, "Content-Security-Policy": _HANDOUT_POLICY})


def _geojson(content: bytes | None, accepted: str) -> Response:
    """Answer with GeoJSON that is compressed by gzip, or not, as the browser accepts."""
    if content is None:
        raise Refused(NOT_FOUND)
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in accepted:
        headers["Content-Encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    return Response(content, media_type="application/geo+json", headers=headers)


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
