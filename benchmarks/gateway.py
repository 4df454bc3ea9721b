"""The gateway between a thousand devices and a server, over a real Mosquitto, beside a plain bridge of the same broker.

Run `python -m benchmarks.gateway`. Messages are OwnTracks' JSON, QoS 1, each with a slot of its own: every one is drawn
from the lattice of Rome (with hold), charged to the ledger of its device, queued and sent, durably. They are sent
at once: by default a message waits for the end of its slot, however fast the gateway is. The peer is what people use to
forward positions: a second Mosquitto as a bridge, which perturbs and stores nothing. Latency is from the device's
publish to the server's receipt. Broker, gateway, devices and server share the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._measure import machine, show

DEVICES = 1_000
MESSAGES = 6_000
RATE = 100
PACED = 2_000
ROME = (41.66, 12.19, 42.11, 12.80)
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def broker(folder: Path, more: str = "") -> Iterator[int]:
    """Run a broker; give its port."""
    port = free_port()
    config = folder / f"mosquitto-{port}.conf"
    user = "user root\n" if os.getuid() == 0 else ""
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n{user}{more}")
    process = subprocess.Popen([str(MOSQUITTO), "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def gateway(folder: Path, incoming: int, outgoing: int) -> Iterator[int]:
    """Run a gateway between two brokers; give its process number."""
    from geoblanket.mechanism.bundle.storage import save_lattice
    from geoblanket.mechanism.lattice.making import Area, spec_over

    spec = spec_over(Area(*ROME), epsilon=2.0)
    save_lattice(folder / "rome.bundle", spec, hold_mm=50_000, version=1, interval_s=30)
    config = folder / "gateway.toml"
    config.write_text(
        'bundle = "rome.bundle"\nenrol = true\n[budget]\nepsilon = 1e6\nwindow_s = 3600\n'
        f'[mqtt]\nurl = "mqtt://127.0.0.1:{incoming}"\n'
        f'[upstream]\nprotocol = "owntracks-mqtt"\nurl = "mqtt://127.0.0.1:{outgoing}"\ntopic = "perturbed"\n'
        'send = "at-once"\n'
    )
    config.chmod(0o600)
    script = "from geoblanket.cli import main; main()"
    environment = {**os.environ, "GEOBLANKET_DEVICE_KEY_FILE": str(folder / "device.key")}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-c", script, "gateway", str(config)]
        process = subprocess.Popen(command, stderr=log, env=environment)
        try:
            while b"Listening to the broker" not in (folder / "log").read_bytes():
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield process.pid
        finally:
            process.terminate()
            process.wait()


class Server:
    """Someone who subscribes, and notes when each message came."""

    def __init__(self, port: int, topic: str) -> None:
        self.came: dict[tuple[str, int], float] = {}
        ready = threading.Event()
        self._client = client(port, "server")
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.on_message = self._arrived
        self._client.subscribe(f"{topic}/#", qos=1)
        assert ready.wait(10)

    def _arrived(self, _client: Any, _data: Any, message: Any) -> None:
        now = time.perf_counter()
        device = message.topic.rpartition("/")[2]
        self.came.setdefault((device, json.loads(message.payload)["tst"] // 30), now)

    def wait_for(self, count: int) -> None:
        """Wait until so many messages came."""
        end = time.monotonic() + 120
        while len(self.came) < count:
            assert time.monotonic() < end, f"only {len(self.came)} of {count} messages came"
            time.sleep(0.005)

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()


def client(port: int, name: str) -> Any:
    """Return a client that is connected."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    connection = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"{name}-{os.getpid()}-{time.monotonic_ns()}")
    connection.max_inflight_messages_set(100)
    connected = threading.Event()
    connection.on_connect = lambda *_: connected.set()
    connection.connect("127.0.0.1", port)
    connection.loop_start()
    assert connected.wait(10)
    return connection


def messages(count: int, first_slot: int) -> Iterator[tuple[str, int, str]]:
    """Yield the device, slot and message of positions all over Rome."""
    rng = np.random.default_rng(1)
    for number in range(count):
        device, slot = f"car{number % DEVICES}", first_slot + number // DEVICES
        body = {
            "_type": "location", "lat": float(rng.uniform(41.8, 42.0)), "lon": float(rng.uniform(12.4, 12.6)),
            "tst": slot * 30 + 10, "tid": "ca", "batt": 50, "acc": 10, "vel": 30, "cog": 90,
        }  # fmt: skip
        yield device, slot, json.dumps(body)


def run(incoming: int, outgoing: int, topic: str) -> tuple[float, float, float]:
    """Return messages a second as fast as they go, and the median and 99th percentile of latency at a steady rate."""
    hour = (int(time.time()) // 3600 - 3) * 120
    server, devices = Server(outgoing, topic), client(incoming, "devices")
    try:
        start = time.perf_counter()
        for device, _, body in messages(MESSAGES, hour):
            devices.publish(f"owntracks/fleet/{device}", body, qos=1)
        server.wait_for(MESSAGES)
        rate = MESSAGES / (max(server.came.values()) - start)
        time.sleep(1)
        server.came.clear()
        sent: dict[tuple[str, int], float] = {}
        start = time.perf_counter()
        for number, (device, slot, body) in enumerate(messages(PACED, hour + 60)):
            time.sleep(max(0.0, start + number / RATE - time.perf_counter()))
            sent[device, slot] = time.perf_counter()
            devices.publish(f"owntracks/fleet/{device}", body, qos=1)
        server.wait_for(PACED)
        latency = [server.came[key] - at for key, at in sent.items()]
        return rate, float(np.quantile(latency, 0.5)), float(np.quantile(latency, 0.99))
    finally:
        devices.disconnect()
        devices.loop_stop()
        server.close()


def peak_mb(process: int) -> float:
    """Return the most memory that a process had, megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Measure, and print."""
    if MOSQUITTO is None:
        print("The gateway's benchmark needs Mosquitto (Debian: apt-get install mosquitto).")
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        with broker(folder) as incoming:
            bridge = (
                f"connection forward\naddress 127.0.0.1:{incoming}\ntopic # in 1 owntracks/ owntracks/\n"
                "cleansession false\n"
            )
            with broker(folder, bridge) as outgoing:
                time.sleep(1)
                peer = run(incoming, outgoing, "owntracks")
        with broker(folder) as incoming, broker(folder) as outgoing, gateway(folder, incoming, outgoing) as process:
            ours = run(incoming, outgoing, "perturbed")
            memory = peak_mb(process)
    rows = [
        (title, f"{rate:,.0f}", f"{1e3 * median:.1f}", f"{1e3 * tail:.1f}", used)
        for title, (rate, median, tail), used in (
            ("gateway: drawn, charged, queued, sent", ours, f"{memory:.0f}"),
            ("Mosquitto as a bridge: nothing of that", peer, ""),
        )
    ]
    rate, median, tail = (f"{a / b:.2f}" for a, b in zip(ours, peer, strict=True))
    rows.append(("gateway / bridge", rate, median, tail, ""))
    show(
        f"OwnTracks over MQTT, QoS 1, {DEVICES:,} devices ({machine()})",
        ("", "messages/s", f"median at {RATE}/s, ms", "p99, ms", "peak, MB"),
        rows,
    )


if __name__ == "__main__":
    main()
