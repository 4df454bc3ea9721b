"""The facts of a bundle, each described once, for the service, its page and the command line.

All of it is public, and made of JSON values; None stands for infinity, which JSON does not have. The service's OpenAPI
description takes its words from the strings below the fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism, LatticeBundle, ZoneBundle
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.zones import zone_order
from geoblanket.mechanism.problem import NEVER_MM

_DESCRIBED: dict[str, Any] = {"use_attribute_docstrings": True}
"""Makes Pydantic, where it is used, take the strings below fields as their descriptions."""


@dataclass(frozen=True)
class ClockFacts:
    """When which regime is used."""

    __pydantic_config__: ClassVar = _DESCRIBED

    interval_s: float
    """Seconds from one place of a history to the next."""
    time_zone: str
    """IANA name of the time zone of the hours."""
    regimes: dict[str, list[int]]
    """The hours (0 to 23) of each regime."""
    start: str
    """The regime of a report without history."""

    @classmethod
    def of(cls, clock: Clock) -> ClockFacts:
        """Return the facts of a clock."""
        regimes = {name: list(hours) for name, hours in clock.regimes}
        return cls(clock.interval_s, clock.time_zone, regimes, clock.start)


@dataclass(frozen=True)
class MechanismFacts:
    """What one mechanism promises, and how it was verified; null stands for infinity."""

    __pydantic_config__: ClassVar = _DESCRIBED

    zone: str
    regime: str
    rows: int
    outputs: int
    outputs_used: int
    epsilon_per_km: float
    epsilon_effective_per_km: float
    """The largest ε found between two rows."""
    epsilon_per_location_per_km: float
    """What a report by it costs a location at most."""
    eta_km: float | None
    history_weights: list[float | None]
    pairs: int
    """Pairs of rows within η."""
    pairs_beyond_eta: int
    inequalities: int
    """Checked, in exact arithmetic."""
    parts: int
    """Parts that no chain of pairs joins; 1 if all rows hang together."""

    @classmethod
    def of(cls, bundled: BundledMechanism, bundle: ZoneBundle) -> MechanismFacts:
        """Return the facts of a mechanism of a bundle."""
        has_history = bundle.clock is not None and bundled.regime != bundle.clock.start
        mechanism, certificate = bundled.mechanism, bundled.mechanism.certificate
        return cls(
            zone=bundled.zone,
            regime=bundled.regime,
            rows=mechanism.row_count,
            outputs=bundled.output_count,
            outputs_used=len(bundled.outputs),
            epsilon_per_km=mechanism.epsilon,
            epsilon_effective_per_km=certificate.epsilon_effective,
            epsilon_per_location_per_km=bundle.costs.other / 10**6 if has_history else bundle.costs.largest_per_km,
            eta_km=_finite(mechanism.eta_km),
            history_weights=_weights(bundled.history_weights_micro),
            pairs=certificate.pairs,
            pairs_beyond_eta=certificate.pairs_beyond,
            inequalities=certificate.checks,
            parts=certificate.components,
        )


@dataclass(frozen=True)
class FrameFacts:
    """The square that a lattice covers, margin included, degrees; east is less than west where it crosses 180°."""

    __pydantic_config__: ClassVar = _DESCRIBED

    south: float
    west: float
    north: float
    east: float


@dataclass(frozen=True)
class LatticeFacts:
    """A mechanism for a whole city: planar Laplace noise, exact, between any two coordinates of its frame."""

    __pydantic_config__: ClassVar = _DESCRIBED

    cells: int
    """How many there are; they are numbered from 0, from west to east, then from south to north."""
    cell_m: float
    """Metres from edge to edge of a cell."""
    frame: FrameFacts
    rounding_m: float
    """How far a coordinate is moved before anything else; the promise adds it to a distance for both coordinates."""
    epsilon_per_km: float
    """What one report costs."""
    epsilon_effective_per_km: float
    """The ε that was found to be needed."""
    hold_m: float
    """Within this distance of where the last report was drawn, it is repeated at no cost; 0: never."""
    meaning: list[str]
    """What all of this means, in sentences."""

    @classmethod
    def of(cls, bundle: LatticeBundle) -> LatticeFacts:
        """Return the facts of a bundle's lattice."""
        lattice, plane = bundle.lattice, bundle.lattice.spec.plane
        east_e7 = (plane.west_e7 + plane.width_e7 + 1_800_000_000) % 3_600_000_000 - 1_800_000_000
        return cls(
            cells=lattice.cells,
            cell_m=lattice.cell_m,
            frame=FrameFacts(plane.south_e7 / 1e7, plane.west_e7 / 1e7, plane.north_e7 / 1e7, east_e7 / 1e7),
            rounding_m=lattice.certificate.rounding_mm / 1000,
            epsilon_per_km=lattice.epsilon,
            epsilon_effective_per_km=lattice.certificate.epsilon_effective,
            hold_m=lattice.hold_m,
            meaning=bundle.promise.meaning,
        )


@dataclass(frozen=True)
class BundleFacts:
    """What is told about a bundle; null stands for infinity."""

    __pydantic_config__: ClassVar = _DESCRIBED

    sha256: str
    """Hash of the file, by which it is asked for."""
    name: str
    """Name of the file."""
    version: int
    """The publisher's number, which only grows."""
    bytes: int
    """Size of the file."""
    domain: str
    """Hash of places, histories, zones and regimes."""
    signed: bool
    """Whether a public key was given, and the signature is valid."""
    disclosed: str
    """What a report tells besides its output, in words."""
    epsilon_per_km: list[float]
    """Each ε that its mechanisms have, per km."""
    eta_km: list[float | None]
    """Each η: how far apart rows are compared, km."""
    history_weights: list[list[float | None]]
    """What earlier places count in distances."""
    epsilon_per_location_per_km: float
    """What one report costs a location at most."""
    zones: list[str]
    regimes: list[str]
    places: int
    """How many places have coordinates."""
    snapping_radius_m: float | None
    """How far a coordinate amid the places lies from its place at most, computed from them, m."""
    clock: ClockFacts | None
    lattice: LatticeFacts | None
    """In the place of zones: the lattice of a whole city."""
    training: dict[str, Any]
    """What the mechanisms were learned from: "source" is nobody, walks, private or not said; with a "promise" if it is
    private."""
    training_in_words: str
    """The same, as part of a sentence."""

    @classmethod
    def of(cls, bundle: Bundle, *, name: str, size: int) -> BundleFacts:
        """Return the facts of a bundle.

        Parameters
        ----------
        name
            Of its file.
        size
            Of its file, bytes.
        """
        common: dict[str, Any] = {
            "sha256": bundle.sha256,
            "name": name,
            "version": bundle.version,
            "bytes": size,
            "domain": bundle.domain,
            "signed": bundle.signed,
            "disclosed": bundle.disclosed,
            "epsilon_per_location_per_km": bundle.costs.largest_per_km,
            "snapping_radius_m": bundle.snapping_radius_m,
            "clock": None if bundle.clock is None else ClockFacts.of(bundle.clock),
            "training": bundle.training.as_json(),
            "training_in_words": bundle.training.in_words(),
        }
        if isinstance(bundle, LatticeBundle):
            nothing: dict[str, Any] = {"history_weights": [], "zones": [], "regimes": [], "places": 0}
            lattice = LatticeFacts.of(bundle)
            return cls(**common, **nothing, epsilon_per_km=[lattice.epsilon_per_km], eta_km=[None], lattice=lattice)
        return cls(
            **common,
            epsilon_per_km=sorted({bundled.mechanism.epsilon for bundled in bundle}),
            eta_km=[_finite(eta) for eta in sorted({bundled.mechanism.eta_km for bundled in bundle})],
            history_weights=[_weights(past) for past in sorted({each.history_weights_micro for each in bundle})],
            zones=sorted({bundled.zone for bundled in bundle}, key=zone_order),
            regimes=sorted({bundled.regime for bundled in bundle}),
            places=len(bundle.places_e7),
            lattice=None,
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _weights(micro: tuple[int, ...]) -> list[float | None]:
    return [None if weight == NEVER_MM else weight / 10**6 for weight in micro]
