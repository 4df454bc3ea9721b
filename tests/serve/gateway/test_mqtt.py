"""Positions from and to a real Mosquitto: OwnTracks' topics, restarts, hostile messages, many devices."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from geoblanket.serve.gateway import worker
from tests.serve.gateway.living import (
    LAT,
    LON,
    LONG_S,
    Broker,
    Listener,
    Publisher,
    betrayals,
    free_port,
    location,
    mqtt_tables,
    queued,
    running,
    slot_time,
    until,
    upstream,
    write_config,
)
from tests.serve.gateway.test_messages import BAD

ALLOW = '[messages]\nallow = ["batt", "tid"]\n'


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_from_topic_to_topic(city: Path, broker: Broker, tmp_path: Path, version: str) -> None:
    tables = mqtt_tables(broker, f'version = "{version}"').replace("[upstream]", f'version = "{version}"\n[upstream]')
    path = write_config(tmp_path / "gateway", city, tables + ALLOW)
    with running(path) as gateway, Listener(broker) as listener, Publisher(broker) as devices:
        until(lambda: gateway.health()["broker"] == "connected")
        for ago in (5, 5, 4, 3):
            devices.location("jane/phone", tst=slot_time(ago), batt=50 + ago)
        until(lambda: len(listener.messages) == 3)
        devices.location("joe/car", tst=slot_time(3))
        until(lambda: len(listener.messages) == 4)
    assert [topic for topic, _ in listener.messages] == 3 * ["perturbed/jane/phone"] + ["perturbed/joe/car"]
    bodies = [body for _, body in listener.locations()]
    assert [body["tst"] for body in bodies] == [slot_time(ago) - 15 for ago in (5, 4, 3, 3)]
    assert [body["batt"] for body in bodies] == [55, 54, 53, 77]
    assert all(body.keys() == {"_type", "lat", "lon", "tst", "tid", "batt"} for body in bodies)
    assert all(abs(body["lat"] - LAT) < 0.02 and abs(body["lon"] - LON) < 0.02 for body in bodies)
    assert not any(betrayals(payload) for _, payload in listener.messages)
    with Listener(broker) as late:  # the broker keeps the last position of each
        until(lambda: len(late.messages) == 2)


def test_hostile_messages_disturb_nobody(city: Path, broker: Broker, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gateway", city, mqtt_tables(broker))
    with Publisher(broker) as devices:
        devices.location("old/news", tst=slot_time(9)).wait_for_publish(LONG_S)
        devices.send("owntracks/old/retained", json.dumps(location()), retain=True).wait_for_publish(LONG_S)
        with running(path) as gateway, Listener(broker) as listener:
            until(lambda: gateway.health()["broker"] == "connected")
            for data in BAD:
                devices.send("owntracks/evil/phone", data)
            devices.send("owntracks/evil/phone", b"x" * 200_000)
            for topic in ("owntracks/ä/b", "owntracks/a b/c", "owntracks/.a/b", "owntracks/a/b/event", "owntracks//"):
                devices.send(topic, json.dumps(location()))
            for kind in ("lwt", "transition", "waypoint", "waypoints", "card", "encrypted", "cmd", "status"):
                devices.location("evil/phone", _type=kind, data="x")
            devices.send("owntracks/evil/phone", b"")
            devices.location("good/phone", tst=slot_time(2))
            until(lambda: listener.messages)
            devices.location("good/phone", tst=slot_time(1))
            until(lambda: len(listener.messages) == 2)
            registry = gateway.metrics.registry
            text = bytes(gateway.metrics.response().body).decode()
    assert {topic for topic, _ in listener.messages} == {"perturbed/good/phone"}
    assert not any(betrayals(payload) for _, payload in listener.messages)
    for outcome in ("malformed", "other_type", "encrypted", "bad_name", "retained"):
        counted = registry.get_sample_value("geoblanket_gateway_messages_total", {"source": "mqtt", "outcome": outcome})
        assert counted, outcome
    assert "evil" not in text


def test_the_broker_keeps_positions_while_the_gateway_is_down(city: Path, broker: Broker, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gateway", city, mqtt_tables(broker))
    with Listener(broker) as listener, Publisher(broker) as devices:
        with running(path) as gateway:
            until(lambda: gateway.health()["broker"] == "connected")
        for ago in (5, 4):
            devices.location("a/b", tst=slot_time(ago)).wait_for_publish(LONG_S)
        with running(path):
            until(lambda: len(listener.messages) == 2)
    assert [body["tst"] for _, body in listener.locations()] == [slot_time(ago) - 15 for ago in (5, 4)]


def test_brokers_restart(city: Path, broker: Broker, tmp_path: Path) -> None:
    """The one of the devices and the one of the server, each in the middle of the stream: nothing is lost."""
    with Broker(tmp_path / "server") as server:
        out = upstream("owntracks-mqtt", server.url, 'topic = "perturbed"')
        path = write_config(tmp_path / "gateway", city, f'[mqtt]\nurl = "{broker.url}"\n{out}')
        with Listener(server) as listener, Publisher(broker) as devices, running(path) as gateway:
            until(lambda: gateway.health()["broker"] == "connected")
            devices.location("a/b", tst=slot_time(30))
            until(lambda: len(listener.messages) == 1)
            server.stop()
            devices.location("a/b", tst=slot_time(29))
            until(lambda: len(gateway.outbox) == 1)
            broker.stop()
            for ago in range(28, 20, -1):
                devices.location("a/b", tst=slot_time(ago))
            server.start()
            broker.start()
            until(lambda: len({body["tst"] for _, body in listener.locations()}) == 10)
            until(lambda: len(gateway.outbox) == 0)
    bodies = [json.dumps(body, sort_keys=True) for _, body in listener.locations()]
    times = [json.loads(body)["tst"] for body in dict.fromkeys(bodies)]
    assert times == [slot_time(ago) - 15 for ago in range(30, 20, -1)]  # each slot one content, in order


def test_a_full_queue_drops_the_oldest(city: Path, broker: Broker, tmp_path: Path) -> None:
    nowhere = upstream("owntracks-mqtt", f"mqtt://127.0.0.1:{free_port()}", "queue = 3")
    path = write_config(tmp_path / "gateway", city, f'[mqtt]\nurl = "{broker.url}"\n{nowhere}')
    with running(path) as gateway, Publisher(broker) as devices:
        until(lambda: gateway.health()["broker"] == "connected")
        for ago in range(9, 1, -1):
            devices.location("a/b", tst=slot_time(ago))
        until(lambda: gateway.metrics.dropped._value.get() == 5)
        waiting = [message.time_s for message in queued(gateway.outbox)]
        assert waiting == [slot_time(ago) - 15 for ago in (4, 3, 2)]


def test_a_thousand_devices(city: Path, broker: Broker, tmp_path: Path) -> None:
    path = write_config(tmp_path / "gateway", city, mqtt_tables(broker))
    with running(path) as gateway, Listener(broker) as listener, Publisher(broker) as devices:
        until(lambda: gateway.health()["broker"] == "connected")
        for ago in (3, 2):
            for number in range(1000):
                devices.location(f"fleet/car{number}", tst=slot_time(ago))
        until(lambda: len(listener.messages) == 2000)
    assert len({topic for topic, _ in listener.messages}) == 1000
    assert not any(betrayals(payload) for _, payload in listener.messages)


def test_accounts_of_the_broker(city: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong password keeps the gateway out, and it tells so; the right one lets it in."""
    if not Broker.is_installed():
        pytest.skip("Mosquitto is not installed (Debian: apt-get install mosquitto)")
    import shutil
    import subprocess

    make = shutil.which("mosquitto_passwd")
    if make is None:
        pytest.skip("mosquitto_passwd is not installed")
    passwords = tmp_path / "passwords"
    subprocess.run([make, "-b", "-c", passwords, "gateway", "secret"], check=True, capture_output=True)
    broker = Broker(tmp_path / "broker", more=f"allow_anonymous false\npassword_file {passwords}\n")
    with broker:
        for password, expected in (("wrong", "lost"), ("secret", "connected")):
            account = f'username = "gateway"\npassword = "{password}"\n'
            tables = f'[mqtt]\nurl = "{broker.url}"\n{account}[upstream]\nprotocol = "lines"\n'
            with running(write_config(tmp_path / password, city, tables)) as gateway:
                if expected == "connected":
                    until(lambda: gateway.health()["broker"] == "connected")
                else:
                    until(lambda: "refuses the gateway as a listener" in caplog.text)
                    assert gateway.health()["broker"] == "lost"


def test_the_beat_of_acknowledgements_limits_no_delivery(
    city: Path, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker as it is installed delivers hundreds of messages before the first is acknowledged."""
    beat = threading.Event()
    clock = SimpleNamespace(
        monotonic=time.monotonic, perf_counter=time.perf_counter, sleep=lambda _seconds: beat.wait(LONG_S)
    )
    monkeypatch.setattr(worker, "time", clock)
    nowhere = upstream("owntracks-mqtt", f"mqtt://127.0.0.1:{free_port()}")
    path = write_config(tmp_path / "gateway", city, f'[mqtt]\nurl = "{broker.url}"\n{nowhere}')
    with running(path) as gateway, Publisher(broker) as devices:
        try:
            until(lambda: gateway.health()["broker"] == "connected")
            for number in range(300):
                devices.location(f"fleet/car{number}", tst=slot_time(2))
            until(lambda: len(gateway.outbox) == 300)
        finally:
            beat.set()
