"""kill −9 in mid-stream: no slot is released twice, no spend is lost, and nothing true gets out or is on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from geoblanket.release.ledger import Ledger
from tests.gateway.living import (
    AUTH,
    TOKEN,
    Broker,
    Listener,
    Publisher,
    Receiver,
    betrayals,
    free_port,
    location,
    mqtt_tables,
    running,
    slot_time,
    until,
    upstream,
    write_config,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ROOT = Path(__file__).parents[2]
FIRST = 2800
"""How many slots ago the first position is: nearly a day, which the clock allows."""
DEVICES = 20


@dataclass
class Outcome:
    """What came out, beside what the ledger says."""

    kills: int
    published: int
    stored: int
    double: int
    """Slots of a device that the server got with different content."""
    unpaid: int
    """Slots that the server got, and the ledger has not, or otherwise."""
    lost: int
    """Slots that the ledger has, and the server has not."""
    forgotten: int
    """Slots that were published or answered, and the ledger has not."""
    wrong_sums: int
    repeated: int
    """Messages that the server got again, with the same content: their acknowledgement was lost."""
    betrayals: int


@contextmanager
def killed(config: Path, kills: int, fault: str = "none") -> Iterator[subprocess.Popen[bytes]]:
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed")
    with (config.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.kill_harness", str(config), str(kills), fault, "1"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the gateway, too, or it would keep the pipes open
            process.communicate()


def wait_for_kills(process: subprocess.Popen[bytes], kills: int) -> None:
    assert process.stdout is not None
    for _ in range(kills):
        assert process.stdout.readline() == b"killed\n"


def stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"stopped\n"


Got = list[tuple[str, int, float, float, bytes]]
"""Device, slot, place and all bytes of what the server got."""


def compared(config: Path, kills: int, got: Got, published: set[tuple[str, int]]) -> Outcome:
    state = config.parent / "gateway.state"
    ledger = Ledger.open(state / "budgets" / "devices.ledger")
    stored, wrong = dict[tuple[str, int], tuple[int, int]](), 0
    for name in ledger.vehicles:
        account = ledger.account(name)
        stored |= {(name, answer.slot_ms // 1000): (answer.lat_e7, answer.lon_e7) for answer in account.answers}
        wrong += account.reports != len(account.answers)
        wrong += account.spent_micro != sum(answer.cost_micro for answer in account.answers)
    ledger.close()
    contents: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for device, time_s, lat, lon, _ in got:
        contents.setdefault((device, time_s), set()).add((round(lat * 1e7), round(lon * 1e7)))
    files = [path for path in config.parent.rglob("*") if path.is_file()]
    return Outcome(
        kills=kills,
        published=len(published),
        stored=len(stored),
        double=sum(len(places) > 1 for places in contents.values()),
        unpaid=sum(places != {stored.get(slot)} for slot, places in contents.items() if len(places) == 1),
        lost=len(stored.keys() - contents.keys()),
        forgotten=len(published - stored.keys()),
        wrong_sums=wrong,
        repeated=len(got) - len(contents),
        betrayals=sum(betrayals(data) for *_, data in got) + sum(betrayals(path.read_bytes()) for path in files),
    )


def over_mqtt(city: Path, broker: Broker, folder: Path, kills: int, fault: str = "none") -> Outcome:
    """Twenty devices publish all the time, each slot once; the broker keeps what the gateway did not acknowledge."""
    config = write_config(folder, city, mqtt_tables(broker), epsilon=1e8)
    published: set[tuple[str, int]] = set()
    ended = threading.Event()
    with Listener(broker) as listener, Publisher(broker) as devices:

        def publish() -> None:
            pause_s = max(0.08, kills * 0.3 / FIRST)
            for ago in range(FIRST, 0, -1):
                for number in range(DEVICES):
                    devices.location(f"fleet/car{number}", tst=slot_time(ago))
                    published.add((f"fleet/car{number}", slot_time(ago) - 15))
                if ended.wait(pause_s):
                    return

        def got() -> Got:
            return [
                (topic.removeprefix("perturbed/"), body["tst"], body["lat"], body["lon"], json.dumps(body).encode())
                for topic, body in listener.locations()
            ]

        thread = threading.Thread(target=publish)
        with running(config) as gateway:  # the broker keeps positions from the first connection on
            until(lambda: gateway.health()["broker"] == "connected")
        with killed(config, kills, fault) as process:
            thread.start()
            try:
                wait_for_kills(process, kills)
            finally:
                ended.set()
                thread.join()
            if fault == "none":
                until(lambda: {(device, time_s) for device, time_s, *_ in got()} >= published, 60)
            time.sleep(1)  # the last gateway has started, and can be stopped in order
            stop(process)
        return compared(config, kills, got(), published)


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_over_mqtt(city: Path, broker: Broker, tmp_path: Path, kills: int) -> None:
    result = over_mqtt(city, broker, tmp_path / "gateway", kills)
    sys.stderr.write(f"{result}\n")
    assert (result.double, result.unpaid, result.lost, result.forgotten, result.wrong_sums) == (0, 0, 0, 0, 0)
    assert result.betrayals == 0
    assert result.stored >= result.published > 10 * min(kills, 100)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("fault", [pytest.param("no recovery", marks=pytest.mark.slow), "early answer"])
def test_planted_faults_are_seen(city: Path, tmp_path: Path, fault: str) -> None:
    """Kills at random moments may miss a fault once, but not again and again; no run leaves anything to the next."""
    for attempt in range(5):
        with Broker(tmp_path / f"broker-{attempt}") as fresh:
            result = over_mqtt(city, fresh, tmp_path / f"gateway-{attempt}", 6, fault)
        if result.double + result.unpaid + result.lost + result.forgotten:
            return
    pytest.fail(f"{fault}: not seen in {attempt + 1} runs of {result.kills} kills")


def over_http(city: Path, receiver: Receiver, folder: Path, kills: int, answered: Callable[[int], None]) -> Outcome:
    port = free_port()
    http = f'[http]\nport = {port}\ntoken = "{TOKEN}"\n'
    config = write_config(folder, city, http + upstream("osmand", receiver.url), epsilon=1e8)
    published: set[tuple[str, int]] = set()
    ended = threading.Event()

    def post() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
            ago = FIRST
            while not ended.is_set() and ago:
                try:
                    answer = client.post("/pub?u=a&d=b", json=location(tst=slot_time(ago)), headers=AUTH)
                except httpx.HTTPError:
                    time.sleep(0.01)
                    continue
                if answer.status_code == 200:
                    published.add(("a/b", slot_time(ago) - 15))
                    ago -= 1
                    answered(ago)

    def got() -> Got:
        result = []
        for _, path, _, _ in list(receiver.requests):
            query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
            result.append(
                (query["id"], int(query["timestamp"]), float(query["lat"]), float(query["lon"]), path.encode())
            )
        return result

    thread = threading.Thread(target=post)
    thread.start()
    with killed(config, kills) as process:
        try:
            wait_for_kills(process, kills)
        finally:
            ended.set()
            thread.join()
        until(lambda: {(device, time_s) for device, time_s, *_ in got()} >= published, 30)
        stop(process)
    return compared(config, kills, got(), published)


def test_over_http(city: Path, receiver: Receiver, tmp_path: Path) -> None:
    """What was answered is in the ledger, whenever the gateway died."""
    result = over_http(city, receiver, tmp_path / "gateway", 8, lambda _ago: None)
    assert (result.double, result.unpaid, result.lost, result.forgotten, result.wrong_sums) == (0, 0, 0, 0, 0)
    assert result.betrayals == 0
    assert result.published > 20
