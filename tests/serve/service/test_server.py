from __future__ import annotations

import asyncio
import logging
import signal
import socket

import pytest

from geoblanket.errors import ParameterError
from geoblanket.serve.limits import Limits
from geoblanket.serve.metrics import configure_logs
from geoblanket.serve.server import is_loopback, listen, make_server
from tests.serve.service.living import Live


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104 - it must be told apart
        ("::", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


@pytest.mark.parametrize("host", ["no.such.host.invalid", "300.1.1.1", "a" * 300, ""])
def test_names_that_lead_nowhere(host: str) -> None:
    with pytest.raises(ParameterError, match="no host of the name"):
        is_loopback(host)


def test_a_port_that_is_taken() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ParameterError, match="Cannot listen on"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_an_impatient_ctrl_c_does_not_skip_the_orderly_stop(service: Live) -> None:
    server = make_server(service.app, limits=Limits(), on_ready=lambda: None)
    for _ in range(2):
        server.handle_exit(signal.SIGINT, None)
    assert server.should_exit
    assert not server.force_exit


def test_requests_that_a_stop_cuts_short_are_no_faults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for logger in (logging.getLogger(name) for name in (None, "geoblanket", "geoblanket.access")):
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))
        monkeypatch.setattr(logger, "level", logger.level)
    configure_logs()
    for error in (asyncio.CancelledError(), ValueError("41.001")):
        logging.getLogger("uvicorn.error").error("Exception in ASGI application", exc_info=error)
    written = capsys.readouterr().err
    assert "CancelledError" not in written
    assert "ValueError at" in written


def test_short_answers_are_sent_at_once(service: Live) -> None:
    """Nagle's algorithm would hold the body back until the headers are confirmed, 40 ms later."""
    assert service.client.get("/healthz").is_success
    (connection, *_) = service.server.server_state.connections
    connected = connection.transport.get_extra_info("socket")
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
