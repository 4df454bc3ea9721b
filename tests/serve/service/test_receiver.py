"""Released reports over HTTP: estimates, refusals, load, and nothing that was sent in a log, a metric or an error."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from geoblanket.errors import MismatchError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.fence import Fences
from geoblanket.serve.limits import Limits
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.receiver import Receiver
from geoblanket.tracking.tracker import Tracker
from tests.release.worlds import save_certain
from tests.serve.service.city_lattices import save_city
from tests.serve.service.living import PATIENCE_S, Command, Live, live
from tests.tracking.lattice_reports import cells_near, near_model
from tests.tracking.worlds import pair_model

NOW = int(time.time()) // 30 - 1000
"""A slot of some hours ago."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_city(tmp_path_factory.mktemp("city") / "city.bundle")


@pytest.fixture(scope="module")
def bundle(path: Path) -> Bundle:
    return load_bundle(path)


@pytest.fixture(scope="module")
def service(path: Path, bundle: Bundle) -> Iterator[Live]:
    with live(BundleStore([path]), tracking=Receiver(bundle, near_model())) as found:
        yield found


def post(service: Live, **body: Any) -> httpx.Response:
    return service.client.post("/v1/track", json=body)


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert set(answer.json()) == {"error", "message"}
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, answer.json()["error"]


def test_the_receiver_may_know_fences(path: Path, bundle: Bundle) -> None:
    fences, _ = Fences().with_place(41.15, -8.6, radius_km=1)
    fenced, other = Tracker(bundle, near_model(), fences=fences), Tracker(bundle, near_model())
    with live(BundleStore([path]), tracking=Receiver(bundle, near_model(), fences=fences)) as service:
        found = post(service, vehicle="a", slot=NOW, cell=4140).json()
    expected, plain = fenced.see("a", NOW, 4140), other.see("a", NOW, 4140)
    assert (found["lat"], found["lon"]) == pytest.approx((expected.lat, expected.lon), abs=1e-6)
    assert found["radius_m"] == round(expected.radius_m, 1) > plain.radius_m


def test_estimates_are_the_tracker_s(service: Live, bundle: Bundle) -> None:
    tracker = Tracker(bundle, near_model())
    for step, cell in enumerate(cells_near(bundle, near_model(), [24, 24, 25, 25])):
        answer = post(service, vehicle="a", slot=NOW + step, cell=cell)
        expected = tracker.see("a", NOW + step, cell)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        found = answer.json()
        assert (found["lat"], found["lon"]) == pytest.approx((expected.lat, expected.lon), abs=1e-6)
        assert (found["radius_m"], found["outcome"]) == (round(expected.radius_m, 1), "used")
    again = post(service, vehicle="a", time=(NOW + 3) * 30 + 12.0, cell=cell, bundle=bundle.sha256).json()
    assert {**again, "outcome": "used"} == found
    ahead = post(service, vehicle="a", slot=NOW + 3, cell=cell, ahead_s=299.5).json()
    assert ahead["radius_m"] == round(tracker.estimate("a", ahead=10).radius_m[0], 1) > found["radius_m"]
    assert ahead["time"] > found["time"]


def test_zones_are_tracked_too(tmp_path: Path) -> None:
    path = save_certain(tmp_path / "town.bundle")
    with live(BundleStore([path]), tracking=Receiver(load_bundle(path), pair_model())) as service:
        assert post(service, vehicle="a", slot=NOW, place=8).json()["outcome"] == "used"
        assert refused(post(service, vehicle="a", slot=NOW, cell=8)) == (409, "other_bundle")


def test_what_cannot_be_used_is_refused(service: Live, bundle: Bundle) -> None:
    assert post(service, vehicle="b", slot=NOW, cell=100).is_success
    assert post(service, vehicle="b", slot=NOW + 5, cell=100).is_success
    future = int(time.time()) // 30 + 100
    for body, expected in (
        ({"slot": NOW + 5, "cell": 101}, "conflicting"),
        ({"slot": NOW + 1, "cell": 100}, "too_old"),
        ({"slot": future, "cell": 100}, "not_now"),
        ({"time": future * 30.0, "cell": 100}, "not_now"),
        ({"slot": NOW + 6, "place": 100}, "other_bundle"),
        ({"slot": NOW + 6, "cell": 8281}, "other_bundle"),
        ({"slot": NOW + 6, "cell": 100, "place": 100}, "other_bundle"),
        ({"slot": NOW + 6, "time": NOW * 30.0, "cell": 100}, "other_bundle"),
        ({"slot": NOW + 6, "cell": 100, "bundle": 64 * "0"}, "other_bundle"),
    ):
        assert refused(post(service, vehicle="b", **body)) == (409, expected)
    assert post(service, vehicle="b", slot=NOW + 6, cell=100, bundle=bundle.sha256).is_success


@pytest.mark.parametrize(
    "change",
    [
        {"vehicle": ""}, {"vehicle": "x" * 201}, {"vehicle": 5}, {"vehicle": "é"}, {"vehicle": None},
        {"slot": -1}, {"slot": 1.5}, {"slot": "5"}, {"slot": None}, {"slot": 1 << 60}, {"time": None},
        {"cell": -1}, {"cell": True}, {"cell": None}, {"cell": 1 << 40}, {"place": None},
        {"ahead_s": -1}, {"ahead_s": 1e6}, {"bundle": "x"}, {"bundle": None}, {"lat": 41.0013733}, {"extra": 1},
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(service: Live, change: dict[str, Any]) -> None:
    body = {"vehicle": "c", "slot": NOW, "cell": 100, **change}
    answer = post(service, **body)
    assert refused(answer) == (400, "bad_report")
    assert "41.00" not in answer.text


def test_other_bodies_are_refused(service: Live) -> None:
    for content, kind, status in (
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"vehicle": "a", "vehicle": "b"}', "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"x" * 5000, "application/json", 413),
    ):
        answer = service.client.post("/v1/track", content=content, headers={"Content-Type": kind})
        assert refused(answer)[0] == status
    assert service.client.get("/v1/track").status_code == 405
    assert service.client.get("/v1/track?vehicle=a").status_code == 405


def test_without_a_receiver_there_is_no_route(path: Path) -> None:
    with live(BundleStore([path])) as service:
        assert post(service, vehicle="a", slot=NOW, cell=1).status_code == 404


def test_metrics_count_outcomes_and_name_nobody(service: Live) -> None:
    post(service, vehicle="canary 331", slot=NOW + 77, cell=3317)
    post(service, vehicle="canary 331", slot=NOW + 77, cell=3318)
    text = service.client.get("/metrics").text
    assert 'geoblanket_tracked_total{outcome="used"}' in text
    assert 'geoblanket_tracked_total{outcome="conflicting"}' in text
    assert "geoblanket_tracked_vehicles" in text
    labels = set(re.findall(r'="([^"]*)"', text))
    assert "conflicting" in labels
    assert not any(word in label for word in ("canary", "3317", str(NOW + 77)) for label in labels)


def test_vehicles_that_do_not_fit_are_forgotten(path: Path, bundle: Bundle) -> None:
    limits = Limits(tracker_bytes=5 * 3 * 4 * len(near_model()))  # beliefs of 5 vehicles, with two late reports each
    with live(BundleStore([path]), tracking=Receiver(bundle, near_model(), limits=limits)) as service:
        for vehicle in range(8):
            assert post(service, vehicle=f"v{vehicle}", slot=NOW, cell=100).is_success
        text = service.client.get("/metrics").text
    assert "geoblanket_tracked_vehicles 5.0" in text
    assert "geoblanket_tracked_dropped 3.0" in text


def test_too_many_at_once_are_shed(path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver(bundle, near_model(), limits=Limits(reports=3, report_s=0.5))
    let_go = threading.Event()
    see = receiver._tracker.see

    def wait(*given: Any, **options: Any) -> Any:
        let_go.wait(PATIENCE_S)
        return see(*given, **options)

    monkeypatch.setattr(receiver._tracker, "see", wait)
    with live(BundleStore([path]), tracking=receiver) as service, ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(post, service, vehicle=f"v{n}", slot=NOW, cell=100) for n in range(8)]
        assert {refused(answer.result()) for answer in asked} == {(503, "overloaded")}
        let_go.set()
        # Those that were let go take a moment to leave the line.
        answer = post(service, vehicle="v0", slot=NOW, cell=100)
        patience = time.monotonic() + PATIENCE_S
        while answer.status_code == 503 and time.monotonic() < patience:
            time.sleep(0.05)
            answer = post(service, vehicle="v0", slot=NOW, cell=100)
        assert answer.json()["outcome"] in ("used", "repeated")


def test_a_model_of_another_city_does_not_start(bundle: Bundle) -> None:
    with pytest.raises(MismatchError, match="another city"):
        Receiver(bundle, near_model(at=(48.1, 11.6)))


def test_the_command_receives_reports_and_writes_down_none(path: Path, tmp_path: Path) -> None:
    near_model().save(tmp_path / "city.model")
    with (
        Command([path, "--model", tmp_path / "city.model", "--set", "access_log=true"]) as command,
        httpx.Client(base_url=command.url, timeout=PATIENCE_S) as client,
    ):
        good = {"vehicle": "canary 331", "slot": NOW, "cell": 3317}
        assert client.post("/v1/track", json=good).is_success
        for body in ({**good, "cell": 3318}, {**good, "lat": 41.0013733}, {**good, "slot": 1 << 41}):
            answer = client.post("/v1/track", json=body)
            assert answer.status_code in (400, 409)
            assert not any(word in answer.text for word in ("canary", "3317", "41.0"))
        assert "/v1/track" in client.get("/openapi.json").json()["paths"]
        code, written = command.stop()
    assert code == 0
    assert "Serving 1 bundle and estimates of where vehicles are on" in written
    assert "POST /v1/track 200" in written
    assert not re.search(rf"canary|\b331[78]\b|{NOW}|Traceback", written)
