"""Positions over HTTP, to a real server over HTTP: all protocols, tokens, hostile requests, a server that goes away."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.applications import Starlette

from geoblanket.serve.gateway import worker
from geoblanket.serve.gateway.http_in import Accounts, create_app
from geoblanket.serve.gateway.messages import AllowList
from geoblanket.serve.gateway.running import Gateway
from tests.serve.gateway.living import (
    AUTH,
    HTTP,
    LAT,
    LON,
    LONG_S,
    TOKEN,
    Command,
    Receiver,
    betrayals,
    location,
    running,
    slot_time,
    until,
    upstream,
    write_config,
)
from tests.serve.gateway.test_messages import BAD, FORWARDED

JANE = "a-token-for-janes-phone"
DEVICES = f'[devices."jane/phone"]\ntoken = "{JANE}"\n[devices.truck7]\nname = "0042"\n'
ALLOW = '[messages]\nallow = ["batt", "tid"]\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def command(city: Path, server: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    tables = HTTP + ALLOW + DEVICES + upstream("osmand", f"{server.url}/in?key=7")
    with Command(write_config(tmp_path_factory.mktemp("gateway"), city, tables)) as gateway:
        yield gateway
        assert gateway.process.poll() is None
        code, log = gateway.stop()
        assert (code, betrayals(log.encode())) == (0, 0)


ANSWERED = Counter[str]()
"""Messages that the gateway took, by the path that they were sent to."""


def note_answer(response: httpx.Response) -> None:
    if response.status_code == 200 and response.url.path not in {"/health", "/metrics"}:
        ANSWERED[response.url.path] += 1


@pytest.fixture(scope="module")
def client(command: Command) -> Iterator[httpx.Client]:
    hooks = {"response": [note_answer]}
    with httpx.Client(base_url=command.ready(), timeout=LONG_S, event_hooks=hooks) as connected:
        yield connected


def app_of(gateway: Gateway) -> Starlette:
    return create_app(
        gateway.worker,
        accounts=Accounts({}, TOKEN),
        allow=AllowList(),
        metrics=gateway.metrics,
        hosts=None,
        healthy=gateway.health,
    )


def outcome_counts(client: httpx.Client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("geoblanket_gateway_outcomes_total"))
    return {name.partition('"')[2].partition('"')[0]: float(value) for name, value in pairs}


def settled(client: httpx.Client) -> dict[str, float]:
    """The outcomes, once every message that was answered is counted."""
    until(lambda: sum(outcome_counts(client).values()) == ANSWERED.total())
    return outcome_counts(client)


def seen(server: Receiver, device: str) -> list[dict[str, list[str]]]:
    queries = [parse_qs(urlsplit(path).query) for _, path, _, _ in server.requests]
    return [query for query in queries if query["id"] == [device]]


def test_owntracks_post_to_osmand(client: httpx.Client, server: Receiver) -> None:
    answer = client.post("/owntracks?u=joe&d=car", json=location(tst=slot_time(5)), headers=AUTH)
    assert (answer.status_code, answer.content) == (200, b"[]")
    until(lambda: seen(server, "joe/car"))
    [query] = seen(server, "joe/car")
    assert query["timestamp"] == [str(slot_time(5) - 15)]
    assert query.keys() == {"key", "id", "timestamp", "lat", "lon", "batt", "tid"}
    assert abs(float(query["lat"][0]) - LAT) < 0.02


def test_device_tokens(client: httpx.Client, server: Receiver) -> None:
    basic = base64.b64encode(f"jane:{JANE}".encode()).decode()
    for number, headers in enumerate(
        [
            {"Authorization": f"Basic {basic}", "X-Limit-U": "jane", "X-Limit-D": "phone"},
            {"Authorization": f"Basic {basic}"},
            {"Authorization": f"Bearer {JANE}"},
        ]
    ):
        assert client.post("/pub", json=location(tst=slot_time(9 - number)), headers=headers).status_code == 200
    until(lambda: len(seen(server, "jane/phone")) == 3)
    times = [int(query["timestamp"][0]) for query in seen(server, "jane/phone")]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/owntracks?u=jane&d=phone", {}),
        ("/owntracks?u=jane&d=phone", {"Authorization": "Bearer wrong"}),
        ("/owntracks?u=jane&d=phone", {"Authorization": f"Basic {JANE}"}),
        ("/owntracks?u=jane&d=phone", {"Authorization": "Basic \x7f"}),
        ("/owntracks?u=joe&d=car", {"Authorization": f"Bearer {JANE}"}),
        (f"/owntracks?u=jane&d=phone&token={JANE}", {}),
        ("/traccar", {"Authorization": f"Bearer {JANE}"}),
        ("/osmand?id=other&lat=1&lon=2", {"Authorization": f"Bearer {JANE}"}),
        (f"/osmand?id=other&lat=1&lon=2&token={JANE}", {}),
        (f"/osmand?id=jane/phone&lat=1&lon=2&token={JANE}&token={TOKEN}", {}),
    ],
)
def test_nobody_speaks_for_another(client: httpx.Client, path: str, headers: dict[str, str]) -> None:
    body = FORWARDED if path == "/traccar" else location()
    request = {} if path.startswith("/osmand") else {"json": body}
    assert client.post(path, headers=headers, **request).status_code == 401  # type: ignore[arg-type]


def test_web_pages_send_nothing(client: httpx.Client) -> None:
    for header in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/owntracks?u=a&d=b", json=location(), headers={**AUTH, **header}).status_code == 403
    assert client.post("/owntracks", json=location(), headers={**AUTH, "Host": "evil.example"}).status_code == 421


def test_traccar_forwarding_gets_another_name(client: httpx.Client, server: Receiver) -> None:
    position = {**FORWARDED["position"], "fixTime": "2026-09-14T15:34:17.000+0000"}
    before = settled(client)["clock"]
    assert client.post("/traccar", json={**FORWARDED, "position": position}, headers=AUTH).status_code == 200
    until(lambda: outcome_counts(client)["clock"] == before + 1)
    position["fixTime"] = datetime.fromtimestamp(slot_time(2), UTC).isoformat()
    answer = client.post("/traccar", json={**FORWARDED, "position": position}, headers=AUTH)
    assert (answer.status_code, answer.content) == (200, b"")
    until(lambda: seen(server, "0042"))
    assert seen(server, "0042")[0]["batt"] == ["77"]


def test_osmand_in_every_form(client: httpx.Client, server: Receiver) -> None:
    base = {"id": "van", "lat": str(LAT), "lon": str(LON), "speed": "9"}
    token = {"token": TOKEN}
    assert client.get("/", params={**base, **token, "timestamp": str(slot_time(4))}).status_code == 200
    assert client.post("/osmand", params={**base, **token, "timestamp": str(slot_time(3))}).status_code == 200
    assert client.post("/osmand", data={**base, "timestamp": str(slot_time(2))}, headers=AUTH).status_code == 200
    assert client.post("/", params=token, data={**base, "timestamp": str(slot_time(1))}).status_code == 200
    until(lambda: len(seen(server, "van")) == 4)
    assert {frozenset(query) for query in seen(server, "van")} == {frozenset({"key", "id", "timestamp", "lat", "lon"})}


def test_the_answer_is_the_same_whatever_became_of_the_message(client: httpx.Client) -> None:
    messages = [
        location(tst=slot_time(3)),
        location(tst=slot_time(3)),
        location(tst=slot_time(5)),
        location(tst=slot_time(90_000)),
        location(lat=0, lon=0, tst=slot_time(2)),
        location(lat=LON, lon=LAT, tst=slot_time(1)),  # exchanged, which is logged
        location(_type="waypoints"),
        location(_type="encrypted", data="xyz"),
        location(lat="north"),
    ]
    before = settled(client)
    answers = [client.post("/owntracks?u=sam&d=car", json=message, headers=AUTH) for message in messages]
    for answer in answers:
        headers = [pair for pair in answer.headers.raw if pair[0].lower() != b"date"]
        first = [pair for pair in answers[0].headers.raw if pair[0].lower() != b"date"]
        assert (answer.status_code, answer.content, headers) == (200, b"[]", first)
    after = settled(client)
    gained = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert gained == {
        "released": 3, "repeated": 1, "late": 1, "clock": 1, "other_type": 1, "encrypted": 1, "malformed": 1,
    }  # fmt: skip


def test_answers_come_before_anything_is_done(city: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stands still, and every message is answered alike; so is every one that there is no room for."""
    monkeypatch.setattr(worker, "_WAITING", 5)
    begun, go = threading.Event(), threading.Event()
    contents = [
        location(tst=slot_time(3)), location(tst=slot_time(3)), location(lat="north"), location(tst=slot_time(90_000)),
        location(_type="encrypted", data="xyz"),
    ]  # fmt: skip

    async def answers(app: Starlette) -> list[tuple[int, bytes, list[tuple[bytes, bytes]]]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=AUTH) as sender:
            posts = [await sender.post("/pub?u=a&d=b", json=content) for content in contents]
        return [(post.status_code, post.content, post.headers.raw) for post in posts]

    config = write_config(tmp_path, city, '[lines]\n[upstream]\nprotocol = "lines"\n')
    with running(config) as gateway:
        work = gateway.worker._work

        def held(jobs: Any) -> None:
            begun.set()
            assert go.wait(LONG_S)
            work(jobs)

        gateway.worker._work = held  # type: ignore[method-assign]
        app = app_of(gateway)
        try:
            assert gateway.worker.submit("other_type", "test")
            assert begun.wait(LONG_S)
            taken, refused = asyncio.run(answers(app)), asyncio.run(answers(app))
        finally:
            go.set()
        assert taken == [taken[0]] * 5
        assert taken[0][:2] == (200, b"[]")
        assert refused == [refused[0]] * 5
        assert refused[0][0] == 503


@pytest.mark.parametrize("path", ["/owntracks?u=a&d=b", "/traccar", "/osmand"])
def test_hostile_bodies_are_answered_like_others(client: httpx.Client, path: str) -> None:
    for data in BAD:
        headers = {**AUTH, "Content-Type": "application/json"}
        expected = 413 if len(data) > 1 << 16 else 200
        assert client.post(path, content=data, headers=headers).status_code == expected


def test_hostile_requests(client: httpx.Client) -> None:
    assert client.post("/owntracks?u=a&d=b", content=b"x" * 70_000, headers=AUTH).status_code == 413
    before = settled(client)["bad_name"]
    for query in ("?u=..&d=%2B", "?u=a&d=b%00", "", "?u=a", "?d=b", "?u=a&u=c&d=b"):
        assert client.post(f"/owntracks{query}", json=location(), headers=AUTH).content == b"[]"
    assert settled(client)["bad_name"] == before + 6
    assert client.get("/owntracks", headers=AUTH).status_code == 405
    assert client.get("/nothing").status_code == 404
    assert client.get("/", params={"id": "x" * 20_000}).status_code in {400, 431}
    gzipped = client.post("/owntracks", content=b"x", headers={**AUTH, "Content-Encoding": "gzip"})
    assert gzipped.status_code == 415


def test_a_message_that_the_server_never_takes_holds_nobody_up(client: httpx.Client, server: Receiver) -> None:
    server.status = 400
    client.post("/pub?u=a&d=refused", json=location(tst=slot_time(3)), headers=AUTH)
    until(lambda: seen(server, "a/refused"))
    server.status = 200
    client.post("/pub?u=a&d=refused", json=location(tst=slot_time(2)), headers=AUTH)
    until(lambda: len(seen(server, "a/refused")) == 2)
    until(lambda: "geoblanket_gateway_refused_total 1.0" in client.get("/metrics").text)


def test_health_and_metrics_name_nobody(client: httpx.Client) -> None:
    assert client.get("/health").json()["status"] == "ok"
    text = client.get("/metrics").text
    assert "geoblanket_gateway_queue" in text
    words = re.sub(r"[ =][\d.e+-]+$", "", text, flags=re.MULTILINE)  # a figure may have the digits of a name
    assert not any(name in words for name in ("jane", "phone", "truck7", "0042", "van", "joe"))
    assert betrayals(text.encode()) == 0


def test_metrics_are_for_this_machine_and_those_who_may_send(city: Path, tmp_path: Path) -> None:
    async def statuses(app: Starlette) -> list[int]:
        transport = httpx.ASGITransport(app, client=("192.0.2.1", 7))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as other:
            return [(await other.get("/metrics", headers=headers)).status_code for headers in ({}, AUTH)]

    with running(write_config(tmp_path, city, '[lines]\n[upstream]\nprotocol = "lines"\n')) as gateway:
        assert asyncio.run(statuses(app_of(gateway))) == [401, 200]


def test_nothing_true_reached_the_server(client: httpx.Client, server: Receiver) -> None:
    del client
    for _, path, headers, body in server.requests:
        assert betrayals(path.encode() + json.dumps(headers).encode() + body) == 0
        assert TOKEN not in path + str(headers)


def test_a_server_that_goes_away_gets_everything_in_order(city: Path, tmp_path: Path) -> None:
    """And what waits survives a stop of the gateway."""
    first = Receiver()
    path = write_config(tmp_path, city, HTTP + upstream("owntracks-http", f"{first.url}/pub", 'username = "me"'))
    with Command(path) as command, httpx.Client(base_url=command.ready(), timeout=LONG_S) as client:

        def post(ago: int) -> httpx.Response:
            return client.post("/pub?u=a&d=b", json=location(tst=slot_time(ago)), headers=AUTH)

        post(9)
        until(lambda: first.requests)
        first.status = 503
        post(8)
        until(lambda: len(first.requests) > 1)
        first.close()
        for ago in (7, 6, 5):
            assert post(ago).content == b"[]"
        until(lambda: client.get("/health").json()["queue"] == 4)
        assert command.stop(signal.SIGTERM)[0] == 0
    with Receiver(first.port) as again, Command(path) as command:
        command.ready()
        until(lambda: len(again.requests) == 4)
        code, log = command.stop(signal.SIGINT)
        assert code == 0
        assert "learns their true times" in log
    assert [json.loads(body)["tst"] for *_, body in again.requests] == [slot_time(ago) - 15 for ago in (8, 7, 6, 5)]
    method, where, headers, body = again.requests[0]
    assert (method, where, headers["X-Limit-U"]) == ("POST", "/pub?u=a&d=b", "a")
    assert headers["Authorization"].startswith("Basic ")
    assert json.loads(body).keys() == {"_type", "lat", "lon", "tst", "tid", "topic"}
