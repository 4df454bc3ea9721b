"""Far more requests than can be answered: some are shed, none is answered wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from pathlib import Path

import httpx
import pytest

from geoblanket.release.budget import Budget
from geoblanket.release.ledger import Ledger
from tests.release.worlds import report
from tests.serve.service.living import PATIENCE_S, Command
from tests.serve.service.reporting import NOW, here, make_ledger

AT = 8
"""The vehicle is parked at this place, in the west."""
EXPECTED = {report("start", AT, AT), report("day", AT, AT), report("night", AT, AT)}
SLOT_S = 0.05
"""A new slot of 30 s begins as often as this."""


CLIENTS = 640
"""Each asks again at once, so that together they ask for far more than ten times what one ledger takes."""


FEW = 20


class Crowd:
    """Clients that report without a pause, each on a connection of its own."""

    def __init__(self, port: int, clients: int, seconds: float, location: tuple[float, float]) -> None:
        self.port, self.clients, self.seconds = port, clients, seconds
        self.lat, self.lon = location
        self.statuses: Counter[str] = Counter()
        self.answers: dict[int, set[int]] = defaultdict(set)
        self.drawn: Counter[int] = Counter()

    async def run(self) -> None:
        self.start = self.end = time.monotonic()
        await asyncio.gather(*(self._client() for _ in range(self.clients)))

    def _goes_on(self) -> bool:
        """Return whether to ask again: until the time is over, and on a busy machine until enough has happened."""
        self.end = time.monotonic()
        so_far = self.end - self.start
        few = min(self.statuses["200"], self.statuses["503"]) <= FEW or len(self.answers) <= 2
        return so_far < self.seconds or (self.clients == CLIENTS and few and so_far < self.seconds + 60)

    async def _client(self) -> None:
        while self._goes_on():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                self.statuses["not connected"] += 1
                await asyncio.sleep(0.05)
                continue
            try:
                while self._goes_on():
                    await self._report(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self.statuses["cut off"] += 1
            finally:
                writer.close()

    async def _report(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slot = int((time.monotonic() - self.start) / SLOT_S)
        body = json.dumps(here(lat=self.lat, lon=self.lon, time=NOW + 30 * slot)).encode()
        writer.write(
            b"POST /v1/report HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(size))
        status = int(head.split(b" ", 2)[1])
        self.statuses[str(status)] += 1
        if status == 503:
            assert b"\r\nretry-after: " in head.lower()
        if status == 200:
            assert answer["slot"] == int(NOW // 30) + slot
            self.answers[slot].add(answer["place"])
            self.drawn[slot] += not answer["stored"]


def resident_mb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def overload(town: Path, folder: Path, seconds: float) -> Crowd:
    ledger = make_ledger(folder / "a.ledger", Budget(epsilon=1e9, window_s=100_000))
    with (
        Command([town, "--ledger", ledger]) as command,
        httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client,
    ):
        bundle = client.get("/v1/bundles").json()["bundles"][0]["sha256"]
        places = client.get(f"/v1/bundles/{bundle}/places").json()["features"]
        lon, lat = places[AT]["geometry"]["coordinates"]
        warm = Crowd(int(command.url.rsplit(":", 1)[1]), 10, 0.3, (lat, lon))
        asyncio.run(warm.run())
        before = resident_mb(command.process.pid)
        crowd = Crowd(warm.port, CLIENTS, seconds, (lat, lon))
        asyncio.run(crowd.run())
        end = time.monotonic()
        after = NOW + 30 * ((crowd.end - crowd.start) / SLOT_S + 100)
        while client.post("/v1/report", json=here(lat=lat, lon=lon, time=after)).status_code != 200:
            assert time.monotonic() - end < PATIENCE_S
        assert client.get("/healthz").is_success
        assert resident_mb(command.process.pid) - before < 60
        code, written = command.stop()
    assert code == 0
    assert "Traceback" not in written
    with contextlib.closing(Ledger.open(ledger)) as book:
        made = {answer.slot_ms // 30_000 - int(NOW // 30): answer.place for answer in book.account("").answers}
    for slot, places in crowd.answers.items():
        assert places == {made[slot]}
    return crowd


def check(crowd: Crowd) -> None:
    assert set(crowd.statuses) <= {"200", "409", "503", "cut off", "not connected"}
    assert crowd.statuses["200"] > FEW
    assert crowd.statuses["503"] > FEW
    for told in crowd.answers.values():
        assert told <= EXPECTED
    assert max(crowd.drawn.values()) == 1
    assert len(crowd.answers) > 2


def test_overload_for_a_moment(town: Path, tmp_path: Path) -> None:
    check(overload(town, tmp_path, 3.0))


@pytest.mark.slow
def test_overload_for_a_minute(town: Path, tmp_path: Path) -> None:
    check(overload(town, tmp_path, 60.0))
