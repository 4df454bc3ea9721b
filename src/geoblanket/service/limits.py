"""Limits: of requests, of the line before a thread, and of what a browser may do with an answer.

Plain ASGI, so that limits apply before anything is read from a request. The limits on connections, and on the time for
headers and answers, are one layer below, in `server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoblanket.service.refusals import BAD_HOST, OVERLOADED, TOO_LARGE, TOO_SLOW, WRONG_TYPE, Refusal, Refused

__all__ = ["LOOPBACK_NAMES", "HeadersMiddleware", "Limits", "LimitsMiddleware", "SingleThread", "host_name"]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names of the machine itself. A page elsewhere whose name was pointed at this machine (DNS rebinding) sends
another."""

_ALWAYS_ANSWERED = frozenset({"/healthz"})
_DRAIN_S = 0.2
_DRAIN_BYTES = 1 << 18
Result = TypeVar("Result")
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
    """For the beliefs in where vehicles are; beyond that, those that were silent for longest are forgotten."""
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
        What it bears.
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
        # Without those whose bodies are still to come: they may take long, and must not keep others out.
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Weigh a request, then pass it on."""
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
    """A thread with a line in front of it.

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
