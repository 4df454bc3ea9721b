"""Ledgers that version 0.1.0 made, in `old/`: one without a key, and one by a key that was given."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import LedgerError, RefusedError
from geoblanket.mechanism import Bundle
from geoblanket.release import Budget, Device, Ledger

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


def test_an_old_ledger_keeps_what_was_spent(tmp_path: Path) -> None:
    path = copied("none.ledger", tmp_path)
    assert formats(path) == 1
    for _ in range(2):
        ledger = Ledger.open(path)
        account = ledger.account("")
        assert ledger.budget == Budget(100.0, 600.0)
        assert (ledger.commits, ledger.spent_micro, ledger.vehicles) == (26, 20_000_046, ("", "b"))
        assert [answer.slot_ms for answer in account.answers] == [START + 30_000 * number for number in range(5, 25)]
        assert [answer.request for answer in account.answers] == [f"r{number}" for number in range(5, 25)]
        assert account.answers[-1][:5] == (START + 30_000 * 24, 5_000_000, 0, 410_000_024, -86_000_000)
        assert (account.reports, ledger.account("b").spent_micro) == (25, 25)
        assert (ledger.sealed_by, ledger.replay) == ("none", False)
        ledger.close()
        assert formats(path) == 3


def test_what_an_old_ledger_spent_counts_as_spent_now(spread: Bundle, tmp_path: Path) -> None:
    """When it was really spent is not known."""
    path = copied("none.ledger", tmp_path)
    with Device.open(spread, ledger=path) as device:
        left = device.report(41.0, -8.6, time.time()).left_micro
        assert left == 100_000_000 - 20_000_016 - device.costs.start
        for step in range(18):
            device.report(41.0, -8.6, time.time() + 300 * (step + 1))
        with pytest.raises(RefusedError, match="budget"):
            device.report(41.0, -8.6, time.time() + 20_000)
    assert CliRunner().invoke(app, ["ledger", "verify", str(path)]).exit_code == 0


def test_it_is_said_that_an_old_ledger_has_no_key(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["ledger", "show", str(copied("none.ledger", tmp_path))]).stdout
    assert "no key, as by an earlier version" in " ".join(shown.split())


def test_an_old_ledger_opens_by_its_own_key_only(tmp_path: Path) -> None:
    path = copied("given.ledger", tmp_path)
    for key in (None, KEY[::-1]):
        with pytest.raises(LedgerError, match="another device key"):
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
        with pytest.raises(LedgerError, match=r"a\.ledger|none\.ledger"):
            Ledger.open(path)


def test_an_old_ledger_put_back_is_refused(tmp_path: Path) -> None:
    path = copied("none.ledger", tmp_path)
    ledger = Ledger.open(path)
    ledger.write([("", ledger.account("").answers[-1]._replace(slot_ms=START + 900_000))])
    ledger.close()
    shutil.copy(OLD / "none.ledger", path)
    with pytest.raises(LedgerError, match="rolled back to an earlier state"):
        Ledger.open(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_kill_during_the_upgrade_leaves_the_old_or_the_new_ledger(tmp_path: Path) -> None:
    """Killed before each statement of it in turn."""
    script = """
import os, signal, sys
from geoblanket.release import Ledger, _ledger_file
statements = 0
class Counting(_ledger_file._Connection):
    def execute(self, *arguments):
        global statements
        statements += 1
        if statements == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)
_ledger_file._Connection = Counting
Ledger.open(sys.argv[1]).close()
"""
    for number in range(9, 70, 2):
        (tmp_path / str(number)).mkdir()
        path = copied("none.ledger", tmp_path / str(number))
        done = subprocess.run([sys.executable, "-c", script, path, str(number)], check=False)
        ledger = Ledger.open(path)
        assert (ledger.spent_micro, len(ledger.account("").answers)) == (20_000_046, 20)
        ledger.close()
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    else:
        pytest.fail("the upgrade takes more statements than were tried")
