from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from geoblanket.cli.main import app
from geoblanket.errors import InputError, LedgerError
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.release import Budget, Device, Ledger
from geoblanket.release.device import LARGEST_LINE, answers

GOOD = b'{"lat": 41.0, "lon": -8.6, "time": "2024-07-01T00:00:00Z"}'


def answered(bundle: Bundle, *lines: bytes) -> list[dict[str, Any]]:
    with Device.open(bundle, ledger=None, budget=Budget(12.0, 600.0), replay=True) as device:
        return list(answers(device, io.BytesIO(b"\n".join(lines))))


def test_each_line_has_an_answer(spread: Bundle) -> None:
    first, second, again, old, third, spent = answered(
        spread,
        GOOD,
        b'{"lat": 41, "lon": -8.6, "time": 1719792030.5, "request": "r"}',
        b'{"lat": 41, "lon": -8.6, "time": "2024-07-01T09:10:00+09:00", "request": "r"}',
        b'{"lat": 41, "lon": -8.6, "time": 1719791000}',
        b"",
        b'{"lat": 41, "lon": -8.6, "time": 1719792060}\r',
        b'{"lat": 41, "lon": -8.6, "time": 1719792090}',
    )
    assert list(first) == ["place", "lat", "lon", "slot", "time", "left", "stored"]
    assert (first["time"], first["left"], first["stored"]) == ("2024-07-01T00:00:00Z", 8.0, False)
    assert again == second | {"stored": True}
    assert old["error"] == "time"
    assert third["left"] == 0.0
    assert spent == {
        "error": "budget",
        "message": "The privacy budget of this window of time is spent. Enough of it frees up in 510 s: report again "
        "at 2024-07-01 00:10:00 UTC.",
        "retry_after_s": 510.0,
    }


BAD = [
    b"41.123456, -8.654321", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 4000, b"1" * 4000,
    b'{"lat": 41.123456, "lon": -8.654321}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": 1719792000, "speed": 3}',
    b'{"lat": 41.123456, "lat": 41.123456, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": NaN, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": Infinity, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": 1e999, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": "41.123456", "lon": -8.654321, "time": 1719792000}',
    b'{"lat": [41.123456], "lon": -8.654321, "time": 1719792000}',
    b'{"lat": true, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": 91.123456, "lon": -8.654321, "time": 1719792000}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": "41.123456"}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": "2024-07-01T00:00:00"}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": 1719792000000}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": 1719792000, "request": 41.123456}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": 1719792000, "request": "\\ud800"}',
    b'{"lat": 41.123456, "lon": -8.654321, "time": 1719792000, "request": "' + b"r" * LARGEST_LINE + b'"}',
]  # fmt: skip


def test_bad_lines_are_answered_without_an_echo_and_do_not_end_the_stream(spread: Bundle) -> None:
    replies = answered(spread, *(part for line in BAD for part in (line, GOOD)))
    assert len(replies) == 2 * len(BAD)
    for line, error, good in zip(BAD, replies[::2], replies[1::2], strict=True):
        assert error.keys() == {"error", "message"}, line
        assert error["error"] == "input"
        for part in ("123456", "654321", "1719792", "nan", "NaN", "speed", "rrr"):
            assert part not in json.dumps(error), line
        assert good["place"] == replies[1]["place"]


def test_a_ledger_that_fails_ends_the_stream_after_an_answer(spread: Bundle, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "a.ledger", budget=Budget(12.0, 600.0))
    device = Device.open(spread, ledger=tmp_path / "a.ledger", replay=True)
    stream = answers(device, io.BytesIO(GOOD + b"\n" + GOOD.replace(b"00Z", b"30Z") + b"\n" + GOOD))
    assert next(stream)["stored"] is False
    device.close()
    assert next(stream)["error"] == "ledger"
    with pytest.raises(LedgerError):
        next(stream)


def geoblanket(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def test_the_commands(spread_path: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "a.ledger")
    assert "no such ledger" in str(geoblanket("ledger", "show", ledger).exception)
    assert geoblanket("ledger", "create", ledger, "--budget", "12", "--window", "600").exit_code == 0
    stream = ["perturb", str(spread_path), "--stream", "--ledger", ledger, "--set", "replay=true"]
    done = geoblanket(*stream, stdin=GOOD + b"\nbad\n" + GOOD.replace(b"00Z", b"30Z") + b"\n")
    assert done.exit_code == 0, done.output
    first, bad, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["left"], bad["error"], second["left"]) == (8.0, "input", 4.0)
    assert json.loads(geoblanket(*stream, stdin=GOOD).stdout) == first | {"left": 4.0, "stored": True}
    assert json.loads(geoblanket("ledger", "show", ledger, "--json").stdout) == {
        "budget": 12.0,
        "window_s": 600.0,
        "vehicles": 1,
        "reports": 2,
        "spent": 8.0,
        "spent_in_window": 8.0,
        "last_report": "2024-07-01T00:00:30+00:00",
        "transactions": 2,
        "verified_bundles": 1,
        "bundle_versions": {load_bundle(spread_path).domain: 1},
        "sealed_by": "device",
        "replay": True,
    }
    assert "8 per km" in geoblanket("ledger", "show", ledger).stdout
    assert "is intact: 2 transactions" in geoblanket("ledger", "verify", ledger).stderr
    Path(ledger).write_bytes(Path(ledger).read_bytes()[:-4096] + bytes(4096))
    broken = geoblanket("ledger", "verify", ledger)
    assert isinstance(broken.exception, LedgerError)
    assert broken.exit_code == 1


def test_keys_and_counters_are_given_by_files(
    spread_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, key, counter = (str(tmp_path / name) for name in ("a.ledger", "key", "count"))
    monkeypatch.setenv("GEOBLANKET_LEDGER_KEY", key)
    monkeypatch.setenv("GEOBLANKET_LEDGER_COUNTER", counter)
    made = geoblanket("ledger", "create", ledger, "--budget", "12", "--window", "600")
    assert "key: the device key cannot be read" in str(made.exception)
    for short in (b"", b"fifteen bytes!!"):
        Path(key).write_bytes(short)
        made = geoblanket("ledger", "create", ledger, "--budget", "12", "--window", "600")
        assert isinstance(made.exception, InputError)
        assert f"key: is no device key: it has {len(short)} bytes, and needs at least 16" in str(made.exception)
        assert not Path(ledger).exists()
    Path(key).write_bytes(b"sixteen bytes!!!")
    assert geoblanket("ledger", "create", ledger, "--budget", "12", "--window", "600").exit_code == 0
    stream = ["perturb", str(spread_path), "--stream", "--ledger", ledger, "--set", "replay=true"]
    assert json.loads(geoblanket(*stream, stdin=GOOD).stdout)["left"] == 8.0
    assert geoblanket("ledger", "verify", ledger).exit_code == 0
    assert Path(counter).exists()
    monkeypatch.delenv("GEOBLANKET_LEDGER_KEY")
    assert isinstance(geoblanket(*stream, stdin=GOOD).exception, LedgerError)


def test_a_stream_needs_a_budget(spread_path: Path) -> None:
    stream = ["perturb", str(spread_path), "--stream", "--set", "replay=true"]
    assert "Give a ledger, or a budget" in str(geoblanket(*stream, stdin=GOOD).exception)
    assert json.loads(geoblanket(*stream, "--set", "budget=8", stdin=GOOD).stdout)["left"] == 4.0
    refused = geoblanket("perturb", str(spread_path), "--walks", "w.parquet")
    assert "--walks and --traces need --out" in str(refused.exception)
