"""The receiver: takes released reports, and answers where the vehicle probably is.

It never sees a true location: a report is a number of a bundle's outputs, and the body of a request has no coordinates.
Vehicles, slots and outputs go into no log, metric or error. One thread owns the tracker.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, NamedTuple, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import JSONResponse, Response

from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.serve.limits import (
    OVERLOADED,
    TOO_LARGE,
    TOO_SLOW,
    WRONG_TYPE,
    Limits,
    Refusal,
    Refused,
    SingleThread,
    body_schema,
    documented,
    json_body,
)
from geoblanket.serve.metrics import RequestMetrics, counting_refusals
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import Outcome, Tracked, Tracker

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATE_SLOTS: Final = 2
_EARLY_S: Final = 600.0
"""How far a slot may lie ahead of this machine's clock, seconds: a later one would make all that follow too old."""

_BAD_REPORT: Final = Refusal(
    400,
    "bad_report",
    "A report is a JSON object with the name of its vehicle, a slot or a time in seconds since 1970 in UTC, and the "
    "number of the place or cell that was reported.",
)
_OTHER_BUNDLE: Final = Refusal(409, "other_bundle", "The report is not of the bundle that is tracked here.")
_NOT_YET: Final = Refusal(409, "not_now", "The slot of the report lies in the future. It was not used.")
_TOO_OLD: Final = Refusal(409, "too_old", "Later reports of the vehicle were used already. This one was not.")
_CONFLICTING: Final = Refusal(
    409, "conflicting", "Another report of this vehicle and slot was used already. Do two vehicles have one name?"
)
_UNUSED: Final[dict[Outcome, Refusal]] = {"late": _TOO_OLD, "conflicting": _CONFLICTING}


def _one_of(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"required": [name]} for name in names]}


_Left = SkipJsonSchema[None]
"""A value that may be left out, and is never null."""
_Output = Annotated[int, Field(ge=0, lt=1 << 31)]


class ReceivedBody(BaseModel):
    """A report as it was released."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        json_schema_extra={"allOf": [_one_of("slot", "time"), _one_of("place", "cell")]},
    )

    vehicle: Annotated[str, Field(pattern="^[ -~]{1,200}$", description="A name of the vehicle.")]
    slot: Annotated[int, Field(ge=0, le=1 << 40)] | _Left = Field(None, description="The report's slot of time.")
    time: Annotated[float, Field(ge=946_684_800, lt=4_102_444_800)] | _Left = Field(
        None, description="A time in that slot, seconds since 1970 in UTC."
    )
    place: _Output | _Left = Field(None, description="The reported place, of a bundle with zones.")
    cell: _Output | _Left = Field(None, description="The reported cell of a lattice.")
    ahead_s: Annotated[
        float, Field(ge=0, le=7200, description="How long after the report, seconds; rounded up to whole slots.")
    ] = 0.0
    bundle: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | _Left = Field(
        None, description="SHA-256 of the bundle, to be sure that it is the same."
    )

    @model_validator(mode="after")
    def _is_a_report(self) -> Self:
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("null")
        if {"slot", "time"}.isdisjoint(self.model_fields_set) or {"place", "cell"}.isdisjoint(self.model_fields_set):
            raise ValueError("a slot or time, and a place or cell")
        return self


class Estimate(BaseModel):
    """Where the vehicle is, by what it reported."""

    lat: float = Field(description="Degrees.")
    lon: float = Field(description="Degrees.")
    radius_m: float = Field(description="The circle around it that holds the vehicle with a probability of 90 %.")
    slot: int = Field(description="The slot of the report.")
    time: str = Field(description="When the estimate holds: the start of the slot, or `ahead_s` later.")
    outcome: str = Field(
        description="used: the report counted; repeated: it was known; impossible: no place explains it, and it was "
        "left out."
    )


class _Asked(NamedTuple):
    """A report that may be one of the bundle's."""

    vehicle: str
    slot: int
    output: int
    ahead: int


class Receiver:
    """A tracker in a thread of its own.

    Parameters
    ----------
    bundle
        What the reports are made with.
    model
        How vehicles move; None: near places are more probable than far ones.
    limits
        How many reports may wait, and how long; and how much memory beliefs may take.
    fences
        Of the vehicles, where the receiver knows them, as `Tracker` has them: the same for all.

    Raises
    ------
    MismatchError
        If the model is of another city.
    """

    def __init__(
        self,
        bundle: Bundle,
        model: MotionModel | None = None,
        *,
        limits: Limits | None = None,
        fences: Fences = NO_FENCES,
    ) -> None:
        limits = limits or Limits()
        self._sha256 = bundle.sha256
        self._tracker = Tracker(bundle, model, late_slots=_LATE_SLOTS, memory_bytes=limits.tracker_bytes, fences=fences)
        self._thread = SingleThread("tracker", limits)

    @property
    def interval_ms(self) -> int:
        """Milliseconds of a slot."""
        return self._tracker.filter.interval_ms

    @property
    def vehicles(self) -> int:
        """How many vehicles are followed now."""
        return self._tracker.vehicles

    @property
    def dropped(self) -> int:
        """Vehicles that were forgotten because memory was full."""
        return self._tracker.dropped

    def asked(self, body: ReceivedBody) -> _Asked:
        """Return what a body asks for; raise Refused if it cannot be of this bundle, or lies in the future."""
        tracker = self._tracker
        output, other = (body.place, body.cell) if tracker.kind == "place" else (body.cell, body.place)
        if output is None or other is not None or output >= tracker.outputs:
            raise Refused(_OTHER_BUNDLE)
        at = None if body.time is None else tracker.slot_of(int(body.time * 1000))
        slot = at if body.slot is None else body.slot
        if slot is None or at not in (None, slot) or body.bundle not in (None, self._sha256):
            raise Refused(_OTHER_BUNDLE)
        if slot > tracker.slot_of(int((time.time() + _EARLY_S) * 1000)):
            raise Refused(_NOT_YET)
        ahead = min(-int(-body.ahead_s * 1000 // self.interval_ms), tracker.longest_ahead)
        return _Asked(body.vehicle, slot, output, ahead)

    async def see(self, asked: _Asked) -> Tracked:
        """Take a report into account; raise Refused if too many wait, or this one waited too long."""
        return await self._thread.do(partial(self._see, asked))

    def close(self) -> None:
        """Finish the reports that were begun."""
        self._thread.close()

    def _see(self, asked: _Asked) -> Tracked:
        return self._tracker.see(asked.vehicle, asked.slot, asked.output, ahead=asked.ahead)


def router(receiver: Receiver, metrics: RequestMetrics) -> APIRouter:
    """Return the route of released reports."""
    routes = APIRouter(tags=["track"])
    outcomes = metrics.counter("geoblanket_tracked", "Released reports, by what became of them.", "outcome")
    metrics.gauge("geoblanket_tracked_vehicles", "Vehicles that are followed.", lambda: receiver.vehicles)
    metrics.gauge("geoblanket_tracked_dropped", "Vehicles forgotten for want of memory.", lambda: receiver.dropped)

    @routes.post(
        "/v1/track",
        response_model=Estimate,
        openapi_extra=body_schema(ReceivedBody),
        responses=documented(_BAD_REPORT, TOO_SLOW, _OTHER_BUNDLE, TOO_LARGE, WRONG_TYPE, OVERLOADED),
        summary="Take a released report, and tell where its vehicle is",
    )
    async def track(request: Request) -> Response:
        """Estimate where a vehicle is from all that it released. It never takes true locations.

        The same report again gets the estimate again.
        """
        with counting_refusals(outcomes):
            answer = await _track(request, receiver)
        outcomes.labels(answer["outcome"]).inc()
        return JSONResponse(answer)

    return routes


async def _track(request: Request, receiver: Receiver) -> dict[str, Any]:
    asked = receiver.asked(await json_body(request, ReceivedBody, _BAD_REPORT))
    tracked = await receiver.see(asked)
    if tracked.outcome in _UNUSED:
        raise Refused(_UNUSED[tracked.outcome])
    moment = _EPOCH + timedelta(milliseconds=(asked.slot + asked.ahead) * receiver.interval_ms)
    return {
        "lat": round(tracked.lat, 7),
        "lon": round(tracked.lon, 7),
        "radius_m": round(tracked.radius_m, 1),
        "slot": asked.slot,
        "time": moment.isoformat().replace("+00:00", "Z"),
        "outcome": tracked.outcome,
    }
