from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.lattices import save_small
from tests.serve.gateway.living import Broker, Receiver


@pytest.fixture(scope="session")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that opens in no time: a report every 30 s, 2 per km each. Not to be changed."""
    return save_small(tmp_path_factory.mktemp("city") / "city.bundle")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A real Mosquitto on a port of its own, for devices and for the server."""
    if not Broker.is_installed():
        pytest.skip("Mosquitto is not installed (Debian: apt-get install mosquitto)")
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed")
    with Broker(tmp_path / "broker") as mosquitto:
        yield mosquitto


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that takes what the gateway sends over HTTP."""
    with Receiver() as server:
        yield server
