"""`geoblanket gateway` as users run it: lines, signals, what it writes anywhere, TLS, and a ledger that was lost."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from geoblanket.errors import LedgerError, MissingExtraError
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.serve.gateway.messages import Position
from geoblanket.tracking.tracker import Tracker, read_report
from tests.serve.gateway.living import (
    AUTH,
    HTTP,
    LAT,
    LON,
    LONG_S,
    Broker,
    Command,
    Listener,
    Publisher,
    Receiver,
    betrayals,
    free_port,
    location,
    running,
    slot_time,
    until,
    upstream,
    write_config,
)

LINES = '[lines]\n[upstream]\nprotocol = "lines"\n'
SCRIPT = "from geoblanket.cli import main; main()"


def line(device: str, ago: int, **more: object) -> bytes:
    return json.dumps({"device": device, "lat": LAT, "lon": LON, "time": slot_time(ago), **more}).encode() + b"\n"


def piped(config: Path, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", SCRIPT, "gateway", str(config), *arguments]
    return subprocess.run(command, input=data, capture_output=True, timeout=LONG_S, check=False)


def test_lines_in_and_out(city: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, city, LINES, general="")
    data = line("a", 5, batt=7, speed=9) + line("b", 5) + b"nonsense\n" + b"x" * 9000 + b"\n" + line("a", 4)
    done = piped(config, data, "--enrol")
    assert done.returncode == 0, done.stderr
    out = [json.loads(text) for text in done.stdout.splitlines()]
    assert [answer["vehicle"] for answer in out] == ["a", "b", "a"]
    assert all(answer.keys() == {"vehicle", "cell", "lat", "lon", "time"} for answer in out)
    assert betrayals(done.stdout + done.stderr) == 0
    # Without --enrol those that are known stay, and nobody else comes.
    done = piped(config, line("a", 3) + line("c", 3))
    assert [json.loads(text)["vehicle"] for text in done.stdout.splitlines()] == ["a"]
    # What `geoblanket track --stream` reads.
    tracker = Tracker(load_bundle(city))
    read = [read_report(text, tracker) for text in done.stdout.splitlines()]
    assert [(report.vehicle, report.slot) for report in read] == [("a", slot_time(3) // 30)]


def test_nothing_that_it_writes_holds_a_true_location(city: Path, receiver: Receiver, tmp_path: Path) -> None:
    """Logs with a line for each request, metrics, answers, and every file of its folder, while it runs and after."""
    tables = HTTP + upstream("owntracks-http", receiver.url) + '[messages]\nallow = ["batt"]\n'
    folder = tmp_path / "gateway"
    with Command(write_config(folder, city, tables), "--access-log") as command:
        with httpx.Client(base_url=command.ready(), timeout=LONG_S) as client:
            limits = Path(f"/proc/{command.process.pid}/limits").read_text()
            assert [text.split()[4:6] for text in limits.splitlines() if text.startswith("Max core")] == [["0", "0"]]
            with pytest.raises(LedgerError, match="is in use"), running(folder / "gateway.toml"):
                pass
            answers = b""
            for ago in range(9, 0, -1):
                answers += client.post("/pub?u=a&d=b", json=location(tst=slot_time(ago)), headers=AUTH).content
            for bad in (
                json.dumps(location())[:-1],
                json.dumps(location(lat=str(LAT), _type=str(LON))),
                json.dumps({str(LAT): LON}),
            ):
                answers += client.post(f"/pub?u={LAT}&d={LON}", content=bad, headers=AUTH).content
            odd = location(batt=str(LAT), tid=LON, tst=slot_time(0))
            answers += client.post("/pub?u=a&d=b", json=odd, headers=AUTH).content
            answers += client.get(f"/osmand?id=x&lat={LAT}&lon={LON}&timestamp=7", headers=AUTH).content
            answers += client.get(f"/{LAT}/{LON}").content
            answers += client.get(f"/osmand?id={LAT}&lat={LAT}", headers={**AUTH, "User-Agent": str(LAT)}).content
            answers += client.get("/metrics").content
            until(lambda: len(receiver.requests) == 10)
            files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
            assert len(files) > 3
            assert not any(betrayals(data) for data in files)
        code, log = command.stop()
    assert code == 0
    assert log.count("geoblanket.access") > 10
    assert betrayals(answers + log.encode()) == 0
    assert not any(betrayals(path.read_bytes()) for path in folder.rglob("*") if path.is_file())
    assert not any(betrayals(body + path.encode()) for _, path, _, body in receiver.requests)


def test_a_ledger_that_was_lost_is_not_replaced(city: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, city, LINES)
    with running(config):
        pass
    shutil.rmtree(tmp_path / "gateway.state" / "budgets")
    with pytest.raises(LedgerError, match="Put the ledger back"), running(config):
        pass


def test_mqtt_needs_its_extra(city: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path, city, '[mqtt]\nurl = "mqtt://127.0.0.1"\n' + LINES.replace("[lines]\n", ""))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "paho.mqtt", None)
        with pytest.raises(MissingExtraError, match=r"geoblanket\[gateway\]"), running(config):
            pass
    with running(write_config(tmp_path, city, LINES)):  # the ledger was closed in order
        pass


def test_a_failure_ends_the_gateway(city: Path, tmp_path: Path) -> None:
    """A ledger that cannot be written: nothing is released or acknowledged, and whoever runs it is told."""
    ended: list[None] = []
    with running(write_config(tmp_path, city, LINES), on_end=lambda: ended.append(None)) as gateway:
        gateway.worker._fleet._ledger._broken = True  # type: ignore[union-attr]
        outcomes: list[object] = []
        assert gateway.worker.submit(Position("a", slot_time(1), LAT, LON), "test", outcomes.append)
        until(lambda: gateway.worker.failed and ended)
        assert (outcomes, gateway.health()["status"], len(gateway.outbox)) == ([None], "failed", 0)


def test_the_end_of_lines_waits_until_everything_is_due(
    city: Path, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now_s, finished = float(slot_time(1)), threading.Event()
    config = write_config(tmp_path, city, "[lines]\n" + upstream("osmand", receiver.url), send="after-slot")

    def finish() -> None:
        gateway.finish()
        finished.set()

    with running(config, clock=lambda: now_s) as gateway:
        assert "Positions leave 5 to 10 s after the end of their slot of 30 s." in caplog.text
        assert gateway.worker.submit(Position("a", slot_time(1), LAT, LON), "test")
        thread = threading.Thread(target=finish)
        thread.start()
        until(lambda: len(gateway.outbox) == 1)
        assert not finished.wait(0.1)
        assert receiver.requests == []
        now_s += 60
        assert finished.wait(LONG_S)
        thread.join()
        until(lambda: receiver.requests)


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    import datetime as dt
    import ipaddress

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certified = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), start,
                                start + dt.timedelta(days=3))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    certificate, private_key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(certified.public_bytes(serialization.Encoding.PEM))
    private_key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private_key


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho forgets sockets without TLS
def test_tls_on_every_side(city: Path, tmp_path: Path) -> None:
    """HTTPS in, and a broker over TLS for what comes in and goes out; one that cannot prove its name is none."""
    if not Broker.is_installed():
        pytest.skip("Mosquitto is not installed (Debian: apt-get install mosquitto)")
    certificate, key = certificates(tmp_path)
    secure = free_port()
    more = f"listener {secure} 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\n"
    url = f"mqtts://127.0.0.1:{secure}"
    with Broker(tmp_path / "broker", more=more) as broker:
        tables = (
            f'{HTTP}certificate = "{certificate}"\nprivate_key = "{key}"\n[mqtt]\nurl = "{url}"\nca = "{certificate}"\n'
            + upstream("owntracks-mqtt", url, f'topic = "perturbed"\nca = "{certificate}"')
        )
        config = write_config(tmp_path / "gateway", city, tables)
        with Command(config) as command, Listener(broker) as listener, Publisher(broker) as devices:
            context = ssl.create_default_context(cafile=certificate)
            with httpx.Client(base_url=command.ready(), verify=context, timeout=LONG_S) as client:
                assert client.post("/pub?u=a&d=b", json=location(tst=slot_time(4)), headers=AUTH).content == b"[]"
                until(lambda: client.get("/health").json()["broker"] == "connected")
                devices.location("a/b", tst=slot_time(3))
                until(lambda: len(listener.messages) == 2)
            assert command.stop()[0] == 0
        plain = re.sub(r"\[http\].*?(?=\[mqtt\])", "", config.read_text(), flags=re.DOTALL)
        config.write_text(plain.replace(f'ca = "{certificate}"\n', ""))
        with running(config) as gateway:
            until(gateway.metrics.retries._value.get)
            assert gateway.health() == {"status": "ok", "queue": 0, "broker": "lost"}
