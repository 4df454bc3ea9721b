"""OpenStreetMap's tags for a car: access, direction and speed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from geoblanket.roads.graph import ROAD_CLASSES

Direction = Literal[-1, 0, 1]
"""1: only in the order of the way's nodes; -1: only against it; 0: both."""

CLASS_SPEEDS_KMH: Mapping[str, float] = {
    "motorway": 90, "trunk": 85, "primary": 65, "secondary": 55, "tertiary": 40, "unclassified": 25, "residential": 25,
    "living_street": 10, "motorway_link": 45, "trunk_link": 40, "primary_link": 30, "secondary_link": 25,
    "tertiary_link": 20, "road": 25,
}  # fmt: skip
"""Default free-flow speeds, km/h, from the car profile of the routing engine OSRM."""

NO_THROUGH_SERVICES = frozenset({"alley", "driveway", "emergency_access", "parking", "parking_aisle", "private"})
"""Values of `service` that take a way out of the network, as in OSMnx's "drive"."""

_ACCESS_KEYS = ("motorcar", "motor_vehicle", "vehicle", "access")
"""From the most special to the most general: the first key that is tagged decides."""

_CLOSED = frozenset({
    "no", "private", "agricultural", "forestry", "agricultural;forestry", "emergency", "military", "official", "psv",
    "bus", "bicycle", "foot",
})  # fmt: skip

_ONE_WAY_KEYS = ("oneway:motorcar", "oneway:motor_vehicle", "oneway")
_ONE_WAY: Mapping[str, Direction] = {
    "yes": 1, "true": 1, "1": 1, "-1": -1, "reverse": -1, "no": 0, "false": 0, "0": 0, "reversible": 0,
    "alternating": 0,
}  # fmt: skip

_KMH_PER_UNIT = {"": 1.0, "km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": 1.609344, "knots": 1.852}
_FASTEST_KMH = 300.0
_NUMBER = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,20})?) ?([a-z/]*)")

_WORDS_KMH = {"walk": 6.0, "none": 130.0}
_WITHOUT_SPEED = frozenset({"", "signals", "variable", "sign", "markings", "implicit", "default", "unknown"})

_IMPLICIT = re.compile(r"([a-z]{2})(?:-[a-z]{2,3})?:([a-z_0-9:]+)")
_ZONE = re.compile(r"(?:zone:?)?([0-9]{1,3})")
_IMPLICIT_KMH = {
    "living_street": 20.0, "pedestrian_zone": 20.0, "bicycle_road": 30.0, "school": 30.0, "urban": 50.0, "rural": 90.0,
    "trunk": 100.0, "motorway": 120.0, "nsl_restricted": 48.0, "nsl_single": 97.0, "nsl_dual": 113.0,
}  # fmt: skip
_NATIONAL_KMH = {
    "urban": {"ar": 40.0, "by": 60.0, "gb": 48.0, "ph": 30.0, "ru": 60.0},
    "rural": {"at": 100.0, "ar": 110.0, "ch": 80.0, "de": 100.0, "dk": 80.0, "fi": 80.0, "fr": 80.0, "gb": 97.0,
              "nl": 80.0, "no": 80.0, "ph": 80.0, "rs": 80.0, "se": 70.0},
    "trunk": {"be": 120.0, "bg": 120.0, "cz": 110.0, "es": 90.0, "gr": 110.0, "hu": 110.0, "it": 110.0},
    "motorway": {"at": 130.0, "bg": 140.0, "by": 110.0, "cz": 130.0, "de": 130.0, "dk": 130.0, "fr": 130.0,
                 "gb": 113.0, "gr": 130.0, "hr": 130.0, "hu": 130.0, "it": 130.0, "lu": 130.0, "pl": 140.0,
                 "ro": 130.0, "rs": 130.0, "ru": 110.0, "si": 130.0, "sk": 130.0, "ua": 130.0},
    "living_street": {"de": 7.0, "rs": 10.0},
}  # fmt: skip
"""Where a country's implicit limit differs from `_IMPLICIT_KMH`."""

_LIST_ITEM = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class WaySpeeds(NamedTuple):
    """The speeds of a way in both directions."""

    forward_kmh: float | None
    """In the order of the way's nodes; None where its tags do not say."""
    backward_kmh: float | None
    """Against the order of the way's nodes."""
    unreadable: int
    """The number of tags whose value is not a speed."""


class ClassIndex(NamedTuple):
    """A road's class as an index into `ROAD_CLASSES`."""

    number: int
    known: bool
    """False if the class is not among `ROAD_CLASSES`; `road` then stands for it."""


def may_drive(tags: Mapping[str, str]) -> bool:
    """Return whether a private car may enter by the access tags; without tags it may."""
    for key in _ACCESS_KEYS:
        value = tags.get(key)
        if value is not None:
            return value not in _CLOSED
    return True


def direction(tags: Mapping[str, str]) -> Direction:
    """Return the direction of travel; motorways and roundabouts are one-way unless tagged otherwise."""
    for key in _ONE_WAY_KEYS:
        tagged = _ONE_WAY.get(tags.get(key, ""))
        if tagged is not None:
            return tagged
    implied = tags.get("junction") in ("roundabout", "circular") or tags.get("highway") == "motorway"
    return 1 if implied else 0


def way_speeds(tags: Mapping[str, str]) -> WaySpeeds:
    """Return the speeds of a way by its tags, the most special tag first."""
    both, unreadable = _first_speed(tags, ("maxspeed", "maxspeed:type", "source:maxspeed", "zone:maxspeed"))
    forward, unreadable_forward = _first_speed(tags, ("maxspeed:forward",))
    backward, unreadable_backward = _first_speed(tags, ("maxspeed:backward",))
    return WaySpeeds(
        forward_kmh=both if forward is None else forward,
        backward_kmh=both if backward is None else backward,
        unreadable=unreadable + unreadable_forward + unreadable_backward,
    )


def _first_speed(tags: Mapping[str, str], keys: tuple[str, ...]) -> tuple[float | None, int]:
    unreadable = 0
    for key in keys:
        text = tags.get(key)
        if text is None:
            continue
        try:
            speed = parse_speed(text)
        except ValueError:
            # The side tags hold remarks ("sign", "survey 2014") as often as speeds; only the main tags must be speeds.
            unreadable += key.startswith("maxspeed") and key != "maxspeed:type"
        else:
            if speed is not None:
                return speed, unreadable
    return None, unreadable


@lru_cache(maxsize=4096)
def parse_speed(text: str) -> float | None:
    """Return the speed of a `maxspeed` value in km/h, or None if it names no particular speed.

    Numbers (km/h), "50 mph", "30 knots", `walk`, `none` and implicit limits such as `PT:urban` or `DE:zone30` are
    understood. The lowest speed of a list ("50;70", "['50', '70']") counts.

    Raises
    ------
    ValueError
        If the text is not a speed: nonsense, zero, negative, or faster than any car.
    """
    items = [item.strip().lower() for item in re.split("[;|]", text)] if text[:1] != "[" else listed(text)
    speeds = [speed for item in items if (speed := _parse_one_speed(item.lower())) is not None]
    return min(speeds, default=None)


def _parse_one_speed(text: str) -> float | None:
    if text in _WITHOUT_SPEED:
        return None
    if text in _WORDS_KMH:
        return _WORDS_KMH[text]
    if number := _NUMBER.fullmatch(text):
        speed = float(number[1]) * _KMH_PER_UNIT.get(number[2], 0.0)
    elif implicit := _IMPLICIT.fullmatch(text):
        speed = _implicit_speed(country=implicit[1], kind=implicit[2])
    else:
        speed = 0.0
    if not 0.0 < speed <= _FASTEST_KMH:
        raise ValueError("no speed")
    return speed


def _implicit_speed(*, country: str, kind: str) -> float:
    if zone := _ZONE.fullmatch(kind):
        return float(zone[1])
    return _NATIONAL_KMH.get(kind, {}).get(country) or _IMPLICIT_KMH.get(kind, 0.0)


@lru_cache(maxsize=4096)
def class_index(text: str) -> ClassIndex:
    """Return the class of a `highway` value, or the most important class of a list ("['residential', 'tertiary']").

    OSMnx writes such a list, in no particular order, where it merged ways of several classes.
    """
    numbers = [ROAD_CLASSES.index(item) for item in listed(text) if item in ROAD_CLASSES]
    return ClassIndex(min(numbers), known=True) if numbers else ClassIndex(ROAD_CLASSES.index("road"), known=False)


def listed(text: str) -> list[str]:
    """Return the items of a list that was written as text, or the text itself as the only item."""
    if not text.startswith("["):
        return [text.strip()]
    return [single or double for single, double in _LIST_ITEM.findall(text)]
