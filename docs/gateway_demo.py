"""A broker, a gateway and a subscriber, and a taxi's trip as OwnTracks messages: the subscriber sees no true position.

A fence hides where the trip begins, for good: all positions around it become the fence's centre before any noise.

Run `.venv/bin/python docs/gateway_demo.py [FOLDER]`. It needs Mosquitto (Debian: apt-get install mosquitto) and the
extra `gateway`. The trip is a real one of Porto where `../shared/data` has it, else one of the synthetic city. Its
times are moved to the last minutes, as if it had just been driven.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from geoblanket.release.fence import Fences

PORTO = Path(__file__).parents[2] / "shared" / "data" / "porto" / "train_sample.csv.gz"
STEP_S = 15
"""Seconds between two points of a trip, in the format of the Porto data set."""
POINTS = 40
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SCRIPT = "from geoblanket.cli import main; main()"

CONFIG = """
bundle = "city.bundle"
enrol = true
[budget]
epsilon = 400.0
window_s = 3600.0
[messages]
allow = ["batt", "tid"]
[devices."taxi/phone"]
fences = "taxi.json"
[mqtt]
url = "mqtt://127.0.0.1:{port}"
[upstream]
send = "at-once"  # so that the demonstration does not wait for the end of a slot
protocol = "owntracks-mqtt"
url = "mqtt://127.0.0.1:{port}"
topic = "perturbed"
"""


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def geoblanket(*arguments: str | Path) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-c", SCRIPT, *map(str, arguments)], check=True, capture_output=True)


def a_trip(folder: Path) -> tuple[str, list[tuple[float, float]]]:
    """Return where a trip is from, and its points: latitude and longitude every 15 s."""
    where, path = "Porto, the real one", PORTO
    if not path.is_file():
        where, path = "the synthetic city", folder / "city" / "porto.csv"
        geoblanket("city", "--out", folder / "city", "--trips", "50")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trips = (json.loads(row["POLYLINE"]) for row in csv.DictReader(data.decode().splitlines()))
    line = next(points for points in trips if len(points) >= POINTS)
    return where, [(lat, lon) for lon, lat in line[:POINTS]]


@contextmanager
def running(command: list[str], log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Run a program, once it is ready."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        end = time.monotonic() + 120
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    """Return whether someone listens."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def client(port: int, name: str, topic: str | None = None, seen: list[bytes] | None = None) -> Any:
    """Return a client of the broker, which keeps what it hears under a topic."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    ready, listening = threading.Event(), threading.Event()
    connection = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
    connection.on_connect = lambda *_: ready.set()
    if seen is not None:
        connection.on_message = lambda _client, _data, message: seen.append(bytes(message.payload))
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    ready.wait(60)
    if topic is not None:
        connection.on_subscribe = lambda *_: listening.set()
        connection.subscribe(topic, qos=1)
        listening.wait(60)  # what is published earlier is not heard
    return connection


def metres(here: tuple[float, float], there: tuple[float, float]) -> float:
    """Return how far it is from one point to another."""
    north, east = here[0] - there[0], (here[1] - there[1]) * math.cos(math.radians(here[0]))
    return 111_195 * math.hypot(north, east)


def main(folder: Path) -> None:
    """Run all of it."""
    if MOSQUITTO is None:
        say("Mosquitto is not installed (Debian: apt-get install mosquitto).")
        return
    where, points = a_trip(folder)
    center = f"{points[0][0]},{points[0][1]}"
    geoblanket("lattice", "--center", f"{center},8", "--epsilon", "2", "--out", folder / "city.bundle")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    fences, home = Fences().with_place(*points[0], radius_km=0.5)
    (folder / "taxi.json").write_text(fences.as_json())
    (folder / "gateway.toml").write_text(CONFIG.format(port=port))
    (folder / "gateway.toml").chmod(0o600)
    log = folder / "gateway.log"
    broker = [MOSQUITTO, "-c", str(folder / "mosquitto.conf")]
    gateway = [sys.executable, "-c", SCRIPT, "gateway", str(folder / "gateway.toml")]
    seen: list[bytes] = []
    with (
        running(broker, folder / "mosquitto.log", lambda: answers(port)),
        running(gateway, log, lambda: b"Listening to the broker" in log.read_bytes()),
    ):
        server, taxi = client(port, "server", "perturbed/#", seen), client(port, "taxi")
        inside = sum(home.holds(*point) for point in points)
        say(f"A taxi of {where} publishes {len(points)} positions to owntracks/taxi/phone, {inside} in its fence.")
        start = int(time.time()) - STEP_S * len(points)
        true: dict[int, tuple[float, float]] = {}
        for number, (lat, lon) in enumerate(points):
            true.setdefault((start + STEP_S * number) // 30, (lat, lon))
            message = {
                "_type": "location", "lat": lat, "lon": lon, "tst": start + STEP_S * number, "tid": "TX", "batt": 80,
                "vel": 30, "cog": 90, "alt": 80, "acc": 8, "conn": "m",
            }  # fmt: skip
            taxi.publish("owntracks/taxi/phone", json.dumps(message), qos=1).wait_for_publish(60)
        end = time.monotonic() + 120
        while len(seen) < len(true) and time.monotonic() < end:
            time.sleep(0.05)
        for connection in (server, taxi):
            connection.disconnect()
            connection.loop_stop()
    say(f"The server, which listens to perturbed/taxi/phone, got {len(seen)}, one for each 30 s:")
    for payload in seen:
        body = json.loads(payload)
        away = metres((body["lat"], body["lon"]), true[body["tst"] // 30])
        say(f"  {payload.decode()}   ({away:,.0f} m from the truth, which only the taxi knows)")
    betrayed = [payload for payload in seen if any(all(str(v).encode() in payload for v in pair) for pair in points)]
    say("None of the true positions is among them." if not betrayed else "A true position got out!")
    if betrayed or len(seen) < len(true):
        raise SystemExit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as name:
            main(Path(name))
