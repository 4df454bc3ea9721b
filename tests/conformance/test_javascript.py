"""The JavaScript client: its own tests, its package, and as many random cases as one likes, against Python."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import GeoblanketError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle, save_lattice
from geoblanket.mechanism.lattice.lattice import largest_hold_mm
from geoblanket.mechanism.lattice.making import make_spec
from geoblanket.mechanism.lattice.plane import Plane
from geoblanket.mechanism.lattice.spec import Drawing, LatticeSpec
from tests.conformance.fence_vectors import drawn_vector
from tests.conformance.made_bundles import changed_numbers, edited
from tests.conformance.vectors import FOLDER, encoded, holds, lattice_of
from tests.predictable import MARKER, MARKER_VALUE

CLIENT = FOLDER.parent
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: the JavaScript client is NOT tested")


def node(*arguments: str, **environment: str) -> str:
    assert NODE is not None
    done = subprocess.run(
        [NODE, *arguments], cwd=CLIENT, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass() -> None:
    node("--test")


@pytest.mark.slow
def test_processes_that_contend_for_a_stale_lock_spend_once() -> None:
    assert "1000 trials" in node("--test", "test/file_store.test.js", GEOBLANKET_TRIALS="1000")


@pytest.mark.parametrize(
    "count", [10_000, pytest.param(150_000, marks=pytest.mark.slow)], ids=["some cases", "many cases"]
)
def test_python_and_javascript_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv(MARKER, MARKER_VALUE)
    path = tmp_path / "cases.jsonl"
    seed = int(os.environ.get("GEOBLANKET_SEED", "1"))
    with path.open("w") as file:
        for line in lines(random.Random(seed), count, tmp_path / "a.bundle"):  # noqa: S311
            file.write(json.dumps(line) + "\n")
    compared = re.search(r"(\d+) cases: the same", node("tools/differential.js", str(path)))
    assert compared is not None
    assert int(compared[1]) >= count


def lines(rng: random.Random, count: int, path: Path) -> Iterator[dict[str, Any]]:
    """Yield random bundles with draws, each with edited copies that may be refused, and random fences."""
    made = 0
    while made < count:
        spec = random_spec(rng)
        if spec is None:
            continue
        hold_mm = random_hold_mm(rng, spec)
        save_lattice(path, spec, hold_mm=hold_mm, version=1, interval_s=30.0)
        bundle = load_bundle(path)
        draws, held = list(random_draws(rng, bundle, count // 30)), list(holds(lattice_of(bundle), rng, count // 100))
        yield {"bundle": encoded(path.read_bytes()), "error": None, "draws": draws, "holds": held}
        made += len(draws) + len(held)
        for number in range(10):
            data = edited(path, lambda fields, arrays: changed_numbers(rng, fields, arrays))
            yield {"bundle": encoded(data), "error": error_of(data), "draws": [], "holds": []}
            save_lattice(path, spec, hold_mm=hold_mm, version=1, interval_s=30.0)
            fence = random_fence(rng, f"{made} {number}")
            yield fence
            made += 1 + len(fence["positions"])


def random_spec(rng: random.Random) -> LatticeSpec | None:
    n, cells, unit_mm = rng.randint(1, 12), rng.randint(4, 60), round(10 ** rng.uniform(2, 5))
    south, west = round(rng.uniform(-84, 84) * 1e7), rng.randrange(-1_800_000_000, 1_800_000_000)
    epsilon_micro = round(rng.uniform(0.02, 0.9) / (n * unit_mm / 1e6) * 1e6)
    plane = Plane(south, west, unit_mm, n * cells)
    try:
        plane.check()
        return make_spec(plane, epsilon_micro=min(max(epsilon_micro, 1), 10**9), cell_units=n)
    except ParameterError:
        return None


def random_hold_mm(rng: random.Random, spec: LatticeSpec) -> int:
    largest = largest_hold_mm(spec.epsilon_micro)
    return rng.choice([0, largest, rng.randint(0, largest), rng.randint(0, min(20 * spec.plane.unit_mm, largest))])


def random_fence(rng: random.Random, name: str) -> dict[str, Any]:
    lat, lon = rng.uniform(-83, 83), rng.choice([rng.uniform(-180, 180), rng.choice([-1, 1]) * rng.uniform(179.9, 180)])
    radius_km = rng.choice([0.1, 1.0, 10.0, rng.uniform(0.1, 10)])
    margin_m = rng.choice([0.0, 300.0, rng.uniform(0, 2000)])
    return drawn_vector(name, lat, lon, radius_km, margin_m, cases=4)


def random_draws(rng: random.Random, bundle: Bundle, count: int) -> Iterator[list[Any]]:
    """Yield coordinates in and around the frame, words, and where they lead; some words lead to the edges of cells."""
    lattice = lattice_of(bundle)
    plane = lattice.spec.plane
    south, west, north, east = plane.corners
    width = (east - west) % 360
    lat = np.clip([south + (north - south) * rng.uniform(-0.2, 1.2) for _ in range(count)], -90, 90)
    lon = np.array([(west + width * rng.uniform(-0.2, 1.2) + 180) % 360 - 180 for _ in range(count)])
    words = np.array([rng.getrandbits(62) for _ in range(count)], np.int64)
    x, y = plane.units(lat, lon)
    drawing, n, window = Drawing(lattice.spec, prepare=True), lattice.spec.cell_units, lattice.spec.window
    for index in range(0, count, 4):
        away = abs(int(x[index]) % n - n // 2), abs(int(y[index]) % n - n // 2)
        sums = np.cumsum(window.weights(max(away), min(away)).ravel())
        words[index] = sums[rng.randrange(len(sums))] - rng.randint(0, 1)
    cells = drawing.cells(x, y, words)
    centre_lat, centre_lon = (np.rint(axis * 1e7).astype(np.int64) for axis in lattice.centers(cells))
    columns = lat.tolist(), lon.tolist(), map(str, words.tolist()), cells.tolist()
    for case in zip(*columns, centre_lat.tolist(), centre_lon.tolist(), strict=True):
        yield list(case)


def error_of(data: bytes) -> str | None:
    try:
        load_bundle("edited", content=data)
    except GeoblanketError as error:
        return type(error).__name__
    return None


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_it_can_be_packed() -> None:
    done = subprocess.run(
        ["npm", "pack", "--dry-run", "--json"],  # noqa: S607
        cwd=CLIENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (package,) = json.loads(done.stdout)
    files = {entry["path"] for entry in package["files"]}
    assert {"package.json", "README.md", "LICENSE", "src/index.js", "src/index.d.ts", "src/file_store.js"} <= files
    assert not [name for name in files if name.startswith(("test", "tools", "conformance"))]
    assert json.loads((CLIENT / "package.json").read_text())["version"] == _version()


def test_the_installed_package_serves_it() -> None:
    with (FOLDER.parents[2] / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"clients/javascript/src": "geoblanket/serve/service/device"}
    assert (CLIENT / "src" / "index.js").is_file()


def _version() -> str:
    from geoblanket import __version__

    return __version__
