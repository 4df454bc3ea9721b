"""Messages of every protocol: true positions that come in, and released ones that go out, in one common form.

Adapters read true positions from messages and write released positions as messages. Nothing else passes, except values
that an allow-list names. Other values of a message disclose the place, too: speed and course continue the last
position, an altitude or a pressure picks a street, and the name of a Wi-Fi is an address. Only values that are known to
say nothing about a place can be named without `allow_betraying`.

OwnTracks, JSON with `_type: location`, over HTTP or MQTT, in and out. Forms as the OwnTracks Booklet describes them,
https://owntracks.org/booklet/tech/json and .../tech/http, read in November 2026 (apps from iOS 8.0 and Android 0.5.11
on, which send numbers as numbers). Over MQTT the device is the topic, `owntracks/USER/DEVICE`; over HTTP it is in the
query (`u`, `d`) or in the headers `X-Limit-U` and `X-Limit-D`. Messages of other types hold places too (waypoints,
transitions) and are dropped; so are encrypted ones, which cannot be read here.

The OsmAnd protocol, which Traccar's own apps and servers speak, over HTTP, in and out. Forms as
https://www.traccar.org/osmand/ and `OsmAndProtocolDecoder` of Traccar 6 have them, read in November 2026. In:
parameters of the query or of a form (`id` or `deviceid`, `timestamp`, `lat`, `lon` or `location`), or the JSON that
Traccar Client sends since version 9 (`location.coords`, `device_id`). Out: parameters of the query, which servers of
every version take.

Traccar's position forwarding, JSON over HTTP, in. The form is that of `PositionForwarderJson` in Traccar 6
(`forward.type = json`), read in November 2026: `{"position": {"fixTime": ..., "latitude": ..., "longitude": ...,
"attributes": {...}, ...}, "device": {"uniqueId": ...}}`. A server that forwards is trusted with true positions; the
gateway stands between it and another one.

JSON lines, for programs of one's own, in and out. In: `{"device": "truck7", "lat": 41.15, "lon": -8.61, "time":
1790000000}`, the time in seconds since 1970 or in ISO 8601. Out: the same names, with the reported place or cell beside
them, as `geoblanket track --stream` reads them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from geoblanket._untrusted import read_object
from geoblanket.errors import ParameterError
from geoblanket.release.reporter import Kind

Scalar = str | int | float | bool
"""A value that may pass besides the position."""

Reason = Literal[
    "released",
    "repeated",
    "budget",
    "late",
    "clock",
    "unknown_device",
    "malformed",
    "bad_name",
    "other_type",
    "encrypted",
    "too_large",
    "retained",
    "overload",
    "fence",
]
"""The outcome of a message: it was released; its slot had an answer; the budget is spent; a later report was made; the
time is too far from the clock; or it is not a position that is processed. "fence" is a request for a fence, whether it
was made or refused. Metrics count by these words."""

_PART: Final = r"[A-Za-z0-9_@:~=-][A-Za-z0-9._@:~=-]{0,63}"
_DEVICE: Final = re.compile(rf"{_PART}(/{_PART})?", re.ASCII)


class Dropped(Exception):  # noqa: N818 - it is an outcome, not a fault of the program
    """Raised by an adapter for a message that is not worked on. It holds nothing of the message."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a device is. True, and not to be shown, stored or sent."""

    device: str
    time_s: float = field(repr=False)
    """Seconds since 1970 in UTC."""
    lat: float = field(repr=False)
    """Degrees."""
    lon: float = field(repr=False)
    extras: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    """What the allow-list lets pass."""


@dataclass(frozen=True, slots=True)
class WantedFence:
    """A place that a device wants to be hidden. True, and not to be shown, stored or sent."""

    device: str
    body: bytes = field(repr=False)
    """JSON: lat and lon in degrees, radius_km, and perhaps margin_m and name."""


@dataclass(frozen=True, slots=True)
class Released:
    """A position as it was released: what goes out."""

    device: str
    slot_ms: int
    """Start of its slot, milliseconds since 1970 in UTC."""
    place: int
    """Number of the reported place, or of the cell of a lattice."""
    lat_e7: int
    """1e-7 degrees."""
    lon_e7: int
    extras: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def lat(self) -> float:
        """Degrees."""
        return self.lat_e7 / 1e7

    @property
    def lon(self) -> float:
        """Degrees."""
        return self.lon_e7 / 1e7

    @property
    def time_s(self) -> int:
        """Start of its slot, seconds since 1970 in UTC."""
        return self.slot_ms // 1000


def checked_device(name: object) -> str:
    """Return the name of a device.

    Names become parts of topics and addresses, and keys of the ledger: letters, digits and `_@:~=-.`, in one part or in
    two with a slash between them. No part begins with a dot.

    Raises
    ------
    Dropped
        If it is not one.
    """
    if not isinstance(name, str) or _DEVICE.fullmatch(name) is None:
        raise Dropped("bad_name")
    return name


_LONGEST_TEXT: Final = 64
_LARGEST: Final = 1e12


def _number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in {int, float} and least <= value <= most


def _text(longest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and len(value) <= longest and value.isascii() and value.isprintable()


HARMLESS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "batt": _number(0, 100),
    "bs": _number(0, 3),
    "charge": lambda value: type(value) is bool,
    "driverUniqueId": _text(_LONGEST_TEXT),
    "m": _number(1, 2),
    "tid": _text(2),
    "versionFw": _text(_LONGEST_TEXT),
    "versionHw": _text(_LONGEST_TEXT),
}
"""Names that may be allowed, in OwnTracks' spelling where it has one, and which values they may have."""

_BETRAYED_BY: Final = {
    "how good the fix is tells streets from parks and roofs": "acc accuracy hdop vac",
    "it is the place": "address",
    "geofences are places": "alarm event",
    "heights of a hilly city pick out streets": "alt altitude",
    "Wi-Fi networks are on public maps": "BSSID SSID",
    "course and speed continue the last position": "cog course heading speed vel",
    "Wi-Fi is where one lives or works": "conn",
    "names of regions are places": "desc",
    "distances between reports trace the way": "distance odometer totalDistance",
    "regions are places": "inregions inrids",
    "addresses lead to a provider's place": "ip",
    "stops along the way are places": "motion motionactivities",
    "cells and Wi-Fi are on public maps": "network",
    "air pressure is height": "p",
    "it is the name of a place": "poi",
    "signals tell how far the mast is": "rssi",
    "a region that was entered is a place": "t",
}
BETRAYING: Final[Mapping[str, str]] = {name: why for why, names in _BETRAYED_BY.items() for name in names.split()}
"""Why some names cannot be allowed without a flag."""

RESERVED: Final = frozenset(
    {
        "_type", "cell", "coords", "created_at", "device", "device_id", "deviceid", "id", "lat", "latitude", "location",
        "lon", "longitude", "place", "time", "timestamp", "token", "topic", "tst", "vehicle",
    }
)  # fmt: skip
"""Names that the gateway writes itself, or that hold the position or a more exact time: never allowed."""


class AllowList:
    """The values that may pass.

    Parameters
    ----------
    names
        Of values, as the messages have them.
    betraying
        Whether names may be allowed that disclose a place, or that are unknown. The promise about positions then does
        not hold for the whole message.

    Raises
    ------
    ParameterError
        If a name cannot be allowed.
    """

    def __init__(self, names: Iterable[str] = (), *, betraying: bool = False) -> None:
        self._names = tuple(dict.fromkeys(names))
        for name in self._names:
            if name in RESERVED:
                raise ParameterError(
                    f"allow names '{name[:40]}', which the gateway writes itself or which holds the true position. "
                    "Leave it out."
                )
            if name in HARMLESS or betraying:
                continue
            why = BETRAYING.get(name, f"it is not among the names that are known to be harmless: {', '.join(HARMLESS)}")
            raise ParameterError(
                f"allow names '{name[:40]}', which may betray the place ({why}). Leave it out, or set "
                "allow_betraying = true, and promise nobody that their place is protected."
            )

    def passing(self, values: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return what may pass of the values of a message."""
        return {name: values[name] for name in self._names if name in values and _is_small(name, values[name])}


def _is_small(name: str, value: Any) -> bool:
    """Return whether a value may pass under its name."""
    if name in HARMLESS:
        return HARMLESS[name](value)
    if type(value) is str:
        return len(value) <= _LONGEST_TEXT and value.isprintable()
    return type(value) is bool or (type(value) in {int, float} and abs(value) <= _LARGEST)


OWNTRACKS_ANSWER: Final = b"[]"
"""What the apps expect of an HTTP endpoint: no messages for them."""
_MOST_FIELDS: Final = 64
_NUMBER: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,16}", re.ASCII)
_LARGEST_SECONDS: Final = 2**31
"""Larger timestamps are milliseconds, as in Traccar."""
_TRACCAR_SPELLING: Final = {"batteryLevel": "batt"}


def read_owntracks(data: bytes, device: str, allow: AllowList) -> Position:
    """Return the position in a message of a device; raise Dropped if there is none."""
    values = _json_object(data)
    kind = values.get("_type")
    if kind == "encrypted":
        raise Dropped("encrypted")
    if kind != "location":
        raise Dropped("other_type" if type(kind) is str else "malformed")
    lat, lon, time = (_number_of(values, name) for name in ("lat", "lon", "tst"))
    return Position(device, time, lat, lon, allow.passing(values))


def owntracks_message(
    released: Released, *, name: str, accuracy_m: float | None = None, topic: str | None = None
) -> bytes:
    """Return the message of a released position.

    Parameters
    ----------
    name
        Name of the device for the server.
    accuracy_m
        The same accuracy for every message, metres; None: no accuracy.
    topic
        Over HTTP: the topic of the device, by which some servers know it.
    """
    message = {
        "_type": "location",
        "lat": released.lat,
        "lon": released.lon,
        "tst": released.time_s,
        "tid": name[-2:],  # what the apps send by themselves
        **({} if topic is None else {"topic": topic}),
        **({} if accuracy_m is None else {"acc": accuracy_m}),
        **released.extras,
    }
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def device_of_topic(topic: str, prefix: str) -> str:
    """Return the device that publishes to a topic."""
    if not topic.startswith(f"{prefix}/"):
        raise Dropped("other_type")
    name = topic[len(prefix) + 1 :]
    if name.count("/") != 1:
        raise Dropped("other_type")
    return checked_device(name)


def topic_of(name: str, prefix: str) -> str:
    """Return the topic of a device."""
    return "/".join((prefix, *user_and_device(name)))


def user_and_device(name: str) -> tuple[str, str]:
    """Return user and device of a name; a name with a single part is both."""
    user, _, device = name.partition("/")
    return user, device or user


def osmand_parameters(data: bytes) -> dict[str, str]:
    """Return the parameters of a query or form, each of which may occur once; raise Dropped if they are not that."""
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Dropped("malformed") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise Dropped("malformed")
    return values


def read_osmand(values: Mapping[str, str], allow: AllowList) -> Position:
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


def read_osmand_json(data: bytes, allow: AllowList) -> Position:
    """Return the position in the JSON of Traccar Client; raise Dropped if there is none."""
    values = _json_object(data)
    device = checked_device(values.get("device_id"))
    location = _table_of(values, "location")
    coords = _table_of(location, "coords")
    lat, lon = _number_of(coords, "latitude"), _number_of(coords, "longitude")
    extras: dict[str, Any] = {}
    if type(battery := location.get("battery")) is dict:
        level: Any = battery.get("level")
        if type(level) in {int, float} and 0 <= level <= 1:
            extras["batt"] = round(100 * level)
        extras["charge"] = battery.get("is_charging")
    return Position(device, _iso_seconds(location.get("timestamp")), lat, lon, allow.passing(extras))


def osmand_query(released: Released, *, name: str, accuracy_m: float | None = None) -> str:
    """Return the query of a released position; see `owntracks_message`."""
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
    return _iso_seconds(text)


def _value(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return {"true": True, "false": False}.get(text, text)


def read_traccar(data: bytes, allow: AllowList) -> Position:
    """Return the position in a forwarded message; raise Dropped if there is none."""
    values = _json_object(data)
    position, device = _table_of(values, "position"), _table_of(values, "device")
    name = checked_device(device.get("uniqueId"))
    if position.get("outdated") is True:  # the last position again, for a message without one
        raise Dropped("other_type")
    lat, lon = _number_of(position, "latitude"), _number_of(position, "longitude")
    attributes: dict[str, Any] = position["attributes"] if type(position.get("attributes")) is dict else {}
    extras = {_TRACCAR_SPELLING.get(key, key): value for key, value in (position | attributes).items()}
    return Position(name, _iso_seconds(position.get("fixTime")), lat, lon, allow.passing(extras))


def read_line(data: bytes, allow: AllowList) -> Position:
    """Return the position in a line; raise Dropped if there is none."""
    values = _json_object(data)
    device = checked_device(values.get("device"))
    time = values.get("time")
    seconds = _iso_seconds(time) if type(time) is str else _number_of(values, "time")
    return Position(device, seconds, _number_of(values, "lat"), _number_of(values, "lon"), allow.passing(values))


def line_message(released: Released, *, name: str, kind: Kind, accuracy_m: float | None = None) -> bytes:
    """Return the line of a released position; see `owntracks_message`."""
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


def _json_object(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text; raise Dropped if it is not strict JSON."""
    try:
        return read_object(data)
    except ValueError:
        raise Dropped("malformed") from None


def _number_of(values: Mapping[str, Any], name: str) -> float:
    """Return a number of a message; text and truth values are none."""
    value = values.get(name)
    if type(value) is int or type(value) is float:
        try:
            return float(value)
        except OverflowError:
            pass
    raise Dropped("malformed") from None


def _table_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object within a message."""
    value = values.get(name)
    if type(value) is not dict:
        raise Dropped("malformed")
    return value


def _iso_seconds(text: object) -> float:
    """Return a time in ISO 8601, with its zone, as seconds since 1970 in UTC."""
    if type(text) is str and len(text) <= 40:
        try:
            time = datetime.fromisoformat(text)
            if time.utcoffset() is not None:
                return time.timestamp()
        except (ValueError, OverflowError):
            pass
    raise Dropped("malformed") from None
