"""Metrics and logs of the service and of the gateway: route, status and time of a request, and nothing that was sent.

Routes stand for paths (`/v1/bundles/{sha256}`), so that neither a metric nor a line of the log holds anything that a
client chose. Of an error, the log has its type and the lines of code that it passed through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoblanket.serve.limits import INTERNAL, Refused

_access = logging.getLogger("geoblanket.access")
_log = logging.getLogger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_CLIENT_CLOSED: Final = 499


class RequestMetrics:
    """Metrics of requests, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self.counter("geoblanket_requests", "Requests answered.", "route", "method", "status")
        self.seconds = self.histogram(
            "geoblanket_request_seconds",
            "Time from the headers of a request to the end of its answer.",
            _BUCKETS,
            "route",
        )
        self.running = self.gauge("geoblanket_requests_running", "Requests being worked on.")
        self.shed = self.counter("geoblanket_requests_shed", "Requests refused for load.")

    def counter(self, name: str, words: str, *labels: str) -> Counter:
        """Add a counter."""
        return Counter(name, words, labels, registry=self.registry)

    def gauge(self, name: str, words: str, value: Callable[[], float] | None = None) -> Gauge:
        """Add a gauge; with a function, its value is asked for whenever somebody looks."""
        gauge = Gauge(name, words, registry=self.registry)
        if value is not None:
            gauge.set_function(value)
        return gauge

    def histogram(self, name: str, words: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Add a histogram."""
        return Histogram(name, words, labels, buckets=buckets, registry=self.registry)

    def response(self) -> Response:
        """Return all metrics as Prometheus reads them."""
        return Response(generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class GatewayMetrics(RequestMetrics):
    """The metrics of one gateway. No label has a place, a device or anything that was sent."""

    def __init__(self) -> None:
        super().__init__()
        counter = self.counter
        self._messages = counter(
            "geoblanket_gateway_messages", "Messages that came in, by outcome.", "source", "outcome"
        )
        self.outcomes = counter("geoblanket_gateway_outcomes", "The same, whatever the source.", "outcome")
        self.durable_seconds = self.histogram(
            "geoblanket_gateway_durable_seconds",
            "Time from a message to its place in the ledger and the queue.",
            _BUCKETS,
        )
        self.batch = self.histogram(
            "geoblanket_gateway_batch_messages", "Messages that shared a transaction.", _BATCHES
        )
        self.sent = counter("geoblanket_gateway_sent", "Messages that the server acknowledged.")
        self.retries = counter("geoblanket_gateway_retries", "Attempts to send that failed and are repeated.")
        self.refused = counter("geoblanket_gateway_refused", "Messages that the server refused for good.")
        self.dropped = counter("geoblanket_gateway_queue_dropped", "Messages dropped from a full queue.")
        self.recovered = counter(
            "geoblanket_gateway_recovered", "Positions that were in the ledger but not in the queue at the start."
        )
        self.upstream = self.gauge(
            "geoblanket_gateway_upstream_up", "Whether the last attempt to reach the server worked."
        )

    def count(self, source: str, outcome: str) -> None:
        """Count a message."""
        self._messages.labels(source, outcome).inc()
        self.outcomes.labels(outcome).inc()

    def watch(self, *, waiting: Callable[[], int], devices: Callable[[], int]) -> None:
        """Ask for numbers whenever they are looked at."""
        self.gauge("geoblanket_gateway_queue", "Messages that are due and wait for the server.", waiting)
        self.gauge("geoblanket_gateway_devices", "Devices that are known.", devices)


@contextlib.contextmanager
def counting_refusals(outcomes: Counter) -> Iterator[None]:
    """Count what a route refuses, by its fixed word."""
    try:
        yield
    except Refused as refused:
        outcomes.labels(refused.refusal.error).inc()
        raise


class ObserveMiddleware:
    """Counts and logs every request, and answers when an inner layer fails.

    An unexpected error is logged by its type and the lines of code it passed through, without its message or any
    values, which may contain what was sent.
    """

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        start = time.perf_counter()
        self._metrics.running.inc()
        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            _log.error("A request failed with %s at %s.", type(error).__name__, where(error.__traceback__))
            if not status:
                await INTERNAL.response()(scope, receive, noted)
        finally:
            self._metrics.running.dec()
            self._note(scope, status or _CLIENT_CLOSED, time.perf_counter() - start)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        _access.info("%s %s %d %.1f ms", method, route, status, seconds * 1000)


def where(trace: TracebackType | None) -> str:
    """Return the lines of code that an error passed through, the last ones, without any value."""
    frames = traceback.extract_tb(trace)[-4:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)) or "an unknown line"


class _NoValues(logging.Formatter):
    """Writes an exception without its message, which may hold what was sent, and without a traceback."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        kind: type[BaseException] | None = ei[0]
        trace: TracebackType | None = ei[2]
        return f"{kind.__name__ if kind else 'error'} at {where(trace)}"

    def formatStack(self, stack_info: str) -> str:  # noqa: N802, ARG002 - the name is logging's
        return ""


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record says more than that a request was still running when the service stopped."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def configure_logs(*, access: bool = False) -> None:
    """Send the logs of this process to stderr.

    Parameters
    ----------
    access
        Whether every request has a line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_NoValues("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_is_news)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("geoblanket").setLevel(logging.INFO)
    logging.getLogger("geoblanket.access").setLevel(logging.INFO if access else logging.WARNING)
