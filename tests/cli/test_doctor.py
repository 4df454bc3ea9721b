from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket import __version__
from geoblanket.cli import doctor as module
from geoblanket.cli.main import app
from geoblanket.errors import LedgerError
from geoblanket.release.budget import Budget
from geoblanket.release.ledger import Ledger


def told(folder: Path) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", str(folder), "--json"])
    return result.exit_code, json.loads(result.stdout)


def states(facts: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in facts["checks"]}


def test_a_machine_that_works(tmp_path: Path) -> None:
    code, facts = told(tmp_path)
    assert (code, facts["ok"]) == (0, True)
    assert facts["checks"][0] == {"name": "geoblanket", "found": __version__, "state": "ok", "advice": ""}
    assert {"numpy", "extra city", "ledger, locked", "clock"} <= states(facts).keys()
    assert list(tmp_path.iterdir()) == []
    printed = CliRunner().invoke(app, ["doctor", str(tmp_path)], env={"COLUMNS": "120"})
    assert printed.stdout.splitlines()[-1].startswith("OK: everything that geoblanket needs works here.")


def test_an_extra_that_is_missing_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_there", lambda name: name not in {"paho", "polars"})
    code, facts = told(tmp_path)
    assert (code, facts["ok"]) == (0, True)
    assert facts["verdict"].endswith("Not installed: city, gateway.")
    gateway = next(check for check in facts["checks"] if check["name"] == "extra gateway")
    assert (gateway["state"], gateway["advice"]) == ("not installed", "pip install 'geoblanket[gateway]'")
    city = next(check for check in facts["checks"] if check["name"] == "extra city")
    assert city["found"] == "without polars"


def test_a_folder_that_no_ledger_can_live_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, facts = told(tmp_path / "absent")
    assert (code, facts["ok"], states(facts)["ledger, locked"]) == (1, False, "broken")

    def refuse(*_: object, **__: object) -> None:
        raise LedgerError(f"{tmp_path}/.geoblanket-doctor.x/a.ledger: cannot be locked.")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "create", refuse)
        code, facts = told(tmp_path)
    assert (code, states(facts)["ledger, locked"]) == (1, "broken")
    assert facts["verdict"] == "NOT OK: ledger, locked. What to do is written above."
    assert ".geoblanket-doctor" not in json.dumps(facts)

    real = Ledger.open
    calls: list[Path] = []

    def twice(path: Path, **options: Any) -> Any:
        """As on a disk without locks: the second one is let in too."""
        calls.append(path)
        if len(calls) == 1:
            return real(path, **options)
        Ledger.create(path.with_name("b.ledger"), budget=Budget(1, 60), device_key=bytes(16))
        return real(path.with_name("b.ledger"), **options)

    monkeypatch.setattr(Ledger, "open", twice)
    code, facts = told(tmp_path)
    assert (code, states(facts)["ledger, locked"]) == (1, "broken")


def test_a_clock_that_was_never_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_YEARS", range(2099, 2100))
    code, facts = told(tmp_path)
    assert (code, states(facts)["clock"]) == (1, "broken")
    assert facts["verdict"] == "NOT OK: clock. What to do is written above."
