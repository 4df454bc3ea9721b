"""A bundle's promise, and its zones and places as GeoJSON: JSON values, all of them public."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from geoblanket.mechanism.bundle.facts import BundleFacts, MechanismFacts
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.bundle.zones import zone_order
from geoblanket.service.geojson import encoded, feature

__all__ = ["guarantee_facts", "places_geojson", "zones_geojson"]


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
    points = _points(bundle)
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
        for place, point in enumerate(_points(bundle))
    )


def _points(bundle: Bundle) -> list[list[float]]:
    """Return longitude and latitude of each place, degrees, in GeoJSON's order."""
    return [[lon / 1e7, lat / 1e7] for lat, lon in bundle.places_e7.tolist()]


def _places_of_zones(bundle: Bundle) -> dict[str, list[int]]:
    """Return the present places of each zone, whatever the regime, in order."""
    places: dict[str, list[int]] = {}
    for zone in sorted({bundled.zone for bundled in bundle}, key=zone_order):
        present = np.concatenate([bundled.histories[:, 0] for bundled in bundle if bundled.zone == zone])
        places[zone] = np.unique(present[present >= 0]).tolist()
    return places
