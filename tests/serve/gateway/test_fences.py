"""Fences of devices: by their own messages and from an operator's file, kept for good; the place itself is nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from geoblanket.errors import GeoblanketError, InputError, ParameterError
from geoblanket.release.fence import Fences
from geoblanket.release.ledger import Ledger
from geoblanket.serve.gateway.http_in import Accounts, create_app
from geoblanket.serve.gateway.messages import AllowList, Position
from geoblanket.serve.gateway.running import Gateway
from tests.release.lattices import save_small
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
from tests.serve.gateway.test_messages import BAD

JANE = "a-token-for-janes-phone"
JANES = {"Authorization": f"Bearer {JANE}"}
DEVICE = f'[devices."jane/phone"]\ntoken = "{JANE}"\n'
LINES = '[lines]\n[upstream]\nprotocol = "lines"\n'
HOME = {"lat": LAT, "lon": LON, "radius_km": 0.5}
ONE_REPORT = 2.0
"""ε of a single draw, as the budget of a day: whatever else is released was held."""


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that repeats the last report within 10 m of where it was drawn."""
    return save_small(tmp_path_factory.mktemp("resting") / "city.bundle", hold_m=10.0)


def around(number: int) -> dict[str, float]:
    """A position within 200 m of the home, and more than 10 m from any other."""
    return {"lat": LAT + number * 2e-4, "lon": LON - number * 1e-4}


def ledger_of(folder: Path) -> Path:
    return folder / "gateway.state" / "budgets" / "devices.ledger"


def fences_of(folder: Path, device: str = "jane/phone") -> Fences:
    ledger = Ledger.open(ledger_of(folder))
    try:
        return ledger.fences_of(device)
    finally:
        ledger.close()


def test_a_device_hides_its_home(resting: Path, receiver: Receiver, tmp_path: Path) -> None:
    """With a budget of one report, all positions around the home are the same one: now, and after a restart."""
    folder = tmp_path / "gateway"
    config = write_config(folder, resting, HTTP + DEVICE + upstream("osmand", receiver.url), epsilon=ONE_REPORT)
    bodies = [
        json.dumps(HOME).encode(),
        json.dumps(HOME | {"name": "again"}).encode(),  # a second fence for the place
        json.dumps(HOME | {"lat": LAT + 0.5, "margin_m": 100}).encode(),  # the name 'home' is taken
        json.dumps(HOME | {"lat": LAT + 0.5, "name": "work", "margin_m": 100}).encode(),
        *(json.dumps(HOME | change).encode() for change in (
            {"radius_km": 41.1051373}, {"lat": str(LAT)}, {"lat": 1 << 2000}, {"radius_km": 1 << 2000}, {"lat": 91},
            {"radius_km": True}, {"lat": None}, {"name": ["x"]},
            {"margin_m": None}, {"address": "here"},
        )),
        json.dumps({"lat": LAT, "lon": LON}).encode(),
        json.dumps(HOME).encode() + b" " * 4096,
        *(data for data in BAD if len(data) <= 1 << 16),
    ]  # fmt: skip
    logs = b""
    for first in (9, 4):
        with Command(config, "--access-log") as command:
            with httpx.Client(base_url=command.ready(), timeout=LONG_S, headers=JANES) as client:
                answers = [client.post("/fence", content=body) for body in (bodies if first == 9 else bodies[:1])]
                shapes = {
                    (answer.status_code, answer.content, *(pair for pair in answer.headers.raw if pair[0] != b"date"))
                    for answer in answers
                }
                assert len(shapes) == 1
                assert (answers[0].status_code, answers[0].content) == (200, b"")
                for number in range(5):
                    answer = client.post("/pub", json=location(tst=slot_time(first - number), **around(number)))
                    assert answer.status_code == 200
                until(lambda wanted=14 - first: len(receiver.requests) == wanted)  # type: ignore[misc]
                text = client.get("/metrics").text
                assert f'geoblanket_gateway_outcomes_total{{outcome="fence"}} {len(answers):.1f}' in text
                files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
                assert not any(betrayals(data) for data in files)
            code, log = command.stop()
            assert code == 0
            logs += log.encode()
        assert fences_of(folder).names == ("home", "work")
        assert fences_of(folder)[0].holds(LAT, LON)
    assert logs.count(b" fence(s) made.") == 2
    assert b"fence(s) refused" in logs
    assert logs.count(b"/fence") >= len(bodies)
    assert betrayals(logs + text.encode()) == 0
    assert not any(betrayals(path.encode() + body) for _, path, _, body in receiver.requests)
    # Each message looks like any other; one draw was paid.
    assert len({path.partition("timestamp=")[0] for _, path, *_ in receiver.requests}) == 1
    places = {path.partition("&lat=")[2] for _, path, *_ in receiver.requests}
    assert len(places) == 1
    ledger = Ledger.open(ledger_of(folder))
    assert (ledger.spent_micro, ledger.summary()["reports"]) == (round(ONE_REPORT * 1e6), 10)
    ledger.close()


def test_without_a_fence_the_same_positions_are_drawn(resting: Path, receiver: Receiver, tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    config = write_config(tmp_path, resting, LINES.replace('"lines"', f'"osmand"\nurl = "{receiver.url}"'),
                          epsilon=ONE_REPORT)  # fmt: skip
    with running(config) as gateway:
        submit_around(gateway, 3)
        value = gateway.metrics.registry.get_sample_value
        until(lambda: value("geoblanket_gateway_outcomes_total", {"outcome": "budget"}) == 2)
        assert value("geoblanket_gateway_outcomes_total", {"outcome": "released"}) == 1


def submit_around(gateway: Gateway, count: int) -> None:
    for number in range(count):
        place = around(number)
        position = Position("jane/phone", slot_time(9 - number), place["lat"], place["lon"])
        assert gateway.worker.submit(position, "test")


def app_of(gateway: Gateway, *, anyone: bool = False) -> Any:
    return create_app(
        gateway.worker,
        accounts=Accounts({"jane/phone": JANE}, TOKEN, anyone=anyone),
        allow=AllowList(),
        metrics=gateway.metrics,
        hosts=None,
        healthy=gateway.health,
    )


@contextlib.asynccontextmanager
async def asking(app: Any) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def gateway(resting: Path, tmp_path: Path) -> Iterator[Gateway]:
    with running(write_config(tmp_path, resting, LINES + DEVICE)) as started:
        yield started


@pytest.mark.parametrize("anyone", [False, True])
def test_only_the_token_of_the_device_makes_a_fence(gateway: Gateway, anyone: bool) -> None:
    """Neither the token for all devices, nor a channel on which nobody needs a token, nor a token in the address."""

    async def statuses() -> list[int]:
        async with asking(app_of(gateway, anyone=anyone)) as client:
            posts = [
                await client.post("/fence", json=HOME, headers={}),
                await client.post("/fence", json=HOME, headers=AUTH),
                await client.post("/fence", json=HOME, headers={"Authorization": f"Bearer {JANE}x"}),
                await client.post(f"/fence?token={JANE}", json=HOME),
                await client.post("/fence", json=HOME, headers={**JANES, "Origin": "http://evil.example"}),
                await client.get("/fence", params=HOME, headers=JANES),
            ]
        return [post.status_code for post in posts]

    assert asyncio.run(statuses()) == [401, 401, 401, 401, 403, 405]
    assert len(gateway.worker._fleet.fences_of("jane/phone")) == 0


def test_the_answer_to_a_fence_means_that_it_is_durable(gateway: Gateway) -> None:
    begun, go = threading.Event(), threading.Event()
    work = gateway.worker._work

    def held(jobs: Any) -> None:
        begun.set()
        assert go.wait(LONG_S)
        work(jobs)

    def stored() -> int:
        return len(gateway.worker._fleet.fences_of("jane/phone"))  # known once it is committed

    async def ask() -> None:
        async with asking(app_of(gateway)) as client:
            post = asyncio.ensure_future(client.post("/fence", json=HOME, headers=JANES))
            await asyncio.to_thread(begun.wait, LONG_S)
            before = post.done(), stored()
            go.set()
            assert (before, (await post).status_code, stored()) == ((False, 0), 200, 1)

    gateway.worker._work = held  # type: ignore[method-assign]
    asyncio.run(ask())


def test_a_ledger_that_fails_promises_no_fence(gateway: Gateway) -> None:
    gateway.worker._fleet._ledger._broken = True  # type: ignore[union-attr]

    async def ask() -> list[int]:
        async with asking(app_of(gateway)) as client:
            return [(await client.post("/fence", json=HOME, headers=JANES)).status_code for _ in range(2)]

    assert asyncio.run(ask()) == [503, 503]
    assert gateway.worker.failed


def written(folder: Path, fences: Fences, name: str = "jane.json") -> str:
    (folder / name).write_text(fences.as_json())
    return f'{DEVICE}fences = "{name}"\n'


def test_fences_from_a_file_are_kept(resting: Path, tmp_path: Path) -> None:
    """For a device that never reported, from its first report on; a restart without the file keeps them."""
    fences, home = Fences().with_place(LAT, LON, radius_km=0.5)
    device = written(tmp_path, fences)
    for tables in (device, device, DEVICE):
        with running(write_config(tmp_path, resting, LINES + tables, epsilon=ONE_REPORT)) as gateway:
            assert gateway.worker._fleet.fences_of("jane/phone") == fences
            submit_around(gateway, 5)
    ledger = Ledger.open(ledger_of(tmp_path))
    assert (ledger.fences_of("jane/phone")[0], ledger.spent_micro) == (home, round(ONE_REPORT * 1e6))
    assert ledger.summary()["reports"] == 5
    ledger.close()


def test_a_second_fence_for_a_place_is_refused(resting: Path, tmp_path: Path) -> None:
    first, home = Fences().with_place(LAT, LON, radius_km=0.5)
    second = Fences([replace(home, name="again", lat_e7=home.lat_e7 + 1000)])
    with running(write_config(tmp_path, resting, LINES + written(tmp_path, first))):
        pass
    with (
        pytest.raises(ParameterError, match=r"jane.json cannot be used .* 'jane/phone'.*one place") as error,
        running(write_config(tmp_path, resting, LINES + written(tmp_path, second))),
    ):
        pass
    assert betrayals(str(error.value).encode()) == 0
    assert fences_of(tmp_path) == first  # and the ledger was closed in order


@pytest.mark.parametrize("content", [None, "", "{}", '{"format": 1, "fences": [{"lat": 1}]}', "x" * 70_000])
def test_a_file_that_holds_no_fences_is_refused(resting: Path, tmp_path: Path, content: str | None) -> None:
    """And none of the others is kept."""
    good, _ = Fences().with_place(LAT, LON, radius_km=0.5)
    tables = f'{LINES}{written(tmp_path, good)}[devices.z]\nfences = "z.json"\n'
    if content is not None:
        (tmp_path / "z.json").write_text(content)
    with pytest.raises(InputError, match=r"z\.json"), running(write_config(tmp_path, resting, tables)):
        pass
    assert len(fences_of(tmp_path)) == 0


def test_fences_are_for_devices_that_have_a_table(resting: Path, tmp_path: Path) -> None:
    """A device that no table names has no file; nor may a name be wrong."""
    for tables in ('[fences]\n"jane/phone" = "x"\n', '[devices."a b"]\nfences = "x"\n', "[devices.a]\nfences = 7\n"):
        with pytest.raises(GeoblanketError, match=r"unknown key 'fences'|name of a device|fences must be"):
            running(write_config(tmp_path, resting, LINES + tables)).__enter__()
