"""The application: every route and every layer around them, in one place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from typing import Final

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from geoblanket import __version__
from geoblanket.service import bundles, explore, receiver, report
from geoblanket.service.explorer import Explorer
from geoblanket.service.limits import HeadersMiddleware, Limits, LimitsMiddleware
from geoblanket.service.metrics import ObserveMiddleware, ServiceMetrics
from geoblanket.service.receiver import Receiver
from geoblanket.service.refusals import answer_with_refusals
from geoblanket.service.report import ReportDesk
from geoblanket.service.store import BundleStore

__all__ = ["create_app"]

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
    desk: ReportDesk | None = None,
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
    desk
        Where reports of this machine's vehicle are made; it is closed with the application. None: there are none.
    tracking
        Where released reports of vehicles are received; it is closed with the application. None: there are none.
    explorer
        What the web page shows. None: there is no page.
    limits
        What it bears; by default the limits of `Limits`.
    hosts
        Names in the Host header that are answered; None: any.
    look_every_s
        Seconds between two looks at the bundles' files.
    """
    limits = limits or Limits()
    metrics = ServiceMetrics(store)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        stop = threading.Event()
        # A daemon: to verify a large bundle takes a while, and the end of the service does not wait for it.
        threading.Thread(target=_watch, args=(store, look_every_s, stop), name="bundles", daemon=True).start()
        try:
            yield
        finally:
            stop.set()
            if desk is not None:
                await asyncio.to_thread(desk.close)
            if tracking is not None:
                await asyncio.to_thread(tracking.close)

    app = FastAPI(
        title="geoblanket",
        version=__version__,
        summary="Verified mechanisms for private vehicle locations.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    answer_with_refusals(app)
    if desk is not None:
        app.include_router(report.router(desk, metrics))
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
        app.include_router(explore.router(explorer))

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
