"""What `pip install geoblanket` alone can do: all that a device needs, and to say what else there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoblanket
from geoblanket._lazy import MODULES_OF_EXTRA
from geoblanket.mechanism.bundle.storage import LatticeBundle, ZoneBundle, load_bundle
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import Tracker, plain_model
from tests.only_light import PROJECT, modules_beyond
from tests.release.lattices import LAT, LON, save_small
from tests.release.worlds import save_certain
from tests.tracking.worlds import pair_model

NEEDS_CITY = {
    "BuildConfig", "City", "Cleaning", "Discovery", "DiscoveryOptions", "MapMatcher", "MatchOptions",
    "OptimiseResult", "Places", "Plan", "Reading", "Walks", "Zones", "build_bundle", "choose_places", "discover",
    "draw_walks", "import_roads", "import_traces", "learn_from_released", "learn_motion", "learn_privately",
    "make_city", "make_plan", "match_traces", "optimise", "partition_zones", "perturb_traces", "perturb_walks",
    "road_distances", "scan_findings", "scan_traces", "scan_walks", "track_table", "train",
    "SampleTable", "TablePredictor", "discover_table", "train_table",
}  # fmt: skip
ROOT = Path(__file__).parents[1]
KINDS = ["zones", "lattice", "lattice with hold"]
BEYOND_NUMPY = modules_beyond(["numpy"])
BEYOND_LIGHT = modules_beyond(PROJECT["dependencies"])


def run(code: str, *words: str, given: object = None) -> subprocess.CompletedProcess[str]:
    """Run Python code that gets a JSON value as its input."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # tests may have gone elsewhere
        capture_output=True,
        text=True,
        check=False,
    )


def commands(*these: tuple[list[str], str]) -> list[dict[str, Any]]:
    """What commands give in a light install: exit code, output, error."""
    done = run("from tests.only_light import run_commands; run_commands()", given=[BEYOND_LIGHT, these])
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module", params=KINDS)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("light") / "city.bundle"
    if request.param == "zones":
        return save_certain(path, epsilon=2.0)
    return save_small(path, hold_m=50 if request.param.endswith("hold") else 0)


@pytest.fixture(scope="module")
def model(bundle: Path) -> Path:
    """A motion model of the bundle's places; for zones with a memory."""
    path = bundle.with_suffix(".model")
    loaded = load_bundle(bundle)
    (pair_model() if isinstance(loaded, ZoneBundle) else plain_model(loaded)).save(path)
    return path


def test_light_install_is_light() -> None:
    assert {"numpy", "typer", "rich", "json"}.isdisjoint(BEYOND_LIGHT)
    assert {"scipy", "polars", "matplotlib", "sklearn", "fastapi", "joblib", "osmium", "pytest"} < set(BEYOND_LIGHT)
    assert {*BEYOND_LIGHT, "typer"} < set(BEYOND_NUMPY)


DEVICE = """
import json, sys
from tests.only_light import forget
missing, (bundle, model, ledger, lat, lon, now) = json.load(sys.stdin)
forget(missing)
from geoblanket import Budget, Device, Fleet, Ledger, MotionModel, Tracker, Trust, load_bundle

Ledger.create(ledger, budget=Budget(1000, 3600), device_key=b"k" * 16)
with Device.open(bundle, ledger=ledger, device_key=b"k" * 16, trust=Trust(minimum_version=1)) as device:
    reports = [device.report(lat, lon, now + 30 * slot) for slot in range(3)]
with Fleet.open(bundle, vehicles=["a", "b"], ledger=None, budget=Budget(1000, 3600)) as fleet:
    released = fleet.report([0, 1], [lat, lat], [lon, lon], [now, now])
tracker = Tracker(load_bundle(bundle), MotionModel.load(model))
estimates = [tracker.see("taxi", report.slot, report.place)[:3] for report in reports]
print(json.dumps([[(report.slot, report.place) for report in reports], released.place.tolist(), estimates]))
"""


def test_device_and_tracker_need_numpy_alone(bundle: Path, model: Path, tmp_path: Path) -> None:
    lat, lon = (
        (LAT, LON) if isinstance(load_bundle(bundle), LatticeBundle) else MotionModel.load(model).places_e7[8] * 1e-7
    )
    inputs = [str(bundle), str(model), str(tmp_path / "car.ledger"), float(lat), float(lon), time.time()]
    done = run(DEVICE, given=[BEYOND_NUMPY, inputs])
    assert done.returncode == 0, done.stderr
    reports, released, estimates = json.loads(done.stdout)
    assert min(released) >= 0
    tracker = Tracker(load_bundle(bundle), MotionModel.load(model))
    np.testing.assert_allclose(estimates, [tracker.see("taxi", *report)[:3] for report in reports], rtol=1e-4)


def test_commands_of_a_device(bundle: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, key = str(tmp_path / "car.ledger"), tmp_path / "key"
    key.write_bytes(b"k" * 16)
    monkeypatch.setenv("GEOBLANKET_LEDGER_KEY", str(key))
    fixes = [json.dumps({"lat": LAT, "lon": LON, "time": time.time() + 30 * slot}) for slot in range(2)]
    lattice = isinstance(load_bundle(bundle), LatticeBundle)
    released = json.dumps({"vehicle": "taxi", "slot": 57_326_400, "cell" if lattice else "place": 3})
    answers = commands(
        (["--help"], ""),
        (["verify", str(bundle), "--json"], ""),
        (["show", str(bundle)], ""),
        (["ledger", "create", ledger, "--budget", "1000", "--window", "3600"], ""),
        (["perturb", str(bundle), "--stream", "--ledger", ledger], "\n".join(fixes)),
        (["ledger", "show", ledger, "--json"], ""),
        (["ledger", "verify", ledger], ""),
        (["track", str(bundle), "--stream"], released),
        (["track", str(bundle), "--stream", "--model", str(model)], released),
        (["verify", str(model)], ""),
        (["show", str(model), "--json"], ""),
        (["doctor", str(tmp_path), "--json"], ""),
    )
    assert [answer["code"] for answer in answers] == [0] * len(answers), answers
    outputs = [answer["out"] for answer in answers]
    assert json.loads(outputs[1])["holds"]
    assert [json.loads(line).keys() >= {"lat", "lon", "left"} for line in outputs[4].splitlines()] == [True, True]
    assert json.loads(outputs[5])["reports"] == 2
    assert all(json.loads(output)["radius_m"] > 0 for output in outputs[7:9])
    assert json.loads(outputs[-1])["verdict"].endswith(f"Not installed: {', '.join(MODULES_OF_EXTRA)}.")


def test_lattice_is_made_from_an_area(tmp_path: Path) -> None:
    made = str(tmp_path / "made.bundle")
    area = ["lattice", "--area", "41.13,-8.64,41.15,-8.62", "--epsilon", "8", "--out", made]
    assert [answer["code"] for answer in commands((area, ""), (["verify", made], ""))] == [0, 0]


SAYING = {
    "city": [
        "city --out a",
        "traces import --format porto a --out b",
        "roads import a --out b",
        "match --traces a --roads b --out c",
        "blanket discover --walks a --roads b --out c",
        "build --roads a --walks b --epsilon 1 --out c",
        "build --set help",
        "plan --roads a --sure 70%",
        "report a --out b",
        "evaluate --roads a --walks b --out c",
        "model --roads a --out b",
        "sample --model a --roads b --out c",
    ],
    "service": ["serve a"],
    "private": ["learn --walks a --roads b --epsilon-train 1 --out c"],
}


def test_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = [(command, extra) for extra, some in SAYING.items() for command in some]
    answers = commands(*((command.split(), "") for command, _ in expected))
    for (command, extra), answer in zip(expected, answers, strict=True):
        assert answer["error"].startswith("MissingExtraError: `geoblanket "), (command, answer)
        assert answer["error"].endswith(f"pip install 'geoblanket[{extra}]'."), (command, answer)


MAIN = """
import json, sys
from tests.only_light import forget
forget(json.load(sys.stdin))
from geoblanket.cli import main
main()
"""


def test_missing_extra_is_an_error_in_one_line() -> None:
    done = run(MAIN, "roads", "import", "a", "--out", "b", given=BEYOND_LIGHT)
    message = "error: `geoblanket roads` needs the extra 'city'. Install it with: pip install 'geoblanket[city]'.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_option_says_what_to_install(bundle: Path, tmp_path: Path) -> None:
    answers = commands(
        (["show", str(bundle), "--picture", str(tmp_path / "a.png")], ""),
        (["track", str(bundle), "a", "--out", str(tmp_path / "b")], ""),
        (["verify", str(bundle), "--public-key", "a"], ""),
    )
    assert ["city" in answer["error"] for answer in answers] == [True, True, False], answers
    assert "with these options" in answers[0]["error"]
    assert "signing" in answers[2]["error"]


NAMES = """
import json, sys
from tests.only_light import forget
forget(json.load(sys.stdin))
import geoblanket
for name in geoblanket.__all__:
    try:
        getattr(geoblanket, name)
    except geoblanket.MissingExtraError as error:
        assert str(error).startswith(f"geoblanket.{name} needs the extra 'city'."), error
        print(name)
"""


def test_name_says_what_to_install() -> None:
    done = run(NAMES, given=BEYOND_NUMPY)
    assert (done.returncode, set(done.stdout.split())) == (0, NEEDS_CITY), done.stderr
    assert set(vars(geoblanket)["__all__"]) > NEEDS_CITY


ROOM = """
import importlib, json, pkgutil, sys
from tests.only_light import forget
room, missing = json.load(sys.stdin)
forget(missing)
for module in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize("extra", ["gateway", "service"])
def test_extra_brings_all_that_its_room_imports(extra: str) -> None:
    """Another extra must not have to be there by chance."""
    brought = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    done = run(ROOM, given=[f"geoblanket.serve.{extra}", modules_beyond(brought)])
    assert done.returncode == 0, done.stderr
