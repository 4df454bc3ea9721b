"""The bundles that are served: verified when the service starts, and again when a file is replaced.

The bytes of a file are read once, and these bytes are verified, hashed and served: a file that changes meanwhile is
served entirely as it was or entirely as it is. A new file that does not verify, or is an older version, is refused: the
previous one stays.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from geoblanket._display import Progress, silent
from geoblanket.errors import GeoblanketError, InputError, ParameterError
from geoblanket.mechanism.bundle.facts import BundleFacts, MechanismFacts
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.signing import signature_path
from geoblanket.mechanism.bundle.storage import LARGEST_BYTES, Bundle, load_bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.mechanism.bundle.zones import zone_order

__all__ = ["BundleStore", "ServedBundle", "encoded", "feature", "guarantee_facts"]

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
    problem: str | None = field(default=None)


class BundleStore:
    """The bundles of some files.

    Parameters
    ----------
    paths
        The files, at least one.
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
        """Check the files, load those that were replaced and verify, and return how many."""
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
        if not paths:
            raise ParameterError("Give at least one bundle to serve.")
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
        if bundle.lattice is not None:
            self._policy.check(bundle, bundle.places_e7, bundle.clock, lattice=bundle.lattice.spec)
        elif bundle.located:
            self._policy.check(bundle, bundle.places_e7, bundle.clock)
        facts = BundleFacts.of(bundle, name=path.name, size=len(content))
        return ServedBundle(
            path=path,
            content=content,
            bundle=bundle,
            signature=_signature(path),
            facts=facts,
            guarantee=guarantee_facts(bundle, facts),
            zones=zones_geojson(bundle) if bundle.located else None,
            places=places_geojson(bundle) if bundle.located else None,
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
        "words": bundle.guarantee.split("\n"),
        "mechanisms": [asdict(MechanismFacts.of(bundled, bundle)) for bundled in bundle],
        "lattice": None if facts.lattice is None else asdict(facts.lattice),
    }


def zones_geojson(bundle: Bundle) -> bytes:
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


def places_geojson(bundle: Bundle) -> bytes:
    """Return the places of a bundle with coordinates as GeoJSON, each with its number and its zones."""
    zones: list[list[str]] = [[] for _ in range(len(bundle.places_e7))]
    for zone, places in _places_of_zones(bundle).items():
        for place in places:
            zones[place].append(zone)
    return encoded(
        feature("Point", point, number=place, place=place, zones=zones[place])
        for place, point in enumerate(_place_points(bundle))
    )


def _place_points(bundle: Bundle) -> list[list[float]]:
    """Return longitude and latitude of each place, degrees, in GeoJSON's order."""
    return [[lon / 1e7, lat / 1e7] for lat, lon in bundle.places_e7.tolist()]


def _places_of_zones(bundle: Bundle) -> dict[str, list[int]]:
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
