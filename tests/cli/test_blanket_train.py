from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.blanket.findings import write_findings
from geoblanket.blanket.predictor import load_predictor
from geoblanket.cli.main import app
from geoblanket.errors import InputError, OutputError, ParameterError
from tests.blanket.made_findings import ABOUT, drawn_by_lot, learnable, make_findings

QUICK = ["--set", "most_epochs=30"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictor")
    write_findings(make_findings(learnable, speeds=10), folder / "findings.parquet", about=ABOUT)
    write_findings(make_findings(drawn_by_lot(3), hours=8), folder / "lot.parquet", about=ABOUT)
    arguments = ["blanket", "train", "--findings", str(folder / "findings.parquet"), "--out", str(folder / "model")]
    result = CliRunner().invoke(app, [*arguments, *QUICK])
    assert result.exit_code == 0, result.output
    (folder / "printed").write_text(result.stdout)
    (folder / "said").write_text(result.stderr)
    return folder


def test_train_prints_the_measures_of_all_models(folder: Path) -> None:
    printed = (folder / "printed").read_text()
    for words in (
        "network",
        "boosting",
        "m alone",
        "bce",
        "negative f1",
        "calibration",
        "right length",
        "cells",
    ):
        assert words in printed
    assert "The network predicts better than m alone" in (folder / "said").read_text()


def test_train_as_json_says_when_there_is_nothing_to_learn(folder: Path, tmp_path: Path) -> None:
    arguments = [
        "--findings",
        str(folder / "lot.parquet"),
        "--out",
        str(tmp_path / "m"),
        "--set",
        "seed=4",
        "--set",
        "labels=tested",
    ]
    result = CliRunner().invoke(app, ["blanket", "train", *arguments, *QUICK, "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["seed"] == 4
    assert facts["labels"] == "tested"
    assert [(one["model"], one["trained_on"]) for one in facts["evaluations"]][3:5] == [
        ("network", "tested"),
        ("boosting", "tested"),
    ]
    assert len(facts["evaluations"][0]["calibration"]["tested"]) == 10
    assert "The predictor uses m alone" in result.stderr


def test_few_groups_to_judge_by_are_named(tmp_path: Path) -> None:
    write_findings(make_findings(learnable, hours=4, speeds=8, regions=2, impute=False), tmp_path / "f", about=ABOUT)
    arguments = ["--findings", str(tmp_path / "f"), "--out", str(tmp_path / "m"), "--set", "most_epochs=200"]
    result = CliRunner().invoke(app, ["blanket", "train", *arguments])
    assert result.exit_code == 0, result.output
    assert "Only 13 groups are left for testing" in result.stderr
    assert "imputed labels" not in result.stdout


def test_predict_prints_the_length_and_the_probability_of_each_order(folder: Path) -> None:
    model = str(folder / "model")
    asked = ["--hour", "8", "--speed-mph", "22.5", "--region", "1"]
    result = CliRunner().invoke(app, ["blanket", "predict", model, *asked])
    assert result.exit_code == 0, result.output
    predictor = load_predictor(folder / "model")
    length = predictor.length(hour=8, speed_mph=22.5, region=1)
    assert f"Blanket of {length}" in result.stdout
    assert "fail to reject" in result.stdout
    facts = json.loads(CliRunner().invoke(app, ["blanket", "predict", model, *asked, "--json"]).stdout)
    assert facts["length"] == length
    assert list(facts["fail_to_reject"].values()) == predictor.probabilities(hour=8, speed_mph=20, region=1).tolist()
    assert facts["time_zone"] == "Europe/Lisbon"


def test_predict_says_when_it_does_not_know_the_region(folder: Path) -> None:
    result = CliRunner().invoke(
        app, ["blanket", "predict", str(folder / "model"), "--hour", "8", "--speed-mph", "20", "--region", "77"]
    )
    assert result.exit_code == 0
    assert "does not know this region" in result.stderr


def test_wrong_options_and_files_are_refused(folder: Path, tmp_path: Path) -> None:
    findings, model = str(folder / "findings.parquet"), str(folder / "model")

    def refused(*arguments: str) -> BaseException | None:
        result = CliRunner().invoke(app, ["blanket", *arguments])
        assert result.exit_code != 0
        return result.exception

    assert isinstance(refused("predict", model, "--hour", "8", "--speed-mph", "-1"), ParameterError)
    assert isinstance(refused("predict", model, "--hour", "8", "--speed-mph", "nan"), ParameterError)
    assert isinstance(refused("predict", model, "--hour", "8"), ParameterError)
    assert isinstance(refused("predict", model, "--hour", "24", "--speed-mph", "1"), SystemExit)
    assert isinstance(refused("predict", findings, "--hour", "8", "--speed-mph", "1"), InputError)
    assert isinstance(refused("train", "--findings", model, "--out", str(tmp_path / "m")), InputError)
    assert isinstance(refused("train", "--findings", findings, "--out", str(tmp_path / "no" / "m")), OutputError)
    assert isinstance(
        refused("train", "--findings", findings, "--out", str(tmp_path / "m"), "--set", "by=hour"), ParameterError
    )
    assert list(tmp_path.iterdir()) == []
