"""Positions over HTTP: OwnTracks, OsmAnd and Traccar's forwarding, with fences, health and metrics.

A sender with a valid token gets the same answer for every message, before anything is done with it. So neither the
answer nor its time tells whether the message was released, refused, dropped or not understood. The exceptions say
nothing about the message either: no token, too large, or too busy.

A fence is different: its sender relies on it. So the answer comes once the fence is durable, on the worker's
beat, and is the same where it was refused. Only a device with a token of its own may ask, as no other channel proves
who asks: a fence moves all later positions around it, and cannot be drawn again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from geoblanket.serve.gateway.messages import (
    OWNTRACKS_ANSWER,
    AllowList,
    Dropped,
    Position,
    Reason,
    WantedFence,
    checked_device,
    osmand_parameters,
    read_osmand,
    read_osmand_json,
    read_owntracks,
    read_traccar,
)
from geoblanket.serve.gateway.worker import ReleaseWorker
from geoblanket.serve.limits import (
    OVERLOADED,
    HeadersMiddleware,
    Limits,
    LimitsMiddleware,
    Refusal,
    Refused,
    answer_framework,
    answer_refused,
)
from geoblanket.serve.metrics import GatewayMetrics, ObserveMiddleware

HTTP_LIMITS: Final = Limits(requests=512, connections=768, body_bytes=1 << 16, arrival_s=20.0)
"""How much load the gateway accepts. Devices keep their connections for a while."""

_UNKNOWN: Final = Refusal(401, "unauthorized", "Give the token of the device, as a Bearer token or as a password.")
_FROM_A_PAGE: Final = Refusal(403, "from_a_page", "Positions are taken from devices and servers, not from web pages.")
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"

_LONGEST_TOKEN: Final = 512


@dataclass(frozen=True)
class Speaker:
    """A sender of positions."""

    device: str | None
    """The device that it may send for; None: all devices."""

    def may_speak_for(self, device: str) -> bool:
        """Return whether its messages may be about a device."""
        return self.device is None or self.device == device


class Accounts:
    """Who may speak for which device: a token for each, or one for all.

    Only hashes of the tokens are kept. The device is known by its token, so that none can speak for another.

    Parameters
    ----------
    devices
        Their tokens.
    shared
        The token for all devices, if there is one.
    anyone
        Whether nobody needs a token.
    """

    def __init__(self, devices: Mapping[str, str], shared: str | None, *, anyone: bool = False) -> None:
        self._devices = {_hash(token): device for device, token in devices.items()}
        self._shared = None if shared is None else _hash(shared)
        self._anyone = anyone

    def speaker(self, secret: str | None) -> Speaker | None:
        """Return who a secret belongs to; None: nobody."""
        if secret is not None and len(secret) <= _LONGEST_TOKEN:
            digest = _hash(secret)
            if self._shared is not None and hmac.compare_digest(digest, self._shared):
                return Speaker(None)
            # A lookup by the hash of what was given takes no time that helps to guess a token.
            if (device := self._devices.get(digest)) is not None:
                return Speaker(device)
        return Speaker(None) if self._anyone else None


_Read = Callable[[Request, Speaker, AllowList], Awaitable[Position]]


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

    def taking(source: str, read: _Read, answer: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            speaker = _known_speaker(request, source, accounts)
            try:
                content: Position | Reason = await read(request, speaker, allow)
            except Dropped as dropped:
                content = dropped.reason
            if isinstance(content, Position) and not speaker.may_speak_for(content.device):
                raise Refused(_UNKNOWN)
            if not worker.submit(content, source):
                raise Refused(OVERLOADED)
            return answer()

        return endpoint

    async def take_fence(request: Request) -> Response:
        speaker = _known_speaker(request, "fence", accounts)
        if speaker.device is None:
            raise Refused(_UNKNOWN)
        if not await _is_settled(worker, WantedFence(speaker.device, await request.body())):
            raise Refused(OVERLOADED)
        return Response()

    async def health(_request: Request) -> Response:
        status = healthy()
        return JSONResponse(status, 200 if status["status"] == "ok" else 503)

    async def prometheus(request: Request) -> Response:
        # Counts of messages disclose when devices are on: only this machine and senders with a token may read them.
        if not _is_local(request) and accounts.speaker(_header_secret(request.headers)) is None:
            raise Refused(_UNKNOWN)
        return metrics.response()

    take_osmand = taking("osmand", _from_osmand, Response)
    take_owntracks = taking("owntracks", _from_owntracks, partial(Response, OWNTRACKS_ANSWER, media_type=_JSON))
    return Starlette(
        routes=[
            Route("/owntracks", take_owntracks, methods=["POST"]),
            Route("/pub", take_owntracks, methods=["POST"]),  # the path of OwnTracks' Recorder
            Route("/traccar", taking("traccar", _from_traccar, Response), methods=["POST"]),
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
        exception_handlers={Refused: answer_refused, HTTPException: answer_framework},
    )


async def _from_owntracks(request: Request, speaker: Speaker, allow: AllowList) -> Position:
    return read_owntracks(await request.body(), _owntracks_device(request, speaker), allow)


async def _from_traccar(request: Request, _speaker: Speaker, allow: AllowList) -> Position:
    return read_traccar(await request.body(), allow)


async def _from_osmand(request: Request, _speaker: Speaker, allow: AllowList) -> Position:
    body = await request.body()
    kind = request.headers.get("content-type", _FORM).partition(";")[0].strip().lower()
    if kind == _JSON:
        return read_osmand_json(body, allow)
    if kind != _FORM:
        raise Dropped("malformed")
    values = osmand_parameters(request.scope["query_string"])
    # A form may have the token of its sender in the query.
    return read_osmand(values if values.keys() - {"token"} else osmand_parameters(body), allow)


def _known_speaker(request: Request, source: str, accounts: Accounts) -> Speaker:
    if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
        raise Refused(_FROM_A_PAGE)
    speaker = accounts.speaker(_secret(request, source))
    if speaker is None:
        raise Refused(_UNKNOWN)
    return speaker


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
    secret = _header_secret(request.headers)
    if secret is None and source == "osmand":
        tokens = request.query_params.getlist("token")
        return tokens[0] if len(tokens) == 1 else None
    return secret


def _header_secret(headers: Headers) -> str | None:
    """Return the token in the Authorization header: of a Bearer, or the password of a Basic one."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


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
