"""Reports of the vehicle that the service runs on, perturbed within the budget of its ledger.

A true location arrives in the body of a request from the same machine, and goes no further: not into an answer, a log,
a metric or the text of an error. One thread owns the ledger, so that reports are made one after another, each
completely or not at all, whatever happens to the request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, Protocol

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from geoblanket.errors import LedgerError, ParameterError, RandomnessError, RefusedError
from geoblanket.serve.limits import (
    LOOPBACK_NAMES,
    TOO_LARGE,
    TOO_SLOW,
    WRONG_TYPE,
    Limits,
    Refusal,
    Refused,
    SingleThread,
    body_schema,
    documented,
    host_name,
    json_body,
)
from geoblanket.serve.metrics import RequestMetrics, counting_refusals

_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_SAME_SITE: Final = frozenset({"same-origin", "none"})

_BAD_REPORT: Final = Refusal(
    400, "bad_report", "A report is a JSON object with lat and lon in degrees and time in seconds since 1970 in UTC."
)
_NOT_LOCAL: Final = Refusal(
    403, "not_local", "Reports are taken from programs of this machine only: through no proxy, and from no other page."
)
_NOT_NOW: Final = Refusal(409, "not_now", "The time is not the present. Nothing was released.")
_TOO_OLD: Final = Refusal(409, "too_old", "A later report exists already. Nothing was released.")
_SPENT: Final = Refusal(
    429,
    "budget_spent",
    "The privacy budget of this window of time is spent. Nothing was released. Retry-After tells when enough frees up.",
    retry_after_s=30,
)
_NO_LEDGER: Final = Refusal(
    503, "ledger", "The ledger cannot be trusted or written, so nothing is released.", retry_after_s=60
)
_NO_RANDOMNESS: Final = Refusal(503, "randomness", "There is no randomness, so nothing is released.", retry_after_s=1)


class Released(Protocol):
    """A location as it was released."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""


class ReportingDevice(Protocol):
    """What the service needs of a device."""

    def report(self, lat: float, lon: float, time: float, *, request: str | None = None) -> Released:
        """Release a location."""

    def close(self) -> None:
        """Let go of the ledger."""


class ReportBody(BaseModel):
    """Where the vehicle is, and when."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    lat: Annotated[float, Field(ge=-90, le=90, description="True latitude, degrees.")]
    lon: Annotated[float, Field(ge=-180, le=180, description="True longitude, degrees.")]
    time: Annotated[float, Field(ge=946_684_800, lt=4_102_444_800, description="Seconds since 1970 in UTC.")]
    request: Annotated[
        str | None,
        Field(pattern="^[ -~]{1,200}$", description="A name: the same one gets the same answer."),
    ] = None


class ReportAnswer(BaseModel):
    """What may be told of where the vehicle is."""

    place: int | None = Field(None, description="Number of the reported place in a bundle of zones.")
    cell: int | None = Field(None, description="Number of the reported cell of a lattice, instead of `place`.")
    lat: float = Field(description="Latitude of the reported place, or of the cell's centre, degrees.")
    lon: float = Field(description="Longitude of the reported place, or of the cell's centre, degrees.")
    slot: int = Field(description="Number of the slot of time.")
    time: str = Field(description="Start of the slot: publish this, not the time of the fix.")
    left: float = Field(description="What is left of the budget of this window, per km.")
    stored: bool = Field(description="Whether it was answered before; it then cost nothing.")


class ReportWorker:
    """A device in a thread of its own.

    Parameters
    ----------
    open_device
        Opens the device, in that thread; what it raises is raised here.
    limits
        How many reports may wait, and how long.
    """

    def __init__(self, open_device: Callable[[], ReportingDevice], *, limits: Limits | None = None) -> None:
        self._thread = SingleThread("reports", limits or Limits())
        try:
            self._device = self._thread.now(open_device)
        except BaseException:
            self._thread.close()
            raise

    async def report(self, body: ReportBody) -> dict[str, Any]:
        """Report a location; the answer comes after it was made durable.

        Raises
        ------
        Refused
            If too many reports wait, or this one waited too long. It may still be made: whoever asks again, in the
            same slot or with the same name, gets the same answer.
        """
        return await self._thread.do(partial(self._make, body))

    def close(self) -> None:
        """Finish the reports that were begun, and close the ledger."""
        self._thread.now(self._device.close)
        self._thread.close()

    def _make(self, body: ReportBody) -> dict[str, Any]:
        return self._device.report(body.lat, body.lon, body.time, request=body.request).as_dict()


def router(worker: ReportWorker, metrics: RequestMetrics) -> APIRouter:
    """Return the route of reports."""
    routes = APIRouter(tags=["report"])
    outcomes = metrics.counter("geoblanket_reports", "Reports, by how they ended.", "outcome")

    @routes.post(
        "/v1/report",
        response_model=ReportAnswer,
        openapi_extra=body_schema(ReportBody),
        responses=documented(_BAD_REPORT, _NOT_LOCAL, TOO_SLOW, _NOT_NOW, TOO_LARGE, WRONG_TYPE, _SPENT, _NO_LEDGER),
        summary="Report a location of this vehicle",
    )
    async def report(request: Request) -> Response:
        """Perturb a location, charge the ledger, and return what may be told. From this machine only.

        The same slot of time, or the same name of a request, gets the same answer again, at no cost.
        """
        with counting_refusals(outcomes):
            answer = await _report(request, worker)
        outcomes.labels("released").inc()
        return JSONResponse(answer)

    return routes


async def _report(request: Request, worker: ReportWorker) -> dict[str, Any]:
    if not _is_local(request):
        raise Refused(_NOT_LOCAL)
    body = await json_body(request, ReportBody, _BAD_REPORT)
    try:
        return await worker.report(body)
    except ParameterError:
        refusal = _NOT_NOW
    except RefusedError as error:
        refusal = _SPENT.after(error.retry_after_s) if error.reason == "budget" else _TOO_OLD
    except LedgerError:
        refusal = _NO_LEDGER
    except RandomnessError:
        refusal = _NO_RANDOMNESS
    raise Refused(refusal)


def _is_local(request: Request) -> bool:
    """Return whether a request comes from this machine, by a name of this machine, and not on behalf of others."""
    return (
        request.client is not None
        and ipaddress.ip_address(request.client.host).is_loopback
        and host_name(request.headers) in LOOPBACK_NAMES
        and not any(name in request.headers for name in _FORWARDED)
        and request.headers.get("sec-fetch-site", "none") in _SAME_SITE
        and _own_origins(request).issuperset(request.headers.getlist("origin"))
    )


def _own_origins(request: Request) -> set[str]:
    """Return the origins of pages that this service itself serves; programs name none."""
    port = request.scope["server"][1]
    return {f"http://{name}:{port}" for name in LOOPBACK_NAMES}
