"""Messages of every protocol, as the projects document them, and what is not a message."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.serve.gateway.messages import (
    AllowList,
    Dropped,
    Position,
    Released,
    checked_device,
    device_of_topic,
    line_message,
    osmand_parameters,
    osmand_query,
    owntracks_message,
    read_line,
    read_osmand,
    read_osmand_json,
    read_owntracks,
    read_traccar,
    topic_of,
)
from tests.serve.gateway.living import LAT, LON, location

NOTHING = AllowList()
BATTERY = AllowList(["batt", "tid"])
OUT = Released("jane/phone", 1_790_000_010_000, 7, 411_000_000, -86_000_000, {"batt": 50})

FORWARDED = {
    "position": {
        "id": 18336, "attributes": {"batteryLevel": 77, "distance": 449_672.22, "motion": True, "ip": "10.0.0.1"},
        "deviceId": 7, "protocol": "owntracks", "serverTime": "2026-09-14T15:34:18.000+0000",
        "deviceTime": "2026-09-14T15:34:17.000+0000", "fixTime": "2026-09-14T15:34:17.000+0000", "outdated": False,
        "valid": True, "latitude": LAT, "longitude": LON, "altitude": 93.0, "speed": 29.1, "course": 271.0,
        "address": "Rua das Flores 7", "accuracy": 12.0, "network": {"wifiAccessPoints": [{"macAddress": "a4:b1"}]},
    },
    "device": {"id": 7, "name": "Truck", "uniqueId": "truck7", "status": "online", "attributes": {}},
}  # fmt: skip


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def reason(read: Callable[[], Position]) -> str:
    with pytest.raises(Dropped) as dropped:
        read()
    return dropped.value.reason


def test_owntracks_location() -> None:
    position = read_owntracks(as_bytes(location(tst=1_790_000_015)), "jane/phone", BATTERY)
    assert (position.device, position.time_s, position.lat, position.lon) == ("jane/phone", 1_790_000_015, LAT, LON)
    assert position.extras == {"batt": 77, "tid": "JP"}
    assert read_owntracks(as_bytes(location()), "jane/phone", NOTHING).extras == {}


def test_owntracks_out() -> None:
    assert json.loads(owntracks_message(OUT, name="jane/phone")) == {
        "_type": "location", "lat": 41.1, "lon": -8.6, "tst": 1_790_000_010, "tid": "ne", "batt": 50,
    }  # fmt: skip
    assert json.loads(owntracks_message(OUT, name="x", accuracy_m=500))["acc"] == 500
    assert topic_of("jane/phone", "far/off") == "far/off/jane/phone"
    assert topic_of("truck7", "owntracks") == "owntracks/truck7/truck7"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        *((kind, "other_type") for kind in ("lwt", "transition", "waypoint", "waypoints", "card", "cmd", "steps")),
        ("encrypted", "encrypted"),
        (None, "malformed"),
        (7, "malformed"),
        (["location"], "malformed"),
    ],
)
def test_other_owntracks_messages_are_dropped(kind: object, why: str) -> None:
    assert reason(lambda: read_owntracks(as_bytes(location(_type=kind)), "a/b", BATTERY)) == why


BAD = [
    b"", b"\x00\xff\xfe", b"null", b"[]", b"[" * 100_000, b'{"a":' * 50_000, b'{"_type":"location"}',
    as_bytes(location(lat=str(LAT))), as_bytes(location(lat=True)), as_bytes(location(lat=None)),
    as_bytes(location(lat=[LAT])), as_bytes(location(tst="now")), as_bytes(location(lat=float("nan"))),
    as_bytes(location(lat=float("inf"))), as_bytes(location()).replace(str(LAT).encode(), b"1e999"),
    as_bytes(location())[:-1] + b',"lat":0}', as_bytes(location(lat=10**400)),
    as_bytes(location(tid="\ud800")),
]  # fmt: skip


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_hostile_json_is_malformed(data: bytes) -> None:
    assert reason(lambda: read_owntracks(data, "a/b", BATTERY)) == "malformed"
    assert reason(lambda: read_traccar(data, BATTERY)) == "malformed"
    assert reason(lambda: read_osmand_json(data, BATTERY)) in {"malformed", "bad_name"}
    assert reason(lambda: read_line(data, BATTERY)) in {"malformed", "bad_name"}


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("owntracks/a", "other_type"),
        ("owntracks/a/b/event", "other_type"),
        ("other/a/b", "other_type"),
        ("owntracks/+/b", "bad_name"),
        ("owntracks/a/#", "bad_name"),
        ("owntracks//b", "bad_name"),
        ("owntracks/$SYS/b", "bad_name"),
        ("owntracks/../b", "bad_name"),
        ("owntracks/a/b\x00", "bad_name"),
        ("owntracks/a/b\n", "bad_name"),
        ("owntracks/a/ä", "bad_name"),
        (f"owntracks/a/{'b' * 65}", "bad_name"),
    ],
)
def test_topics_that_are_no_devices(topic: str, why: str) -> None:
    with pytest.raises(Dropped, match=why):
        device_of_topic(topic, "owntracks")


@given(st.text(max_size=80))
def test_names_are_safe_in_topics_and_addresses(name: str) -> None:
    try:
        checked = checked_device(name)
    except Dropped:
        return
    assert re.fullmatch(r"[\w.@:~=-]+(/[\w.@:~=-]+)?", checked, re.ASCII)
    assert not any(part in {".", ".."} for part in checked.split("/"))


def test_traccar_forwarding() -> None:
    position = read_traccar(as_bytes(FORWARDED), BATTERY)
    assert (position.device, position.time_s) == ("truck7", 1_789_400_057)
    assert (position.lat, position.lon, position.extras) == (LAT, LON, {"batt": 77})


def test_outdated_positions_of_traccar_are_none() -> None:
    old = {**FORWARDED, "position": {**FORWARDED["position"], "outdated": True}}
    assert reason(lambda: read_traccar(as_bytes(old), BATTERY)) == "other_type"


def test_osmand_parameters() -> None:
    query = f"id=truck7&timestamp=1790000015&lat={LAT}&lon={LON}&speed=3.1&bearing=271&altitude=93&accuracy=12&batt=77"
    position = read_osmand(osmand_parameters(query.encode()), BATTERY)
    assert (position.device, position.time_s, position.lat, position.lon) == ("truck7", 1_790_000_015, LAT, LON)
    assert position.extras == {"batt": 77}
    for same in ("1790000015000", "2026-09-21T14:13:35Z"):
        other = read_osmand(osmand_parameters(query.replace("1790000015", same).encode()), BATTERY)
        assert other.time_s == 1_790_000_015
    pair = read_osmand(osmand_parameters(f"deviceid=truck7&location={LAT},{LON}".encode()), BATTERY)
    assert (pair.lat, pair.lon) == (LAT, LON)


def test_osmand_json_of_traccar_client() -> None:
    message = {
        "location": {
            "timestamp": "2026-09-21T14:13:35.000Z", "event": "motionchange", "is_moving": True, "odometer": 9.0,
            "coords": {"latitude": LAT, "longitude": LON, "accuracy": 5, "speed": 3, "heading": 2, "altitude": 9},
            "battery": {"level": 0.77, "is_charging": False}, "activity": {"type": "still"},
        },
        "device_id": "48241179",
    }  # fmt: skip
    position = read_osmand_json(as_bytes(message), BATTERY)
    assert (position.device, position.time_s, position.lat) == ("48241179", 1_790_000_015, LAT)
    assert position.extras == {"batt": 77}


@pytest.mark.parametrize(
    "query",
    [
        "lat=1&lon=2",
        "id=a",
        "id=a&lat=1",
        "id=a&lat=nan&lon=2",
        "id=a&lat=1_0&lon=2",
        "id=a&lat=1e1&lon=2",
        "id=a&lat=١&lon=2",
        "id=a&lat=1&lon=2&lat=3",
        "id=a&id=b&lat=1&lon=2",
        "id=a&location=1",
        "id=a&location=1,2&lat=1&lon=2",
        "id=a&lat=1&lon=2&timestamp=yesterday",
        "id=a&lat=1&lon=2&timestamp=99999999999999999999",
        "id=a%2F..&lat=1&lon=2",
        "&".join(f"x{number}=1" for number in range(100)),
    ],
)
def test_bad_osmand_parameters(query: str) -> None:
    why = reason(lambda: read_osmand(osmand_parameters(query.encode()), BATTERY))
    assert why in {"malformed", "bad_name"}


def test_osmand_out() -> None:
    assert parse_qs(osmand_query(OUT, name="jane/phone", accuracy_m=500)) == {
        "id": ["jane/phone"], "timestamp": ["1790000010"], "lat": ["41.1000000"], "lon": ["-8.6000000"],
        "accuracy": ["500"], "batt": ["50"],
    }  # fmt: skip


def test_lines_both_ways() -> None:
    position = read_line(as_bytes({"device": "a", "lat": 1, "lon": 2.5, "time": "2026-09-21T14:13:35Z"}), NOTHING)
    assert (position.device, position.time_s, position.lat, position.lon) == ("a", 1_790_000_015, 1, 2.5)
    assert json.loads(line_message(OUT, name="a", kind="cell")) == {
        "vehicle": "a", "cell": 7, "lat": 41.1, "lon": -8.6, "time": "2026-09-21T14:13:30Z", "batt": 50,
    }  # fmt: skip


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.text(max_size=9), st.text() | st.floats() | st.integers()).map(as_bytes)
)
def test_whatever_comes_is_a_position_or_dropped(data: bytes) -> None:
    reads: list[Callable[[bytes], Position]] = [
        lambda data: read_owntracks(data, "a/b", BATTERY),
        lambda data: read_traccar(data, BATTERY),
        lambda data: read_osmand_json(data, BATTERY),
        lambda data: read_osmand(osmand_parameters(data), BATTERY),
        lambda data: read_line(data, BATTERY),
    ]
    for read in reads:
        with contextlib.suppress(Dropped):
            assert isinstance(read(data), Position)


def test_a_true_position_does_not_show_itself() -> None:
    assert str(LAT) not in repr(Position("a", 0, LAT, LON, {"batt": 1}))
