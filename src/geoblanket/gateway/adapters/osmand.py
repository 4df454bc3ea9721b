"""The OsmAnd protocol, which Traccar's own apps and servers speak: HTTP, in and out.

Forms as https://www.traccar.org/osmand/ and `OsmAndProtocolDecoder` of Traccar 6 have them, read in November 2026. In:
parameters of the query or of a form (`id` or `deviceid`, `timestamp`, `lat`, `lon` or `location`), or the JSON that
Traccar Client sends since version 9 (`location.coords`, `device_id`). Out: parameters of the query, which servers of
every version take.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from geoblanket.gateway.adapters._values import iso_seconds, json_object, number_of, table_of
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.position import Dropped, Position, Released, checked_device

__all__ = ["parameters", "read", "read_json", "written"]

_MOST_FIELDS: Final = 64
_NUMBER: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,16}", re.ASCII)
_LARGEST_SECONDS: Final = 2**31
"""Larger timestamps are milliseconds, as in Traccar."""


def parameters(data: bytes) -> dict[str, str]:
    """Return the parameters of a query or form, each of which may occur once; raise Dropped if they are not that."""
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Dropped("malformed") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise Dropped("malformed")
    return values


def read(values: Mapping[str, str], allow: AllowList) -> Position:
    """Return the position in the parameters of a query or form; raise Dropped if there is none."""
    device = checked_device(values.get("id", values.get("deviceid")))
    if values.get("valid", "true") not in {"true", "1"}:
        raise Dropped("other_type")
    if "location" in values:
        lat, comma, lon = values["location"].partition(",")
        if not comma or "lat" in values or "lon" in values:
            raise Dropped("malformed")
    else:
        lat, lon = values.get("lat", ""), values.get("lon", "")
    extras = {name: _value(text) for name, text in values.items()}
    return Position(device, _seconds(values.get("timestamp")), _degrees(lat), _degrees(lon), allow.passing(extras))


def read_json(data: bytes, allow: AllowList) -> Position:
    """Return the position in the JSON of Traccar Client; raise Dropped if there is none."""
    values = json_object(data)
    device = checked_device(values.get("device_id"))
    location = table_of(values, "location")
    coords = table_of(location, "coords")
    lat, lon = number_of(coords, "latitude"), number_of(coords, "longitude")
    extras: dict[str, Any] = {}
    if type(battery := location.get("battery")) is dict:
        level: Any = battery.get("level")
        if type(level) in {int, float} and 0 <= level <= 1:
            extras["batt"] = round(100 * level)
        extras["charge"] = battery.get("is_charging")
    return Position(device, iso_seconds(location.get("timestamp")), lat, lon, allow.passing(extras))


def written(released: Released, *, name: str, accuracy_m: float | None = None) -> str:
    """Return the query of a released position; see `geoblanket.gateway.adapters.owntracks.written`."""
    values: dict[str, Any] = {
        "id": name,
        "timestamp": released.time_s,
        "lat": f"{released.lat:.7f}",
        "lon": f"{released.lon:.7f}",
        **({} if accuracy_m is None else {"accuracy": accuracy_m}),
        **{key: str(value).lower() if type(value) is bool else value for key, value in released.extras.items()},
    }
    return urlencode(values)


def _degrees(text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise Dropped("malformed")
    return float(text)


def _seconds(text: str | None) -> float:
    if text is None:
        return time.time()  # as the protocol has it
    if _WHOLE.fullmatch(text):
        return int(text) / (1 if int(text) < _LARGEST_SECONDS else 1000)
    return iso_seconds(text)


def _value(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return {"true": True, "false": False}.get(text, text)
