"""A service that listens: in a thread of the test, or as the command that users run."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI

from geoblanket.serve.limits import LOOPBACK_NAMES, Limits
from geoblanket.serve.server import listen, make_server
from geoblanket.serve.service.app import create_app
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.report import ReportWorker

PATIENCE_S = 120.0
"""How long a test waits for what must happen: only a defect takes so long, however busy the machine is."""


class Live:
    """A service in a thread."""

    def __init__(self, port: int, app: FastAPI, server: uvicorn.Server) -> None:
        self.port = port
        self.app = app
        self.server = server
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    @property
    def connections(self) -> int:
        """How many the service has open."""
        return len(self.server.server_state.connections)

    def connect(self, timeout: float = PATIENCE_S) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def raw(self, data: bytes, *, timeout: float = PATIENCE_S) -> bytes:
        """Send bytes, and return what comes back until the service hangs up."""
        with self.connect(timeout) as connection:
            with contextlib.suppress(OSError):  # it may hang up while we send
                connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Return what arrives until the other side hangs up."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            received += part
    return received


@contextlib.contextmanager
def live(
    store: BundleStore,
    *,
    reports: ReportWorker | None = None,
    limits: Limits | None = None,
    hosts: frozenset[str] | None = LOOPBACK_NAMES,
    **options: Any,
) -> Iterator[Live]:
    limits = limits or Limits()
    app = create_app(store, reports=reports, limits=limits, hosts=hosts, **options)
    with live_app(app, limits) as found:
        yield found


@contextlib.contextmanager
def live_app(app: FastAPI, limits: Limits) -> Iterator[Live]:
    ready = threading.Event()
    server = make_server(app, limits=limits, on_ready=ready.set)
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        service = Live(listener.getsockname()[1], app, server)
        with service.client:
            yield service
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
    assert not thread.is_alive()


class Command:
    """`geoblanket serve` in a process of its own."""

    def __init__(self, arguments: Sequence[str | Path], *, python: Sequence[str] = ()) -> None:
        script = "from geoblanket.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, *python, "-c", script, "serve", "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    @property
    def url(self) -> str:
        """Where it listens, once it does."""
        match = self._wait_for(re.compile(rb"on (http://\S+) "))
        return match.decode()

    def _wait_for(self, pattern: re.Pattern[bytes], seconds: float = 300) -> bytes:
        assert self.process.stderr is not None
        end = time.monotonic() + seconds
        while (found := pattern.search(self._written)) is None:
            assert time.monotonic() < end, self._written
            if select.select([self.process.stderr], [], [], 0.2)[0]:
                part = os.read(self.process.stderr.fileno(), 1 << 16)
                assert part, self._written
                self._written += part
        return found.group(1)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code and all that was written."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, (self._written + err + out).decode()
