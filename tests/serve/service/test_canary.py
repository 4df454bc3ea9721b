"""A true location is nowhere but in the body of the request that brings it."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from geoblanket.roads.graph import RoadGraph
from geoblanket.serve.metrics import configure_logs
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.report import ReportWorker
from tests.serve.service.living import PATIENCE_S, Command, live
from tests.serve.service.reporting import NOW, ToldDevice, here, make_ledger
from tests.towns import Town

CANARY = re.compile(r"41[.,]?00137|8[.,]?59826|3317", re.ASCII)
LAT, LON = 41.0013733, -8.5982633


def bodies() -> Iterator[tuple[str, str]]:
    """Reports with the canary, right ones and wrong ones."""
    right = json.dumps(here(lat=LAT, lon=LON))
    yield right, "application/json"
    yield json.dumps(here(lat=LAT, lon=LON, time=NOW - 3000)), "application/json"
    for change in (
        ("}", ""),
        ("}", ', "extra": 41.0013733}'),
        ("lat", "41.0013733"),
        (str(LAT), f'"{LAT}"'),
        (str(LAT), f"{LAT}e400"),
        (str(LAT), f"{LAT}" + "0" * 5000),
        (str(NOW), str(LAT)),
        ("}", f', "request": "{LAT}\\u0000"}}'),
    ):
        yield right.replace(*change), "application/json"
    yield right, "text/plain"


def hits(text: str) -> list[str]:
    return CANARY.findall(text)


def test_the_canary_is_one() -> None:
    assert len(hits(json.dumps(here(lat=LAT, lon=LON)))) == 2
    assert hits(f"{LAT * 1e7:.0f}") == ["4100137"]


def test_a_running_service_tells_no_true_location(town: Path, tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "a.ledger")
    with (
        Command([town, "--ledger", ledger, "--set", "access_log=true"]) as command,
        httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client,
    ):
        statuses = []
        for content, kind in bodies():
            answer = client.post("/v1/report", content=content, headers={"Content-Type": kind})
            statuses.append(answer.status_code)
            assert not hits(answer.text + str(answer.headers))
        client.get(f"/v1/report?lat={LAT}&lon={LON}")
        client.get(f"/v1/bundles/{LAT},{LON}")
        client.get(f"/{LAT}/{LON}", headers={"User-Agent": f"at {LAT}", "Referer": f"http://x/{LON}"})
        client.request(f"X{LAT}".replace(".", ""), "/")
        assert set(statuses) >= {200, 400, 409, 413, 415}
        assert not hits(client.get("/metrics").text)
        assert not hits(client.get("/healthz").text)
        code, written = command.stop()
    assert code == 0
    assert written.count("geoblanket.access") > 10
    assert not hits(written)
    for file in tmp_path.iterdir():
        assert not hits(file.read_bytes().decode("latin-1"))


def test_the_home_that_the_page_asks_about_is_in_no_log(small_town: Town) -> None:
    """The answer may show the home, to the page that asked; refusals and the log show nothing of it."""
    graph = RoadGraph.load(small_town.roads)
    lat, lon = float(graph.lat.mean()), float(graph.lon.mean())
    setting = {"epsilon": 4.0, "interval_s": 30, "hold_m": 50.0, "fence_km": 1.0}
    life = {"setting": setting, "home": {"lat": lat, "lon": lon}, "trip": None}
    with (
        Command(["--roads", small_town.roads, "--set", "access_log=true"]) as command,
        httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client,
    ):
        assert client.post("/explore/life", json=life).status_code == 200
        for wrong in ({"home": {"lat": f"{lat}", "lon": lon}}, {"trip": lat}, {"extra": lat}):
            answer = client.post("/explore/life", json=life | wrong)
            assert answer.status_code in {400, 422}
            assert str(lat)[:7] not in answer.text
        code, written = command.stop()
    assert code == 0
    assert written.count("/explore/life") == 4
    assert not any(str(degrees)[:7] in written for degrees in (lat, lon))


class Careless(Exception):  # noqa: N818 - a made-up error
    pass


def test_errors_that_nobody_foresaw_tell_nothing(store: BundleStore, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        secret = f"{LAT}, {LON}"
        try:
            raise ValueError(secret)
        except ValueError as error:
            raise Careless(f"cannot place {secret}") from error

    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logs()
        with live(store, reports=ReportWorker(lambda: ToldDevice(fail))) as service:
            answer = service.client.post("/v1/report", json=here(lat=LAT, lon=LON))
            metrics = service.client.get("/metrics").text
        logging.getLogger("uvicorn.error").error("as Uvicorn would", exc_info=Careless(str(LAT)))
    finally:
        root.handlers[:], root.level = before
    assert (answer.status_code, answer.json()["error"]) == (500, "internal")
    written = capsys.readouterr().err
    assert "A request failed with Careless at test_canary.py:" in written
    assert "as Uvicorn would" in written
    assert "Traceback" not in written
    assert not hits(answer.text + metrics + written)


def test_no_telemetry_is_sent(store: BundleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.setblocking(False)
        monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.getsockname()[1]}")
        with live(store) as service:
            assert service.client.get("/v1/bundles").is_success
            assert not service.app._native_telemetry.enabled()
        with pytest.raises(BlockingIOError):
            collector.accept()
