from __future__ import annotations

import json
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import GeoblanketError, InputError, LedgerError
from tests.mechanism.bundles import forge, save_located
from tests.release.worlds import save_certain
from tests.serve.service.living import PATIENCE_S, Command
from tests.serve.service.reporting import here, make_ledger


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_certain(tmp_path_factory.mktemp("town") / "town.bundle")


def assert_no_core_dumps(command: Command) -> None:
    limits = Path(f"/proc/{command.process.pid}/limits")
    if limits.exists():
        assert re.search(r"^Max core file size +0 +0 ", limits.read_text(), re.MULTILINE)


def test_it_serves_and_stops_in_order_whatever_goes_on(town: Path, tmp_path: Path) -> None:
    """Python's -O strips asserts: no check may be one."""
    ledger = make_ledger(tmp_path / "a.ledger")
    body = json.dumps(here(time=time.time() + 600)).encode()
    head = (
        "POST /v1/report HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with Command([town, "--ledger", ledger, "--set", "access_log=true"], python=["-O"]) as command:
        port = int(command.url.rsplit(":", 1)[1])
        with httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client:
            facts = client.get("/v1/bundles").json()["bundles"][0]
            assert client.get(f"/v1/bundles/{facts['sha256']}").content == town.read_bytes()
            report = client.post("/v1/report", json=here()).json()
            assert client.post("/v1/report", json=here(lat=91)).status_code == 400
            assert client.post("/v1/report", content=b"x" * 5000).status_code == 413
            assert client.post("/v1/report", json=here(), headers={"Via": "1.1 x"}).status_code == 403
            assert client.get("/v1/bundles", headers={"Host": "evil.example"}).status_code == 421
            assert_no_core_dumps(command)
            open_ones = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
            open_ones[1].sendall(b"GET /v1/bundles HTTP/1.1\r\nHost: loc")
            open_ones[2].sendall(head)
            open_ones[3].sendall(head + body)
            code, written = command.stop(signal.SIGTERM)
        answer = open_ones[3].recv(1 << 16)
        for connection in open_ones:
            connection.close()
    assert code == 0, written
    assert "GET /v1/bundles/{sha256} 200" in written
    assert facts["sha256"] not in written
    assert "Traceback" not in written
    assert written.rstrip().endswith("Stopped.")

    # What was answered is in the ledger; the last report is there wholly or not at all.
    with (
        Command([town, "--ledger", ledger]) as command,
        httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client,
    ):
        again = client.post("/v1/report", json=here()).json()
        assert (again["place"], again["stored"]) == (report["place"], True)
        later = client.post("/v1/report", content=body, headers={"Content-Type": "application/json"}).json()
        if answer.startswith(b"HTTP/1.1 200"):
            assert later["stored"]
            assert later["place"] == json.loads(answer.partition(b"\r\n\r\n")[2])["place"]


def test_a_start_and_a_stop_are_a_line_each_however_much_is_asked(town: Path) -> None:
    with Command([town, town]) as command, httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client:
        for path in ("/", "/explore/overview", "/v1/bundles", "/healthz", "/nothing"):
            client.get(path)
        code, written = command.stop(signal.SIGINT)
    assert code == 0
    assert [line.split()[0] for line in written.splitlines()] == ["Serving", "Stopped."]


def test_an_address_that_others_reach_is_warned_of_and_ctrl_c_stops(town: Path) -> None:
    with Command([town, "--host", "0.0.0.0"]) as command:  # noqa: S104 - what the warning is for
        port = command.url.rsplit(":", 1)[1]
        assert httpx.get(
            f"http://127.0.0.1:{port}/healthz", headers={"Host": "any.example"}, timeout=PATIENCE_S
        ).is_success
        code, written = command.stop(signal.SIGINT)
    assert code == 0
    assert "WARNING: 0.0.0.0 can be reached from other machines" in written
    assert "healthz" not in written
    assert "Traceback" not in written


def test_a_bundle_that_does_not_verify_is_refused_even_without_asserts(town: Path, tmp_path: Path) -> None:
    wrong = save_located(tmp_path / "wrong.bundle")
    forge(wrong, lambda _, arrays: arrays["weights"].put([0, 1], [0, 2**61]))
    assert isinstance(CliRunner().invoke(app, ["serve", str(town), str(wrong)]).exception, InputError)
    with Command([town, wrong], python=["-O"]) as command:
        out, err = command.process.communicate(timeout=PATIENCE_S)
        assert (command.process.returncode, out) == (1, b"")
        assert b"wrong.bundle" in err
        assert b"Serving" not in err


def test_reports_are_never_on_an_address_that_others_reach(town: Path, tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "a.ledger")
    for host in ("0.0.0.0", "::", "192.0.2.1"):  # noqa: S104 - it must be refused
        result = CliRunner().invoke(app, ["serve", str(town), "--ledger", str(ledger), "--host", host])
        assert isinstance(result.exception, GeoblanketError)
        assert "only on a loopback address" in str(result.exception)


def test_a_port_that_is_taken_and_a_ledger_that_is_missing(town: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(town), "--port", str(port)])
    assert "Cannot listen on 127.0.0.1" in str(result.exception)
    missing = CliRunner().invoke(app, ["serve", str(town), "--port", "0", "--ledger", str(tmp_path / "none")])
    assert isinstance(missing.exception, LedgerError)
