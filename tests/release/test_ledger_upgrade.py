"""Ledgers of earlier formats, in `old/`.

Those of format 1, by version 0.1.0: one without a key, and one by a key that was given. Those of formats 2 and 3: by
that key, for replays. `none3.ledger` is the one without a key, upgraded by version 0.2.0.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import LedgerError, RefusedError
from geoblanket.mechanism import Bundle, load_bundle
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


@pytest.mark.parametrize(("name", "number"), [("none.ledger", 1), ("none3.ledger", 3)])
def test_a_ledger_without_a_key_opens_once_it_got_one_and_keeps_what_was_spent(
    tmp_path: Path, name: str, number: int
) -> None:
    path = copied(name, tmp_path)
    assert formats(path) == number
    for key in (None, KEY) if number > 1 else (None,):
        with pytest.raises(LedgerError, match=r"has no key, .*geoblanket ledger add-key .*\.ledger` once"):
            Ledger.open(path, device_key=key)
    assert formats(path) == number
    added = CliRunner().invoke(app, ["ledger", "add-key", str(path)])
    assert added.exit_code == 0, added.output
    for _ in range(2):
        ledger = Ledger.open(path)
        account = ledger.account("")
        assert ledger.budget == Budget(100.0, 600.0)
        assert (ledger.commits, ledger.spent_micro, ledger.vehicles) == (26, 20_000_046, ("", "b"))
        assert [answer.slot_ms for answer in account.answers] == [START + 30_000 * number for number in range(5, 25)]
        assert [answer.request for answer in account.answers] == [f"r{number}" for number in range(5, 25)]
        assert account.answers[-1][:5] == (START + 30_000 * 24, 5_000_000, 0, 410_000_024, -86_000_000)
        assert (account.reports, ledger.account("b").spent_micro) == (25, 25)
        assert (ledger.sealed_by, ledger.replay) == ("device", False)
        ledger.close()
        assert formats(path) == 4
    with pytest.raises(LedgerError, match="has a key already"):
        Ledger.add_key(path)
    with pytest.raises(LedgerError, match="another device key"):
        Ledger.open(path, device_key=KEY)


def test_a_ledger_with_a_key_gets_no_other_one(tmp_path: Path) -> None:
    for name, problem in (
        ("given.ledger", "was changed"),
        ("format2.ledger", "has a key"),
        ("format3.ledger", "has a key"),
    ):
        path = copied(name, tmp_path)
        before = path.read_bytes()
        for key in (None, KEY):
            with pytest.raises(LedgerError, match=problem):
                Ledger.add_key(path, device_key=key)
        assert path.read_bytes() == before


def test_what_an_old_ledger_spent_counts_as_spent_now(spread: Bundle, tmp_path: Path) -> None:
    """When it was really spent is not known."""
    path = copied("none.ledger", tmp_path)
    Ledger.add_key(path)
    with Device.open(spread, ledger=path) as device:
        left = device.report(41.0, -8.6, time.time()).left_micro
        assert left == 100_000_000 - 20_000_016 - device.costs.start
        for step in range(18):
            device.report(41.0, -8.6, time.time() + 300 * (step + 1))
        with pytest.raises(RefusedError, match="budget"):
            device.report(41.0, -8.6, time.time() + 20_000)
    assert CliRunner().invoke(app, ["ledger", "verify", str(path)]).exit_code == 0


def test_an_old_ledger_opens_by_its_own_key_only(tmp_path: Path) -> None:
    path = copied("given.ledger", tmp_path)
    for key in (None, KEY[::-1]):
        with pytest.raises(LedgerError, match="its key was not given" if key is None else "another device key"):
            Ledger.open(path, device_key=key)
    assert formats(path) == 1
    Ledger.open(path, device_key=KEY).close()
    with pytest.raises(LedgerError, match="Give it again"):
        Ledger.open(path)
    ledger = Ledger.open(path, device_key=KEY)
    assert ledger.sealed_by == "given"
    ledger.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE ledger SET epsilon = 1e9",
        "UPDATE ledger SET spent_micro = 0",
        "UPDATE accounts SET spent_micro = 0",
        "UPDATE answers SET cost_micro = 0 WHERE vehicle = 'b'",
        "DELETE FROM answers WHERE vehicle = ''",
        "DELETE FROM accounts",
        "DELETE FROM ledger",
        "PRAGMA user_version = 2",
    ],
)
def test_an_old_ledger_that_was_changed_is_refused(tmp_path: Path, sql: str) -> None:
    path = copied("none.ledger", tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"none\.ledger: was changed|none\.ledger: cannot be used"):
            Ledger.add_key(path)


def test_an_old_ledger_put_back_is_refused(tmp_path: Path) -> None:
    path = copied("given.ledger", tmp_path)
    ledger = Ledger.open(path, device_key=KEY)
    ledger.write([("", Answer(START + 900_000, 1, 0, 0, 0, None, 0))])
    ledger.close()
    shutil.copy(OLD / "given.ledger", path)
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path, device_key=KEY)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("name", "spent"), [("given.ledger", 0), ("format3.ledger", 16_000_000)])
def test_a_kill_during_the_upgrade_leaves_a_whole_ledger(tmp_path: Path, name: str, spent: int) -> None:
    """Killed before each statement of it in turn."""
    for number in range(9, 100):
        (tmp_path / str(number)).mkdir()
        path = copied(name, tmp_path / str(number))
        child = os.fork()
        if child == 0:
            upgrade_until(path, KEY, number)
        outcome = os.waitpid(child, 0)[1]
        ledger = Ledger.open(path, device_key=KEY)
        assert ledger.spent_micro == spent == sum(ledger.account(name).spent_micro for name in ledger.vehicles)
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


def test_a_ledger_of_format_2_keeps_what_was_spent(tmp_path: Path) -> None:
    path = copied("format2.ledger", tmp_path)
    assert formats(path) == 2
    for key in (None, KEY[::-1]):
        with pytest.raises(LedgerError, match="key"):
            Ledger.open(path, device_key=key)
    assert formats(path) == 2
    for _ in range(2):
        ledger = Ledger.open(path, device_key=KEY)
        account = ledger.account("")
        assert ledger.budget == Budget(100.0, 600.0)
        assert (ledger.commits, ledger.spent_micro, ledger.vehicles) == (26, 24_200_025, ("", "b"))
        assert [answer.slot_ms for answer in account.answers] == [START + 30_000 * number for number in range(5, 25)]
        assert (account.reports, account.drawn_slot_ms, ledger.fences) == (25, None, NO_FENCES)
        assert (ledger.sealed_by, ledger.replay) == ("given", True)
        ledger.close()
        assert formats(path) == 4


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
    for name, replay in (("format2.ledger", True), ("format3.ledger", True), ("given.ledger", False)):
        path = copied(name, tmp_path)
        ledger = Ledger.open(path, device_key=KEY)
        last, spent = ledger.account("").last_slot_ms or START, ledger.account("").spent_micro
        ledger.add_fence(41.1051, -8.5931, radius_km=1)
        ledger.close()
        now = last / 1000 + 30 if replay else time.time()
        for step in range(3):
            with Device.open(bundle, ledger=path, device_key=KEY, replay=replay) as device:
                assert device.fences.names == ("home",)
                device.report(41.1051, -8.5931 + 1e-3 * step, now + 30 * step)
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
@pytest.mark.parametrize("name", ["format2.ledger", "format3.ledger"])
def test_a_keyed_ledger_of_an_earlier_format_that_was_changed_is_refused(tmp_path: Path, name: str, sql: str) -> None:
    path = copied(name, tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"{name}"):
            Ledger.open(path, device_key=KEY)
