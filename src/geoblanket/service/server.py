"""The listening socket, the server around the application, and its shutdown."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from geoblanket.errors import ParameterError
from geoblanket.service.limits import Limits
from geoblanket.service.protocol import bounded_protocol

__all__ = ["is_loopback", "listen", "serve"]

_BACKLOG = 128  # as many are accepted in one go; with the open ones they must fit the usual 1,024 descriptors


_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


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


def serve(app: ASGIApp, listener: socket.socket, *, limits: Limits, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then accept no new requests, let running ones finish, and close everything.

    Parameters
    ----------
    on_ready
        Called once connections are answered.
    """
    server = make_server(app, limits=limits, on_ready=on_ready)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        # Uvicorn raises the signal again after it has stopped in order.
        if not server.started:
            raise


def make_server(
    app: ASGIApp, *, limits: Limits, on_ready: Callable[[], None], tls: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """Return the server, not yet running.

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
