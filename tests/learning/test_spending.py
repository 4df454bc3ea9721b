from __future__ import annotations

import json
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geoblanket import _files
from geoblanket._training import Unit, epsilon_of
from geoblanket.errors import BudgetError, InputError, LedgerError, OutputError, ParameterError
from geoblanket.learning import spending
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.spending import TrainingAccount, TrainingLedger

ONE = TrainingBudget.of(1.0, 1e-6)


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    (tmp_path / "walks.parquet").write_bytes(b"the walks of some people")
    return tmp_path / "walks.parquet"


def spend(ledger: TrainingLedger, walks: Path, budget: TrainingBudget = ONE, unit: Unit = "vehicle") -> spending.Spent:
    return ledger.spend(walks, replace(budget, unit=unit), purpose="a motion model")


def account(walks: Path) -> TrainingAccount:
    found = TrainingLedger.beside(walks).account()
    assert found is not None
    return found


def test_each_learning_is_counted_beside_the_walks(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks)
    assert ledger.path == walks.with_name("walks.parquet.spent.json")
    assert ledger.account() is None
    first_spent = spend(ledger, walks)
    assert (first_spent.rho_before, first_spent.note) == (0, None)
    second = spend(TrainingLedger.beside(walks), walks, TrainingBudget.of(2.0, 1e-6))
    assert second.rho_before == ONE.rho
    assert second.account == account(walks)
    first, last = account(walks).learnings
    assert (first.unit, first.rho, first.epsilon, first.delta) == ("vehicle", ONE.rho, 1.0, 1e-6)
    assert first.walks == last.walks == _files.sha256_file(walks)
    assert last.purpose == "a motion model"
    both = first.rho + last.rho
    assert account(walks).epsilon("vehicle") == pytest.approx(epsilon_of(both, 1e-6))
    assert (
        2 < account(walks).epsilon("vehicle") < 3
    )  # costs add up as ρ, so two learnings are less than the sum of both ε
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_what_is_left_is_the_largest_that_may_still_be_learned(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks, total_epsilon=2)
    spend(ledger, walks)
    left = account(walks).left_epsilon()
    assert 1 < left < 2
    with pytest.raises(BudgetError):
        spend(ledger, walks, TrainingBudget.of(left * 1.0001, 1e-6))
    assert len(account(walks).learnings) == 1
    spend(ledger, walks, TrainingBudget.of(left, 1e-6))
    assert account(walks).epsilon("vehicle") == pytest.approx(2)
    assert account(walks).left_epsilon() < 1e-3
    assert "These walks were learned from 2 times: ε = 2 of 2 is spent" in account(walks).in_words()


def test_refusal_says_what_was_spent_asked_and_left_and_writes_nothing(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks)  # 8 in total
    for _ in range(2):
        spend(ledger, walks, TrainingBudget.of(5.0, 1e-6))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetError, match=r"ε = 5, δ = 1e-06 would cost .* ε = 9\.\d+ in total.* to be 8 ") as refused:
        spend(ledger, walks, TrainingBudget.of(5.0, 1e-6))
    assert ledger.path.read_bytes() == before
    assert refused.value.spent == account(walks).epsilon("vehicle")
    assert refused.value.left == account(walks).left_epsilon()
    assert f"{refused.value.spent:.3g} is spent in 2 learning(s)" in str(refused.value)
    assert "raise_total=true" in str(refused.value)
    copy = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 - as worker processes do
    assert (str(copy), copy.spent, copy.left) == (str(refused.value), refused.value.spent, refused.value.left)


def test_first_learning_may_not_exceed_the_total_either(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks, total_epsilon=0.5)
    with pytest.raises(BudgetError, match=r"Learn with ε = 0\.5 or less"):
        spend(ledger, walks)
    assert ledger.account() is None
    spend(TrainingLedger.beside(walks, total_epsilon=1), walks)
    with pytest.raises(BudgetError, match="Use what was learned before"):
        spend(TrainingLedger.beside(walks), walks)


def test_total_is_raised_only_if_it_is_said_so_and_that_stays_visible(walks: Path) -> None:
    spend(TrainingLedger.beside(walks, total_epsilon=2), walks)
    with pytest.raises(BudgetError, match="stated to be 2, and 9 was asked"):
        spend(TrainingLedger.beside(walks, total_epsilon=9), walks)
    assert account(walks).total_epsilon == 2
    spend(TrainingLedger.beside(walks, total_epsilon=9, raise_total=True), walks)
    assert [total.epsilon for total in account(walks).totals] == [2, 9]
    spend(TrainingLedger.beside(walks, total_epsilon=4), walks)  # less is always kept
    assert account(walks).total_epsilon == 4
    with pytest.raises(BudgetError):
        spend(TrainingLedger.beside(walks, total_epsilon=8), walks)


@pytest.mark.parametrize("total", [0.0, -1.0, float("nan"), float("inf")])
def test_total_must_be_a_total(walks: Path, total: float) -> None:
    with pytest.raises(ParameterError, match="total ε"):
        TrainingLedger.beside(walks, total_epsilon=total)


def test_vehicle_learnings_count_for_trips_and_not_the_other_way_round(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks)
    spend(ledger, walks)
    assert account(walks).vehicles_have_a_promise
    assert spend(ledger, walks, unit="trip").rho_before == ONE.rho
    assert not account(walks).vehicles_have_a_promise
    by_vehicle = spend(ledger, walks)
    assert by_vehicle.rho_before == 0  # no sum would be true
    assert by_vehicle.note is not None
    assert "vehicles have no promise in total" in by_vehicle.note
    assert spend(ledger, walks, unit="trip").rho_before == pytest.approx(3 * ONE.rho)
    assert account(walks).rho("vehicle") == pytest.approx(2 * ONE.rho)
    assert "vehicles have no promise in total" in account(walks).in_words()


def test_trips_keep_their_total_when_learning_is_by_vehicle(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks, total_epsilon=1.2)
    spend(ledger, walks, unit="trip")
    with pytest.raises(BudgetError):
        spend(ledger, walks)


def test_total_is_for_the_delta_of_the_first_learning(walks: Path) -> None:
    ledger = TrainingLedger.beside(walks, total_epsilon=1.2)
    spend(ledger, walks, TrainingBudget.of(0.1, 1e-6))
    with pytest.raises(BudgetError):  # ε = 1 for a weaker δ is more for that of the ledger
        spend(ledger, walks, TrainingBudget.of(1.0, 1e-2))
    spend(ledger, walks)
    assert account(walks).delta == 1e-6


def test_walks_that_are_written_anew_inherit_what_was_spent(walks: Path) -> None:
    spend(TrainingLedger.beside(walks), walks)
    walks.write_bytes(b"more walks of the same people")
    assert spend(TrainingLedger.beside(walks), walks).rho_before == ONE.rho
    first, second = account(walks).learnings
    assert first.walks != second.walks


def test_links_share_what_was_spent(walks: Path) -> None:
    link = walks.parent / "elsewhere" / "same.parquet"
    link.parent.mkdir()
    link.symlink_to(walks)
    spend(TrainingLedger.beside(walks), walks)
    assert spend(TrainingLedger.beside(link), link).rho_before == ONE.rho


def edited(path: Path, **changes: Any) -> bytes:
    """A ledger with other values, and the digest that belongs to them."""
    body = json.loads(path.read_bytes())
    del body["sha256"]
    for name, value in changes.items():
        target = body if name in body else body["learnings"][0]
        target[name] = value
    return json.dumps(body | {"sha256": spending._digest(body)}).encode()


def test_digest_is_over_the_values(walks: Path) -> None:
    """Or the next test would show nothing."""
    spend(TrainingLedger.beside(walks), walks)
    path = TrainingLedger.beside(walks).path
    path.write_bytes(edited(path, purpose="other"))
    assert account(walks).learnings[0].purpose == "other"


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "geoblanket training ledger 2"},
        {"totals": [{"epsilon": 8}]},
        {"totals": 8},
        {"totals": []},
        {"totals": [{"when": "2026-01-01T00:00:00+00:00", "epsilon": 0}]},
        {"learnings": []},
        {"learnings": [3]},
        {"delta": 0.0},
        {"rho": 0.0},
        {"rho": -1.0},
        {"rho": 10**400},
        {"rho": "1"},
        {"lat": 41.1},
    ],
)
def test_another_version_and_forged_costs_are_refused(walks: Path, changes: dict[str, Any]) -> None:
    ledger = TrainingLedger.beside(walks)
    spend(ledger, walks)
    ledger.path.write_bytes(edited(ledger.path, **changes))
    with pytest.raises(LedgerError, match="damaged or was edited"):
        spend(ledger, walks)


@pytest.mark.parametrize("how", ["empty", "cut", "less spent", "reformatted total", "not JSON", "large", "a folder"])
def test_nothing_is_learned_with_a_damaged_or_edited_ledger(walks: Path, how: str) -> None:
    ledger = TrainingLedger.beside(walks)
    spend(ledger, walks)
    text = ledger.path.read_bytes()
    if how == "a folder":
        ledger.path.unlink()
        ledger.path.mkdir()
    else:
        ledger.path.write_bytes(
            {
                "empty": b"",
                "cut": text[: len(text) // 2],
                "less spent": text.replace(b'"rho": 0.0', b'"rho": 0.00'),
                "reformatted total": text.replace(b"8.0", b"80.0"),
                "not JSON": b"\x00\xff",
                "large": text + b" " * (1 << 24),
            }[how]
        )
        assert ledger.path.read_bytes() != text
    for _ in range(2):
        with pytest.raises((LedgerError, OutputError)):
            spend(ledger, walks)
    with pytest.raises(LedgerError):
        ledger.account()


def test_no_location_and_no_content_of_the_walks_is_in_it(walks: Path) -> None:
    spend(TrainingLedger.beside(walks), walks)
    body = json.loads(TrainingLedger.beside(walks).path.read_bytes())
    assert set(body) == {"format", "delta", "totals", "learnings", "sha256"}
    assert set(body["learnings"][0]) == {"when", "unit", "rho", "epsilon", "delta", "walks", "purpose"}


def test_absent_walks_and_an_absent_folder_are_told(walks: Path) -> None:
    with pytest.raises(InputError, match=r"none.parquet: cannot be read"):
        spend(TrainingLedger.beside(walks), walks.parent / "none.parquet")
    with pytest.raises(OutputError, match="does not exist"):
        spend(TrainingLedger(walks.parent / "none" / "ledger.json"), walks)


def test_if_it_cannot_be_written_nothing_may_be_learned(walks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = TrainingLedger.beside(walks)
    spend(ledger, walks)
    before = ledger.path.read_bytes()

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files, "sync_to_disk", full)
    with pytest.raises(OutputError, match="No space left"):
        spend(ledger, walks)
    assert ledger.path.read_bytes() == before


def test_who_waits_too_long_is_told(walks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "_WAIT_S", 0.05)
    ledger = TrainingLedger.beside(walks)
    with spending._locked(ledger.path), pytest.raises(LedgerError, match="in use by another process"):
        spend(ledger, walks)
    spend(ledger, walks)


def test_who_waits_gets_in_when_the_other_is_done(walks: Path) -> None:
    ledger, entered = TrainingLedger.beside(walks), threading.Event()

    def enter() -> None:
        entered.set()
        spend(ledger, walks)

    with ThreadPoolExecutor(1) as pool:
        with spending._locked(ledger.path):
            later = pool.submit(enter)
            assert entered.wait(120)
            time.sleep(0.05)
            assert not later.done()
        later.result(10)
    assert len(account(walks).learnings) == 1


SPENDER = """
import sys, time
from geoblanket.learning.noise import TrainingBudget
from geoblanket.learning.spending import TrainingLedger
walks, times = sys.argv[1], int(sys.argv[2])
for _ in range(times):
    TrainingLedger.beside(walks).spend(walks, TrainingBudget(.01, 1e-6, 1e-6), purpose="a test")
print("spent", flush=True)
time.sleep(float(sys.argv[3]))
"""


def spender(walks: Path, times: int, then_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SPENDER, str(walks), str(times), str(then_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_of_several_processes_at_once_none_is_lost(walks: Path) -> None:
    processes = [spender(walks, 20, 0) for _ in range(3)]
    for process in processes:
        assert process.communicate(timeout=60)[0] == "spent\n"
    assert len(account(walks).learnings) == 60
    assert account(walks).rho("vehicle") == pytest.approx(60e-6)


def test_learning_that_was_killed_is_counted(walks: Path) -> None:
    with spender(walks, 1, 60) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "spent\n"  # between the ledger and the noise
        process.send_signal(signal.SIGKILL)
    assert len(account(walks).learnings) == 1
    spend(TrainingLedger.beside(walks), walks)  # its lock is gone
    assert len(account(walks).learnings) == 2


def test_process_that_is_killed_while_it_writes_leaves_a_whole_ledger(walks: Path) -> None:
    for _ in range(5):
        with spender(walks, 100_000, 0) as process:
            time.sleep(0.4)
            process.kill()
    spend(TrainingLedger.beside(walks), walks)
    assert account(walks).learnings[-1].rho == ONE.rho
