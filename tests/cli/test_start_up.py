"""`import geoblanket` and `geoblanket --help` stay quick because they import almost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "polars", "osmium", "matplotlib", "networkx", "shapely", "multiprocessing", "joblib"}
SERVICE = {"fastapi", "starlette", "pydantic", "uvicorn", "prometheus_client"}


@pytest.mark.parametrize(
    "code",
    [
        "import geoblanket",
        "from typer.testing import CliRunner; from geoblanket.cli.main import app; "
        "r = CliRunner().invoke(app, ['--help']); assert r.exit_code == 0, r.output",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    script = f"import sys; {code}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (HEAVY | SERVICE).isdisjoint(done.stdout.split())


def test_a_device_needs_nothing_of_the_service_or_the_build() -> None:
    script = "import sys, geoblanket.release.device; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"geoblanket.mechanism.verifier", "numpy"} <= loaded
    assert loaded.isdisjoint(
        {"geoblanket.mechanism.repairer", "geoblanket.mechanism.solver.optimiser", "concurrent.futures"}
    )
    assert (SERVICE | HEAVY - {"numpy"}).isdisjoint(name.partition(".")[0] for name in loaded)


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "geoblanket", "--help"], capture_output=True, text=True, check=True)
    assert "geoblanket [OPTIONS] COMMAND" in done.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "geoblanket", "nothing"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "nothing" in refused.stderr
