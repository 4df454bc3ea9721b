"""Everything around a gateway, for real: brokers, servers, devices, and the gateway as the command that users run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from geoblanket.serve.gateway.config import GatewayConfig, read_config
from geoblanket.serve.gateway.messages import Released
from geoblanket.serve.gateway.outbox import Outbox
from geoblanket.serve.gateway.running import Gateway

LAT, LON = 41.1051373, -8.5931737
"""A true location in the small city, with digits that no cell has."""
DIGITS = re.compile(rb"1051373|5931737")
WORDS = tuple(struct.pack(order, round(value * 1e7)) for value in (LAT, LON) for order in (">i", "<i")) + tuple(
    struct.pack(order, value) for value in (LAT, LON) for order in (">d", "<d")
)
TOKEN = "a token of some length".replace(" ", "-")
_NOW_S = int(time.time())
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def betrayals(data: bytes) -> int:
    """How often bytes hold the true location, as text or as a number."""
    return len(DIGITS.findall(data)) + sum(data.count(word) for word in WORDS)


def queued(outbox: Outbox) -> list[Released]:
    """All messages that are in the file of an outbox, due or not, in the order in which they leave."""
    outbox.flush()
    columns = "device, slot_ms, place, lat_e7, lon_e7, extras"
    with contextlib.closing(sqlite3.connect(outbox._path)) as file:
        rows = file.execute(f"SELECT {columns} FROM messages ORDER BY due_us, device, slot_ms").fetchall()  # noqa: S608
    return [
        Released(device, slot_ms, place, lat_e7, lon_e7, json.loads(extras))
        for device, slot_ms, place, lat_e7, lon_e7, extras in rows
    ]


def slot_time(slots_ago: int = 0) -> int:
    """The middle of a slot, so many before that of the start of the test, seconds since 1970."""
    return (_NOW_S // 30 - slots_ago) * 30 + 15


def location(**changes: Any) -> dict[str, Any]:
    """What an OwnTracks app sends, with all that betrays a place."""
    return {
        "_type": "location", "lat": LAT, "lon": LON, "tst": slot_time(), "tid": "JP", "batt": 77, "acc": 12, "alt": 93,
        "vel": 54, "cog": 271, "vac": 3, "p": 101.3, "conn": "w", "SSID": "home", "BSSID": "a4:b1:c1:00:00:01",
        "inregions": ["home"], "inrids": ["6da9cf"], "t": "u", "created_at": 1_700_000_000, "topic": "owntracks/a/b",
        **changes,
    }  # fmt: skip


LONG_S = 120.0
"""Seconds that only a defect takes, however busy the machine is."""


def until(check: Callable[[], object], seconds: float = LONG_S) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Broker:
    """Mosquitto in a process of its own, which keeps what it has through a restart."""

    def __init__(self, folder: Path, *, more: str = "") -> None:
        self.port = free_port()
        folder.mkdir()
        self._config = folder / "mosquitto.conf"
        user = "user root\n" if os.getuid() == 0 else ""
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\nautosave_interval 1\n"
            f"persistence_location {folder}/\nmax_queued_messages 0\n{user}{more}"
        )
        self.start()

    @staticmethod
    def is_installed() -> bool:
        return MOSQUITTO is not None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "Mosquitto ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(LONG_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self.stop()


class Listener:
    """Someone who subscribes to topics of a broker, and keeps all that comes."""

    def __init__(self, broker: Broker, topic: str = "perturbed/#") -> None:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self.messages: list[tuple[str, bytes]] = []
        subscribed = threading.Event()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=f"listener-{os.getpid()}-{id(self)}", clean_session=False
        )
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = lambda client, *_: client.subscribe(topic, qos=1) and None
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.on_message = lambda _client, _data, message: self.messages.append(
            (message.topic, bytes(message.payload))
        )
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        assert subscribed.wait(LONG_S)

    def locations(self) -> list[tuple[str, dict[str, Any]]]:
        return [(topic, json.loads(payload)) for topic, payload in self.messages]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Publisher:
    """Devices that publish to a broker with QoS 1, and go on when it comes back."""

    def __init__(self, broker: Broker, client_id: str = "devices") -> None:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        connected = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = lambda *_: connected.set()
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()
        assert connected.wait(LONG_S)

    def send(self, topic: str, payload: bytes | str, *, qos: int = 1, retain: bool = False) -> Any:
        return self._client.publish(topic, payload, qos=qos, retain=retain)

    def location(self, device: str, **changes: Any) -> Any:
        return self.send(f"owntracks/{device}", json.dumps(location(**changes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Receiver:
    """An HTTP server that keeps all requests, and answers with the status that it is told."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status = receiver.status
                receiver.requests.append((self.command, self.path, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")

            do_GET = do_POST = answer  # noqa: N815 - the names are theirs

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is theirs
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Say nothing: gateways are killed in the middle of a request."""

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def write_config(
    folder: Path,
    city: Path,
    tables: str,
    *,
    general: str = "enrol = true",
    epsilon: float = 1e6,
    send: str = "at-once",
) -> Path:
    """Write the configuration of a gateway; it sends at once unless the test is about when it sends."""
    folder.mkdir(exist_ok=True)
    tables = tables.replace("[upstream]\n", f'[upstream]\nsend = "{send}"\n')
    path = folder / "gateway.toml"
    path.write_text(f'bundle = "{city}"\n{general}\n[budget]\nepsilon = {epsilon}\nwindow_s = 86400\n{tables}')
    path.chmod(0o600)
    return path


HTTP = f'[http]\nport = 0\ntoken = "{TOKEN}"\n'
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def upstream(protocol: str, url: str, more: str = "") -> str:
    return f'[upstream]\nprotocol = "{protocol}"\nurl = "{url}"\n{more}\n'


def mqtt_tables(broker: Broker, more: str = "") -> str:
    """Devices publish to `owntracks`, the server listens to `perturbed`, at the same broker."""
    out = upstream("owntracks-mqtt", broker.url, f'topic = "perturbed"\n{more}')
    return f'[mqtt]\nurl = "{broker.url}"\n{out}'


@contextmanager
def running(path: Path, **options: Any) -> Iterator[Gateway]:
    """A gateway without HTTP, in this process."""
    config: GatewayConfig = read_config(path)
    gateway = Gateway(config, **options)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()


class Command:
    """`geoblanket gateway` in a process of its own."""

    def __init__(self, config: Path, *arguments: str) -> None:
        script = "from geoblanket.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, "gateway", str(config), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ready(self) -> str:
        """Return where it listens, once it does."""
        assert self.process.stderr is not None
        end = time.monotonic() + LONG_S
        while (match := re.search(rb"The gateway is running(?: on (http\S+))? ", self._written)) is None:
            assert time.monotonic() < end, self._written
            if select.select([self.process.stderr], [], [], 0.2)[0]:
                part = os.read(self.process.stderr.fileno(), 1 << 16)
                assert part, self._written
                self._written += part
        return (match.group(1) or b"").decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code and all that was written to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=LONG_S)
        return self.process.returncode, (self._written + err).decode()
