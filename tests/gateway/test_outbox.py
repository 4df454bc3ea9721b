"""The queue: order, each slot once, its bound, and what is left after a crash."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from geoblanket.errors import LedgerError
from geoblanket.gateway.outbox import Outbox
from geoblanket.gateway.position import Released


def message(slot: int, device: str = "a") -> Released:
    return Released(device, slot * 1000, 7, 411_000_000 + slot, -86_000_000, {"batt": slot})


def opened(path: Path, capacity: int = 100) -> Outbox:
    return Outbox(path / "outbox", capacity=capacity, answered={})


def waiting(outbox: Outbox) -> list[Released]:
    return [queued for _, queued in outbox.after(0, limit=1000)]


def test_messages_come_out_as_they_went_in(tmp_path: Path) -> None:
    messages = [message(1), message(1, "b"), message(2), message(5, "b")]
    outbox = opened(tmp_path)
    outbox.add(messages[:2])
    outbox.add(messages[2:])
    assert waiting(outbox) == messages
    assert len(outbox) == 4
    outbox.close()
    again = opened(tmp_path)
    assert waiting(again) == messages
    again.close()


def test_a_slot_is_queued_once_even_after_it_was_sent(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2), message(2)])
    outbox.acknowledge(number for number, _ in outbox.after(0, limit=9))
    outbox.flush()
    assert len(outbox) == 0
    outbox.close()
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2)])
    assert len(outbox) == 0
    outbox.add([message(3)])
    assert waiting(outbox) == [message(3)]
    outbox.close()


def test_what_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.add([message(1), message(2)])
    outbox.acknowledge([outbox.after(0, limit=1)[0][0]])
    outbox.close()
    outbox = opened(tmp_path)
    assert waiting(outbox) == [message(2)]
    outbox.close()


def test_the_oldest_are_dropped_when_it_is_full(tmp_path: Path) -> None:
    outbox = opened(tmp_path, capacity=3)
    assert [outbox.add([message(slot)]) for slot in range(1, 6)] == [0, 0, 0, 1, 1]
    assert outbox.add([message(6), message(7), message(8), message(9), message(10)]) == 5
    assert waiting(outbox) == [message(8), message(9), message(10)]
    outbox.acknowledge(number for number, _ in outbox.after(0, limit=9))
    assert outbox.add([message(11)]) == 0  # room was made by what arrived
    assert waiting(outbox) == [message(11)]
    assert len(outbox) == 1
    outbox.close()


def test_a_new_queue_beside_an_old_ledger_sends_nothing_again(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", capacity=9, answered={"a": 5000})
    assert outbox.is_new
    outbox.add([message(4), message(5), message(6)])
    assert waiting(outbox) == [message(6)]
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
