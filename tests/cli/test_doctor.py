from __future__ import annotations

import json
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest
from typer.testing import CliRunner

from geoblanket import __version__
from geoblanket.cli import doctor as module
from geoblanket.cli.main import app
from geoblanket.errors import LedgerError
from geoblanket.release.budget import Budget
from geoblanket.release.ledger import Ledger


def told(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--ledger-folder", str(folder), *options, "--json"])
    return result.exit_code, json.loads(result.stdout)


def states(facts: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in facts["checks"]}


def test_a_machine_that_works(tmp_path: Path) -> None:
    code, facts = told(tmp_path)
    assert (code, facts["ok"]) == (0, True)
    assert facts["checks"][0] == {"name": "geoblanket", "found": __version__, "state": "ok", "advice": ""}
    assert {"numpy", "extra city", "ledger, locked", "writing and fsync", "time zones", "umask"} <= states(facts).keys()
    assert list(tmp_path.iterdir()) == []
    printed = CliRunner().invoke(app, ["doctor", "--ledger-folder", str(tmp_path)], env={"COLUMNS": "120"})
    assert printed.stdout.splitlines()[-1].startswith("OK: what geoblanket needs works here.")


def test_an_extra_that_is_missing_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_there", lambda name: name not in {"paho", "polars"})
    code, facts = told(tmp_path)
    assert (code, facts["ok"]) == (0, True)
    assert facts["verdict"].endswith("Not installed: city, gateway.")
    gateway = next(check for check in facts["checks"] if check["name"] == "extra gateway")
    assert (gateway["state"], gateway["advice"]) == ("not installed", "pip install 'geoblanket[gateway]'")
    city = next(check for check in facts["checks"] if check["name"] == "extra city")
    assert city["found"] == "without polars"


def test_a_machine_without_a_browser_can_still_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda: SimpleNamespace(name="firefox"))
    assert states(told(tmp_path)[1])["browser"] == "ok"

    def none() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    code, facts = told(tmp_path)
    assert (code, facts["ok"], states(facts)["browser"]) == (0, True, "note")


def test_a_folder_that_no_ledger_can_live_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, facts = told(tmp_path / "absent")
    assert (code, facts["ok"], states(facts)["ledger folder"]) == (1, False, "broken")

    def refuse(*_: object, **__: object) -> None:
        raise LedgerError(f"{tmp_path}/.geoblanket-doctor.x/a.ledger: cannot be locked.")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "create", refuse)
        code, facts = told(tmp_path)
    assert (code, states(facts)["ledger, locked"]) == (1, "broken")
    assert facts["verdict"] == "NOT OK: ledger, locked: see above what to do."
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


def test_a_clock_that_was_never_set_and_missing_time_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_YEAR", 2099)
    monkeypatch.setattr("zoneinfo.ZoneInfo", no_zone)
    code, facts = told(tmp_path)
    assert (code, states(facts)["clock"], states(facts)["time zones"]) == (1, "broken", "broken")
    assert facts["verdict"] == "NOT OK: clock, time zones: see above what to do."


def no_zone(name: str) -> None:
    raise ZoneInfoNotFoundError(name)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A service on this machine that says one thing to whoever connects once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(64)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "state"),
    [(b"\x20\x02\x00\x00", "ok"), (b"\x20\x02\x00\x05", "ok"), (b"\x20\x02\x00\x03", "note"), (b"HTTP", "broken")],
)
def test_what_a_broker_may_answer(answer: bytes, state: str) -> None:
    with answering(answer) as address:
        check = module._broker(address)
    assert (check.name, check.state) == (f"broker {address}", state)


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    code, facts = told(tmp_path, "--broker", address)
    assert (code, facts["verdict"]) == (1, f"NOT OK: broker {address}: see above what to do.")
    assert CliRunner().invoke(app, ["doctor", "--broker", "localhost"]).exit_code == 2
