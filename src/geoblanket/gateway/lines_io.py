"""JSON lines: positions from standard input, perturbed ones to standard output."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from geoblanket.gateway.adapters import lines
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.metrics import GatewayMetrics
from geoblanket.gateway.position import Dropped, Position, Reason, Released
from geoblanket.gateway.worker import ReleaseWorker
from geoblanket.release.source import Kind
from geoblanket.service.metrics import where

__all__ = ["LineSender", "LinesIn"]

_log = logging.getLogger(__name__)

_LARGEST_LINE: Final = 4096
_WAIT_S: Final = 0.5
_SOURCE: Final = "lines"


class LinesIn:
    """A thread that reads lines.

    Parameters
    ----------
    stream
        What is read.
    on_end
        Called at the end of it, once everything that was read was handed over.
    """

    def __init__(
        self,
        stream: BinaryIO,
        worker: ReleaseWorker,
        *,
        allow: AllowList,
        metrics: GatewayMetrics,
        on_end: Callable[[], None],
    ) -> None:
        self._stream, self._worker, self._allow, self._metrics, self._on_end = stream, worker, allow, metrics, on_end
        # A daemon: a read cannot be interrupted, and the end of the gateway does not wait for it.
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Hand nothing over any more."""
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping and (line := self._stream.readline(_LARGEST_LINE + 1)):
                if not line.endswith(b"\n") and len(line) > _LARGEST_LINE:
                    while (part := self._stream.readline(_LARGEST_LINE)) and not part.endswith(b"\n"):
                        pass
                    self._metrics.count(_SOURCE, "too_large")
                elif line.strip():
                    self._take(line)
        except (OSError, ValueError) as error:
            _log.error("Standard input cannot be read (%s at %s).", type(error).__name__, where(error.__traceback__))
        self._on_end()

    def _take(self, line: bytes) -> None:
        try:
            content: Position | Reason = lines.read(line, self._allow)
        except Dropped as dropped:
            content = dropped.reason
        while not self._stopping and not self._worker.failed:
            if self._worker.submit(content, _SOURCE, wait_s=_WAIT_S):
                return


class LineSender:
    """Standard output; a line that was written has arrived."""

    def __init__(self, stream: BinaryIO, names: Mapping[str, str], *, kind: Kind, accuracy_m: float | None) -> None:
        self._stream, self._names, self._kind, self._accuracy_m = stream, names, kind, accuracy_m

    def send(self, message: Released) -> bool:
        """Write a line."""
        name = self._names.get(message.device, message.device)
        self._stream.write(lines.written(message, name=name, kind=self._kind, accuracy_m=self._accuracy_m))
        self._stream.flush()
        return True

    def close(self) -> None:
        """Leave standard output open."""
