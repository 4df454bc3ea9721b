"""OwnTracks: JSON with `_type: location`, over HTTP or MQTT, in and out.

Forms as the OwnTracks Booklet describes them, https://owntracks.org/booklet/tech/json and .../tech/http, read in
November 2026 (apps from iOS 8.0 and Android 0.5.11 on, which send numbers as numbers). Over MQTT the device is the
topic, `owntracks/USER/DEVICE`; over HTTP it is in the query (`u`, `d`) or in the headers `X-Limit-U` and `X-Limit-D`.
Messages of other types hold places too (waypoints, transitions) and are dropped; so are encrypted ones, which cannot be
read here.
"""

from __future__ import annotations

import json
from typing import Final

from geoblanket.gateway.adapters._values import json_object, number_of
from geoblanket.gateway.fields import AllowList
from geoblanket.gateway.position import Dropped, Position, Released, checked_device

__all__ = ["ANSWER", "device_of_topic", "read", "topic_of", "user_and_device", "written"]

ANSWER: Final = b"[]"
"""What the apps expect of an HTTP endpoint: no messages for them."""


def read(data: bytes, device: str, allow: AllowList) -> Position:
    """Return the position in a message of a device; raise Dropped if there is none."""
    values = json_object(data)
    kind = values.get("_type")
    if kind == "encrypted":
        raise Dropped("encrypted")
    if kind != "location":
        raise Dropped("other_type" if type(kind) is str else "malformed")
    lat, lon, time = (number_of(values, name) for name in ("lat", "lon", "tst"))
    return Position(device, time, lat, lon, allow.passing(values))


def written(released: Released, *, name: str, accuracy_m: float | None = None, topic: str | None = None) -> bytes:
    """Return the message of a released position.

    Parameters
    ----------
    name
        Of the device, as the server is to know it.
    accuracy_m
        The same accuracy for every message, metres; None: none is told.
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
    """Return the two parts of a name; one that has a single part is its own user."""
    user, _, device = name.partition("/")
    return user, device or user
