"""The common form of all protocols: a true position that came in, and a released one that goes out.

Adapters turn messages into the first and the second into messages. Nothing else of a message passes, except the values
that an allow-list names (`geoblanket.gateway.fields`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["Dropped", "Position", "Reason", "Released", "Scalar", "WantedFence", "checked_device"]

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
