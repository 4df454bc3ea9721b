"""The public part: bundles that verified, what they promise, and their zones and places."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from geoblanket import __version__
from geoblanket.mechanism.bundle.facts import BundleFacts, LatticeFacts, MechanismFacts
from geoblanket.service.refusals import NO_BUNDLE, NO_COORDINATES, NO_SIGNATURE, NO_ZONES, Refused, documented
from geoblanket.service.store import BundleStore, ServedBundle

__all__ = ["KnownTags", "is_known", "router"]

_CHUNK_BYTES: Final = 1 << 18
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "public, no-cache"

KnownTags = Annotated[str | None, Header(alias="If-None-Match", description="ETags that the client has.")]
_Hash = Annotated[str, Path(description="SHA-256 of the bundle's file, 64 lower-case hexadecimal digits.")]


class BundleList(BaseModel):
    """All bundles that are served."""

    bundles: list[BundleFacts]


class Guarantee(BaseModel):
    """What a bundle promises."""

    sha256: str
    words: list[str] = Field(description="In words, a sentence or two each.")
    mechanisms: list[MechanismFacts] = Field(description="Those of zones; none beside a lattice.")
    lattice: LatticeFacts | None = Field(description="In the place of zones: the lattice of a whole city.")


def router(store: BundleStore) -> APIRouter:
    """Return the routes of the bundles of a store."""
    routes = APIRouter(prefix="/v1/bundles", tags=["bundles"])

    def find(sha256: str) -> ServedBundle:
        served = store.get(sha256)
        if served is None:
            raise Refused(NO_BUNDLE)
        return served

    @routes.get("", response_model=BundleList, summary="List the bundles")
    async def list_bundles() -> Response:
        """List all bundles that are served. Each was verified in exact arithmetic."""
        facts = {"bundles": [asdict(served.facts) for served in store.bundles]}
        return JSONResponse(facts, headers={"Cache-Control": _ASK_AGAIN})

    @routes.get(
        "/{sha256}",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}, 304: _UNCHANGED, **documented(NO_BUNDLE)},
        summary="Download a bundle",
    )
    async def download(sha256: _Hash, known: KnownTags = None) -> Response:
        """Hand out a bundle's file. Its hash is its name, so that it never changes; verify it again all the same."""
        served = find(sha256)
        headers = {"Content-Disposition": f'attachment; filename="{sha256}.bundle"'}
        return _file(served.content, "application/octet-stream", served.sha256, known, headers)

    @routes.get(
        "/{sha256}/signature",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {}}},
            304: _UNCHANGED,
            **documented(NO_BUNDLE, NO_SIGNATURE),
        },
        summary="Download the detached signature of a bundle",
    )
    async def signature(sha256: _Hash, known: KnownTags = None) -> Response:
        """Hand out the Ed25519 signature that lay beside the bundle, 64 bytes."""
        served = find(sha256)
        if served.signature is None:
            raise Refused(NO_SIGNATURE)
        tag = served.signature.hex()
        return _file(served.signature, "application/octet-stream", tag, known, {"Cache-Control": _ASK_AGAIN})

    @routes.get(
        "/{sha256}/guarantee",
        response_model=Guarantee,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented(NO_BUNDLE)},
        summary="What a bundle promises",
    )
    async def guarantee(sha256: _Hash, accept: Annotated[str, Header()] = "*/*") -> Response:
        """Tell what is promised, how it was verified and what is not covered: JSON, or words only as text/plain."""
        served = find(sha256)
        headers = {"Cache-Control": _ASK_AGAIN, "Vary": "Accept"}
        if accept.strip().startswith("text/plain"):
            return PlainTextResponse("\n".join(served.guarantee["words"]) + "\n", headers=headers)
        return JSONResponse(served.guarantee, headers=headers)

    @routes.get("/{sha256}/zones", summary="The zones as GeoJSON", **_GEOJSON)
    async def zones(sha256: _Hash, known: KnownTags = None) -> Response:
        """Return each zone as the points of its places, with its regimes."""
        return _geojson(find(sha256), "zones", known)

    @routes.get("/{sha256}/places", summary="The places as GeoJSON", **_GEOJSON)
    async def places(sha256: _Hash, known: KnownTags = None) -> Response:
        """Return each place as a point, with its number and its zones."""
        return _geojson(find(sha256), "places", known)

    return routes


_UNCHANGED: dict[str, Any] = {"description": "The client has it already.", "content": {}}
_GEOJSON: dict[str, Any] = {
    "response_class": Response,
    "responses": {
        200: {"content": {"application/geo+json": {"schema": {"type": "object"}}}},
        304: _UNCHANGED,
        **documented(NO_COORDINATES),  # or NO_ZONES, with the same status
    },
}


def _geojson(served: ServedBundle, what: str, known: str | None) -> Response:
    content: bytes | None = getattr(served, what)
    if content is None:
        raise Refused(NO_COORDINATES if served.bundle.lattice is None else NO_ZONES)
    tag = f"{served.sha256}-{what}-{__version__}"
    return _file(content, "application/geo+json", tag, known, {"Cache-Control": _ASK_AGAIN})


def _file(content: bytes, kind: str, tag: str, known: str | None, headers: dict[str, str]) -> Response:
    """Answer with bytes, or that they are those that the client has."""
    headers = {"Cache-Control": _FOR_EVER, "ETag": f'"{tag}"', **headers}
    if is_known(tag, known):
        del_disposition = {name: value for name, value in headers.items() if name != "Content-Disposition"}
        return Response(status_code=304, headers=del_disposition)
    headers["Content-Length"] = str(len(content))
    return StreamingResponse(_chunks(content), media_type=kind, headers=headers)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


def is_known(tag: str, known: str | None) -> bool:
    """Return whether an If-None-Match header names a tag; weak ones count (RFC 9110, 8.8.3 and 13.1.2)."""
    tags = [name.strip().removeprefix("W/") for name in (known or "").split(",")]
    return "*" in tags or f'"{tag}"' in tags
