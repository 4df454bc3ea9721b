"""Every error that the service answers with: one JSON shape, fixed words, never a value from the request."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from geoblanket._untrusted import read_object

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["ErrorBody", "Refusal", "Refused", "answer_with_refusals", "documented", "json_body"]


Body = TypeVar("Body", bound=BaseModel)


class ErrorBody(BaseModel):
    """What every error looks like."""

    error: str = Field(description="A fixed word for programs.")
    message: str = Field(description="A fixed sentence for people. It never repeats anything of the request.")


@dataclass(frozen=True)
class Refusal:
    """An error, as it is told."""

    status: int
    error: str
    message: str
    retry_after_s: int | None = None
    close: bool = False
    """Whether the connection ends with it, as the rest of the request is not read."""

    def after(self, seconds: float | None) -> Refusal:
        """Return it with the time after which to ask again, seconds; None: as it is."""
        return self if seconds is None else replace(self, retry_after_s=math.ceil(seconds))

    def response(self) -> JSONResponse:
        """Return the answer."""
        headers = {"Cache-Control": "no-store"}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.close:
            headers["Connection"] = "close"
        return JSONResponse({"error": self.error, "message": self.message}, self.status, headers)


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault of the program
    """Raised by a route to answer with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.error)


BAD_REQUEST: Final = Refusal(400, "bad_request", "The request is not valid.")
BAD_HOST: Final = Refusal(421, "wrong_host", "This service does not answer to that name.", close=True)
NOT_FOUND: Final = Refusal(404, "not_found", "There is nothing here.")
NO_BUNDLE: Final = Refusal(404, "no_such_bundle", "No bundle with this SHA-256 is served.")
NO_COORDINATES: Final = Refusal(404, "no_coordinates", "This bundle has no coordinates.")
NO_ZONES: Final = Refusal(404, "no_zones", "This bundle has a lattice: it has neither zones nor places.")
NO_SIGNATURE: Final = Refusal(404, "no_signature", "This bundle has no signature.")
WRONG_METHOD: Final = Refusal(405, "wrong_method", "This resource does not know that method.")
TOO_SLOW: Final = Refusal(408, "too_slow", "The request took too long to arrive.", close=True)
TOO_LARGE: Final = Refusal(413, "too_large", "The body of the request is too large.", close=True)
WRONG_TYPE: Final = Refusal(415, "wrong_type", "The body must be application/json, without encoding.")
OTHER: Final = Refusal(400, "refused", "The request is refused.")
INTERNAL: Final = Refusal(500, "internal", "Something went wrong here. Ask again later.", close=True)
OVERLOADED: Final = Refusal(503, "overloaded", "Too many requests at once. Try again shortly.", retry_after_s=1)

_JSON: Final = frozenset({"application/json", "application/json;charset=utf-8"})
_BY_STATUS = {404: NOT_FOUND, 405: WRONG_METHOD, 400: BAD_REQUEST, 413: TOO_LARGE, 415: WRONG_TYPE}


def documented(*refusals: Refusal) -> dict[int | str, dict[str, Any]]:
    """Return the part of a route's description that says how it may refuse."""
    return {refusal.status: {"model": ErrorBody, "description": refusal.message} for refusal in refusals}


async def json_body(request: Request, model: type[Body], malformed: Refusal) -> Body:
    """Return the body of a request; raise Refused if it is not strict JSON of the model."""
    if request.headers.get("content-type", "").lower().replace(" ", "") not in _JSON:
        raise Refused(WRONG_TYPE)
    data = await request.body()
    try:
        return model.model_validate(read_object(data))
    except (ValueError, ValidationError):
        pass  # so that the error below has no other behind it, with what was sent
    raise Refused(malformed)


def answer_with_refusals(app: FastAPI) -> None:
    """Turn every error of a route or the framework into a refusal; the framework's own would repeat what was sent."""
    from fastapi.exceptions import RequestValidationError  # the gateway refuses too, and does without FastAPI

    async def refused(_request: Request, error: Exception) -> JSONResponse:
        return error.refusal.response() if isinstance(error, Refused) else INTERNAL.response()

    async def framework(_request: Request, error: Exception) -> JSONResponse:
        status = getattr(error, "status_code", 400)
        response = _BY_STATUS.get(status, OTHER).response()
        if allowed := (getattr(error, "headers", None) or {}).get("Allow"):
            response.headers["Allow"] = allowed
        return response

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, framework)
