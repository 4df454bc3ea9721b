from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import InputError, OutputError, ParameterError
from tests.roads.graphs import grid_graph

runner = CliRunner()


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    grid_graph(6, 7).save(tmp_path / "some.roads")
    return tmp_path / "some.roads"


def run(*arguments: object) -> str:
    result = runner.invoke(app, ["roads", "zones", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_zones_are_told_written_and_drawn(roads: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "zones.parquet", tmp_path / "zones.png"
    told = json.loads(run(roads, "--max-places", 12, "--out", out, "--picture", picture, "--json"))
    assert told["places"] == 42
    assert told["connected"] is True
    assert told["smallest"] >= 6
    assert told["largest"] <= 12
    assert 55 < told["snapping_radius_m"] < 56
    table = pl.read_parquet(out)
    assert table["zone"].n_unique() == table["zone_id"].n_unique() == told["zones"]
    assert table["place"].to_list() == list(range(42))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_zones_for_people(roads: Path) -> None:
    told = run(roads, "--spacing", 150, "--max-places", 9)
    assert "150 m" in told
    assert "connected" in told


def test_wrong_files_and_options_are_refused(roads: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        run(tmp_path / "none.roads")
    with pytest.raises(ParameterError, match="spacing"):
        run(roads, "--spacing", -1)
    with pytest.raises(OutputError, match="does not exist"):
        run(roads, "--out", tmp_path / "none" / "zones.parquet")
    with pytest.raises(ParameterError, match="must end in"):
        run(roads, "--picture", tmp_path / "zones.txt")
    assert runner.invoke(app, ["roads", "zones", str(roads), "--max-places", "0"]).exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.roads"]
