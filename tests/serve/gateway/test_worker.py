"""True positions become released ones: within budgets, each slot once, and the ledger and the queue agree."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from geoblanket.errors import LedgerError
from geoblanket.release.budget import Budget
from geoblanket.release.fleet import Fleet, FleetReports
from geoblanket.release.ledger import Ledger
from geoblanket.serve.gateway import worker
from geoblanket.serve.gateway.messages import Position, Reason, Released
from geoblanket.serve.gateway.outbox import Outbox, Schedule
from geoblanket.serve.gateway.worker import Enrolment, ReleaseWorker, open_outbox
from geoblanket.serve.metrics import GatewayMetrics
from tests.release.lattices import save_small
from tests.serve.gateway.living import LAT, LON, LONG_S, betrayals, queued, slot_time, until

ANYONE = Enrolment(anyone=True)


class Setting:
    """A worker with a way to hand positions over and wait."""

    def __init__(self, worker: ReleaseWorker, outbox: Outbox, failures: list[str]) -> None:
        self.worker, self.outbox, self.failures = worker, outbox, failures

    def outcomes(self, *positions: Position) -> list[Reason | None]:
        """Hand positions over at once, and return what became of them, in their order."""
        outcomes: dict[int, Reason | None] = {}
        done = threading.Semaphore(0)

        def tell(index: int) -> Callable[[Reason | None], None]:
            def note(outcome: Reason | None) -> None:
                outcomes.setdefault(index, outcome)
                done.release()

            return note

        for index, position in enumerate(positions):
            assert self.worker.submit(position, "test", tell(index))
        for _ in positions:
            assert done.acquire(timeout=LONG_S)
        return [outcomes[index] for index in range(len(positions))]

    def slots(self, device: str) -> list[int]:
        return [message.slot_ms // 30_000 for message in queued(self.outbox) if message.device == device]


@contextmanager
def setting(
    folder: Path, city: Path, *, enrolment: Enrolment = ANYONE, epsilon: float = 1e6, capacity: int = 10_000
) -> Iterator[Setting]:
    ledger = folder / "ledger"
    if not ledger.exists():
        Ledger.create(ledger, budget=Budget(epsilon, 86_400))
    fleet = Fleet.open(city, vehicles=(), ledger=ledger, clock_tolerance_s=90_000)
    metrics, failures = GatewayMetrics(), list[str]()
    schedule = Schedule(fleet.interval_ms, at_once=True)
    outbox = open_outbox(folder / "outbox", fleet, capacity=capacity, metrics=metrics, schedule=schedule)
    worker = ReleaseWorker(
        fleet,
        outbox,
        enrolment=enrolment,
        tolerance_s=86_400,
        metrics=metrics,
        on_failure=lambda: failures.append("failed"),
    )
    try:
        yield Setting(worker, outbox, failures)
    finally:
        worker.close()
        outbox.close()


def at(slots_ago: int, device: str = "a", lat: float = LAT, lon: float = LON) -> Position:
    return Position(device, slot_time(slots_ago), lat, lon)


def test_each_slot_once(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city) as there:
        assert there.outcomes(at(3), at(3), at(2), at(2, lat=1.0), at(3)) == [
            "released", "repeated", "released", "repeated", "late",
        ]  # fmt: skip
        now = slot_time() // 30
        assert there.slots("a") == [now - 3, now - 2]
    with setting(tmp_path, city) as there:
        assert there.outcomes(at(2), at(1)) == ["repeated", "released"]
        assert there.slots("a") == [now - 3, now - 2, now - 1]


def test_locations_off_the_map_are_answered_like_others(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city) as there:
        places = [(0.0, 0.0), (-90.0, 180.0), (LON, LAT), (90.0, -180.0)]
        positions = [at(9, f"car{number}", *place) for number, place in enumerate(places)]
        assert there.outcomes(*positions) == ["released"] * 4
        for message in queued(there.outbox):
            assert (round(message.lat), round(message.lon)) == (41, -9)


@pytest.mark.parametrize(
    ("position", "outcome"),
    [
        (Position("a", slot_time() + 90_000, LAT, LON), "clock"),
        (Position("a", slot_time() - 90_000, LAT, LON), "clock"),
        (Position("a", 0.0, LAT, LON), "malformed"),
        (Position("a", float("nan"), LAT, LON), "malformed"),
        (Position("a", 1e300, LAT, LON), "malformed"),
        (Position("a", slot_time(), 91.0, LON), "malformed"),
        (Position("a", slot_time(), float("nan"), LON), "malformed"),
        (Position("a", slot_time(), LAT, 1e300), "malformed"),
    ],
)
def test_what_is_not_a_position_of_now(city: Path, tmp_path: Path, position: Position, outcome: str) -> None:
    with setting(tmp_path, city) as there:
        assert there.outcomes(position, at(1, "b")) == [outcome, "released"]
        assert len(there.outbox) == 1


def test_budgets_are_of_each_device(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city, epsilon=4.0) as there:
        assert there.outcomes(*(at(9 - n) for n in range(4))) == ["released", "released", "budget", "budget"]
        assert there.outcomes(at(5, "b")) == ["released"]


def test_devices_that_are_not_known(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city, enrolment=Enrolment(frozenset({"a", "c"}), refused=frozenset({"c"}))) as there:
        assert there.outcomes(at(1), at(1, "b"), at(1, "c")) == ["released", "unknown_device", "unknown_device"]
    with setting(tmp_path, city, enrolment=Enrolment(anyone=True, most=2)) as there:
        assert there.outcomes(at(1, "b"), at(1, "c"), at(0, "a")) == ["released", "unknown_device", "released"]
    with setting(tmp_path, city, enrolment=Enrolment(refused=frozenset({"b"}))) as there:  # who was enrolled stays
        assert there.outcomes(at(0, "a"), at(0, "b"), at(0, "c")) == ["repeated", "unknown_device", "unknown_device"]


def test_a_thousand_devices_share_transactions(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city) as there:
        positions = [at(3 - slot, f"car{number}") for slot in range(3) for number in range(1000)]
        assert there.outcomes(*positions) == ["released"] * 3000
        now = slot_time() // 30
        assert all(there.slots(f"car{number}") == [now - 3, now - 2, now - 1] for number in (0, 500, 999))
        assert there.worker.devices == 1000
    ledger = Ledger.open(tmp_path / "ledger")
    assert (len(ledger.vehicles), ledger.summary()["reports"]) == (1000, 3000)
    assert ledger.commits < 300
    ledger.close()


def test_what_a_crash_kept_from_the_queue_is_added_at_the_next_start(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city) as there:
        assert there.outcomes(at(3), at(3, "b")) == ["released", "released"]

        def fail(_messages: object) -> int:
            raise LedgerError("The disk is full.")

        there.outbox.add = fail  # type: ignore[method-assign, assignment]
        assert there.outcomes(at(2)) == [None]
        assert there.failures == ["failed"]
        assert not there.worker.submit(at(1), "test", lambda _outcome: None)
    with setting(tmp_path, city) as there:
        now = slot_time() // 30
        assert there.slots("a") == [now - 3, now - 2]
        assert there.slots("b") == [now - 3]
        assert there.outcomes(at(2)) == ["repeated"]
    ledger = Ledger.open(tmp_path / "ledger")
    stored = {(name, answer.slot_ms, answer.lat_e7) for name in "ab" for answer in ledger.account(name).answers}
    ledger.close()
    outbox = Outbox(tmp_path / "outbox", capacity=99, answered={}, schedule=Schedule(30_000))
    assert stored == {(message.device, message.slot_ms, message.lat_e7) for message in queued(outbox)}
    outbox.close()


def test_a_ledger_that_fails_ends_the_worker(city: Path, tmp_path: Path) -> None:
    with setting(tmp_path, city) as there:
        there.worker._fleet._ledger._broken = True  # type: ignore[union-attr]
        assert there.outcomes(at(1)) == [None]
        assert there.failures == ["failed"]
        assert len(there.outbox) == 0


def test_what_is_no_position_takes_the_same_way(city: Path, tmp_path: Path) -> None:
    """Nobody is told before the whole batch is durable: neither of what was released nor of what was not understood."""
    told: list[Reason | None] = []
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    with setting(tmp_path, city) as there:
        report = there.worker._fleet.report

        def held(*arguments: Any) -> FleetReports:
            begun.set()
            assert go.wait(LONG_S)
            return report(*arguments)

        there.worker._fleet.report = held  # type: ignore[method-assign, assignment]
        assert there.worker.submit(at(3), "test", told.append)
        assert begun.wait(LONG_S)  # the rest is a batch of its own
        for content in ("malformed", at(2), "encrypted", at(2)):
            assert there.worker.submit(content, "test", told.append)
        assert there.worker.submit("other_type", "test", lambda _outcome: ended.set())
        assert told == []
        go.set()
        assert ended.wait(LONG_S)
    assert told == ["released", "malformed", "released", "encrypted", "repeated"]


def test_warnings_are_logged_as_counts(city: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At once, and at the end: how many, never where or who. No metric tells, and the outcome is that of others."""
    caplog.set_level("WARNING")
    with setting(tmp_path, city) as there:
        assert there.outcomes(at(9), at(8, lat=48.0)) == ["released"] * 2
        until(lambda: "outside the area" in caplog.text)
        assert there.outcomes(at(7, lat=LON, lon=LAT), at(6, lat=47.0), at(5, lat=46.0), at(4, lat=0.0, lon=0.0)) == (
            ["released"] * 4
        )
        text = bytes(there.worker._metrics.response().body).decode()
    pattern = r"(\d+) position\(s\) since the last such line: .*?(outside|exchanged|without a fix)"
    counts = re.findall(pattern, caplog.text)
    assert counts == [("1", "outside"), ("1", "exchanged"), ("2", "outside"), ("1", "without a fix")]
    assert betrayals(caplog.text.encode()) == 0
    assert not re.search(r"4[678]\.0", caplog.text)
    assert "outside" not in text


def test_a_stay_costs_one_report(tmp_path: Path) -> None:
    """Held reports are stored, queued and told like fresh ones; after a restart, too."""
    resting = save_small(tmp_path / "resting.bundle", hold_m=50.0)
    added: list[list[Released]] = []
    with setting(tmp_path, resting, epsilon=2.0) as there:
        assert there.outcomes(at(9)) == ["released"]
        add = there.outbox.add

        def noted(messages: Sequence[Released]) -> int:
            added.append(list(messages))
            return add(messages)

        there.outbox.add = noted  # type: ignore[method-assign]
        jobs = [job for number in (8, 7) for job in (at(number, lat=LAT + 1e-4), at(number, f"fresh{number}"))]
        assert there.outcomes(*jobs) == ["released"] * 4
        assert there.outcomes(at(6, lat=LAT + 2e-3)) == ["budget"]
    with setting(tmp_path, resting) as there:
        assert there.outcomes(at(5)) == ["released"]
        reported = {(m.place, m.lat_e7, m.lon_e7) for m in queued(there.outbox) if m.device == "a"}
        assert len(there.slots("a")) == 4
    assert len(reported) == 1
    assert sorted(message.device for batch in added for message in batch) == ["a", "a", "fresh7", "fresh8"]
    ledger = Ledger.open(tmp_path / "ledger")
    assert (ledger.spent_micro, ledger.summary()["reports"]) == (3 * 2_000_000, 6)
    ledger.close()


def test_work_goes_on_while_others_wait_for_the_beat(
    city: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources are told on a beat, in order; that beat holds up no release."""
    beat, told = threading.Event(), list[Reason | None]()
    clock = SimpleNamespace(
        monotonic=time.monotonic, perf_counter=time.perf_counter, sleep=lambda _seconds: beat.wait(LONG_S)
    )
    monkeypatch.setattr(worker, "time", clock)
    with setting(tmp_path, city) as there:
        for count, position in enumerate((at(3), at(3, "b"), at(2)), 1):
            assert there.worker.submit(position, "test", told.append)
            until(lambda wanted=count: len(there.outbox) == wanted)  # type: ignore[misc]
        assert told == []
        beat.set()
    assert told == ["released"] * 3
