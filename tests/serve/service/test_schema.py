"""The service does what its own description says, for requests that Schemathesis makes up from it: 0 failures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from geoblanket.mechanism.bundle.trust import sign_bundle
from geoblanket.serve.service.bundles import BundleStore
from geoblanket.serve.service.receiver import Receiver
from tests.mechanism.bundle.test_trust import write_keys
from tests.release.worlds import save_certain
from tests.serve.service.living import Live, live
from tests.serve.service.reporting import real_worker


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service with all of its own routes, and something behind each; the budget is kept in memory."""
    folder = tmp_path_factory.mktemp("described")
    path = save_certain(folder / "town.bundle")
    sign_bundle(path, write_keys(folder, "ours")[0])
    store = BundleStore([path])
    bundle = store.bundles[0].bundle
    with live(store, reports=real_worker(bundle, None), tracking=Receiver(bundle)) as found:
        yield found


def run_schemathesis(service: Live, folder: Path, *options: str) -> None:
    script = "from schemathesis.cli import schemathesis; schemathesis()"
    done = subprocess.run(
        [sys.executable, "-c", script, "run", f"{service.url}/openapi.json", "--checks=all", "--no-color", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated" in done.stdout


def test_answers_are_as_described(described: Live, tmp_path: Path) -> None:
    run_schemathesis(described, tmp_path, "--phases=coverage,fuzzing", "--max-examples=2", "--seed=1")


@pytest.mark.slow
def test_answers_are_as_described_for_many_requests(described: Live, tmp_path: Path) -> None:
    run_schemathesis(described, tmp_path, "--max-examples=2000")


def test_the_description_names_every_route(described: Live) -> None:
    paths = set(described.client.get("/openapi.json").json()["paths"])
    bundle = "/v1/bundles/{sha256}"
    own = {bundle + part for part in ("", "/guarantee", "/places", "/signature", "/zones")}
    assert {"/v1/bundles", "/v1/report", "/v1/track", "/healthz", "/metrics", *own} <= paths
