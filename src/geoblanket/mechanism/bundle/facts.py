"""The facts of a bundle, each described once, for the service, its page and the command line.

All of it is public, and made of JSON values; None stands for infinity, which JSON does not have. The service's OpenAPI
description takes its words from the strings below the fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism
from geoblanket.mechanism.problem import NEVER_MM

__all__ = ["BundleFacts", "ClockFacts", "MechanismFacts"]

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
    def of(cls, bundled: BundledMechanism, bundle: Bundle) -> MechanismFacts:
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
        return cls(
            sha256=bundle.sha256,
            name=name,
            version=bundle.version,
            bytes=size,
            domain=bundle.domain,
            signed=bundle.signed,
            disclosed=bundle.disclosed,
            epsilon_per_km=sorted({bundled.mechanism.epsilon for bundled in bundle}),
            eta_km=[_finite(eta) for eta in sorted({bundled.mechanism.eta_km for bundled in bundle})],
            history_weights=[_weights(past) for past in sorted({bundled.history_weights_micro for bundled in bundle})],
            epsilon_per_location_per_km=bundle.costs.largest_per_km,
            zones=sorted({bundled.zone for bundled in bundle}),
            regimes=sorted({bundled.regime for bundled in bundle}),
            places=len(bundle.places_e7),
            snapping_radius_m=bundle.snapping_radius_m,
            clock=None if bundle.clock is None else ClockFacts.of(bundle.clock),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _weights(micro: tuple[int, ...]) -> list[float | None]:
    return [None if weight == NEVER_MM else weight / 10**6 for weight in micro]
