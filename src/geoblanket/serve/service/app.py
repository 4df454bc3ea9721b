"""The application: every route and every layer around them, in one place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from geoblanket import __version__
from geoblanket.serve.limits import (
    HeadersMiddleware,
    Limits,
    LimitsMiddleware,
    Refused,
    answer_framework,
    answer_refused,
)
from geoblanket.serve.metrics import ObserveMiddleware, RequestMetrics
from geoblanket.serve.service import bundles, receiver, report
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.explorer import Explorer
from geoblanket.serve.service.page import add_page
from geoblanket.serve.service.receiver import Receiver
from geoblanket.serve.service.report import ReportWorker

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
"""By default FastAPI tells any OpenTelemetry in the process of addresses, query strings and messages of exceptions."""


class Health(BaseModel):
    """That the service answers, and what it serves."""

    status: str = Field(description="Always ok: a service that cannot serve does not answer.")
    bundles: int = Field(description="How many bundles are served.")
    refused: int = Field(description="How many files were replaced by something that is not served.")


def create_app(
    store: BundleStore,
    *,
    reports: ReportWorker | None = None,
    tracking: Receiver | None = None,
    explorer: Explorer | None = None,
    limits: Limits | None = None,
    hosts: frozenset[str] | None = None,
    look_every_s: float = _LOOK_EVERY_S,
) -> FastAPI:
    """Return the service as an ASGI application.

    Parameters
    ----------
    store
        The bundles to serve.
    reports
        Makes the reports of this machine's vehicle; it is closed with the application. None: there are none.
    tracking
        Receives released reports of vehicles; it is closed with the application. None: there are none.
    explorer
        What the web page shows. None: there is no page.
    limits
        How much load is accepted; by default that of `Limits`.
    hosts
        Names in the Host header that are answered; None: any.
    look_every_s
        Seconds between two looks at the bundles' files.
    """
    limits = limits or Limits()
    metrics = RequestMetrics()
    metrics.gauge("geoblanket_bundles", "Bundles that are served.", lambda: len(store.bundles))
    metrics.gauge(
        "geoblanket_bundles_refused",
        "Files that were replaced by something that does not verify; the bundle before is served.",
        lambda: store.refused,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        stop = threading.Event()
        # A daemon: to verify a large bundle takes a while, and the end of the service does not wait for it.
        threading.Thread(target=_watch, args=(store, look_every_s, stop), name="bundles", daemon=True).start()
        try:
            yield
        finally:
            stop.set()
            for worker in (reports, tracking):
                if worker is not None:
                    await asyncio.to_thread(worker.close)

    app = FastAPI(
        title="geoblanket",
        version=__version__,
        summary="Verified mechanisms for private vehicle locations.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
        exception_handlers={
            Refused: answer_refused,
            HTTPException: answer_framework,
            RequestValidationError: answer_framework,
        },
    )
    if reports is not None:
        app.include_router(report.router(reports, metrics))
    if tracking is not None:
        app.include_router(receiver.router(tracking, metrics))
    app.include_router(bundles.router(store))

    @app.get("/healthz", response_model=Health, tags=["operation"], summary="Whether the service answers")
    async def healthz() -> Response:
        """Answer at once, even under load."""
        return JSONResponse({"status": "ok", "bundles": len(store.bundles), "refused": store.refused})

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        tags=["operation"],
        summary="What is counted",
    )
    async def prometheus() -> Response:
        """Return the metrics in Prometheus' text format. None has a location, or anything that was sent, in a label."""
        return metrics.response()

    if explorer is not None:
        add_page(app, explorer)

    app.add_middleware(LimitsMiddleware, limits=limits, hosts=hosts, on_shed=metrics.shed.inc)
    app.add_middleware(ObserveMiddleware, metrics=metrics)
    app.add_middleware(HeadersMiddleware)
    return app


def _watch(store: BundleStore, every_s: float, stop: threading.Event) -> None:
    """Look at the bundles' files now and then."""
    while not stop.wait(every_s):
        try:
            store.refresh()
        except Exception as error:
            _log.error("Looking at the bundles failed with %s; those before are served.", type(error).__name__)
