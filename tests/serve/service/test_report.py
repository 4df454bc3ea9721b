from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest

from geoblanket.errors import LedgerError, ParameterError, RandomnessError, RefusedError
from geoblanket.mechanism.bundle.storage import ZoneBundle
from geoblanket.release.budget import Budget
from geoblanket.serve.limits import Limits
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.report import ReportWorker
from tests.serve.service.living import PATIENCE_S, Live, live
from tests.serve.service.reporting import NOW, ToldDevice, here, make_ledger, real_worker


@pytest.fixture(scope="module")
def report_service(store: BundleStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service with reports by a real device."""
    ledger = make_ledger(tmp_path_factory.mktemp("ledger") / "a.ledger")
    with live(store, reports=real_worker(store.bundles[0].bundle, ledger)) as found:
        yield found


def post(service: Live, content: bytes | str, **headers: str) -> httpx.Response:
    return service.client.post("/v1/report", content=content, headers={"Content-Type": "application/json", **headers})


def error(answer: httpx.Response) -> tuple[int, str]:
    assert set(answer.json()) == {"error", "message"}
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, answer.json()["error"]


def test_a_report_is_a_place_of_the_bundle(report_service: Live, store: BundleStore) -> None:
    answer = report_service.client.post("/v1/report", json=here())
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    report = answer.json()
    bundle = store.bundles[0].bundle
    assert isinstance(bundle, ZoneBundle)
    lat, lon = bundle.places_e7[report["place"]] / 1e7
    assert (report["lat"], report["lon"]) == pytest.approx((lat, lon), abs=1e-9)
    assert report["slot"] == NOW // 30
    assert set(report) == {"place", "lat", "lon", "slot", "time", "left", "stored"}


def test_the_same_slot_gets_the_same_answer(report_service: Live) -> None:
    later = NOW + 3600
    first = report_service.client.post("/v1/report", json=here(time=later)).json()
    again = report_service.client.post("/v1/report", json=here(time=later, lat=41.002)).json()
    assert (first["stored"], again["stored"]) == (False, True)
    assert {**first, "stored": True} == again
    older = report_service.client.post("/v1/report", json=here(time=later - 300))
    assert error(older) == (409, "too_old")


def test_without_a_ledger_there_are_no_reports(service: Live) -> None:
    assert service.client.post("/v1/report", json=here()).status_code == 404
    assert "/v1/report" not in service.client.get("/openapi.json").json()["paths"]


def test_a_report_is_made_by_a_post_only(report_service: Live) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = report_service.client.request(method, "/v1/report?lat=41&lon=-8.6")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"


def refused_at_once(service: Live, content: bytes) -> tuple[int, str]:
    """Post until it takes less than 50 ms of the processor: what runs beside it may take some."""
    for _ in range(20):
        start = time.process_time()
        answer = post(service, content)
        if time.process_time() - start < 0.05:
            return error(answer)
    pytest.fail("it takes 50 ms or more, every time")


GOOD = json.dumps(here())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "null",
        "7",
        '"text"',
        "[" * 4000,
        '{"lat":' * 500,
        GOOD + "x",
        GOOD + GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("}", ', "lat": 41.0}'),
        GOOD.replace("}", ', "speed": 1}'),
        GOOD.replace("41.0011", "NaN"),
        GOOD.replace("41.0011", "Infinity"),
        GOOD.replace("41.0011", "-Infinity"),
        GOOD.replace("41.0011", "1e400"),
        GOOD.replace("41.0011", "1e308"),
        GOOD.replace("41.0011", "9" * 3000),
        GOOD.replace("41.0011", "91"),
        GOOD.replace("41.0011", "-90.0000001"),
        GOOD.replace("-8.5983", "180.1"),
        GOOD.replace("41.0011", "true"),
        GOOD.replace("41.0011", "null"),
        GOOD.replace("41.0011", '"41.0011"'),
        GOOD.replace("41.0011", '"12,5"'),
        GOOD.replace("41.0011", "١٢"),
        GOOD.replace("41.0011", "+41"),
        GOOD.replace("41.0011", "041"),
        GOOD.replace("41.0011", "[41.0011]"),
        GOOD.replace("41.0011", '{"$gt": 0}'),
        json.dumps(here(time=0)),
        json.dumps(here(time=NOW * 1000)),
        json.dumps(here(time=5e9)),
        json.dumps(here(time="2026-01-01T00:00:00Z")),
        json.dumps(here(request="")),
        json.dumps(here(request="a" * 201)),
        json.dumps(here(request="\0")),
        json.dumps(here(request="é")),
        GOOD.replace("}", ', "request": "\\ud800"}'),
        GOOD.replace("}", ', "\\ud800": 1}'),
        GOOD.replace("lat", "l\\u0061t").replace("}", ', "lat": 1}'),
    ],
    ids=map(str, count()),  # the time now, as part of a name, would differ between the processes of a run
)
def test_what_is_not_a_report_is_refused_at_once(report_service: Live, content: str) -> None:
    assert refused_at_once(report_service, content.encode()) == (400, "bad_report")


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b'{"lat": "\xed\xa0\x80"}', GOOD.encode("utf-16"), b"\0" * 100])
def test_other_encodings_are_refused(report_service: Live, content: bytes) -> None:
    assert error(post(report_service, content)) == (400, "bad_report")


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b'{"lat": ' + b"9" * 5_000_000 + b"}", b'"' + b"\\ud800" * 100_000 + b'"']
)
def test_what_is_too_large_is_refused_before_it_is_looked_at(report_service: Live, content: bytes) -> None:
    assert refused_at_once(report_service, content) == (413, "too_large")


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
     "application/json; charset=utf-16", "application/json, text/plain"],
)  # fmt: skip
def test_only_json_is_read(report_service: Live, kind: str) -> None:
    assert error(post(report_service, GOOD, **{"Content-Type": kind})) == (415, "wrong_type")


def test_json_with_a_charset_is_json(report_service: Live) -> None:
    assert post(
        report_service, json.dumps(here(time=NOW + 7200)), **{"Content-Type": "Application/JSON; charset=UTF-8"}
    ).is_success


def test_a_compressed_body_is_not_opened(report_service: Live) -> None:
    bomb = gzip.compress(b"[" * 1_000_000)
    assert len(bomb) < 4096
    assert error(post(report_service, bomb, **{"Content-Encoding": "gzip"})) == (415, "wrong_type")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
        {"Via": "1.1 proxy"},
        {"X-Real-IP": "127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_what_comes_through_a_proxy_or_another_page_is_refused(report_service: Live, headers: dict[str, str]) -> None:
    assert error(post(report_service, GOOD, **headers)) == (403, "not_local")
    assert post(report_service, GOOD, **{"Sec-Fetch-Site": "same-origin"}).status_code in {200, 409}


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost", "http://localhost:1", "https://localhost:{port}", "file://",
     "http://localhost:{port}.evil.example", ""],
)  # fmt: skip
def test_a_page_of_another_origin_makes_no_report(store: BundleStore, origin: str) -> None:
    """Browsers of any age name the origin, and may send JSON where they are tricked into it."""
    device = ToldDevice()
    with live(store, reports=ReportWorker(lambda: device)) as service:
        named = origin.format(port=service.port)
        assert error(post(service, GOOD, Origin=named)) == (403, "not_local")
        two = [("Content-Type", "application/json"), ("Origin", service.url), ("Origin", named)]
        assert error(service.client.post("/v1/report", content=GOOD, headers=two)) == (403, "not_local")
        assert device.begun == 0
        for own in (service.url, f"http://localhost:{service.port}"):
            assert post(service, GOOD, Origin=own).status_code == 200


def test_a_report_under_another_hosts_name_is_refused(store: BundleStore) -> None:
    """As by a page whose name was pointed at this machine, even where the service answers to any name."""
    device = ToldDevice()
    with live(store, reports=ReportWorker(lambda: device), hosts=None) as service:
        for host in (
            "evil.example",
            f"evil.example:{service.port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ):
            assert error(post(service, GOOD, Host=host)) == (403, "not_local")
    assert device.begun == 0


def test_a_name_that_is_allowed_for_bundles_is_not_for_reports(store: BundleStore) -> None:
    device = ToldDevice()
    hosts = frozenset({"bundles.example", "localhost"})
    with live(store, reports=ReportWorker(lambda: device), hosts=hosts) as service:
        assert service.client.get("/v1/bundles", headers={"Host": "bundles.example"}).is_success
        assert error(post(service, GOOD, Host="bundles.example")) == (403, "not_local")
    assert device.begun == 0


def test_no_page_elsewhere_may_ask(report_service: Live) -> None:
    asked = report_service.client.options(
        "/v1/report", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert asked.status_code == 405
    assert not [name for name in asked.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ParameterError("no fix"), (409, "not_now")),
        (RefusedError("spent", "budget"), (429, "budget_spent")),
        (RefusedError("spent", "budget", 1234.2), (429, "budget_spent")),
        (RefusedError("old", "time"), (409, "too_old")),
        (LedgerError("damaged"), (503, "ledger")),
        (RandomnessError("none"), (503, "randomness")),
        (ZeroDivisionError("41.0011"), (500, "internal")),
        (MemoryError("41.0011"), (500, "internal")),
    ],
)
def test_every_way_to_fail_has_its_answer(store: BundleStore, raised: Exception, expected: tuple[int, str]) -> None:
    def fail() -> None:
        raise raised

    with live(store, reports=ReportWorker(lambda: ToldDevice(fail))) as service:
        answer = post(service, GOOD)
        assert error(answer) == expected
        assert "41.0011" not in answer.text
        assert ("retry-after" in answer.headers) == (expected[0] in {429, 503})
        if getattr(raised, "retry_after_s", None) is not None:
            assert answer.headers["retry-after"] == "1235"
        assert service.client.get("/healthz").is_success


def test_a_spent_budget_is_refused_and_stays_so(store: BundleStore, tmp_path: Path) -> None:
    ledger = make_ledger(tmp_path / "a.ledger", Budget(epsilon=140.0, window_s=3600))
    answers: list[int] = []
    for _ in range(2):  # a restart does not forget
        with live(store, reports=real_worker(store.bundles[0].bundle, ledger)) as service:
            for _ in range(5):
                body = here(time=NOW + 30 * len(answers))
                answers.append(service.client.post("/v1/report", json=body).status_code)
    assert answers == [200] * 3 + [429] * 7  # 40 per km each


def test_a_worker_that_cannot_open_says_so(store: BundleStore, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(LedgerError, match="no such ledger"):
        real_worker(store.bundles[0].bundle, tmp_path / "missing.ledger")
    assert set(threading.enumerate()) <= before


def waiting_for(event: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        assert event.wait(PATIENCE_S)

    return wait


def test_reports_that_wait_too_long_or_are_too_many_are_shed(store: BundleStore) -> None:
    go_on = threading.Event()
    device = ToldDevice(waiting_for(go_on))
    limits = replace(Limits(), reports=3, report_s=0.5)
    with live(store, reports=ReportWorker(lambda: device, limits=limits)) as service:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(service, GOOD), range(8)))
        assert {error(answer) for answer in answers} == {(503, "overloaded")}
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
        assert device.begun == 1
        go_on.set()
        end = time.monotonic() + PATIENCE_S
        while device.made < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert post(service, GOOD).is_success
    assert device.closed
    assert len(device.threads) == 1  # SQLite wants the thread that opened it
    assert 4 <= device.made <= 5


def test_more_requests_than_are_worked_on_at_once_are_shed(store: BundleStore) -> None:
    go_on = threading.Event()
    device = ToldDevice(waiting_for(go_on))
    limits = replace(Limits(), requests=2)
    with (
        live(store, reports=ReportWorker(lambda: device, limits=limits), limits=limits) as service,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = [pool.submit(post, service, GOOD) for _ in range(2)]
        end = time.monotonic() + PATIENCE_S
        while (answer := service.client.get("/v1/bundles")).is_success:
            assert time.monotonic() < end
        assert error(answer) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert service.client.get("/healthz").is_success
        go_on.set()
        assert [answer.result().status_code for answer in waiting] == [200, 200]
        assert service.client.get("/v1/bundles").is_success
        shed = next(
            line
            for line in service.client.get("/metrics").text.splitlines()
            if line.startswith("geoblanket_requests_shed_total")
        )
        assert float(shed.split()[1]) >= 1


def outcomes(service: Live) -> dict[str, float]:
    lines = service.client.get("/metrics").text.splitlines()
    return {
        line.split('"')[1]: float(line.split()[1]) for line in lines if line.startswith("geoblanket_reports_total{")
    }


def test_outcomes_are_counted(store: BundleStore) -> None:
    with live(store, reports=ReportWorker(ToldDevice)) as service:
        post(service, GOOD)
        post(service, GOOD)
        post(service, "{}")
        assert outcomes(service) == {"released": 2, "bad_report": 1}
