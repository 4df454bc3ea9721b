"""The queue: order, each slot once, its bound, and what is left after a crash."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from geoblanket.errors import LedgerError
from geoblanket.serve.gateway.messages import Released
from geoblanket.serve.gateway.outbox import JITTER_S, OFFSET_S, Outbox, Schedule
from tests.serve.gateway.living import queued

AT_ONCE = Schedule(1000, at_once=True)


def message(slot: int, device: str = "a") -> Released:
    return Released(device, slot * 1000, 7, 411_000_000 + slot, -86_000_000, {"batt": slot})


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def opened(path: Path, capacity: int = 100, schedule: Schedule = AT_ONCE) -> Outbox:
    return Outbox(path / "outbox", capacity=capacity, answered={}, schedule=schedule)


def taken(outbox: Outbox) -> list[Released]:
    return [message for _, message in outbox.take(limit=1000)]


def slots(outbox: Outbox) -> list[tuple[str, int]]:
    return [(message.device, message.slot_ms // 1000) for message in taken(outbox)]


def test_messages_come_out_as_they_went_in(tmp_path: Path) -> None:
    messages = [message(1), message(1, "b"), message(2), message(5, "b")]
    outbox = opened(tmp_path)
    outbox.add(messages[:2])
    outbox.add(messages[2:])
    assert queued(outbox) == messages
    assert len(outbox) == 4
    outbox.close()
    again = opened(tmp_path)
    assert queued(again) == messages
    again.close()


def test_a_slot_is_queued_once_even_after_it_was_sent(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2), message(2)])
    outbox.acknowledge(number for number, _ in outbox.take(limit=9))
    outbox.flush()
    assert len(outbox) == 0
    outbox.close()
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2)])
    assert len(outbox) == 0
    outbox.add([message(3)])
    assert queued(outbox) == [message(3)]
    outbox.close()


def test_what_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2)])
    outbox.acknowledge([outbox.take(limit=1)[0][0]])
    outbox.close()
    outbox = opened(tmp_path)
    assert queued(outbox) == [message(2)]
    outbox.close()


def test_the_oldest_are_dropped_when_it_is_full(tmp_path: Path) -> None:
    outbox = opened(tmp_path, capacity=3)
    assert [outbox.add([message(slot)]) for slot in range(1, 6)] == [0, 0, 0, 1, 1]
    assert outbox.add([message(6), message(7), message(8), message(9), message(10)]) == 5
    assert queued(outbox) == [message(8), message(9), message(10)]
    outbox.acknowledge(number for number, _ in outbox.take(limit=9))
    assert outbox.add([message(11)]) == 0  # room was made by what arrived
    assert queued(outbox) == [message(11)]
    assert len(outbox) == 1
    outbox.close()


def test_a_new_queue_beside_an_old_ledger_sends_nothing_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", capacity=9, answered={"a": 5000}, schedule=AT_ONCE)
    assert outbox.is_new
    outbox.add([message(4), message(5), message(6)])
    assert queued(outbox) == [message(6)]
    outbox.close()
    assert not opened(tmp_path).is_new


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "outbox").write_bytes(b"SQLite format 3\x00" + bytes(5000))
    with pytest.raises(LedgerError, match="Nothing is released"):
        opened(tmp_path)
    (tmp_path / "outbox").unlink()
    (tmp_path / "outbox").mkdir()
    with pytest.raises(LedgerError, match="Nothing is released"):
        opened(tmp_path)


def test_others_cannot_read_it(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert (tmp_path / "outbox").stat().st_mode & 0o077 == 0


def test_senders_are_woken(tmp_path: Path) -> None:
    outbox, wake = opened(tmp_path), threading.Event()
    outbox.call(wake)
    outbox.add([message(1)])
    assert wake.is_set()
    outbox.close()


def test_a_message_leaves_after_its_slot_whenever_its_fix_came(tmp_path: Path) -> None:
    """Slots of 30 s. Within the slot, or a little after it, the time of the fix changes nothing."""
    clock = Clock()
    schedule = Schedule(30_000, clock=clock)
    for seconds in (960.0, 974.9, 989.999, 990.0, 994.999, 0.0):  # the last: a clock that is far behind
        clock.seconds = seconds
        dues = [schedule.due_us(960_000) / 1e6 for _ in range(100)]
        assert 995 <= min(dues) < max(dues) < 1000  # 5 to 10 s after 990
    assert (OFFSET_S, JITTER_S) == (5, 5)
    # A late fix leaves after the slot in which it came.
    for seconds, first in ((995.001, 1025), (1010.0, 1025), (1024.999, 1025), (1025.001, 1055)):
        clock.seconds = seconds
        assert first <= schedule.due_us(960_000) / 1e6 < first + 5
    outbox = opened(tmp_path, schedule=schedule)
    clock.seconds = 970.0
    outbox.add([message(960)])
    for clock.seconds in (970.0, 990.0, 994.999):
        assert (taken(outbox), outbox.overdue) == ([], 0)
        assert 0 < (outbox.seconds_to("next") or 0) < 40
    clock.seconds = 1000.0
    assert outbox.overdue == 1
    assert slots(outbox) == [("a", 960)]
    assert taken(outbox) == []
    assert outbox.seconds_to("next") is None
    outbox.close()


def test_the_order_does_not_tell_whose_fix_came_first(tmp_path: Path) -> None:
    """But the messages of a device stay in order, also when it sends many at once and the clock is set back."""
    clock = Clock(961.0)
    schedule = Schedule(30_000, clock=clock)
    outbox = opened(tmp_path, schedule=schedule)
    names = [f"car{number:02}" for number in range(40)]
    for name in names:
        outbox.add([message(960, name)])
    for slot in (600, 630, 660):
        outbox.add([message(slot, "flush")])
    clock.seconds = 300.0
    outbox.add([message(690, "flush")])
    clock.seconds = 2000.0
    order = slots(outbox)
    cars = [name for name, _ in order if name != "flush"]
    assert sorted(cars) == names
    assert cars != names  # equal once in 40! runs
    assert [slot for name, slot in order if name == "flush"] == [600, 630, 660, 690]
    outbox.close()


def test_a_message_that_is_durable_after_it_was_due_is_not_passed_over(tmp_path: Path) -> None:
    clock = Clock(100.0)
    outbox = opened(tmp_path, schedule=Schedule(30_000, at_once=True, clock=clock))
    outbox.add([message(90)])
    assert slots(outbox) == [("a", 90)]
    clock.seconds = 50.0
    outbox.add([message(90, "b")])
    clock.seconds = 100.0
    assert slots(outbox) == [("b", 90)]
    outbox.close()


def test_the_queue_of_an_earlier_version_is_sent(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "outbox")) as file, file:
        for statement in (
            """CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, device TEXT NOT NULL,
            slot_ms INTEGER NOT NULL, place INTEGER NOT NULL, lat_e7 INTEGER NOT NULL, lon_e7 INTEGER NOT NULL,
            extras TEXT NOT NULL, UNIQUE (device, slot_ms)) STRICT""",
            "CREATE TABLE queued (device TEXT PRIMARY KEY, slot_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
            "INSERT INTO messages VALUES (7, 'a', 5000, 7, 411000005, -86000000, '{\"batt\": 5}')",
            "INSERT INTO queued VALUES ('a', 5000)",
            f"PRAGMA application_id = {0x47424F58}",
            "PRAGMA user_version = 1",
        ):
            file.execute(statement)
    outbox = opened(tmp_path)
    assert not outbox.is_new
    outbox.add([message(5), message(6)])
    assert taken(outbox) == [message(5), message(6)]
    outbox.close()
    opened(tmp_path).close()
