from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from geoblanket.lab.evaluate import city_data, running
from geoblanket.lab.evaluate.results import read_results
from geoblanket.lab.evaluate.sanity import Violation
from tests.blanket.worlds import square, wandering, write_world

EXPERIMENT = """
title = "Two methods"
zones = 1
gap = 0.2
max_tasks = 100
[setting]
max_places = 10
max_rows = 20
methods = ["lp_cmdp", "lp_markov1", "lp", "expmech"]
[[vary]]
epsilon = [2, 4]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder, graph = tmp_path_factory.mktemp("world"), square()
    walks, roads = write_world(folder, graph, wandering(graph, side=12, walks=300, steps=12, seed=3))
    (folder / "two.toml").write_text(EXPERIMENT, encoding="utf-8")
    return ["evaluate", "--walks", walks, "--roads", roads, "--experiment", folder / "two.toml", "--set", "workers=1"]


def run(*arguments: object) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr, result.exception


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_results_as_a_table_and_as_files(world: list[object], tmp_path: Path) -> None:
    code, table, talk, _ = run(*world, "--out", tmp_path / "new", "--set", "city=squareville")
    assert code == 0, talk
    assert "squareville, two: loss on held-out walks (population, km)" in table
    assert "LP+Markov1" in table
    assert "Without --predictor, LP+C-mDP is left out." in talk
    assert (tmp_path / "new" / "report" / "report.html").exists()
    results, _ = read_results(tmp_path / "new")
    assert set(results["method"]) == {"lp_markov1", "lp", "expmech"}
    assert set(results["city"]) == {"squareville"}


def test_tracking_may_be_left_out_of_what_is_resumed(
    world: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "track_city", interrupt)
    monkeypatch.setattr(running, "_LONG_S", 0.0)
    code, table, talk, _ = run(*world, "--out", tmp_path, "--set", "report=false")
    assert (code, table) == (130, "")
    assert talk.index("min of one processor's time. Leave it out with --set tracking=false.") < talk.index("loss 0.")
    assert talk.count(" km on held-out walks") == 6
    code, table, _, _ = run(*world, "--out", tmp_path, "--set", "report=false", "--resume", "--set", "tracking=false")
    assert code == 0
    assert "LP+Markov1" in table


def test_without_tracking_nothing_is_tracked(
    world: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(city_data, "learn_motion", lambda *_, **__: pytest.fail("no motion model is needed"))
    code, text, talk, _ = run(*world, "--out", tmp_path, "--set", "tracking=false", "--json")
    assert code == 0, talk
    assert json.loads(text)["results"] > 0
    results, about = read_results(tmp_path)
    assert about["tracking"] is False
    assert not [measure for measure in set(results["measure"]) if "track" in measure]
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("np.ones((2, 3))", "must have the shape"),
        ("problem.loss[:, :-1]", "must have the shape"),
        ("None", "must return a table"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_method_of_the_wrong_shape_fails_before_the_work(
    world: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, problem: str
) -> None:
    monkeypatch.setattr(running, "CityData", lambda *_, **__: pytest.fail("the work has begun"))
    own = tmp_path / "own.py"
    own.write_text(f"import numpy as np\ndef mine(problem):\n    return {returned}\n")
    code, _, _, error = run(*world, "--out", tmp_path / "out", "--method", f"{own}:mine")
    assert code == 1
    assert isinstance(error, ParameterError)
    assert problem in str(error)


def test_what_must_hold_and_does_not_ends_with_3(
    world: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Violation("same domain and same walks for all", "here", "it is not")
    monkeypatch.setattr(running, "check_results", lambda _: (broken,))
    code, text, talk, _ = run(*world, "--out", tmp_path, "--quick", "--json", "--set", "report=false")
    assert code == 3
    assert "same domain and same walks for all: here: it is not" in talk
    assert read_results(tmp_path)[1]["violations"] == [asdict(broken)]
    facts = json.loads(text)
    assert facts["violations"] == [asdict(broken)]
    assert facts["results"] == pl.read_csv(tmp_path / "results.csv").height
    assert not (tmp_path / "report").exists()


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    code, _, talk, _ = run("evaluate", "--out", tmp_path)
    assert code == 2
    assert "--roads, --walks and --out must be given" in talk
    code, table, _, _ = run("evaluate", "--experiment", "help")
    assert code == 0
    assert "paper" in table
    reproduce = ("reproduce", "porto", "--data", tmp_path, "--out", tmp_path / "never")
    assert run(*reproduce, "--setting", "unpublished")[0] == 2
    assert not (tmp_path / "never").exists()
