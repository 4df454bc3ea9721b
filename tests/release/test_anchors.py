"""Anchors in accounts and ledgers: what they cost, how long, and when their shifts are gone."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import LedgerError, ParameterError, RandomnessError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.mechanism.lattice.anchor import AnchorSpec
from geoblanket.release import Budget, Device, Fleet, Ledger
from geoblanket.release.budget import Account, Anchor, Answer
from tests.release.lattices import LAT, LON, START, save_small

CANARY = (0x5A17C3D1E9, 0x3B7D9F1A57)
"""A shift whose bytes are found wherever they are; on the frame it counts modulo its side."""
BYTES = [struct.pack(order + "q", number)[:8] for order in "<>" for number in CANARY]
PARTS = [octets.strip(b"\0") for octets in BYTES]
PLENTY = Budget(1e6, 7200.0)
HOUR = 3600


def anchor(slot_ms: int, *, length_ms: int, cost: int) -> Anchor:
    start = slot_ms - slot_ms % length_ms
    return Anchor(slot_ms, start, start + length_ms, cost, 1, 1000, "frame", (1, 2))


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), max_size=40),
    st.integers(1, 6),
    st.integers(5, 60),
    st.integers(1, 30),
)
def test_the_anchors_of_a_window_never_cost_more_than_their_budget(
    asked: list[tuple[int, int]], limit: int, window_s: int, period_s: int
) -> None:
    """A period counts as long as one of its reports is in the window in either time, and not longer.

    The second number of each pair is how late the report is made.
    """
    account = Account(Budget(1.0, float(window_s), limit / 1e6))
    made: list[tuple[int, int, int]] = []
    now, real_ns = 1_000_000, 0
    for gap, late in asked:
        now += 1000 * gap
        real_ns = max(real_ns, (now + 1000 * late) * 10**6)
        edge_ms, edge_ns = now - 1000 * window_s, real_ns - 10**9 * window_s
        counted = {period for slot_ms, made_ns, period in made if slot_ms > edge_ms or made_ns > edge_ns}
        period = now // (1000 * period_s)
        needed = account.anchor(now, "frame") is None
        assert needed == (period not in {seen for _, _, seen in made})
        assert account.anchor_left_micro(now, real_ns) == limit - len(counted | (set() if needed else {period}))
        if needed and len(counted) >= limit:
            with pytest.raises(RefusedError, match="for anchors") as caught:
                account.checked_left_micro(now, real_ns, 1, 1)
            assert caught.value.reason == "budget"
            continue
        account.checked_left_micro(now, real_ns, 1, int(needed))
        new = anchor(now, length_ms=1000 * period_s, cost=1) if needed else None
        account.add(Answer(now, 1, 7, 1, 2, None, real_ns), new)
        made.append((now, real_ns, period))
        assert [kept.shift is not None for kept in account.anchors] == [kept.ends_ms > now for kept in account.anchors]
    assert account.anchor_spent_micro == len({period for _, _, period in made})


def test_budgets_for_anchors_are_checked() -> None:
    assert Budget(5.0, 60.0).anchor_micro == 5_000_000
    assert Budget(5.0, 60.0, 2.5).anchor_micro == 2_500_000
    for wrong in (0, -1.0, float("nan"), True, "1"):
        with pytest.raises(ParameterError, match="anchor_epsilon"):
            Budget(5.0, 60.0, wrong)  # type: ignore[arg-type]


def created(path: Path, budget: Budget = PLENTY) -> Path:
    Ledger.create(path, budget=budget)
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return created(tmp_path / "a.ledger")


def replayed(bundle: Bundle, ledger: Path) -> Device:
    return Device.open(bundle, ledger=ledger, replay=True)


def shifts_of(path: Path) -> list[tuple[int, int] | None]:
    opened = Ledger.open(path)
    shifts = [kept.shift for kept in opened.account("").anchors]
    opened.close()
    return shifts


def test_a_period_has_one_anchor_also_after_restarts(lattice_bundle: Bundle, ledger: Path) -> None:
    seen = set()
    for run in range(4):
        with replayed(lattice_bundle, ledger) as device:
            for step in range(20):
                device.report(LAT, LON, START + 30 * (20 * run + step))
        (shift,) = shifts_of(ledger)
        seen.add(shift)
    assert len(seen) == 1
    opened = Ledger.open(ledger)
    assert (opened.anchor_spent_micro, opened.spent_micro) == (3_000_000, 80 * 2_000_000)
    assert opened.commits == 1 + 80
    opened.close()


def test_costs_are_exact_over_periods_and_refusals(lattice_bundle: Bundle, tmp_path: Path) -> None:
    """Reports from 12 to 100 minutes, 2 per km each; the budget for anchors is enough for two periods in two hours."""
    ledger = created(tmp_path / "a.ledger", Budget(1e6, 7200.0, 6.0))
    with replayed(lattice_bundle, ledger) as device:
        assert device.costs == (2_000_000, 2_000_000)
        assert device.anchor is not None
        assert (device.anchor.epsilon, device.anchor.period_s) == (3.0, HOUR)
        first = device.report(LAT, LON, START + 720)
        assert first.left_micro == PLENTY.micro - 2_000_000
        device.report(LAT, LON, START + HOUR - 30)
        device.report(LAT, LON, START + HOUR)
        with pytest.raises(RefusedError, match="for anchors") as caught:
            device.report(LAT, LON, START + 2 * HOUR)
        assert caught.value.reason == "budget"
        assert caught.value.retry_after_s == HOUR - 30
        # The last report of the first hour leaves the window.
        with pytest.raises(RefusedError, match="for anchors"):
            device.report(LAT, LON, START + 3 * HOUR - 60)
        device.report(LAT, LON, START + 3 * HOUR - 30)
        device.report(LAT, LON, START + 3 * HOUR)
    opened = Ledger.open(ledger)
    assert (opened.spent_micro, opened.anchor_spent_micro) == (10_000_000, 12_000_000)
    told = opened.summary()
    assert (told["budget"], told["anchor_budget"], told["anchor_spent"]) == (1e6, 6.0, 12.0)
    assert told["anchor_spent_in_window"] == 6.0
    assert (told["night"], told["hour"], told["anchor_period_s"]) == (27.0, 240.0, 3600.0)
    opened.close()


def test_a_budget_of_reports_refuses_too_and_draws_no_anchor(lattice_bundle: Bundle, tmp_path: Path) -> None:
    ledger = created(tmp_path / "a.ledger", Budget(4.0, 7200.0, 100.0))
    with replayed(lattice_bundle, ledger) as device:
        device.report(LAT, LON, START)
        device.report(LAT, LON, START + 30)
        for later in (60, HOUR):
            with pytest.raises(RefusedError, match=r"window of time is spent\."):
                device.report(LAT, LON, START + later)
    opened = Ledger.open(ledger)
    assert opened.anchor_spent_micro == 3_000_000
    opened.close()
    with pytest.raises(ParameterError, match="An anchor costs 3 per km for each period, and the whole budget"):
        Device.open(lattice_bundle, ledger=None, budget=Budget(4.0, 7200.0, 2.9))


def test_another_anchor_is_drawn_and_paid_for_another_bundle(
    lattice_bundle: Bundle, ledger: Path, tmp_path: Path
) -> None:
    other = load_bundle(save_small(tmp_path / "other.bundle", anchor_epsilon=5.0))
    plain = load_bundle(save_small(tmp_path / "plain.bundle", anchor_epsilon=None))
    bundles = [lattice_bundle, other, plain, lattice_bundle, other]
    for step, bundle in enumerate(bundles):
        with replayed(bundle, ledger) as device:
            device.report(LAT, LON, START + 30 * step)
    opened = Ledger.open(ledger)
    assert opened.anchor_spent_micro == 8_000_000
    assert len({kept.shift for kept in opened.account("").anchors}) == 2
    opened.close()


def test_without_randomness_nothing_is_drawn_or_paid(
    lattice_bundle: Bundle, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> bytes:
        raise OSError("no entropy")

    with replayed(lattice_bundle, ledger) as device:
        with monkeypatch.context() as patch:
            patch.setattr("geoblanket.mechanism.sampling.os.urandom", fail)
            with pytest.raises(RandomnessError):
                device.report(LAT, LON, START)
        assert device.report(LAT, LON, START).left_micro == PLENTY.micro - 2_000_000
    opened = Ledger.open(ledger)
    assert (opened.anchor_spent_micro, opened.commits) == (3_000_000, 2)
    opened.close()


def found(path: Path) -> bool:
    files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
    return any(part in file.read_bytes() for file in files for part in PARTS)


@pytest.fixture
def canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnchorSpec, "draw", lambda *_: CANARY)


@pytest.mark.usefixtures("canary")
def test_the_shift_of_a_period_is_in_no_file_once_the_next_begins(
    lattice_bundle: Bundle, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replayed(lattice_bundle, ledger) as device:
        for step in range(120):
            device.report(LAT, LON, START + 30 * step)
        assert found(ledger)
        monkeypatch.setattr(AnchorSpec, "draw", lambda *_: (3, 4))
        device.report(LAT, LON, START + HOUR)
        assert not found(ledger)
        assert ledger.stat().st_mode & 0o777 == 0o600
    assert shifts_of(ledger) == [None, (3, 4)]
    assert not found(ledger)


def set_clock(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Stop the wall clock at a time, seconds since 1970."""
    patch.setattr("geoblanket.release.elapsed.time.time_ns", lambda: int(seconds * 1e9))
    patch.setattr("geoblanket.release.inputs.system_time.time", lambda: seconds)


def anchors_of_late_reports(
    device: Callable[[], Device], ledger: Path, patch: pytest.MonkeyPatch, *, clock_ahead_s: float, kill: bool
) -> int:
    """Return how many anchors 20 reports of one period drew, a few hours late, with a restart after each."""
    shifts = set()
    for step in range(20):
        set_clock(patch, START + 20 * HOUR + 30 * step + (clock_ahead_s if step % 2 else 0.0))
        opened = device()
        opened.report(LAT, LON, START + 30 * step)
        (kept,) = opened._ledger.account("").anchors
        shifts.add(kept.shift)
        if kill:  # the file is as after a kill: nothing of `close` is done but what the system does
            opened._ledger._connection.close()  # type: ignore[attr-defined]
        else:
            opened.close()
    opened_ledger = Ledger.open(ledger)
    assert opened_ledger.anchor_spent_micro == 3_000_000
    opened_ledger.close()
    return len(shifts)


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("clock_ahead_s", [0.0, 2.0 * HOUR])
def test_late_reports_with_a_restart_after_each_use_one_anchor(
    lattice_bundle: Bundle, ledger: Path, monkeypatch: pytest.MonkeyPatch, *, clock_ahead_s: float, kill: bool
) -> None:
    drawn = anchors_of_late_reports(
        lambda: Device.open(lattice_bundle, ledger=ledger), ledger, monkeypatch, clock_ahead_s=clock_ahead_s, kill=kill
    )
    assert drawn == 1


@pytest.mark.usefixtures("canary")
@pytest.mark.parametrize("tolerance_s", [600.0, 86_400.0])
def test_a_shift_is_wiped_on_opening_and_closing_once_no_report_in_its_period_is_accepted(
    lattice_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance_s: float
) -> None:
    last = START + HOUR + tolerance_s
    for name, when_closing in (("a.ledger", False), ("b.ledger", True)):
        path = created(tmp_path / name)
        with monkeypatch.context() as patch:
            set_clock(patch, START)
            device = Device.open(lattice_bundle, ledger=path, clock_tolerance_s=tolerance_s)
            device.report(LAT, LON, START)
            set_clock(patch, last if when_closing else last - 1)
            device.close()
            assert found(path) != when_closing
            set_clock(patch, last)
            Ledger.open(path, clock_tolerance_s=tolerance_s).close()
            assert not found(path)


def test_a_period_gets_no_second_anchor_after_its_shift_was_wiped(
    lattice_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the clock was days ahead, and is set right."""
    one, many = created(tmp_path / "a.ledger"), created(tmp_path / "b.ledger")
    set_clock(monkeypatch, START)
    with Device.open(lattice_bundle, ledger=one) as device:
        device.report(LAT, LON, START)
    with Fleet.open(lattice_bundle, vehicles=["a", "b"], ledger=many) as fleet:
        fleet.report([0], [LAT], [LON], START)
    set_clock(monkeypatch, START + 3 * 86_400)
    for path in (one, many):
        Ledger.open(path).close()
    set_clock(monkeypatch, START)
    with Device.open(lattice_bundle, ledger=one) as device:
        with pytest.raises(RefusedError, match="The anchor of this period of time was wiped") as caught:
            device.report(LAT, LON, START + 60)
        assert caught.value.reason == "time"
        assert not device.report(LAT, LON, START + HOUR).stored
    with Fleet.open(lattice_bundle, vehicles=["a", "b"], ledger=many) as fleet:
        assert fleet.report([0, 1], [LAT] * 2, [LON] * 2, START + 60).refused.tolist() == [True, False]


@pytest.mark.usefixtures("canary")
def test_the_shift_of_a_vehicle_that_stopped_is_wiped_by_the_reports_of_others(
    lattice_bundle: Bundle, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    later = now + 2 * 86_400
    with Fleet.open(lattice_bundle, vehicles=["a", "b"], ledger=ledger) as fleet:
        fleet.report([0], [LAT], [LON], now)
        monkeypatch.setattr(AnchorSpec, "draw", lambda *_: (3, 4))
        set_clock(monkeypatch, later)
        fleet.report([1], [LAT], [LON], later)
        assert not found(ledger)


def edit(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(sql)
        connection.close()

    return change


@pytest.fixture(scope="module")
def two_vehicles(lattice_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two vehicles in their second period."""
    path = created(tmp_path_factory.mktemp("two") / "a.ledger")
    with Fleet.open(lattice_bundle, vehicles=["a", "b"], ledger=path, replay=True) as fleet:
        for step in (0, 60, HOUR, HOUR + 30):
            fleet.report([0, 1], [LAT] * 2, [LON] * 2, START + step)
    return path


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM anchors",
        "DELETE FROM anchors WHERE shift IS NULL",
        "DELETE FROM anchors WHERE vehicle = 'a' AND shift IS NOT NULL",
        "UPDATE anchors SET cost_micro = 0",
        "UPDATE anchors SET shift = zeroblob(16) WHERE shift IS NOT NULL",
        "UPDATE anchors SET shift = zeroblob(16) WHERE shift IS NULL",
        "UPDATE anchors SET shift = NULL",
        "UPDATE anchors SET shift = x'00' WHERE vehicle = 'b'",
        "UPDATE anchors SET ends_ms = ends_ms + 3600000",
        "UPDATE anchors SET frame = 'x'",
        "UPDATE anchors SET vehicle = 'c' WHERE vehicle = 'b'",
        "UPDATE anchors SET shift = (SELECT shift FROM anchors WHERE vehicle = 'a' AND shift IS NOT NULL) "
        "WHERE vehicle = 'b' AND shift IS NOT NULL",
        "INSERT INTO anchors SELECT vehicle, slot_ms + 1, starts_ms, ends_ms, cost_micro, report_micro, interval_ms, "
        "frame, shift FROM anchors WHERE shift IS NOT NULL",
        "UPDATE accounts SET anchor_spent_micro = 0",
        "UPDATE accounts SET anchors = x''",
        "UPDATE ledger SET anchor_spent_micro = 0",
        "UPDATE ledger SET anchor_epsilon = 1e9",
        "DROP TABLE anchors",
    ],
)
def test_an_anchor_that_was_removed_changed_or_copied_is_refused(two_vehicles: Path, tmp_path: Path, sql: str) -> None:
    for file in (two_vehicles, Path(f"{two_vehicles}.count")):
        shutil.copy(file, tmp_path / file.name)
    path = tmp_path / two_vehicles.name
    opened = Ledger.open(path)
    assert opened.anchor_spent_micro == 12_000_000
    opened.close()
    edit(sql)(path)
    with pytest.raises(LedgerError, match=r"a\.ledger"):
        Ledger.open(path)
