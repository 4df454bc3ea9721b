"""GeoJSON as the service sends it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["encoded", "feature"]


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
