"""Metrics and logs: route, status and time of a request, and nothing that was sent.

Routes stand for paths (`/v1/bundles/{sha256}`), so that neither a metric nor a line of the log holds anything that a
client chose. Of an error, the log has its type and the lines of code that it passed through.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geoblanket.service.refusals import INTERNAL
from geoblanket.service.store import BundleStore

__all__ = ["ObserveMiddleware", "RequestMetrics", "ServiceMetrics", "configure_logs", "where"]

_access = logging.getLogger("geoblanket.access")
_log = logging.getLogger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_CLIENT_CLOSED: Final = 499


class RequestMetrics:
    """Metrics of requests, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "geoblanket_requests", "Requests answered.", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "geoblanket_request_seconds",
            "Time from the headers of a request to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.running = Gauge("geoblanket_requests_running", "Requests being worked on.", registry=self.registry)
        self.shed = Counter("geoblanket_requests_shed", "Requests refused for load.", registry=self.registry)

    def response(self) -> Response:
        """Return all metrics as Prometheus reads them."""
        return Response(generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class ServiceMetrics(RequestMetrics):
    """The metrics of one application."""

    def __init__(self, store: BundleStore) -> None:
        super().__init__()
        self.reports = Counter("geoblanket_reports", "Reports, by how they ended.", ["outcome"], registry=self.registry)
        bundles = Gauge("geoblanket_bundles", "Bundles that are served.", registry=self.registry)
        bundles.set_function(lambda: len(store.bundles))
        refused = Gauge(
            "geoblanket_bundles_refused",
            "Files that were replaced by something that does not verify; the bundle before is served.",
            registry=self.registry,
        )
        refused.set_function(lambda: store.refused)


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
