"""The listening socket, the server around the application with its shutdown, and HTTP/1.1 on each connection.

The protocol is Uvicorn's, with limits that it lacks. Uvicorn waits forever for the headers of a request, and for a
client to read its answer. Here both have a deadline. When there are too many connections, the one that has been waiting
longest for its request is closed, so that clients that are idle, or never finish a body, cannot keep others out. The
limit on headers applies to their total size, in however many parts they arrive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from geoblanket.errors import ParameterError
from geoblanket.serve.limits import BAD_REQUEST, Limits

_BACKLOG = 128  # as many are accepted in one go; with the open ones they must fit the usual 1,024 descriptors
_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class _BoundedConnection(h11.Connection):
    """HTTP on a connection, with a limit on headers.

    h11 itself limits only what it cannot parse yet: headers that arrive in one piece pass, whatever their size.

    Parameters
    ----------
    header_bytes
        Bytes of a request line with its headers.
    """

    def __init__(self, header_bytes: int) -> None:
        super().__init__(h11.SERVER, header_bytes)
        self._header_bytes = header_bytes
        self._received = self._request_start = 0

    def receive_data(self, data: bytes) -> None:
        """Count what arrives."""
        self._received += len(data)
        super().receive_data(data)

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return what happened next; raise RemoteProtocolError at headers that are too long."""
        event = super().next_event()
        if isinstance(event, h11.Request) and self._parsed - self._request_start > self._header_bytes:
            raise h11.RemoteProtocolError("Headers too long", error_status_hint=431)
        if isinstance(event, h11.EndOfMessage):
            self._request_start = self._parsed
        return event

    @property
    def _parsed(self) -> int:
        return self._received - len(self.trailing_data[0])


class BoundedProtocol(H11Protocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _BoundedConnection(self.limits.header_bytes)
        self.waiting_since: float | None = None
        """Since when a request is awaited (the loop's clock); None once all of it is here, until it is answered."""
        self._waiting: asyncio.TimerHandle | None = None
        self._pushing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request, and make room if there are too many connections."""
        super().connection_made(transport)  # type: ignore[arg-type]  # theirs narrows the type to what it always is
        self._wait()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._stop_pushing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Work on what arrived; once a request has begun, the application's limits hold."""
        super().handle_events()
        if self._busy:
            self._stop_waiting()
            if not self.cycle.more_body:
                self.waiting_since = None

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already; or for the client to take the rest of the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._push()
        elif not self._busy:
            self._wait()

    def pause_writing(self) -> None:
        """Wait for the client to take what was written."""
        super().pause_writing()
        self._push()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._stop_pushing()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is theirs
        """Answer invalid HTTP in the same form as any error, and close the connection."""
        answer = BAD_REQUEST.response()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        try:
            for event in (
                h11.Response(status_code=answer.status_code, headers=headers),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer is on its way already
            self.transport.abort()
        self.transport.close()

    @property
    def _busy(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting_since = self.loop.time()
        self._waiting = self.loop.call_later(self.limits.arrival_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        self.transport.close()
        self._push()

    def _push(self) -> None:
        """Abort the connection unless the client keeps reading: an orderly close would wait for it forever."""
        self._stop_pushing()
        self._pushing = self.loop.call_later(self.limits.stall_s, self.transport.abort)

    def _stop_pushing(self) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
            self._pushing = None

    def _make_room(self) -> None:
        """Close the connection that has been waiting longest for its request; if none is waiting, this one."""
        waiting = [
            (connection.waiting_since, id(connection), connection)
            for connection in self.connections
            if isinstance(connection, BoundedProtocol)
            and connection.waiting_since is not None
            and not connection.transport.is_closing()
        ]
        longest = min(waiting)[-1] if waiting else self
        longest.transport.abort()


def bounded_protocol(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol with these limits, as Uvicorn takes it: a class."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})


def is_loopback(host: str) -> bool:
    """Return whether every address of a host is one that only this machine can reach."""
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in _addresses(host, 0))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    family, kind, protocol, _, address = _addresses(host, port)[0]
    # With the protocol named, asyncio sends at once what is written; otherwise short answers would wait 40 ms.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ParameterError(
            f"Cannot listen on {host}, port {port} ({error.strerror or error}). Choose another --host or --port."
        ) from error
    return listener


def url_of(listener: socket.socket, *, encrypted: bool = False) -> str:
    """Return the address of a socket that listens."""
    address, port, *_ = listener.getsockname()
    return f"http{'s' if encrypted else ''}://{f'[{address}]' if ':' in address else address}:{port}"


def make_server(
    app: ASGIApp, *, limits: Limits, on_ready: Callable[[], None], tls: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """Return the server, not yet running: `run(sockets=[listener])` serves until SIGTERM or Ctrl-C.

    Then it accepts no new requests, lets running ones finish, and closes everything.

    Parameters
    ----------
    on_ready
        Called once connections are answered.
    tls
        The files of its certificate chain and private key (PEM); None: it speaks plain HTTP.
    """
    certificate, private_key = tls or (None, None)
    config = uvicorn.Config(
        app,
        http=bounded_protocol(limits),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,  # theirs has query strings
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=3600,  # ours is shorter, and holds for headers too
        timeout_graceful_shutdown=limits.stop_s,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    return _Server(config, on_ready)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        except KeyboardInterrupt:
            # Uvicorn raises the signal again after it has stopped in order.
            if not self.started:
                raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop in order. A second Ctrl-C changes nothing: by itself, Uvicorn would leave the ledger open."""
        if not self.should_exit:
            super().handle_exit(sig, frame)


def _addresses(host: str, port: int) -> Sequence[_Address]:
    try:
        return socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ParameterError(f"There is no host of the name given as --host ({error}).") from error
