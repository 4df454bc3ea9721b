"""JSON lines, in and out: for programs of one's own.

In: `{"device": "truck7", "lat": 41.15, "lon": -8.61, "time": 1790000000}`, the time in seconds since 1970 or in ISO
8601. Out: the same names, with the reported place or cell beside them, as `geoblanket track --stream` reads them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from geoblanket.gateway.adapters._values import iso_seconds, json_object, number_of
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.position import Position, Released, checked_device
from geoblanket.release.source import Kind

__all__ = ["read", "written"]


def read(data: bytes, allow: AllowList) -> Position:
    """Return the position in a line; raise Dropped if there is none."""
    values = json_object(data)
    device = checked_device(values.get("device"))
    time = values.get("time")
    seconds = iso_seconds(time) if type(time) is str else number_of(values, "time")
    return Position(device, seconds, number_of(values, "lat"), number_of(values, "lon"), allow.passing(values))


def written(released: Released, *, name: str, kind: Kind, accuracy_m: float | None = None) -> bytes:
    """Return the line of a released position; see `geoblanket.gateway.adapters.owntracks.written`."""
    time = datetime.fromtimestamp(released.slot_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    message = {
        "vehicle": name,
        kind: released.place,
        "lat": released.lat,
        "lon": released.lon,
        "time": time,
        **({} if accuracy_m is None else {"accuracy_m": accuracy_m}),
        **released.extras,
    }
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
