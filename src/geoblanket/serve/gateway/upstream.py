"""Perturbed positions on their way to the server: each is sent until the server has it, in order for each device.

The server takes OwnTracks' JSON or the OsmAnd protocol over HTTP, or JSON lines on standard output. Servers over MQTT
are in `geoblanket.serve.gateway.mqtt`.
"""

from __future__ import annotations

import base64
import http.client
import logging
import queue
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from urllib.parse import SplitResult, urlencode

from geoblanket.errors import InputError
from geoblanket.release.reporter import Kind
from geoblanket.serve.gateway.config import UpstreamTable
from geoblanket.serve.gateway.messages import (
    Released,
    line_message,
    osmand_query,
    owntracks_message,
    topic_of,
    user_and_device,
)
from geoblanket.serve.gateway.outbox import Outbox
from geoblanket.serve.metrics import GatewayMetrics

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 256
_AHEAD: Final = 64
_FLUSH_S: Final = 0.2
_QUIET_S: Final = 0.3
_LOOK_S: Final = 0.01
_END_S: Final = 0.1
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_FOR_GOOD: Final = frozenset({400, 409, 410, 413, 415, 422})
"""The server will not take this message however often it is sent: an unknown device, for example. Other refusals are of
the gateway as a whole (401, 404), or pass (429, 503), and the message waits."""
_LARGEST_ANSWER: Final = 1 << 16


class Upstream:
    """Something that empties the outbox.

    Parameters
    ----------
    outbox
        What is to be sent.
    metrics
        Where attempts are counted.
    """

    def __init__(self, outbox: Outbox, metrics: GatewayMetrics) -> None:
        self._outbox, self._metrics = outbox, metrics
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._is_up: bool | None = None
        outbox.call(self._wake)

    def start(self) -> None:
        """Begin to send."""
        raise NotImplementedError

    def stop(self, seconds: float) -> None:
        """End after what was begun; the rest stays in the outbox."""
        end = time.monotonic() + seconds
        while self._outbox.overdue and self._is_up is not False and time.monotonic() < end:
            self._wake.set()
            time.sleep(_LOOK_S)
            self._outbox.flush()
        self._stopping.set()
        self._wake.set()
        self._end(max(_END_S, end - time.monotonic()))

    def _end(self, seconds: float) -> None:
        """Wait for the threads, and close connections."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Wait until the next message is due, so that the arrival of one message never triggers another."""
        seconds = self._outbox.seconds_to("next")
        self._wake.wait(_FLUSH_S if seconds is None else min(seconds, _FLUSH_S))

    def _succeeded(self) -> None:
        if not self._is_up:
            self._is_up = True
            self._metrics.upstream.set(1)
            _log.info("The server takes messages.")

    def _failed(self, why: str) -> None:
        self._metrics.retries.inc()
        self._metrics.upstream.set(0)
        if self._is_up is not False:
            self._is_up = False
            _log.warning("The server cannot be reached (%s); messages wait.", why)


class Sender(Protocol):
    """One connection to a server."""

    def send(self, message: Released) -> bool:
        """Send a message, and return once the server has it: True; or False if it will never take it.

        Raises
        ------
        OSError
            If it did not arrive, or the server cannot take it now: it is sent again.
        """

    def close(self) -> None:
        """Close the connection."""


class SenderUpstream(Upstream):
    """Threads with a connection each; all messages of a device go through the same one.

    Parameters
    ----------
    make_sender
        Returns a new sender, not yet connected.
    connections
        How many threads.
    """

    def __init__(
        self, outbox: Outbox, make_sender: Callable[[], Sender], *, connections: int, metrics: GatewayMetrics
    ) -> None:
        super().__init__(outbox, metrics)
        self._make_sender = make_sender
        self._lines: list[queue.Queue[tuple[int, Released]]] = [queue.Queue(_AHEAD) for _ in range(connections)]
        self._threads = [threading.Thread(target=self._deal, name="outbox", daemon=True)]
        self._threads += [
            threading.Thread(target=self._send, args=(line,), name=f"upstream-{number}", daemon=True)
            for number, line in enumerate(self._lines)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def _end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(_END_S, end - time.monotonic()))

    def _deal(self) -> None:
        """Give each message to the thread of its device."""
        while not self._stopping.is_set():
            self._wake.clear()
            messages = self._outbox.take(limit=_AT_ONCE)
            for number, message in messages:
                line = self._lines[zlib.crc32(message.device.encode()) % len(self._lines)]
                while not self._stopping.is_set():
                    try:
                        line.put((number, message), timeout=_FLUSH_S)
                        break
                    except queue.Full:
                        self._outbox.flush(quiet_s=_QUIET_S)
            if not messages:
                self._pause()
            self._outbox.flush(quiet_s=_QUIET_S)

    def _send(self, line: queue.Queue[tuple[int, Released]]) -> None:
        sender, wait_s = self._make_sender(), _FIRST_WAIT_S
        try:
            while not self._stopping.is_set():
                try:
                    number, message = line.get(timeout=_FLUSH_S)
                except queue.Empty:
                    continue
                while not self._stopping.is_set():
                    try:
                        taken = sender.send(message)
                    except OSError as error:
                        self._failed(type(error).__name__)
                        sender.close()
                        self._stopping.wait(wait_s)
                        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
                        continue
                    wait_s = _FIRST_WAIT_S
                    self._succeeded()
                    (self._metrics.sent if taken else self._metrics.refused).inc()
                    self._outbox.acknowledge((number,))
                    break
        finally:
            sender.close()


class HttpSender:
    """One connection, kept open between messages."""

    def __init__(self, table: UpstreamTable, names: Mapping[str, str]) -> None:
        self._table, self._names = table, names
        self._parts: SplitResult = table.parts
        self._headers = {"User-Agent": "geoblanket-gateway", **_authorization(table)}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, message: Released) -> bool:
        """Send a message; see `geoblanket.serve.gateway.upstream.Sender`."""
        method, path, body, headers = self._request(message)
        try:
            if self._connection is None:
                self._connection = self._connected()
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            answer.read(_LARGEST_ANSWER)
            if not answer.isclosed():  # a longer one: not worth reading
                self.close()
        except http.client.HTTPException as error:
            raise ConnectionError(type(error).__name__) from None
        if 200 <= answer.status < 300:
            return True
        if answer.status in _FOR_GOOD:
            return False
        raise ConnectionRefusedError(f"status {answer.status}")

    def close(self) -> None:
        """Close the connection; the next message opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, message: Released) -> tuple[str, str, bytes | None, dict[str, str]]:
        name = self._names.get(message.device, message.device)
        accuracy_m = self._table.accuracy_m
        path = self._parts.path or "/"
        if self._table.protocol == "osmand":
            query = osmand_query(message, name=name, accuracy_m=accuracy_m)
            return "GET", f"{path}?{_joined(self._parts.query, query)}", None, self._headers
        user, device = user_and_device(name)
        query = _joined(self._parts.query, urlencode({"u": user, "d": device}))
        headers = {"Content-Type": "application/json", "X-Limit-U": user, "X-Limit-D": device, **self._headers}
        topic = topic_of(name, self._table.topic)
        body = owntracks_message(message, name=name, accuracy_m=accuracy_m, topic=topic)
        return "POST", f"{path}?{query}", body, headers

    def _connected(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._parts.hostname or "", self._parts.port, self._table.timeout_s
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        context: ssl.SSLContext = client_context(self._table.ca, self._table.certificate, self._table.private_key)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


class LineSender:
    """Standard output; a line that was written has arrived."""

    def __init__(self, stream: BinaryIO, names: Mapping[str, str], *, kind: Kind, accuracy_m: float | None) -> None:
        self._stream, self._names, self._kind, self._accuracy_m = stream, names, kind, accuracy_m

    def send(self, message: Released) -> bool:
        """Write a line."""
        name = self._names.get(message.device, message.device)
        self._stream.write(line_message(message, name=name, kind=self._kind, accuracy_m=self._accuracy_m))
        self._stream.flush()
        return True

    def close(self) -> None:
        """Leave standard output open."""


def _joined(*queries: str) -> str:
    return "&".join(filter(None, queries))


def _authorization(table: UpstreamTable) -> dict[str, str]:
    if table.token is not None:
        return {"Authorization": f"Bearer {table.token}"}
    if table.username is not None:
        pair = base64.b64encode(f"{table.username}:{table.password or ''}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}


def client_context(ca: Path | None, certificate: Path | None, private_key: Path | None) -> ssl.SSLContext:
    """Return how to connect; the other side must prove its name.

    Parameters
    ----------
    ca
        Who signed the other side's certificate (PEM); None: the authorities of this machine.
    certificate, private_key
        One's own, if the other side asks for them (PEM).
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate is not None:
            context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be used for TLS ({type(error).__name__})", path=ca or certificate) from None
    return context
