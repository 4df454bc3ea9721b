"""Traccar's position forwarding: JSON over HTTP, in.

The form is that of `PositionForwarderJson` in Traccar 6 (`forward.type = json`), read in November 2026:
`{"position": {"fixTime": ..., "latitude": ..., "longitude": ..., "attributes": {...}, ...}, "device": {"uniqueId":
...}}`. A server that forwards is trusted with true positions; the gateway stands between it and another one.
"""

from __future__ import annotations

from typing import Any, Final

from geoblanket.gateway.adapters._values import iso_seconds, json_object, number_of, table_of
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.position import Dropped, Position, checked_device

__all__ = ["read"]

_SPELLING: Final = {"batteryLevel": "batt"}


def read(data: bytes, allow: AllowList) -> Position:
    """Return the position in a forwarded message; raise Dropped if there is none."""
    values = json_object(data)
    position, device = table_of(values, "position"), table_of(values, "device")
    name = checked_device(device.get("uniqueId"))
    if position.get("outdated") is True:  # the last position again, for a message without one
        raise Dropped("other_type")
    lat, lon = number_of(position, "latitude"), number_of(position, "longitude")
    attributes: dict[str, Any] = position["attributes"] if type(position.get("attributes")) is dict else {}
    extras = {_SPELLING.get(key, key): value for key, value in (position | attributes).items()}
    return Position(name, iso_seconds(position.get("fixTime")), lat, lon, allow.passing(extras))
