"""Positions over HTTP: OwnTracks, OsmAnd and Traccar's forwarding, with fences, health and metrics.

A sender with a valid token gets the same answer for every message, before anything is done with it. So neither the
answer nor its time tells whether the message was released, refused, dropped or not understood. The exceptions say
nothing about the message either: no token, too large, or too busy.

A fence is different: whoever asks for one relies on it. So the answer comes once the fence is durable, on the worker's
beat, and is the same where it was refused. Only a device with a token of its own may ask, as no other channel proves
who asks: a fence moves all later positions around it, and cannot be drawn again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from geoblanket.gateway.accounts import Accounts, Speaker, secret_of
from geoblanket.gateway.adapters import osmand, owntracks, traccar
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.metrics import GatewayMetrics
from geoblanket.gateway.position import Dropped, Position, Reason, WantedFence, checked_device
from geoblanket.gateway.worker import ReleaseWorker
from geoblanket.service.headers import HeadersMiddleware
from geoblanket.service.limits import Limits, LimitsMiddleware
from geoblanket.service.metrics import ObserveMiddleware
from geoblanket.service.refusals import INTERNAL, NOT_FOUND, OVERLOADED, WRONG_METHOD, Refusal, Refused

__all__ = ["HTTP_LIMITS", "create_app"]

HTTP_LIMITS: Final = Limits(requests=512, connections=768, body_bytes=1 << 16, arrival_s=20.0)
"""What the gateway bears. Devices keep their connections for a while."""

_UNKNOWN: Final = Refusal(401, "unauthorized", "Give the token of the device, as a Bearer token or as a password.")
_FROM_A_PAGE: Final = Refusal(403, "from_a_page", "Positions are taken from devices and servers, not from web pages.")
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"

_Read = Callable[[Request, Speaker], Awaitable[Position]]


def create_app(
    worker: ReleaseWorker,
    *,
    accounts: Accounts,
    allow: AllowList,
    metrics: GatewayMetrics,
    hosts: frozenset[str] | None,
    healthy: Callable[[], dict[str, Any]],
    limits: Limits = HTTP_LIMITS,
) -> Starlette:
    """Return the ASGI application.

    Parameters
    ----------
    hosts
        Names in the Host header that are answered; None: any.
    healthy
        Returns what `/health` tells.
    """

    async def from_owntracks(request: Request, speaker: Speaker) -> Position:
        return owntracks.read(await request.body(), _owntracks_device(request, speaker), allow)

    async def from_traccar(request: Request, speaker: Speaker) -> Position:
        del speaker
        return traccar.read(await request.body(), allow)

    async def from_osmand(request: Request, speaker: Speaker) -> Position:
        del speaker
        body = await request.body()
        query: bytes = request.scope["query_string"]
        kind = request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
        if kind == _JSON:
            return osmand.read_json(body, allow)
        if kind != _FORM:
            raise Dropped("malformed")
        values = osmand.parameters(query)
        # A form may have the token of its sender in the query.
        return osmand.read(values if values.keys() - {"token"} else osmand.parameters(body), allow)

    def known_speaker(request: Request, source: str) -> Speaker:
        if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
            raise Refused(_FROM_A_PAGE)
        speaker = accounts.speaker(_secret(request, source))
        if speaker is None:
            raise Refused(_UNKNOWN)
        return speaker

    async def take_fence(request: Request) -> Response:
        speaker = known_speaker(request, "fence")
        if speaker.device is None:
            raise Refused(_UNKNOWN)
        if not await _is_settled(worker, WantedFence(speaker.device, await request.body())):
            raise Refused(OVERLOADED)
        return Response()

    def taking(source: str, read: _Read, answer: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            speaker = known_speaker(request, source)
            try:
                content: Position | Reason = await read(request, speaker)
            except Dropped as dropped:
                content = dropped.reason
            if isinstance(content, Position) and not speaker.may_speak_for(content.device):
                raise Refused(_UNKNOWN)
            if not worker.submit(content, source):
                raise Refused(OVERLOADED)
            return answer()

        return endpoint

    def owntracks_answer() -> Response:
        return Response(owntracks.ANSWER, media_type=_JSON)

    async def health(_request: Request) -> Response:
        status = healthy()
        return JSONResponse(status, 200 if status["status"] == "ok" else 503)

    async def prometheus(request: Request) -> Response:
        # How many messages come tells when devices are on: for this machine, and for those who may send.
        if not _is_local(request) and accounts.speaker(secret_of(request.headers)) is None:
            raise Refused(_UNKNOWN)
        return metrics.response()

    async def refused(_request: Request, error: Exception) -> Response:
        return error.refusal.response() if isinstance(error, Refused) else INTERNAL.response()

    async def framework(_request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        return {404: NOT_FOUND, 405: WRONG_METHOD}.get(status, INTERNAL).response()

    take_osmand = taking("osmand", from_osmand, Response)
    take_owntracks = taking("owntracks", from_owntracks, owntracks_answer)
    return Starlette(
        routes=[
            Route("/owntracks", take_owntracks, methods=["POST"]),
            Route("/pub", take_owntracks, methods=["POST"]),  # the path of OwnTracks' Recorder
            Route("/traccar", taking("traccar", from_traccar, Response), methods=["POST"]),
            Route("/osmand", take_osmand, methods=["GET", "POST"]),
            Route("/", take_osmand, methods=["GET", "POST"]),  # the path of Traccar's apps
            Route("/fence", take_fence, methods=["POST"]),
            Route("/health", health),
            Route("/healthz", health),  # answered under any load, as that of `geoblanket serve`
            Route("/metrics", prometheus),
        ],
        middleware=[
            Middleware(HeadersMiddleware),
            Middleware(ObserveMiddleware, metrics=metrics),
            Middleware(LimitsMiddleware, limits=limits, hosts=hosts, on_shed=metrics.shed.inc),
        ],
        exception_handlers={Refused: refused, HTTPException: framework},
    )


async def _is_settled(worker: ReleaseWorker, fence: WantedFence) -> bool:
    """Return True once a fence is durable or refused, False if the worker has no room, or failed."""
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[bool] = loop.create_future()

    def settle(outcome: Reason | None) -> None:
        if not settled.done():  # the request may be gone
            settled.set_result(outcome is not None)

    def done(outcome: Reason | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(settle, outcome)

    return worker.submit(fence, "fence", done) and await settled


def _secret(request: Request, source: str) -> str | None:
    """Return the token of a request; trackers of the OsmAnd protocol know no headers, and give it in the query."""
    secret = secret_of(request.headers)
    if secret is None and source == "osmand":
        tokens = request.query_params.getlist("token")
        return tokens[0] if len(tokens) == 1 else None
    return secret


def _owntracks_device(request: Request, speaker: Speaker) -> str:
    """Return the device that a message is about: as it says, or that of the token."""
    user = _one(request.query_params.getlist("u")) or _header(request.headers, "x-limit-u")
    device = _one(request.query_params.getlist("d")) or _header(request.headers, "x-limit-d")
    if user is None and device is None and speaker.device is not None:
        return speaker.device
    if speaker.device is not None and "/" not in speaker.device:
        return checked_device(device)
    return checked_device(None if user is None or device is None else f"{user}/{device}")


def _is_local(request: Request) -> bool:
    return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback


def _one(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def _header(headers: Headers, name: str) -> str | None:
    return _one(headers.getlist(name))
