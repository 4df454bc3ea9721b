"""`geoblanket model`, and `show` of what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geoblanket._tables import write_table
from geoblanket.tracking.motion_model import MotionModel
from tests.blanket.made_findings import ABOUT, learnable, make_findings
from tests.cli.test_lattice import run
from tests.release.worlds import save_walks
from tests.roads.graphs import grid_graph

GRAPH = grid_graph(6, 8, step_deg=0.004)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    GRAPH.save(tmp_path / "city.roads")
    walks = [[(start + step) % 48 for step in range(10)] for start in range(20)]
    save_walks(tmp_path / "walks.parquet", walks, roads=GRAPH.identity)
    return tmp_path


def test_from_roads_alone(folder: Path) -> None:
    code, text, talk, _ = run(
        "model", "--roads", folder / "city.roads", "--out", folder / "m", "--set", "spacing_m=0", "--json"
    )
    assert code == 0, talk
    facts = json.loads(text)
    model = MotionModel.load(folder / "m")
    assert (facts["places"], facts["moves"]) == (48, len(model.targets))
    assert facts["states_by_order"] == {"1": 0, "2": len(model), "3": 0}
    assert facts["bytes"] == (folder / "m").stat().st_size
    assert facts["learned"]["from"] == "roads"
    assert f"Model written to {folder / 'm'}: from the road network alone." in talk
    assert "privacy" not in talk


def test_places_are_as_fine_as_epsilon_needs(folder: Path) -> None:
    options = ("model", "--roads", folder / "city.roads", "--set", "order=1", "--json", "--set")
    for epsilon, spacing_m in ((1, 250.0), (8, 125.0), (20, 100.0)):
        code, text, talk, _ = run(*options, f"epsilon={epsilon}", "--out", folder / f"{epsilon}.model")
        assert code == 0, talk
        assert json.loads(text)["spacing_m"] == spacing_m


def test_from_walks_it_says_that_nobody_is_protected(folder: Path) -> None:
    options = (
        "--roads",
        folder / "city.roads",
        "--walks",
        folder / "walks.parquet",
        "--set",
        "order=3",
        "--out",
        folder / "m",
    )
    code, text, talk, _ = run("model", *options)
    assert code == 0, talk
    assert "learned without privacy for those in the traces" in talk
    assert "states by order" in text
    first = (folder / "m").read_bytes()
    assert run("model", *options, "--overwrite")[0] == 0
    assert (folder / "m").read_bytes() == first
    code, shown, _, _ = run("show", folder / "m", "--json")
    facts = json.loads(shown)
    assert (facts["interval_s"], facts["spacing_m"], facts["learned"]["from"]) == (30, 0, "roads and walks")
    assert "180 steps of walks: learned without privacy for those in the traces" in facts["words"]
    assert facts["training"] == {"source": "walks"}
    code, shown, _, _ = run("show", folder / "m")
    assert "bytes" in shown


def test_orders_by_blanket(folder: Path) -> None:
    about = ABOUT | {"regions": None, "interval_s": 30.0}
    write_table(make_findings(learnable, hours=3, speeds=3, regions=2), folder / "f", kind="findings", about=about)
    code, text, talk, error = run(
        "model", "--roads", folder / "city.roads", "--set", "spacing_m=0", "--findings", folder / "f", "--json",
        "--out", folder / "m",
    )  # fmt: skip
    assert code == 0, (talk, error)
    assert json.loads(text)["learned"]["order"] == "by blanket"
    assert json.loads(text)["training"] == {"source": "walks"}


@pytest.mark.parametrize(("options", "words"), [
    (("--set", "order=2", "--findings", "f"), "Give only one of order, --findings and predictor"),
    (("--findings", "f", "--set", "predictor=p"), "Give only one of order, --findings and predictor"),
    (("--set", "zones=z"), "zones need --findings or predictor"),
    (("--set", "interval_s=0"), "1 to 3,600 seconds"),
    (("--set", "interval_s=nan"), "1 to 3,600 seconds"),
    (("--walks", "walks.parquet", "--set", "spacing_m=99"), "places 0 m apart. Got spacing_m=99 instead"),
    (("--set", "epsilon=8", "--set", "spacing_m=99"), "epsilon chooses the spacing of places"),
    (("--walks", "walks.parquet", "--set", "interval_s=60"), "a step every 30 s. Got 60 s instead"),
    (("--walks", "absent.parquet",), "no such file"),
    (("--findings", "absent"), "no such file"),
    (("--set", "predictor=city.roads"), "is not a predictor of blankets"),
    (("--set", "interval_s=3600"), "too short for trips"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[object, ...], words: str
) -> None:
    monkeypatch.chdir(folder)
    code, _, _, error = run("model", "--roads", "city.roads", *options, "--out", "m")
    assert code == 1
    assert words in str(error)
    assert not (folder / "m").exists()


def test_show_has_no_picture_of_a_model_and_refuses_a_damaged_one(folder: Path) -> None:
    assert run("model", "--roads", folder / "city.roads", "--set", "spacing_m=0", "--out", folder / "m")[0] == 0
    assert "no picture of a motion model" in str(run("show", folder / "m", "--picture", folder / "a.png")[3])
    content = bytearray((folder / "m").read_bytes())
    content[-1] ^= 1
    (folder / "m").write_bytes(content)
    code, _, _, error = run("show", folder / "m")
    assert code == 1
    assert "was changed or damaged" in str(error)
