"""The script of the documentation: a broker, a gateway, a subscriber and a taxi's trip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.gateway.living import Broker

ROOT = Path(__file__).parents[3]


def test_the_subscriber_sees_perturbed_positions_only(tmp_path: Path) -> None:
    if not Broker.is_installed():
        pytest.skip("Mosquitto is not installed (Debian: apt-get install mosquitto)")
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed")
    command = [sys.executable, str(ROOT / "docs" / "gateway_demo.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "None of the true positions is among them." in done.stdout
    assert done.stdout.count('"_type":"location"') >= 20
