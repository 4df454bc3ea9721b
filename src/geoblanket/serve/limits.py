"""Limits of requests, and every refusal: one JSON shape, fixed words, never a value from the request.

The layers are plain ASGI, so that limits apply before anything is read from a request. The limits on connections, and
on the time for headers and answers, are one layer below, in `server`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoblanket._untrusted import read_object

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class ErrorBody(BaseModel):
    """What every error looks like."""

    error: str = Field(description="A fixed word for programs.")
    message: str = Field(description="A fixed sentence for people. It never repeats anything of the request.")


@dataclass(frozen=True)
class Refusal:
    """An error as the client sees it."""

    status: int
    error: str
    message: str
    retry_after_s: int | None = None
    close: bool = False
    """Whether the connection ends with it, as the rest of the request is not read."""

    def after(self, seconds: float | None) -> Refusal:
        """Return it with the time after which to ask again, seconds; None: as it is."""
        return self if seconds is None else replace(self, retry_after_s=math.ceil(seconds))

    def response(self) -> JSONResponse:
        """Return the answer."""
        headers = {"Cache-Control": "no-store"}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.close:
            headers["Connection"] = "close"
        return JSONResponse({"error": self.error, "message": self.message}, self.status, headers)


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """Raised by a route to answer with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.error)


BAD_REQUEST: Final = Refusal(400, "bad_request", "The request is not valid.")
BAD_HOST: Final = Refusal(421, "wrong_host", "This service does not answer to that name.", close=True)
NOT_FOUND: Final = Refusal(404, "not_found", "There is nothing here.")
NO_BUNDLE: Final = Refusal(404, "no_such_bundle", "No bundle with this SHA-256 is served.")
NO_COORDINATES: Final = Refusal(404, "no_coordinates", "This bundle has no coordinates.")
NO_ZONES: Final = Refusal(404, "no_zones", "This bundle has a lattice: it has neither zones nor places.")
NO_SIGNATURE: Final = Refusal(404, "no_signature", "This bundle has no signature.")
WRONG_METHOD: Final = Refusal(405, "wrong_method", "This resource does not know that method.")
TOO_SLOW: Final = Refusal(408, "too_slow", "The request took too long to arrive.", close=True)
TOO_LARGE: Final = Refusal(413, "too_large", "The body of the request is too large.", close=True)
WRONG_TYPE: Final = Refusal(415, "wrong_type", "The body must be application/json, without encoding.")
OTHER: Final = Refusal(400, "refused", "The request is refused.")
INTERNAL: Final = Refusal(500, "internal", "Something went wrong here. Ask again later.", close=True)
OVERLOADED: Final = Refusal(503, "overloaded", "Too many requests at once. Try again shortly.", retry_after_s=1)

_JSON: Final = frozenset({"application/json", "application/json;charset=utf-8"})
_BY_STATUS = {404: NOT_FOUND, 405: WRONG_METHOD, 400: BAD_REQUEST, 413: TOO_LARGE, 415: WRONG_TYPE}


def documented(*refusals: Refusal) -> dict[int | str, dict[str, Any]]:
    """Return the part of a route's description that says how it may refuse."""
    return {refusal.status: {"model": ErrorBody, "description": refusal.message} for refusal in refusals}


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the part of a route's description that says what is sent to it, for routes that read it by `json_body`."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def json_body(request: Request, model: type[Body], malformed: Refusal) -> Body:
    """Return the body of a request; raise Refused if it is not strict JSON of the model."""
    if request.headers.get("content-type", "").lower().replace(" ", "") not in _JSON:
        raise Refused(WRONG_TYPE)
    data = await request.body()
    try:
        return model.model_validate(read_object(data))
    except (ValueError, ValidationError):
        pass  # so that the error below has no other behind it, with what was sent
    raise Refused(malformed)


async def answer_refused(_request: Request, error: Exception) -> JSONResponse:
    """Answer with the refusal that a route raised."""
    return error.refusal.response() if isinstance(error, Refused) else INTERNAL.response()


async def answer_framework(_request: Request, error: Exception) -> JSONResponse:
    """Answer an error of the framework with a refusal: its own answer would repeat what was sent."""
    response = _BY_STATUS.get(getattr(error, "status_code", 400), OTHER).response()
    if allowed := (getattr(error, "headers", None) or {}).get("Allow"):
        response.headers["Allow"] = allowed
    return response


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names of the machine itself. A page elsewhere whose name was pointed at this machine (DNS rebinding) sends
another."""

_ALWAYS_ANSWERED = frozenset({"/healthz"})
_DRAIN_S = 0.2
_DRAIN_BYTES = 1 << 18
CONTENT_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Pages load what this service itself serves, and nothing else: no other host is ever asked for anything."""
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "geolocation=(), camera=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_ENCODED: Final = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]


@dataclass(frozen=True)
class Limits:
    """How much load the service accepts."""

    requests: int = 128
    """Requests processed at once, of those that have fully arrived; more are refused with 503."""
    reports: int = 96
    """Reports that wait for the ledger at once; more are refused with 503."""
    connections: int = 512
    """Open connections; beyond that, the one that has been waiting longest for its request is closed."""
    body_bytes: int = 4096
    """Of the body of any request."""
    header_bytes: int = 16_384
    """Of a request line with its headers."""
    arrival_s: float = 5.0
    """Seconds for the headers of a request to arrive, then for its body, and between requests."""
    report_s: float = 4.0
    """Seconds that a report may wait for the ledger."""
    tracker_bytes: int = 1 << 28
    """Memory of the tracker's beliefs, bytes; beyond it, vehicles that were silent longest are forgotten."""
    stall_s: float = 20.0
    """Seconds in which a client must take the next part of an answer."""
    stop_s: int = 3
    """Seconds in which requests may finish after the service was told to stop."""


class LimitsMiddleware:
    """Refuses what is too much before the application sees it.

    Parameters
    ----------
    app
        The application.
    limits
        How much load is accepted.
    hosts
        Names in the Host header that are answered; None: any.
    on_shed
        Called for each request that is shed.
    """

    def __init__(
        self, app: ASGIApp, *, limits: Limits, hosts: frozenset[str] | None, on_shed: Callable[[], None]
    ) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts
        self._on_shed = on_shed
        # Requests whose bodies are still to come do not count: they may take long, and must not keep others out.
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request against the limits, then pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self._hosts is not None and host_name(headers) not in self._hosts:
            await BAD_HOST.response()(scope, receive, send)
            return
        body = await self._body(headers, receive)
        if body is None:
            return
        if isinstance(body, Refusal):
            await body.response()(scope, receive, send)
            return
        await self._admit(scope, _replayed(body, receive), send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that has arrived, unless too many are worked on."""
        if self._running >= self._limits.requests and scope["path"] not in _ALWAYS_ANSWERED:
            self._on_shed()
            await OVERLOADED.response()(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1

    async def _body(self, headers: Headers, receive: Receive) -> bytes | Refusal | None:
        """Return the body; or why it is refused; or None if the client went away."""
        if headers.get("content-encoding", "identity").lower() != "identity":
            return WRONG_TYPE
        declared = headers.get("content-length", "0")
        if int(declared) > self._limits.body_bytes:
            if "expect" not in headers:
                await _drain(receive)
            return TOO_LARGE
        try:
            async with asyncio.timeout(self._limits.arrival_s):
                return await self._collect(receive)
        except TimeoutError:
            return TOO_SLOW

    async def _collect(self, receive: Receive) -> bytes | Refusal | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                if message.get("more_body", False):
                    await _drain(receive)
                return TOO_LARGE
            if not message.get("more_body", False):
                return bytes(body)


def host_name(headers: Headers) -> str:
    """Return the name in the Host header, without its port."""
    host = headers.get("host", "").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


async def _drain(receive: Receive) -> None:
    """Discard some of what still arrives: a client that is cut off while sending may miss the answer."""
    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_S):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, then the server's own messages."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class SingleThread:
    """A thread with a bounded queue in front of it.

    Parameters
    ----------
    name
        Of the thread.
    limits
        How many may wait, and how long.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting = 0

    def now(self, work: Callable[[], Result]) -> Result:
        """Do some work in the thread, and wait for it, however long the line is: to open and to close."""
        return self._thread.submit(work).result()

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do some work in the thread.

        Raises
        ------
        Refused
            If too many wait, or this one waited too long. It may still be done.
        """
        if self._waiting >= self._limits.reports:
            raise Refused(OVERLOADED)
        self._waiting += 1
        done = asyncio.wrap_future(self._thread.submit(work))
        done.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(done), self._limits.report_s)
        except TimeoutError:
            raise Refused(OVERLOADED) from None

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()

    def _done(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # looked at, or asyncio would log it where nobody waits any more


class HeadersMiddleware:
    """Adds the headers to every answer, and answers HEAD as GET: the server leaves the body out by itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add to what comes back."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                given = {name for name, _ in headers}
                headers.extend(header for header in _ENCODED if header[0] not in given)
            await send(message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)
