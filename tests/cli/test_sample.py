"""`geoblanket sample`, and `build` from a motion model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from geoblanket._training import PrivatePart, Training, TrainingPromise, epsilon_of
from geoblanket.build import building
from geoblanket.build.record import read_record, record_path
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mobility.walks import scan_walks
from geoblanket.tracking.motion_model import MotionModel
from tests.cli.test_build import settings
from tests.cli.test_lattice import run
from tests.mechanism.bundles import save_located
from tests.roads.graphs import grid_graph

BUILD = ("--epsilon", 4, *settings("order=1", "max_rows=25", "max_places=20", "gap=0.2", "loss=straight", "workers=1"))


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("city")
    grid_graph(5, 6, step_deg=0.004).save(folder / "roads")
    grid_graph(4, 4, step_deg=0.004).save(folder / "other")
    assert run("model", "--roads", folder / "roads", "--set", "spacing_m=0", "--out", folder / "model")[0] == 0
    return folder


def given(city: Path) -> tuple[object, ...]:
    return ("--model", city / "model", "--roads", city / "roads")


def test_walks_and_what_is_said_of_them(city: Path, tmp_path: Path) -> None:
    out = tmp_path / "walks.parquet"
    code, text, talk, _ = run("sample", *given(city), "--set", "trips=400", "--set", "vehicles=10", "--out", out)
    assert code == 0, talk
    assert "Synthetic walks" in text
    assert "learned from the road network alone" in talk
    first = out.read_bytes()
    again = ("--overwrite", "--json")
    code, text, _, _ = run("sample", *given(city), "--set", "trips=400", "--set", "vehicles=10", "--out", out, *again)
    facts = json.loads(text)
    assert (facts["trips"], facts["vehicles"], facts["interval_s"], facts["spacing_m"]) == (400, 10, 30.0, 0.0)
    assert out.read_bytes() == first
    frame, about = scan_walks(out)
    assert frame.collect().height == facts["steps"] == about["counts"]["steps"]
    code, _, talk, _ = run("plan", "--roads", city / "roads", "--walks", out, "--set", "report=4", "--set", "trips=20")
    assert code == 0
    assert "drawn from a motion model, not driven" in talk


def test_what_cannot_be_drawn(city: Path, tmp_path: Path) -> None:
    options = ("--out", tmp_path / "walks.parquet")
    assert isinstance(run("sample", "--model", city / "model", "--roads", city / "other", *options)[3], MismatchError)
    assert isinstance(run("sample", "--model", city / "roads", "--roads", city / "roads", *options)[3], InputError)
    model = MotionModel.load(city / "model")
    MotionModel.by_distance(model.places_e7, interval_s=30.0).save(tmp_path / "plain")
    assert isinstance(
        run("sample", "--model", tmp_path / "plain", "--roads", city / "roads", *options)[3], MismatchError
    )
    refused = run("sample", *given(city), "--set", "trips=5", *options)[3]
    assert isinstance(refused, ParameterError)
    assert not (tmp_path / "walks.parquet").exists()


def test_a_bundle_from_a_model(city: Path, tmp_path: Path) -> None:
    """It is the bundle of the walks that `sample` gives, and the report says that they are synthetic."""
    out = tmp_path / "a.bundle"
    code, _, talk, error = run("build", *given(city), *BUILD, "--out", out, "--report", tmp_path / "report")
    assert code == 0, (talk, error)
    assert "drawn from a motion model, those held out too" in talk
    assert "Nothing was learned from anyone's trips." in talk
    assert (tmp_path / "report/report.html").read_text().count("they are synthetic") == 2
    record = json.loads((tmp_path / "a.bundle.build.json").read_text())
    assert record["inputs"]["model"] == MotionModel.load(city / "model").identity
    assert not (tmp_path / "a.bundle.unfinished").exists()
    assert run("verify", out)[0] == 0
    walks = tmp_path / "walks.parquet"
    assert run("sample", *given(city), "--out", walks)[0] == 0
    code, _, talk, _ = run("build", "--walks", walks, "--roads", city / "roads", *BUILD, "--out", tmp_path / "b.bundle")
    assert code == 0, talk
    assert (tmp_path / "b.bundle").read_bytes() == out.read_bytes()
    assert "those held out too" in talk


def test_a_promise_goes_from_the_model_into_the_bundle(city: Path, tmp_path: Path) -> None:
    part = PrivatePart("moves", cells=100, bound=1, scale=10.0)
    epsilon = 1.01 * epsilon_of(part.rho, 1e-6)
    promised = Training("private", TrainingPromise("vehicle", 350, epsilon, 1e-6, (part,), "order 2, always"))
    model = MotionModel.load(city / "model")
    learned = {**model.learned, "from": "roads and walks", "training": promised.as_json()}
    replace(model, learned=learned).save(tmp_path / "model")
    given = ("--model", tmp_path / "model", "--roads", city / "roads")
    assert run("sample", *given, "--set", "trips=500", "--out", tmp_path / "walks.parquet")[0] == 0
    assert scan_walks(tmp_path / "walks.parquet")[1]["training"] == promised.as_json()
    code, _, talk, error = run("build", *given, *BUILD, "--out", tmp_path / "a.bundle")
    assert code == 0, (talk, error)
    assert "are protected too" in talk
    assert load_bundle(tmp_path / "a.bundle").training == promised


def test_an_interrupted_build_from_a_model_goes_on(city: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = save_located(tmp_path / "a.bundle", version=3)
    with monkeypatch.context() as patch:
        patch.setattr(building, "save_bundle", lambda *_, **__: (_ for _ in ()).throw(InputError("stopped")))
        code, _, talk, _ = run("build", *given(city), *BUILD, "--out", out, "--overwrite")
    assert code == 1
    assert load_bundle(out).version == 3
    assert "continue with --resume" in talk
    kept = {path.name for path in (tmp_path / "a.bundle.unfinished").iterdir()}
    assert {"about.json", "walks.parquet"} < kept
    solved: list[str] = []
    monkeypatch.setattr(building, "build_zone", solved.append)
    assert run("build", *given(city), *BUILD, "--out", out, "--resume")[0] == 0
    assert not solved
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.bundle", "a.bundle.build.json"]
    assert load_bundle(out).version == read_record(record_path(out)).config["bundle"]["version"] == 4


def test_nothing_is_left_where_a_build_does_not_begin(city: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "a.bundle")
    both = run("build", *given(city), "--walks", city / "walks", *BUILD, *out)
    assert "either --walks or --model" in str(both[3])
    neither = run("build", "--roads", city / "roads", *BUILD, *out)
    assert "either --walks or --model" in str(neither[3])
    other = run("build", "--model", city / "model", "--roads", city / "other", *BUILD, *out)
    assert isinstance(other[3], MismatchError)
    zones = run("build", *given(city), "--set", f"zones={tmp_path / 'missing'}", "--epsilon", 4, *out)
    assert isinstance(zones[3], InputError)
    assert "--resume" not in zones[2]
    assert list(tmp_path.iterdir()) == []
