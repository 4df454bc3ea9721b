"""kill −9 in mid-stream: no slot is released twice, no spend is lost, and nothing true gets out or is on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from geoblanket.release.ledger import Ledger
from geoblanket.serve.gateway.outbox import JITTER_S, OFFSET_S
from tests.serve.gateway.living import (
    AUTH,
    HTTP,
    LAT,
    LON,
    LONG_S,
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
ROOT = Path(__file__).parents[3]
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
            [sys.executable, "-m", "tests.serve.gateway.kill_harness", str(config), str(kills), fault, "1"],
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
    """Wait until the last gateway runs."""
    assert process.stdout is not None
    for line in [*[b"killed\n"] * kills, b"running\n"]:
        assert process.stdout.readline() == line


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

        def has_come(name: str) -> bool:
            return any(device == name for device, *_ in got())

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
            # Batches are worked on in order: after the second, the others have come or never will.
            for last in ("fleet/last", "fleet/very-last"):
                devices.location(last, tst=slot_time(0))
                until(partial(has_come, last))
            stop(process)
        return compared(config, kills, got(), published)


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_over_mqtt(city: Path, broker: Broker, tmp_path: Path, kills: int) -> None:
    result = over_mqtt(city, broker, tmp_path / "gateway", kills)
    sys.stderr.write(f"{result}\n")
    assert (result.double, result.unpaid, result.lost, result.forgotten, result.wrong_sums) == (0, 0, 0, 0, 0)
    assert result.betrayals == 0
    assert result.stored > result.published >= DEVICES


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("fault", [pytest.param("no recovery", marks=pytest.mark.slow), "early answer"])
def test_planted_faults_are_seen(city: Path, tmp_path: Path, fault: str) -> None:
    """Kills may miss a fault once, but not again and again; no run leaves anything to the next."""
    for attempt in range(5):
        with Broker(tmp_path / f"broker-{attempt}") as fresh:
            result = over_mqtt(city, fresh, tmp_path / f"gateway-{attempt}", 6, fault)
        if result.double + result.unpaid + result.lost + result.forgotten:
            return
    pytest.fail(f"{fault}: not seen in {attempt + 1} runs of {result.kills} kills")


def over_http(city: Path, receiver: Receiver, folder: Path, kills: int) -> Outcome:
    port = free_port()
    http = f'[http]\nport = {port}\ntoken = "{TOKEN}"\n'
    config = write_config(folder, city, http + upstream("osmand", receiver.url), epsilon=1e8)
    published: set[tuple[str, int]] = set()
    ended = threading.Event()

    def post() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
            for ago in range(FIRST, 0, -1):
                if ended.is_set():
                    return
                while not posted(client, ago) and not ended.wait(0.01):
                    pass

    def posted(client: httpx.Client, ago: int) -> bool:
        try:
            answer = client.post("/pub?u=a&d=b", json=location(tst=slot_time(ago)), headers=AUTH)
        except httpx.HTTPError:
            return False
        if answer.status_code == 200:
            published.add(("a/b", slot_time(ago) - 15))
        return answer.status_code == 200

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
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG_S) as client:
            until(lambda: posted(client, 0))
        until(lambda: any(time_s == slot_time(0) - 15 for _, time_s, *_ in got()))
        stop(process)
    return compared(config, kills, got(), published)


def test_over_http(city: Path, receiver: Receiver, tmp_path: Path) -> None:
    """What is in the ledger arrives, once; what was answered and not yet in the ledger is lost with the memory."""
    result = over_http(city, receiver, tmp_path / "gateway", 8)
    sys.stderr.write(f"{result}\n")
    assert (result.double, result.unpaid, result.lost, result.wrong_sums) == (0, 0, 0, 0)
    assert result.betrayals == 0
    assert result.stored >= result.published - result.forgotten > 0


QUEUED_AND_KILLED = """
import os, signal, sys, time
from geoblanket.serve.gateway.config import read_config
from geoblanket.serve.gateway.messages import Position
from geoblanket.serve.gateway.running import Gateway

path, now_s, lat, lon = sys.argv[1], *map(float, sys.argv[2:])
gateway = Gateway(read_config(path), clock=lambda: now_s)
gateway.start()
gateway.worker.submit(Position("a/b", now_s, lat, lon), "test", lambda _outcome: os.kill(os.getpid(), signal.SIGKILL))
time.sleep(600)
"""


def test_what_is_not_due_survives_a_kill(city: Path, receiver: Receiver, tmp_path: Path) -> None:
    """By default a message leaves after its slot: not before, whenever the gateway dies, stops or starts."""
    config = write_config(tmp_path / "gateway", city, HTTP + upstream("osmand", receiver.url), send="after-slot")
    now_s, end_s = slot_time(4), slot_time(4) + 15
    arguments = [sys.executable, "-c", QUEUED_AND_KILLED, str(config), str(now_s), str(LAT), str(LON)]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    clock_s = now_s + 0.0
    looked = threading.Semaphore(0)

    def clock() -> float:
        looked.release()
        return clock_s

    for clock_s in (now_s + 1.0, end_s + 0.0, end_s + OFFSET_S - 0.001, end_s + OFFSET_S + JITTER_S):
        with running(config, clock=clock) as gateway:
            for _ in range(4):  # the sender has looked at the queue, and again
                assert looked.acquire(timeout=LONG_S)
            assert gateway.health()["queue"] <= 1
            if clock_s < end_s + OFFSET_S:
                assert (gateway.health()["queue"], len(gateway.outbox), receiver.requests) == (0, 1, [])
            else:
                until(lambda: receiver.requests)
    [(_, path, _, _)] = receiver.requests
    assert f"timestamp={end_s - 30}" in path
