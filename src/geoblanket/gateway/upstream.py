"""Perturbed positions on their way to the server: each is sent until the server has it, in order for each device."""

from __future__ import annotations

import logging
import queue
import threading
import time
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from geoblanket.gateway.metrics import GatewayMetrics
from geoblanket.gateway.outbox import Outbox
from geoblanket.gateway.position import Released

__all__ = ["Backoff", "Sender", "SenderUpstream", "Upstream", "pause_s"]

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 256
_AHEAD: Final = 64
_FLUSH_S: Final = 0.2
_QUIET_S: Final = 0.3
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0


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
