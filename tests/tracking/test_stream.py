from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.tracking.tracker import LARGEST_LINE, Tracker, answers
from tests.tracking.lattice_reports import SLOT, cells_near, near_model


class InPieces(io.BytesIO):
    """A stream of which a read gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read1(self, size: int | None = -1, /) -> bytes:
        del size
        return self.read(self._size)


def answered(tracker: Tracker, lines: bytes, *, size: int = 1 << 16, ahead: int = 0) -> list[dict[str, Any]]:
    return [answer for some in answers(tracker, InPieces(lines, size), ahead=ahead) for answer in some]


def line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"


def test_answers_are_the_tracker_s_in_the_order_of_the_lines(city: Bundle) -> None:
    rng, model = np.random.default_rng(1), near_model()
    cells = cells_near(city, model, rng.integers(49, size=300).tolist())
    reports = [(f"v{index % 40}", SLOT + index // 40, cell) for index, cell in enumerate(cells)]
    lines = b"".join(line(vehicle=vehicle, slot=slot, cell=cell) for vehicle, slot, cell in reports)
    tracker = Tracker(city, model)
    expected = [tracker.see(*report) for report in reports]
    for size in (1 << 16, 100, 7):
        found = answered(Tracker(city, model), lines, size=size)
        assert [answer["vehicle"] for answer in found] == [vehicle for vehicle, _, _ in reports]
        assert [answer["lat"] for answer in found] == pytest.approx([tracked.lat for tracked in expected], abs=1e-6)
        assert [answer["radius_m"] for answer in found] == pytest.approx([t.radius_m for t in expected], abs=20)
        assert {answer["outcome"] for answer in found} == {"used"}


def test_the_answer_of_a_device_is_a_line(city: Bundle) -> None:
    """With all that `geoblanket perturb --stream` says; without a vehicle there is one."""
    time = datetime.fromtimestamp(SLOT * 30, UTC).isoformat().replace("+00:00", "Z")
    told = {"cell": 4000, "lat": 41.1, "lon": -8.6, "slot": SLOT, "time": time, "left": 12.5, "stored": False}
    tracker = Tracker(city, near_model())
    (first,), (again,) = answered(tracker, line(**told)), answered(tracker, line(**{**told, "stored": True}))
    assert (first["outcome"], again["outcome"]) == ("used", "repeated")
    assert (first["time"], first["slot"]) == (time, SLOT)
    assert "vehicle" not in first
    assert first["lat"] == again["lat"]


def test_a_rest_gets_the_same_answer(holding: Bundle) -> None:
    lines = b"".join(line(slot=SLOT + slot, cell=cell) for slot, cell in enumerate([4000, 4100, *[4100] * 120]))
    found = answered(Tracker(holding, near_model()), lines)
    assert {(answer["lat"], answer["lon"], answer["radius_m"], answer["outcome"]) for answer in found[1:]} == {
        (*(found[1][name] for name in ("lat", "lon", "radius_m")), "used")
    }
    assert found[0]["lat"] != found[1]["lat"]


def test_times_stand_for_slots(city: Bundle) -> None:
    tracker = Tracker(city, near_model())
    (seconds,) = answered(tracker, line(vehicle="a", cell=5, time=SLOT * 30 + 29.5))
    (text,) = answered(tracker, line(vehicle="b", cell=5, time="2024-07-01T02:00:00+02:00"))
    assert (seconds["slot"], text["slot"]) == (SLOT, SLOT)


def test_looking_ahead(city: Bundle) -> None:
    tracker = Tracker(city, near_model())
    (answer,) = answered(tracker, line(vehicle="a", cell=4000, slot=SLOT), ahead=4)
    assert answer["time"] == "2024-07-01T00:02:00Z"
    assert answer["radius_m"] == round(tracker.estimate("a", ahead=4).radius_m[0], 1)


def test_late_repeated_and_conflicting_reports(city: Bundle) -> None:
    tracker = Tracker(city, near_model(), late_slots=1)
    given = [(0, 9), (3, 9), (2, 9), (3, 9), (3, 8), (1, 9)]
    found = answered(tracker, b"".join(line(vehicle="a", slot=SLOT + slot, cell=cell) for slot, cell in given))
    assert [each["outcome"] for each in found] == ["used", "used", "used", "repeated", "conflicting", "late"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"nothing\n", "not a JSON object"),
        (b'{"vehicle": "secret", "vehicle": "b"}\n', "has a key twice"),
        (b'{"vehicle": "secret"}\n', "with cell, slot or time"),
        (b'{"vehicle": "secret", "place": 4, "slot": 5}\n', "reports a place, but reports of the bundle are a cell"),
        (b'{"error": "budget", "message": "secret"}\n', "with cell, slot or time"),
        (line(vehicle="secret", cell=10**7, slot=SLOT), "whole number from 0 to 8,280"),
        (line(vehicle="secret", cell=4.0, slot=SLOT), "whole number from 0"),
        (line(vehicle="secret", cell=True, slot=SLOT), "whole number from 0"),
        (line(vehicle="s" * 201, cell=4, slot=SLOT), "1 to 200 characters"),
        (line(vehicle=7, cell=4, slot=SLOT), "1 to 200 characters"),
        (line(vehicle="secret", cell=4, slot=10**15), "between 1970 and 2099"),
        (line(vehicle="secret", cell=4, slot=-1), "between 1970 and 2099"),
        (line(vehicle="secret", cell=4, slot="5"), "between 1970 and 2099"),
        (line(vehicle="secret", cell=4, slot=SLOT, time=SLOT * 30 + 30), "do not agree"),
        (line(vehicle="secret", cell=4, time="noon"), "ISO 8601"),
        (line(vehicle="secret", cell=4, time="2024-07-01T00:00:00"), "must have a time zone"),
        (line(vehicle="secret", cell=4, time=1e300), "from 2000 to 2099"),
        (b'{"vehicle": "' + b"s" * LARGEST_LINE + b'"}\n', f"longer than {LARGEST_LINE} bytes"),
        (b"\xff\xfe\n", "not a JSON object"),
    ],
)
def test_a_bad_line_is_refused_by_its_number_and_the_stream_goes_on(city: Bundle, bad: bytes, message: str) -> None:
    good = line(vehicle="a", cell=4000, slot=SLOT)
    for size in (1 << 16, 50):
        first, refused, last = answered(Tracker(city, near_model()), good + b"\n" + bad + good, size=size)
        assert (first["outcome"], last["outcome"]) == ("used", "repeated")
        assert (refused["error"], refused["line"]) == ("input", 3)
        assert message in refused["message"]
        assert "secret" not in json.dumps(refused)


def test_a_stream_that_is_cut_off(city: Bundle) -> None:
    whole = line(vehicle="a", cell=4000, slot=SLOT)
    tracker = Tracker(city, near_model())
    found = answered(tracker, whole + whole[:-9])
    assert [answer.get("outcome", answer.get("error")) for answer in found] == ["used", "input"]
    assert found[1]["line"] == 2
    assert answered(tracker, line(vehicle="a", cell=4000, slot=SLOT + 1)[:-1])[0]["outcome"] == "used"
    assert answered(tracker, b"") == []
    assert answered(tracker, b"{" * 10**6) == [
        {"error": "input", "message": "The line is longer than 4096 bytes. Give one report on each line.", "line": 1}
    ]


def test_many_vehicles_take_no_more_memory_than_allowed(city: Bundle) -> None:
    model = near_model(across=2)
    tracker = Tracker(city, model, memory_bytes=100 * 16)
    lines = b"".join(line(vehicle=f"v{n}", cell=4000, slot=SLOT) for n in range(3000))
    assert len(answered(tracker, lines)) == 3000
    assert (tracker.vehicles, tracker.dropped) == (100, 2900)
