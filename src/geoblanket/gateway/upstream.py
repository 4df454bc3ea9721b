"""Perturbed positions on their way to the server: each is sent until the server has it, in order for each device.

The server is one over HTTP, which takes OwnTracks' JSON by POST or the OsmAnd protocol; or standard output, which takes
JSON lines. One over MQTT is in `geoblanket.gateway.mqtt`.
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
from geoblanket.gateway.adapters import line_message, osmand_query, owntracks_message, topic_of, user_and_device
from geoblanket.gateway.config import UpstreamTable
from geoblanket.gateway.metrics import GatewayMetrics
from geoblanket.gateway.outbox import Outbox
from geoblanket.gateway.position import Released
from geoblanket.release.source import Kind

__all__ = ["HttpSender", "LineSender", "SenderUpstream", "Upstream", "client_context", "pause_s"]

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 256
_AHEAD: Final = 64
_FLUSH_S: Final = 0.2
_QUIET_S: Final = 0.3
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_FOR_GOOD: Final = frozenset({400, 409, 410, 413, 415, 422})
"""The server will not take this message however often it is sent: an unknown device, for example. Other refusals are of
the gateway as a whole (401, 404), or pass (429, 503), and the message waits."""
_LARGEST_ANSWER: Final = 1 << 16


class Upstream(Protocol):
    """Something that empties the outbox."""

    def start(self) -> None:
        """Begin."""

    def stop(self, seconds: float) -> None:
        """Let what was begun finish for some seconds, then end; the rest stays in the outbox."""


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


class Backoff:
    """How long to wait after failures in a row: longer each time, up to half a minute."""

    def __init__(self) -> None:
        self._next_s = _FIRST_WAIT_S

    def seconds(self) -> float:
        """Return how long to wait after another failure."""
        seconds, self._next_s = self._next_s, min(2 * self._next_s, _LONGEST_WAIT_S)
        return seconds

    def reset(self) -> None:
        """Begin again after a success."""
        self._next_s = _FIRST_WAIT_S


def pause_s(outbox: Outbox) -> float:
    """Return how long to wait for messages, seconds: until the next is due, so that none leaves as another comes."""
    seconds = outbox.seconds_to("next")
    return _FLUSH_S if seconds is None else min(seconds, _FLUSH_S)


class SenderUpstream:
    """Threads with a connection each; all messages of a device go through the same one.

    Parameters
    ----------
    outbox
        What is to be sent.
    make_sender
        Returns a new sender, not yet connected.
    connections
        How many threads.
    metrics
        Where attempts are counted.
    """

    def __init__(
        self, outbox: Outbox, make_sender: Callable[[], Sender], *, connections: int, metrics: GatewayMetrics
    ) -> None:
        self._outbox, self._make_sender, self._metrics = outbox, make_sender, metrics
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._is_up: bool | None = None
        outbox.call(self._wake)
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

    def stop(self, seconds: float) -> None:
        """End after what was begun; the rest stays in the outbox."""
        end = time.monotonic() + seconds
        while self._outbox.overdue and self._is_up is not False and time.monotonic() < end:
            self._outbox.flush()
            time.sleep(0.01)
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(max(0.1, end - time.monotonic()))

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
                self._wake.wait(pause_s(self._outbox))
            self._outbox.flush(quiet_s=_QUIET_S)

    def _send(self, line: queue.Queue[tuple[int, Released]]) -> None:
        sender, backoff = self._make_sender(), Backoff()
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
                        self._failed(error)
                        sender.close()
                        self._stopping.wait(backoff.seconds())
                        continue
                    backoff.reset()
                    self._up()
                    (self._metrics.sent if taken else self._metrics.refused).inc()
                    self._outbox.acknowledge((number,))
                    break
        finally:
            sender.close()

    def _up(self) -> None:
        if not self._is_up:
            self._is_up = True
            self._metrics.upstream.set(1)
            _log.info("The server takes messages.")

    def _failed(self, error: OSError) -> None:
        self._metrics.retries.inc()
        self._metrics.upstream.set(0)
        if self._is_up is not False:
            self._is_up = False
            _log.warning("The server cannot be reached (%s); messages wait.", type(error).__name__)


class HttpSender:
    """One connection, kept open between messages."""

    def __init__(self, table: UpstreamTable, names: Mapping[str, str]) -> None:
        self._table, self._names = table, names
        self._parts: SplitResult = table.parts
        self._headers = {"User-Agent": "geoblanket-gateway", **_authorization(table)}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, message: Released) -> bool:
        """Send a message; see `geoblanket.gateway.upstream.Sender`."""
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
