"""What the service tells about a bundle, as JSON values; all of it is public."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism
from geoblanket.mechanism.problem import NEVER_MM

__all__ = ["bundle_facts", "guarantee_facts", "places_geojson", "zones_geojson"]


def bundle_facts(bundle: Bundle, *, name: str, size: int) -> dict[str, Any]:
    """Return what a list of bundles says of one.

    Parameters
    ----------
    name
        Of its file.
    size
        Of its file, bytes.
    """
    return {
        "sha256": bundle.sha256,
        "name": name,
        "version": bundle.version,
        "bytes": size,
        "domain": bundle.domain,
        "signed": bundle.signed,
        "disclosed": bundle.disclosed,
        "epsilon_per_km": sorted({one.mechanism.epsilon for one in bundle}),
        "eta_km": [_finite(eta) for eta in sorted({one.mechanism.eta_km for one in bundle})],
        "history_weights": [list(map(_weight, past)) for past in sorted({one.history_weights_micro for one in bundle})],
        "epsilon_per_location_per_km": bundle.costs.largest_per_km,
        "zones": sorted({one.zone for one in bundle}),
        "regimes": sorted({one.regime for one in bundle}),
        "places": len(bundle.places_e7),
        "snapping_radius_m": bundle.snapping_radius_m,
        "clock": None if bundle.clock is None else _clock(bundle.clock),
    }


def guarantee_facts(bundle: Bundle) -> dict[str, Any]:
    """Return what a bundle promises, in words and for each mechanism in figures."""
    return {
        "sha256": bundle.sha256,
        "words": bundle.guarantee.split("\n"),
        "mechanisms": [_mechanism(one, bundle) for one in bundle],
    }


def zones_geojson(bundle: Bundle) -> dict[str, Any]:
    """Return the zones of a bundle with coordinates as GeoJSON, each as the points of its places."""
    points = _points(bundle)
    return _collection(
        {
            "type": "Feature",
            "geometry": {"type": "MultiPoint", "coordinates": [points[place] for place in places]},
            "properties": {
                "zone": zone,
                "places": len(places),
                "regimes": sorted(one.regime for one in bundle if one.zone == zone),
            },
        }
        for zone, places in _places_of_zones(bundle).items()
    )


def places_geojson(bundle: Bundle) -> dict[str, Any]:
    """Return the places of a bundle with coordinates as GeoJSON, each with its number and its zones."""
    zones: list[list[str]] = [[] for _ in range(len(bundle.places_e7))]
    for zone, places in _places_of_zones(bundle).items():
        for place in places:
            zones[place].append(zone)
    return _collection(
        {
            "type": "Feature",
            "id": number,
            "geometry": {"type": "Point", "coordinates": point},
            "properties": {"place": number, "zones": zones[number]},
        }
        for number, point in enumerate(_points(bundle))
    )


def _collection(features: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


def _points(bundle: Bundle) -> list[list[float]]:
    """Return longitude and latitude of each place, degrees, in GeoJSON's order."""
    return [[lon / 1e7, lat / 1e7] for lat, lon in bundle.places_e7.tolist()]


def _places_of_zones(bundle: Bundle) -> dict[str, list[int]]:
    """Return the present places of each zone, whatever the regime, in order."""
    found: dict[str, list[int]] = {}
    for zone in sorted({one.zone for one in bundle}):
        present = np.concatenate([one.histories[:, 0] for one in bundle if one.zone == zone])
        found[zone] = np.unique(present[present >= 0]).tolist()
    return found


def _mechanism(one: BundledMechanism, bundle: Bundle) -> dict[str, Any]:
    mechanism, found = one.mechanism, one.mechanism.certificate
    has_history = bundle.clock is not None and one.regime != bundle.clock.start
    return {
        "zone": one.zone,
        "regime": one.regime,
        "epsilon_per_km": mechanism.epsilon,
        "epsilon_effective_per_km": found.epsilon_effective,
        "epsilon_per_location_per_km": bundle.costs.other / 10**6 if has_history else bundle.costs.largest_per_km,
        "eta_km": _finite(mechanism.eta_km),
        "history_weights": list(map(_weight, one.history_weights_micro)),
        "rows": mechanism.row_count,
        "outputs": one.output_count,
        "outputs_used": len(one.outputs),
        "pairs": found.pairs,
        "pairs_beyond_eta": found.pairs_beyond,
        "inequalities": found.checks,
        "parts": found.components,
    }


def _clock(clock: Clock) -> dict[str, Any]:
    return {
        "interval_s": clock.interval_s,
        "time_zone": clock.time_zone,
        "regimes": {name: list(hours) for name, hours in clock.regimes},
        "start": clock.start,
    }


def _finite(value: float) -> float | None:
    """Return a number as JSON has it: None stands for infinity."""
    return value if math.isfinite(value) else None


def _weight(micro: int) -> float | None:
    return None if micro == NEVER_MM else micro / 10**6
