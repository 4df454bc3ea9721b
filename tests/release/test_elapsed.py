"""What is spent in any window of real time stays within the budget, whatever times the caller gives and clocks show."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import MismatchError, RefusedError
from geoblanket.mechanism import Bundle
from geoblanket.release import Budget, Device, Fleet, Ledger, rollback
from geoblanket.release.rollback import ClockState, ElapsedTime, Reading, read_clocks

SECOND = 10**9
HOUR = 3600 * SECOND
HERE = 41.0, -8.6


class Machine:
    """A machine whose time passes as told, with a wall clock that may be set and boots that follow each other."""

    def __init__(self) -> None:
        self.real_ns = 0
        self.wall_offset_ns = time.time_ns()
        self.boots, self.booted_ns = 1, -7 * HOUR

    def read(self) -> Reading:
        return Reading(self.real_ns + self.wall_offset_ns, f"boot {self.boots}", self.real_ns - self.booted_ns)

    @property
    def wall_s(self) -> float:
        return self.read().wall_ns / SECOND

    def wait(self, seconds: float) -> None:
        self.real_ns += int(seconds * SECOND)

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock by so many seconds forward, or back."""
        self.wall_offset_ns += int(seconds * SECOND)

    def reboot(self) -> None:
        self.boots += 1
        self.booted_ns = self.real_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(rollback, "read_clocks", made.read)
    monkeypatch.setattr("geoblanket.release.ledger.read_clocks", made.read)
    monkeypatch.setattr("geoblanket.release.inputs.system_time.time", lambda: made.wall_s)
    return made


Event = tuple[str, float]
WITHIN_A_BOOT = st.tuples(st.sampled_from(["wait", "set", "read"]), st.floats(-5000, 5000))
ANY = st.tuples(st.sampled_from(["wait", "set back", "reboot", "read", "restart"]), st.floats(-5000, 5000))


def passed_and_real(events: list[Event]) -> tuple[list[int], list[int]]:
    machine = Machine()
    state = ClockState.of(machine.read())
    passed, real = [0], [0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollback, "read_clocks", machine.read)
        clock = ElapsedTime(state)
        for what, amount in events:
            if what == "wait":
                machine.wait(abs(amount))
            elif what == "set":
                machine.set_clock(amount)
            elif what == "set back":
                machine.set_clock(-abs(amount))
            elif what == "reboot":
                machine.reboot()
            elif what == "restart":
                clock = ElapsedTime(clock.state)
            else:
                passed.append(clock.now_ns())
                real.append(machine.real_ns)
    return passed, real


@given(st.lists(WITHIN_A_BOOT, max_size=30))
def test_within_a_boot_no_setting_of_the_clock_makes_time_pass_sooner(events: list[Event]) -> None:
    passed, real = passed_and_real(events)
    assert all(first <= second for first, second in pairwise(passed))
    assert (np.diff(passed) <= np.diff(real)).all()


@given(st.lists(ANY, max_size=30))
def test_a_clock_that_is_set_back_makes_no_time_pass_whenever_the_machine_reboots(events: list[Event]) -> None:
    passed, real = passed_and_real(events)
    assert (np.diff(passed) <= np.diff(real)).all()


def test_time_passes_as_it_does_where_nobody_sets_a_clock() -> None:
    events = [("wait", 30.0), ("read", 0), ("wait", 5.0), ("restart", 0), ("reboot", 0), ("wait", 100.0), ("read", 0)]
    assert passed_and_real(events)[0] == [0, 30 * SECOND, 135 * SECOND]


def test_the_clocks_of_this_machine() -> None:
    first = read_clocks()
    time.sleep(0.01)
    second = read_clocks()
    assert first.boot == second.boot
    assert 0.009 < (second.boot_ns - first.boot_ns) / SECOND < 5
    assert abs(first.wall_ns / SECOND - time.time()) < 5
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    assert not boot_id.exists() or first.boot == boot_id.read_text().strip()


def test_where_boots_have_no_names_each_process_counts_as_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rollback, "_BOOT_ID", tmp_path / "absent")
    assert rollback._this_boot() != rollback._this_boot()


def made(report: Callable[[float], object], times: list[float]) -> int:
    """How many reports are made at these times."""
    count = 0
    for when in times:
        try:
            report(when)
            count += 1
        except RefusedError as error:
            if error.reason != "budget":
                raise
    return count


BUDGET = Budget(80.0, 3600.0)
"""Twenty reports of 4 per km in any hour."""


@pytest.mark.parametrize("durable", [True, False])
def test_a_callers_clock_that_is_walked_forward_makes_no_budget(spread: Bundle, tmp_path: Path, durable: bool) -> None:
    """A day of data, which is what the tolerance takes, in the time that it takes to ask."""
    ledger = tmp_path / "a.ledger" if durable else None
    if ledger is not None:
        Ledger.create(ledger, budget=BUDGET)
    times = np.arange(time.time() - 80_000, time.time() + 80_000, 300).tolist()
    with Device.open(spread, ledger=ledger, budget=BUDGET) as device:
        assert made(lambda when: device.report(*HERE, when), times) == 20


def test_a_fleets_clock_that_is_walked_forward_makes_no_budget(spread: Bundle) -> None:
    with Fleet.open(spread, vehicles=["a", "b"], ledger=None, budget=BUDGET) as fleet:
        start = time.time() - 80_000
        refused = [
            fleet.report([0, 1], [41.0] * 2, [-8.6] * 2, start + 300 * step).refused.tolist() for step in range(100)
        ]
    assert refused == [[False] * 2] * 20 + [[True] * 2] * 80


class Asking:
    """Somebody who asks at all times that the system's clock allows, in order, and opens the ledger each time."""

    def __init__(self, machine: Machine, bundle: Bundle, ledger: Path) -> None:
        self.machine, self.bundle, self.ledger = machine, bundle, ledger
        self.next_s = machine.wall_s

    def made(self) -> int:
        """How many reports are made now; each slot is some minutes after the one before."""
        with Device.open(self.bundle, ledger=self.ledger, clock_tolerance_s=1e9) as device:
            times = [self.next_s + 400 * step for step in range(30)]
            self.next_s = times[-1] + 400
            return made(lambda when: device.report(*HERE, when), times)


@pytest.fixture
def asking(machine: Machine, spread: Bundle, tmp_path: Path) -> Asking:
    Ledger.create(tmp_path / "a.ledger", budget=BUDGET)
    asked = Asking(machine, spread, tmp_path / "a.ledger")
    assert asked.made() == 20
    return asked


def test_budget_comes_back_when_the_window_has_really_passed(machine: Machine, asking: Asking) -> None:
    machine.wait(3599)
    assert asking.made() == 0
    machine.wait(1)
    assert asking.made() == 20


def test_a_clock_that_is_set_forward_gets_nothing(machine: Machine, asking: Asking) -> None:
    machine.wait(1800)
    machine.set_clock(10_000)
    assert asking.made() == 0
    machine.reboot()  # it showed that time already
    assert asking.made() == 0
    machine.wait(1800)
    assert asking.made() == 20


def test_a_clock_that_is_set_back_and_forward_gets_nothing(machine: Machine, asking: Asking) -> None:
    for change in (-50_000, 50_000):
        machine.set_clock(change)
        assert asking.made() == 0
        machine.reboot()
        assert asking.made() == 0
    machine.wait(3600)
    assert asking.made() == 20


def test_a_clock_set_back_gets_nothing_when_it_is_right_again_after_a_reboot(machine: Machine, asking: Asking) -> None:
    machine.set_clock(-10_000)
    assert asking.made() == 0
    machine.set_clock(10_000)
    machine.reboot()
    assert asking.made() == 0
    machine.wait(3600)
    assert asking.made() == 20


def test_a_clock_that_was_set_right_does_not_lock_the_device_out(machine: Machine, asking: Asking) -> None:
    """A year ahead once, and back: from then on the clock since boot counts."""
    for change in (3e7, -3e7):
        machine.set_clock(change)
        assert asking.made() == 0
    machine.wait(3601)
    assert asking.made() == 20


def test_time_with_the_machine_switched_off_passes(machine: Machine, asking: Asking) -> None:
    machine.wait(3600)
    machine.reboot()
    assert asking.made() == 20


def test_what_was_said_of_the_clock_is_that_of_the_last_report(machine: Machine, asking: Asking) -> None:
    """Half a window before and half a window after a restart are a window."""
    machine.wait(1800)
    asking.made()
    machine.wait(1800)
    assert asking.made() == 20


def test_closing_stores_the_clocks_that_it_read(machine: Machine, tmp_path: Path) -> None:
    """So that a wall clock set forward while the ledger was open gains nothing after a reboot."""
    Ledger.create(tmp_path / "a.ledger", budget=BUDGET)
    ledger = Ledger.open(tmp_path / "a.ledger")
    machine.wait(60)
    machine.set_clock(3600)
    ledger.close()
    machine.reboot()
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.now_ns(0) == 60 * SECOND
    ledger.close()


def test_a_ledger_is_for_replays_or_for_real_reports(spread: Bundle, tmp_path: Path) -> None:
    """Else a replay could spend what real time does not allow."""
    for replay in (True, False):
        path = tmp_path / f"{replay}.ledger"
        Ledger.create(path, budget=BUDGET)
        Device.open(spread, ledger=path, replay=not replay).close()  # nothing was counted yet
        with Device.open(spread, ledger=path, replay=replay) as device:
            device.report(*HERE, time.time())
        for opened in (Device.open, lambda *a, **k: Fleet.open(*a, vehicles=["x"], **k)):
            with pytest.raises(MismatchError, match=r"counts nothing else\. Make another ledger"):
                opened(spread, ledger=path, replay=not replay)
        ledger = Ledger.open(path)
        assert ledger.summary()["replay"] is replay
        ledger.close()


def test_a_replay_counts_in_the_callers_time_only(spread: Bundle) -> None:
    with Device.open(spread, ledger=None, budget=BUDGET, replay=True) as device:
        assert made(lambda when: device.report(*HERE, when), [1.7e9 + 180 * step for step in range(889)]) == 889
        assert made(lambda when: device.report(*HERE, when), [1.8e9 + 30 * step for step in range(119)]) == 20
