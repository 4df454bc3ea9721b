"""The common form of all protocols: a true position that came in, and a released one that goes out.

Adapters turn messages into the first and the second into messages. Nothing else of a message passes, except the values
that an allow-list names. A message has more than a latitude that tells where its sender is: a speed and a course
continue the last position, an altitude or a pressure picks a street, the name of a Wi-Fi is an address. So nothing
passes unless it is named, and only what is known to say nothing about a place can be named without `allow_betraying`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from geoblanket.errors import ParameterError

__all__ = [
    "BETRAYING",
    "HARMLESS",
    "RESERVED",
    "AllowList",
    "Dropped",
    "Position",
    "Reason",
    "Released",
    "WantedFence",
    "checked_device",
]

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
time is too far from the clock; or it is not a position that is worked on. "fence" is a fence that was asked for, made
or refused alike. Metrics count by these words."""

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

BETRAYING: Final[Mapping[str, str]] = {
    "acc": "how good the fix is tells streets from parks and roofs",
    "accuracy": "how good the fix is tells streets from parks and roofs",
    "address": "it is the place",
    "alarm": "geofences are places",
    "alt": "heights of a hilly city pick out streets",
    "altitude": "heights of a hilly city pick out streets",
    "BSSID": "Wi-Fi networks are on public maps",
    "cog": "course and speed continue the last position",
    "conn": "Wi-Fi is where one lives or works",
    "course": "course and speed continue the last position",
    "desc": "names of regions are places",
    "distance": "distances between reports trace the way",
    "event": "geofences are places",
    "heading": "course and speed continue the last position",
    "hdop": "how good the fix is tells streets from parks and roofs",
    "inregions": "regions are places",
    "inrids": "regions are places",
    "ip": "addresses lead to a provider's place",
    "motion": "stops along the way are places",
    "motionactivities": "stops along the way are places",
    "network": "cells and Wi-Fi are on public maps",
    "odometer": "distances between reports trace the way",
    "p": "air pressure is height",
    "poi": "it is the name of a place",
    "rssi": "signals tell how far the mast is",
    "speed": "course and speed continue the last position",
    "SSID": "Wi-Fi networks are on public maps",
    "t": "a region that was entered is a place",
    "totalDistance": "distances between reports trace the way",
    "vac": "how good the fix is tells streets from parks and roofs",
    "vel": "course and speed continue the last position",
}
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
        Whether names may be allowed that betray a place, or that are not known. What is promised of positions then no
        longer holds for the whole message.

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
