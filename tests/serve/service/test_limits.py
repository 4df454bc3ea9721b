"""What hostile or careless clients do to connections and requests. Waiting ends by the server's deadlines."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from geoblanket.serve.limits import Limits
from geoblanket.serve.service.bundles import BundleStore, ServedBundle
from geoblanket.serve.service.report import ReportWorker
from tests.serve.service.living import PATIENCE_S, Live, live, read_all
from tests.serve.service.reporting import ToldDevice

QUICK = replace(Limits(), arrival_s=0.6, stall_s=0.6, connections=20)
PATIENT = replace(QUICK, arrival_s=PATIENCE_S)
"""For tests of something else than deadlines, which a busy machine would miss."""


@pytest.fixture(scope="module")
def quick(store: BundleStore) -> Iterator[Live]:
    with live(store, limits=QUICK) as found:
        yield found


@pytest.fixture(scope="module")
def patient(store: BundleStore) -> Iterator[Live]:
    with live(store, limits=PATIENT) as found:
        yield found


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


def request(*lines: str, method: str = "POST /v1/bundles", content: bytes = b"") -> bytes:
    head = [f"{method} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def assert_healthy(service: Live) -> None:
    def answers() -> bool:
        with contextlib.suppress(httpx.TransportError):  # a connection that was idle may be closed as we ask
            return service.client.get("/healthz").status_code == 200
        return False

    wait_until(answers)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_a_request_that_does_not_come_is_not_waited_for(quick: Live, sent: bytes) -> None:
    with quick.connect() as connection:
        connection.sendall(sent)
        assert read_all(connection) == b""
    assert_healthy(quick)


def test_a_byte_now_and_then_does_not_move_the_deadline(quick: Live) -> None:
    text = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 1000
    with quick.connect() as connection, pytest.raises(OSError, match=r"Broken pipe|reset"):
        for byte in text:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)


def test_the_second_request_of_a_connection_has_a_deadline_too(quick: Live) -> None:
    with quick.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_does_not_come_is_not_waited_for(quick: Live) -> None:
    answer = quick.raw(request("Content-Length: 100", content=b"only this"))
    assert (status(answer), body(answer)["error"]) == (408, "too_slow")


def test_a_crowd_of_idle_connections_keeps_nobody_out(patient: Live) -> None:
    crowd = [patient.connect() for _ in range(200)]
    try:
        assert_healthy(patient)
        assert patient.connections <= PATIENT.connections + 1
    finally:
        for connection in crowd:
            connection.close()
    wait_until(lambda: patient.connections <= 1)


def test_a_crowd_of_unfinished_bodies_keeps_nobody_out(patient: Live) -> None:
    crowd = [patient.connect() for _ in range(3 * PATIENT.connections)]
    try:
        for connection in crowd:
            with contextlib.suppress(OSError):  # the first ones make room for the last
                connection.sendall(request("Content-Length: 100", content=b"only this"))
        for _ in range(5):
            with patient.connect() as connection:
                connection.sendall(request(method="GET /healthz"))
                assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in crowd:
            connection.close()
    wait_until(lambda: patient.connections <= 1)


def test_unfinished_bodies_are_not_requests_that_are_worked_on(store: BundleStore) -> None:
    """More than are worked on at once, on as many connections: a whole request is answered at once all the same."""
    device = ToldDevice()
    report = json.dumps({"lat": 41.0, "lon": -8.6, "time": time.time()}).encode()
    with live(store, reports=ReportWorker(lambda: device), limits=replace(Limits(), arrival_s=PATIENCE_S)) as service:
        crowd = [service.connect() for _ in range(Limits().requests + 12)]
        try:
            for connection in crowd:
                connection.sendall(
                    request("Content-Type: application/json", "Content-Length: 60", method="POST /v1/report") + b"{"
                )
            wait_until(lambda: service.connections >= len(crowd))
            for _ in range(10):
                answer = service.client.post("/v1/report", content=report, headers={"Content-Type": "application/json"})
                assert answer.status_code == 200
        finally:
            for connection in crowd:
                connection.close()
    assert device.made == 10


@pytest.mark.parametrize(
    "padding",
    [
        "X-Long: " + "a" * 17_000,
        "X-Wide: " + " " * 17_000 + "a",
        "\r\n".join(f"X-{number}: a" for number in range(2000)),
    ],
    ids=["long", "wide", "many"],
)
@pytest.mark.parametrize("pipelined", [False, True])
def test_headers_are_weighed_whole_even_if_they_arrive_at_once(patient: Live, padding: str, pipelined: bool) -> None:
    before = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" if pipelined else b""
    answer = patient.raw(before + request(padding, method="GET /healthz"))
    *earlier, last = answer.split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in earlier] == [b"200"] * pipelined
    assert last[:3] == b"400"
    assert json.loads(last.partition(b"\r\n\r\n")[2])["error"] == "bad_request"


def test_a_hundred_kilobytes_of_headers_are_not_answered(patient: Live) -> None:
    answer = patient.raw(request("X-Long: " + "a" * 120_000, method="GET /healthz"))
    assert answer == b"" or status(answer) == 400  # a client that is cut off while it sends may miss the answer


def test_headers_within_the_limit_are_fine_on_every_request_of_a_connection(patient: Live) -> None:
    long = {"X-Long": "a" * 15_000}
    for _ in range(3):
        assert patient.client.get("/healthz", headers=long).status_code == 200
        assert patient.client.post("/v1/bundles", headers=long, content=b"x" * 4000).status_code == 405


@pytest.mark.slow
def test_ten_thousand_idle_connections_keep_nobody_out(store: BundleStore) -> None:
    with live(store) as service:
        crowd: list[socket.socket] = []
        try:
            for number in range(10_000):
                crowd.append(service.connect())
                if len(crowd) > 400:  # as many as this process may have open; the service closes the oldest itself
                    crowd.pop(0).close()
                if number % 100 == 0:
                    assert service.client.get("/healthz").status_code == 200
        finally:
            for connection in crowd:
                connection.close()


def test_a_chunked_body_without_end_is_cut(patient: Live) -> None:
    with patient.connect() as connection:
        connection.sendall(request("Transfer-Encoding: chunked"))
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            for _ in range(100_000):
                connection.sendall(b"400\r\n" + b"x" * 0x400 + b"\r\n")
    assert_healthy(patient)


def test_a_chunked_body_that_is_too_large_is_told_so(patient: Live) -> None:
    answer = patient.raw(request("Transfer-Encoding: chunked", content=b"1001\r\n" + b"x" * 0x1001 + b"\r\n0\r\n\r\n"))
    assert (status(answer), body(answer)["error"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("lines", "content", "expected"),
    [
        (["Content-Length: -1"], b"", 400),
        (["Content-Length: 1e3"], b"", 400),
        (["Content-Length: 5", "Content-Length: 6"], b"hello", 400),
        (["Content-Length: 99999999999999999999999999"], b"", 400),
        (["Content-Length: 4097"], b"x" * 4097, 413),
        (["Content-Length: 1000000000000"], b"x" * 100_000, 413),
        (["Transfer-Encoding: gzip, chunked"], b"", 501),
        (["Transfer-Encoding: chunked"], b"zz\r\n", 400),
        (["Content-Encoding: gzip", "Content-Length: 4"], b"\x1f\x8b\x08\x00", 415),
        (["X-Long: " + "a" * 1_000_000], b"", 400),
        ([f"X-{number}: a" for number in range(50_000)], b"", 400),
        (["No colon"], b"", 400),
        (["X-Null: \0"], b"", 400),
    ],
)
def test_requests_that_contradict_themselves(patient: Live, lines: list[str], content: bytes, expected: int) -> None:
    answer = patient.raw(request(*lines, content=content))
    # A client that sends a megabyte to one that hangs up may lose the answer; that it was cut off it notices.
    assert answer == b"" or status(answer) in {expected, 400}
    if answer:
        assert set(body(answer)) == {"error", "message"}
    assert_healthy(patient)


def test_what_follows_a_body_is_not_taken_for_a_request_with_a_voice(patient: Live) -> None:
    smuggled = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = patient.raw(request("Content-Length: 5", content=b"hello" + smuggled))
    assert status(answer) == 405
    assert answer.count(b"HTTP/1.1 ") == 1


def test_pipelined_requests_are_answered_in_order(patient: Live) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    other = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = patient.raw((one + other) * 100 + last)
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 404] * 100 + [200]


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"GET /healthz\r\n", b"GET http://[ HTTP/9\r\n"],
)
def test_what_is_not_http_is_refused_in_the_same_shape(patient: Live, garbage: bytes) -> None:
    answer = patient.raw(garbage + b"\r\n\r\n")
    assert (status(answer), body(answer)["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::2]:80"]
)
def test_names_that_point_here_from_elsewhere_are_not_answered(patient: Live, host: str) -> None:
    answer = patient.client.get("/v1/bundles", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:80", "[::1]"])
def test_names_of_this_machine_are_answered(patient: Live, host: str) -> None:
    assert patient.client.get("/v1/bundles", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("end", ["", "Connection: close\r\n"])
def test_a_client_that_does_not_read_is_let_go(town: Path, end: str) -> None:
    class Large(BundleStore):
        def get(self, sha256: str) -> ServedBundle | None:
            served = super().get(sha256)
            return served and replace(served, content=bytes(1 << 25))

    store = Large([town])
    with live(store, limits=QUICK) as service, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        path = f"/v1/bundles/{store.bundles[0].sha256}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{end}\r\n".encode())
        wait_until(lambda: service.connections == 1)
        wait_until(lambda: service.connections == 0)


def test_head_is_get_without_a_body(patient: Live, store: BundleStore) -> None:
    served = store.bundles[0]
    answer = patient.client.head(f"/v1/bundles/{served.sha256}")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(served.content))
