"""The bundles that are served, and their routes: verified when the service starts, and again when a file is replaced.

The bytes of a file are read once, and these bytes are verified, hashed and served: a file that changes meanwhile is
served entirely as it was or entirely as it is. A new file that does not verify, or is an older version, is refused: the
previous one stays.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, Header
from fastapi import Path as PathParameter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from geoblanket import __version__
from geoblanket._display import Progress, silent
from geoblanket.errors import GeoblanketError, InputError
from geoblanket.mechanism.bundle.facts import BundleFacts, LatticeFacts, MechanismFacts
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import LARGEST_BYTES, Bundle, LatticeBundle, ZoneBundle, load_bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust, signature_path
from geoblanket.mechanism.bundle.zones import zone_order
from geoblanket.serve.limits import NO_BUNDLE, NO_COORDINATES, NO_SIGNATURE, NO_ZONES, Refused, documented

_log = logging.getLogger(__name__)

_SIGNATURE_BYTES = 64
_ATTEMPTS = 5
_PAUSE_S = 0.05

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class ServedBundle:
    """A verified bundle with everything that is published about it, ready to be sent."""

    path: Path
    content: bytes
    """The file, as it was verified."""
    bundle: Bundle
    signature: bytes | None
    """The detached signature that lay beside the file."""
    facts: BundleFacts
    guarantee: dict[str, Any]
    zones: bytes | None
    """GeoJSON; None where the bundle has no coordinates."""
    places: bytes | None

    @property
    def sha256(self) -> str:
        """Hash of the file, by which it is asked for."""
        return self.bundle.sha256


@dataclass
class _Slot:
    """A file, and what is served of it."""

    path: Path
    served: ServedBundle
    stamp: _Stamp | None
    """Of the file when it was last checked, accepted or not."""
    problem: str | None = None


class BundleStore:
    """The bundles of some files.

    Parameters
    ----------
    paths
        The files; none are needed where the page makes lattices over roads.
    trust
        Which files are accepted.
    policy
        The least that a bundle with coordinates or a lattice must promise; no device accepts another one.
    progress
        Called as files are verified.

    Raises
    ------
    InputError
        If some of them cannot be served: it says which, and why.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        *,
        trust: Trust = ANY_FILE,
        policy: Policy = DEFAULT_POLICY,
        progress: Progress = silent,
    ) -> None:
        self._trust, self._policy = trust, policy
        self._slots = self._load_all([Path(path) for path in paths], progress)
        self._by_hash = self._index()

    @property
    def bundles(self) -> Sequence[ServedBundle]:
        """What is served, in the order of the files; files of the same content once."""
        return tuple(self._by_hash.values())

    @property
    def refused(self) -> int:
        """How many files were replaced by something that is refused; the previous bundle is served."""
        return sum(slot.problem is not None for slot in self._slots)

    def get(self, sha256: str) -> ServedBundle | None:
        """Return the bundle with this hash (64 lower-case hexadecimal digits), or None."""
        return self._by_hash.get(sha256)

    def refresh(self) -> int:
        """Load files that were replaced, if they verify; return how many."""
        return sum(self._refresh(slot) for slot in self._slots)

    def _refresh(self, slot: _Slot) -> bool:
        stamp = _stamp(slot.path)
        if stamp is None or stamp == slot.stamp:
            return False
        slot.stamp = stamp
        try:
            served = self._load(slot.path)
            if served.bundle.version < slot.served.bundle.version:
                raise InputError(
                    f"is version {served.bundle.version}, older than the {slot.served.bundle.version} that is served",
                    path=slot.path,
                )
        except GeoblanketError as error:
            slot.problem = str(error)
            _log.error("The new bundle is refused, so the previous one stays: %s", error)
            return False
        slot.problem = None
        if served.sha256 == slot.served.sha256 and served.signature == slot.served.signature:
            return False
        slot.served = served
        self._by_hash = self._index()  # one assignment: a request sees all of the old bundles or all of the new ones
        _log.info("Bundle %s was replaced; version %d is served.", served.sha256[:16], served.bundle.version)
        return True

    def _index(self) -> Mapping[str, ServedBundle]:
        by_hash: dict[str, ServedBundle] = {}
        for slot in self._slots:
            by_hash.setdefault(slot.served.sha256, slot.served)
        return MappingProxyType(by_hash)

    def _load_all(self, paths: Sequence[Path], progress: Progress) -> list[_Slot]:
        slots, problems = [], []
        for number, path in enumerate(paths):
            progress("verifying bundles", number, len(paths))
            stamp = _stamp(path)
            try:
                slots.append(_Slot(path, self._load(path), stamp))
            except GeoblanketError as error:
                problems.append(str(error))
        progress("verifying bundles", len(paths), len(paths))
        if problems:
            raise InputError(
                f"{len(problems)} of {len(paths)} bundle(s) cannot be served, so nothing is: "
                + " ".join(problems).rstrip(".")
            )
        return slots

    def _load(self, path: Path) -> ServedBundle:
        content = _read(path)
        bundle = load_bundle(path, trust=self._trust, content=content)
        located = bundle if isinstance(bundle, ZoneBundle) and bundle.located else None
        if located is not None or isinstance(bundle, LatticeBundle):
            self._policy.check(bundle)
        facts = BundleFacts.of(bundle, name=path.name, size=len(content))
        return ServedBundle(
            path=path,
            content=content,
            bundle=bundle,
            signature=_signature(path),
            facts=facts,
            guarantee=guarantee_facts(bundle, facts),
            zones=None if located is None else zones_geojson(located),
            places=None if located is None else places_geojson(located),
        )


def _read(path: Path) -> bytes:
    """Return the bytes of a file; try again if it is being written."""
    if not path.is_file():
        raise InputError("no such file", path=path)
    try:
        for _ in range(_ATTEMPTS):
            before = _stamp(path)
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                    raise InputError(f"has more than {LARGEST_BYTES} bytes", path=path)
                content = file.read()
            if before == _stamp(path):
                return content
            time.sleep(_PAUSE_S)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    raise InputError("is being written", path=path, hint="Write it beside its place, then rename it")


def _signature(path: Path) -> bytes | None:
    try:
        with signature_path(path).open("rb") as file:
            content = file.read(_SIGNATURE_BYTES + 1)
    except OSError:
        return None
    return content if len(content) == _SIGNATURE_BYTES else None


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when a file or its signature is replaced or written to; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    try:
        beside = signature_path(path).stat().st_mtime_ns
    except OSError:
        beside = 0
    return status.st_ino, status.st_size, status.st_mtime_ns, beside


def guarantee_facts(bundle: Bundle, facts: BundleFacts) -> dict[str, Any]:
    """Return what a bundle promises, in words and for each mechanism, or for its lattice, in figures."""
    return {
        "sha256": bundle.sha256,
        "words": str(bundle.promise).split("\n"),
        "mechanisms": [asdict(MechanismFacts.of(bundled, bundle)) for bundled in bundle]
        if isinstance(bundle, ZoneBundle)
        else [],
        "lattice": None if facts.lattice is None else asdict(facts.lattice),
    }


def zones_geojson(bundle: ZoneBundle) -> bytes:
    """Return the zones of a bundle with coordinates as GeoJSON, each as the points of its places."""
    points = _place_points(bundle)
    return encoded(
        feature(
            "MultiPoint",
            [points[place] for place in places],
            zone=zone,
            places=len(places),
            regimes=sorted(bundled.regime for bundled in bundle if bundled.zone == zone),
        )
        for zone, places in _places_of_zones(bundle).items()
    )


def places_geojson(bundle: ZoneBundle) -> bytes:
    """Return the places of a bundle with coordinates as GeoJSON, each with its number and its zones."""
    zones: list[list[str]] = [[] for _ in range(len(bundle.places_e7))]
    for zone, places in _places_of_zones(bundle).items():
        for place in places:
            zones[place].append(zone)
    return encoded(
        feature("Point", point, number=place, place=place, zones=zones[place])
        for place, point in enumerate(_place_points(bundle))
    )


def _place_points(bundle: ZoneBundle) -> list[list[float]]:
    """Return longitude and latitude of each place, degrees, in GeoJSON's order."""
    return [[lon / 1e7, lat / 1e7] for lat, lon in bundle.places_e7.tolist()]


def _places_of_zones(bundle: ZoneBundle) -> dict[str, list[int]]:
    """Return the present places of each zone, whatever the regime, in order."""
    places: dict[str, list[int]] = {}
    for zone in sorted({bundled.zone for bundled in bundle}, key=zone_order):
        present = np.concatenate([bundled.histories[:, 0] for bundled in bundle if bundled.zone == zone])
        places[zone] = np.unique(present[present >= 0]).tolist()
    return places


def feature(kind: str, coordinates: Any, *, number: int | None = None, **properties: Any) -> dict[str, Any]:
    """Return a feature.

    Parameters
    ----------
    kind
        Of its geometry, for example "Point".
    coordinates
        Longitude before latitude, degrees, nested as the kind asks for.
    number
        Its id, if it has one.
    """
    shape = {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}
    return shape if number is None else {**shape, "id": number}


def encoded(features: Iterable[dict[str, Any]]) -> bytes:
    """Return a collection of features as bytes."""
    collection = {"type": "FeatureCollection", "features": list(features)}
    return json.dumps(collection, allow_nan=False, separators=(",", ":")).encode("ascii")


_CHUNK_BYTES: Final = 1 << 18
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "public, no-cache"

KnownTags = Annotated[str | None, Header(alias="If-None-Match", description="ETags that the client has.")]
_Hash = Annotated[str, PathParameter(description="SHA-256 of the bundle's file, 64 lower-case hexadecimal digits.")]


class BundleList(BaseModel):
    """All bundles that are served."""

    bundles: list[BundleFacts]


class Guarantee(BaseModel):
    """What a bundle promises."""

    sha256: str
    words: list[str] = Field(description="In words, a sentence or two each.")
    mechanisms: list[MechanismFacts] = Field(description="Those of zones; none beside a lattice.")
    lattice: LatticeFacts | None = Field(description="Instead of zones: the lattice of a whole city.")


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
        raise Refused(NO_COORDINATES if isinstance(served.bundle, ZoneBundle) else NO_ZONES)
    tag = f"{served.sha256}-{what}-{__version__}"
    return _file(content, "application/geo+json", tag, known, {"Cache-Control": _ASK_AGAIN})


def _file(content: bytes, kind: str, tag: str, known: str | None, headers: dict[str, str]) -> Response:
    """Answer with bytes, or with 304 if the client has them."""
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
