"""Ledgers of earlier versions, in `old/`.

`format3.ledger`, by version 0.2.0: sealed by a key that was given, for replays. `none.ledger`, by version 0.1.0:
without a key. `none3.ledger` is that one, upgraded by version 0.2.0.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from geoblanket.errors import LedgerError
from geoblanket.mechanism import load_bundle
from geoblanket.release import Budget, Device, Ledger, _ledger_file
from geoblanket.release.budget import Answer
from geoblanket.release.fence import NO_FENCES
from tests.release.lattices import save_small

OLD = Path(__file__).parent / "old"
START = 1_719_792_000_000
KEY = b"sixteen bytes!!!"


def copied(name: str, folder: Path) -> Path:
    for file in (name, f"{name}.count"):
        shutil.copy(OLD / file, folder / file)
    return folder / name


def formats(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    ("name", "number", "problem"),
    [
        (
            "none.ledger",
            1,
            "version 0.1, .* open it once with geoblanket 0.2, which upgrades it. A ledger without a key",
        ),
        ("none3.ledger", 3, "has no key, .* report nothing for one window of its budget, then make a new one"),
    ],
)
def test_a_ledger_of_version_0_1_is_refused_and_stays_as_it_is(
    tmp_path: Path, name: str, number: int, problem: str, key: bytes | None
) -> None:
    path = copied(name, tmp_path)
    for _ in range(2):
        with pytest.raises(LedgerError, match=problem):
            Ledger.open(path, device_key=key)
        assert formats(path) == number


@pytest.mark.parametrize("key", [None, KEY[::-1]])
def test_an_old_ledger_opens_by_its_own_key_only(tmp_path: Path, key: bytes | None) -> None:
    path = copied("format3.ledger", tmp_path)
    with pytest.raises(LedgerError, match="Give it again" if key is None else "another device key"):
        Ledger.open(path, device_key=key)
    assert formats(path) == 3


def test_an_old_ledger_put_back_is_refused(tmp_path: Path) -> None:
    path = copied("format3.ledger", tmp_path)
    ledger = Ledger.open(path, device_key=KEY)
    ledger.write([("", Answer(START + 900_000, 1, 0, 0, 0, None, 0))])
    ledger.close()
    shutil.copy(OLD / "format3.ledger", path)
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path, device_key=KEY)
    assert path.read_bytes() == (OLD / "format3.ledger").read_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_kill_during_the_upgrade_leaves_a_whole_ledger(tmp_path: Path) -> None:
    """Killed before each statement of it in turn."""
    for number in range(9, 100):
        (tmp_path / str(number)).mkdir()
        path = copied("format3.ledger", tmp_path / str(number))
        child = os.fork()
        if child == 0:
            upgrade_until(path, KEY, number)
        outcome = os.waitpid(child, 0)[1]
        ledger = Ledger.open(path, device_key=KEY)
        assert ledger.spent_micro == 16_000_000 == sum(ledger.account(name).spent_micro for name in ledger.vehicles)
        ledger.close()
        if os.WIFEXITED(outcome):
            assert outcome == 0
            break
    else:
        pytest.fail("the upgrade takes more statements than were tried")


def upgrade_until(path: Path, key: bytes, number: int) -> None:
    """Open a ledger in a process of its own, which is killed before the statement of this number."""
    statements = 0

    class Counting(_ledger_file._Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            nonlocal statements
            statements += 1
            if statements == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().execute(*arguments)

    try:
        _ledger_file._Connection = Counting  # type: ignore[misc]
        Ledger.open(path, device_key=key).close()
        os._exit(0)
    finally:
        os._exit(1)


def test_a_ledger_of_format_3_keeps_what_was_spent_and_loses_its_anchors(tmp_path: Path) -> None:
    """Their shifts were secrets: nothing of them stays in the file or its log."""
    path = copied("format3.ledger", tmp_path)
    with sqlite3.connect(path) as connection:
        shifts = [shift for (shift,) in connection.execute("SELECT shift FROM anchors") if shift is not None]
        answers = connection.execute("SELECT * FROM answers").fetchall()
    connection.close()
    assert shifts
    assert any(shift in path.read_bytes() for shift in shifts)
    for _ in range(2):
        ledger = Ledger.open(path, device_key=KEY)
        assert ledger.budget == Budget(100.0, 7200.0)
        assert (ledger.commits, ledger.spent_micro, ledger.fences) == (5, 16_000_000, NO_FENCES)
        assert [ledger.account(name).drawn_slot_ms for name in ledger.vehicles] == [None] * len(ledger.vehicles)
        assert (ledger.sealed_by, ledger.replay, ledger.versions) == ("given", True, {})
        for file in tmp_path.glob("format3.ledger*"):  # while it is open too
            assert not [shift for shift in shifts if shift in file.read_bytes()]
        ledger.close()
        assert formats(path) == 4
    with sqlite3.connect(path) as connection:
        assert answers == connection.execute("SELECT * FROM answers").fetchall()
    connection.close()


def test_reports_are_held_and_fenced_by_a_ledger_that_was_upgraded(tmp_path: Path) -> None:
    bundle = load_bundle(save_small(tmp_path / "held.bundle", hold_m=50.0))
    path = copied("format3.ledger", tmp_path)
    ledger = Ledger.open(path, device_key=KEY)
    last, spent = ledger.account("").last_slot_ms or START, ledger.account("").spent_micro
    ledger.add_fence(41.1051, -8.5931, radius_km=1)
    ledger.close()
    for step in range(3):
        with Device.open(bundle, ledger=path, device_key=KEY, replay=True) as device:
            assert device.fences.names == ("home",)
            device.report(41.1051, -8.5931 + 1e-3 * step, last / 1000 + 30 + 30 * step)
    ledger = Ledger.open(path, device_key=KEY)
    assert ledger.account("").spent_micro == spent + 2_000_000
    ledger.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE ledger SET epsilon = 1e9",
        "UPDATE ledger SET spent_micro = 0",
        "UPDATE ledger SET sealed_by = 'none'",
        "UPDATE accounts SET spent_micro = 0",
        "UPDATE answers SET cost_micro = 0 WHERE vehicle = 'b'",
        "DELETE FROM answers WHERE vehicle < 'b'",
        "DELETE FROM accounts",
        "DELETE FROM ledger",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 4",
        "CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM verified; END",
        "CREATE TABLE t (shift BLOB)",
    ],
)
def test_an_old_ledger_that_was_changed_is_refused_and_stays_as_it_is(tmp_path: Path, sql: str) -> None:
    path = copied("format3.ledger", tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    content = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"format3\.ledger: "):
            Ledger.open(path, device_key=KEY)
        assert path.read_bytes() == content
