"""The service over loopback, beside a bare FastAPI route under plain Uvicorn in the same run.

Run `python -m benchmarks.service`. Each server is a process of its own with one thread of Python; the clients are
another. Reports come from one vehicle, a new slot with each, so that every one is drawn, charged and stored. Latencies
are those of the clients; answers per CPU second count the server's process only, whatever else the machine does. It is
a replay for the ledger: in the present there are not so many slots.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pydantic import BaseModel

from benchmarks._measure import machine, show

SECONDS = 4.0
START = time.time() - 80_000_000
"""The first slot: there are millions from here to now."""
INTERVAL_S = 1
PLACES = 6000


def make_bundle(path: Path) -> None:
    """Write a bundle of many places in one zone, with a row for each block of them."""
    from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, save_bundle
    from geoblanket.mechanism.bundle.header import Clock
    from geoblanket.mechanism.history_table import HistoryTable
    from geoblanket.mechanism.metric import Metric
    from geoblanket.mechanism.row_distances import row_distances

    side = int(np.ceil(np.sqrt(PLACES)))
    row, column = np.divmod(np.arange(PLACES), side)
    places = np.stack([410_000_000 + 25_000 * row, -86_000_000 + 30_000 * column], axis=1).astype(np.int32)
    block = (row // 5 * side + column // 5).astype(np.int32)
    rows = np.unique(block, return_inverse=True)[1].astype(np.int32)
    histories = np.arange(PLACES, dtype=np.int32)[:, None]
    distance = row_distances(HistoryTable(places, histories, rows), [Metric.haversine(places)], [])
    outputs = np.arange(0, PLACES, 20)
    count = int(rows.max()) + 1
    problem = Problem(np.ones((count, len(outputs))), np.full(count, 1 / count), distance / 1e6, epsilon=1.0)
    mechanism = Mechanism.from_probabilities(np.full((count, len(outputs)), 1 / len(outputs)), problem)
    parts = [
        BundledMechanism.of(
            mechanism, zone="all", regime=regime, histories=histories, history_rows=rows, output_places=outputs
        )
        for regime in ("day", "start")
    ]
    clock = Clock(INTERVAL_S * 1000, "UTC", (("day", tuple(range(24))),))
    save_bundle(path, parts, version=1, places_e7=places, clock=clock)


def ours(ledger: str | None, folder: Path, ready: Connection) -> None:
    """Serve a bundle and reports, durably if there is a ledger."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.device import Device
    from geoblanket.serve.limits import LOOPBACK_NAMES, Limits
    from geoblanket.serve.server import listen, make_server
    from geoblanket.serve.service.app import create_app
    from geoblanket.serve.service.bundles import BundleStore
    from geoblanket.serve.service.report import ReportWorker

    store = BundleStore([folder / "town.bundle"])
    budget = Budget(epsilon=1e9, window_s=600) if ledger is None else None
    reports = ReportWorker(lambda: Device.open(store.bundles[0].bundle, ledger=ledger, budget=budget, replay=True))
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        app = create_app(store, reports=reports, hosts=LOOPBACK_NAMES)
        on_ready = partial(ready.send, (port, store.bundles[0].sha256))
        make_server(app, limits=Limits(), on_ready=on_ready).run(sockets=[listener])


class Body(BaseModel):
    """What the bare route takes."""

    lat: float
    lon: float
    time: float


def bare(_ledger: str | None, folder: Path, ready: Connection) -> None:
    """Serve one route that answers at once, and a download, with nothing around them."""
    import uvicorn
    from fastapi import FastAPI
    from fastapi.responses import Response

    app = FastAPI()
    content = (folder / "town.bundle").read_bytes()

    @app.post("/v1/report")
    async def answer(body: Body) -> dict[str, float]:
        return {"lat": body.lat, "lon": body.lon, "time": body.time}

    @app.get("/v1/bundles/{name}")
    async def download(name: str) -> Response:
        return Response(content, headers={"X-Name": name})

    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        ready.send((listener.getsockname()[1], "any"))
        config = uvicorn.Config(app, http="h11", access_log=False, log_level="error")
        uvicorn.Server(config).run(sockets=[listener])


@dataclass
class Load:
    """Requests from some clients at once, each on a connection of its own."""

    port: int
    clients: int
    request: Callable[[int], bytes]
    latency_s: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    received: int = 0

    async def run(self, seconds: float) -> Load:
        """Ask for some seconds."""
        self._numbers = iter(range(10**9))
        self._end = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(self._numbers) for _ in range(self.clients)))
        return self

    async def _client(self, numbers: Iterator[int]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        while time.perf_counter() < self._end:
            start = time.perf_counter()
            writer.write(self.request(next(numbers)))
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            left = size
            while left:
                left -= len(await reader.read(min(left, 1 << 20)))
            self.latency_s.append(time.perf_counter() - start)
            status = int(head.split(b" ", 2)[1])
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.received += size
        writer.close()


def post_report(number: int) -> bytes:
    """Return the request of a report; each number is a slot of its own."""
    body = json.dumps({"lat": 41.05, "lon": -8.55, "time": START + INTERVAL_S * number}).encode()
    head = (
        b"POST /v1/report HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return head % len(body) + body


def cpu_seconds(process: int | None) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(name: str, server: Callable[..., None], ledger: Path | None, folder: Path, clients: int) -> list[str]:
    """Measure one server with some clients."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=server, args=(None if ledger is None else str(ledger), folder, there), daemon=True)
    process.start()
    try:
        port, bundle = here.recv()
        before = cpu_seconds(process.pid)
        reports = asyncio.run(Load(port, clients, post_report).run(SECONDS))
        cpu = cpu_seconds(process.pid) - before
        get = f"GET /v1/bundles/{bundle} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        downloads = asyncio.run(Load(port, 2, lambda _: get).run(SECONDS / 2))
    finally:
        process.terminate()
        process.join()
    half, most = np.quantile(reports.latency_s, [0.5, 0.99]) * 1000
    good = reports.statuses.get(200, 0)
    others = sum(reports.statuses.values()) - good
    return [
        name,
        str(clients),
        f"{good / SECONDS:,.0f}",
        f"{good / cpu:,.0f}",
        f"{others / SECONDS:,.0f}",
        f"{half:.2f}",
        f"{most:.2f}",
        f"{downloads.received / (SECONDS / 2) / 1e6:,.0f}",
    ]


def main() -> None:
    """Measure all of them."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.ledger import Ledger

    table = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GEOBLANKET_DEVICE_KEY_FILE"] = str(folder.absolute() / "device.key")
        make_bundle(folder / "town.bundle")
        for clients in (1, 8, 500):
            ledger = folder / f"{clients}.ledger"
            Ledger.create(ledger, budget=Budget(epsilon=1e9, window_s=600))
            table.append(run("geoblanket, durable ledger", ours, ledger, folder, clients))
            table.append(run("geoblanket, budget in memory", ours, None, folder, clients))
            table.append(run("bare FastAPI route", bare, None, folder, clients))
    show(
        f"Reports over loopback ({machine()})",
        ("", "clients", "answered/s", "answered/CPU s", "refused/s", "p50 ms", "p99 ms", "download MB/s"),
        (tuple(row) for row in table),
    )


if __name__ == "__main__":
    main()
