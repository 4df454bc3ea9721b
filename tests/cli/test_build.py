from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.build.config import BuildConfig, read_config
from geoblanket.build.record import read_record
from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from geoblanket.mechanism import load_bundle
from tests.blanket.worlds import square, wandering, write_world
from tests.mechanism.bundles import save_located

WALKS, ROADS = 0, 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    graph = square()
    return write_world(tmp_path_factory.mktemp("world"), graph, wandering(graph, side=12, walks=300, steps=12, seed=3))


def run(*arguments: object) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr, result.exception


def settings(*given: str) -> list[str]:
    return [word for setting in given for word in ("--set", setting)]


def test_help_on_settings_is_a_configuration(tmp_path: Path) -> None:
    code, text, _, _ = run("build", "--set", "help")
    assert code == 0
    (tmp_path / "city.toml").write_text(text)
    assert read_config(tmp_path / "city.toml", epsilon=2.0) == BuildConfig(epsilon=2.0)
    for field in BuildConfig.model_fields.values():
        assert str(field.description) in text
    assert "Address of a Dask scheduler" in text


def test_a_bundle_from_a_file_and_flags(world: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "city.toml").write_text(
        '[privacy]\nepsilon = 3.0\n[loss]\nloss = "straight"\n[search]\ngap = 0.2\n[zones]\nmax_places = 20\n'
    )
    given = ("build", "--config", tmp_path / "city.toml", "--walks", world[WALKS], "--roads", world[ROADS])
    hours = f"hours={{day={[*range(6, 22)]},night=[22,23,0,1,2,3,4,5]}}"
    flags = settings("order=1", "max_rows=25", "workers=1", hours, "history_weights=[0.5]")
    out = tmp_path / "city.bundle"
    code, result, talk, _ = run(*given, "--epsilon", 4, *flags, "--out", out, "--json")
    assert code == 0, talk
    facts = json.loads(result)
    assert facts["config"]["privacy"] == {
        "epsilon": 4.0, "zone_epsilon": {}, "metric": "great circle", "eta_km": 5.0, "history_weights": [0.5],
    }  # fmt: skip
    assert {zone["regime"] for zone in facts["zones"]} == {"day", "night", "start"}
    assert facts.pop("blanket") == "fixed past of 1 place, as no predictor was given"
    assert facts == json.loads((tmp_path / "city.bundle.build.json").read_text())
    record = read_record(tmp_path / "city.bundle.build.json")
    for given_context, words in (
        ({"predictor": "a.predictor"}, "predictor a.predictor, at most 1 place"),
        ({"findings": "f.parquet"}, "for each group as found in f.parquet, at most 1 place"),
        ({"context": "order:1"}, "fixed past of 1 place (context order:1)"),
    ):
        config = {**record.config, "context": {**record.config["context"], **given_context}}
        assert replace(record, config=config).blanket == words
    code, result, _, _ = run("verify", out)
    assert code == 0
    assert "changes the odds between two histories" in result
    code, result, _, _ = run("show", out, "--json")
    assert json.loads(result)["clock"] == {
        "interval_s": 30.0,
        "time_zone": "UTC",
        "regimes": {"day": list(range(6, 22)), "night": [0, 1, 2, 3, 4, 5, 22, 23]},
        "start": "start",
    }


def test_a_table_for_people(world: tuple[Path, Path], tmp_path: Path) -> None:
    out = save_located(tmp_path / "a.bundle", version=3)
    code, result, talk, _ = run(
        "build", "--walks", world[WALKS], "--roads", world[ROADS], "--out", out, "--epsilon", 2,
        *settings("order=1", "max_rows=25", "max_places=20", "gap=0.2", "loss=straight", "compare=true", "workers=1"),
        "--overwrite",
    )  # fmt: skip
    assert code == 0, talk
    for words in (
        "loss is",
        "context free loss",
        "held out gain",
        "Zones and regimes",
        "all day",
        "fixed past of 1 place",
    ):
        assert words in result
    assert f"Bundle written to {out}, version 4, its record to" in talk
    assert load_bundle(out).version == 4
    assert "7.4 at 1 km" in talk
    assert "discloses the zone" in talk
    assert "are promised nothing: the mechanisms were learned without privacy for those in the traces." in talk


@pytest.mark.parametrize("epsilon", [1000, 20.1, 0.001, -1])
def test_an_epsilon_that_devices_refuse_is_refused_before_any_work(tmp_path: Path, epsilon: float) -> None:
    """Nothing was read yet: the files are not there."""
    code, _, talk, error = run(
        "build", "--roads", "absent", "--walks", "absent", f"--epsilon={epsilon}", "--out", tmp_path / "a.bundle"
    )
    assert code == 1
    assert f"ε must be from 0.01 to 20 per km. Got {epsilon:g} instead. Devices refuse a larger one" in str(error)
    assert talk == ""


def test_what_is_missing_or_wrong_is_told(world: tuple[Path, Path], tmp_path: Path) -> None:
    code, _, talk, _ = run("build", "--walks", world[WALKS])
    assert code == 2
    assert "--roads" in talk
    given = ("build", "--walks", world[WALKS], "--roads", world[ROADS], "--out", tmp_path / "a.bundle", "--epsilon", 2)
    for flags, words in (
        (("--model", "a"), "either --walks or --model"),
        (settings("history_weights=1;2"), "history_weights must be a list"),
        (settings("hours={day=[6,7]}"), "every hour"),
        (settings("max_row=2"), "There is no setting 'max_row'. Did you mean 'max_rows'? The settings are"),
        (("--set", "loss=money"), "'loss' must be one of travel, time, straight, nearest"),
        (settings("context=none", "order=1"), "order needs the context blanket"),
        (settings("context=none", "order=1", "gap=2"), "gap must be"),
    ):
        *_, error = run(*given, *flags)
        assert isinstance(error, ParameterError)
        assert words in str(error)
    assert list(tmp_path.iterdir()) == []
    save_located(tmp_path / "a.bundle", version=3)
    *_, error = run(*given, "--overwrite", "--set", "version=3")
    assert isinstance(error, ParameterError)
    assert "must be greater than 3" in str(error)
