from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from tests.traces._files import line, porto_file, porto_row, steady, table_file

run = CliRunner()


@pytest.fixture
def porto(tmp_path: Path) -> Path:
    rows = [porto_row(line(5)), porto_row("[]"), porto_row("nonsense"), porto_row(line(4))]
    return porto_file(tmp_path / "train.csv", rows)


def test_import_prints_a_table_with_every_rule_that_touched_something(tmp_path: Path, porto: Path) -> None:
    done = run.invoke(app, ["traces", "import", "--format", "porto", str(porto), "--out", str(tmp_path / "t.parquet")])
    assert done.exit_code == 0
    words = " ".join(done.stdout.split())
    assert "rows of the files 4 points in the rows that could be read 9" in words
    assert "dropped: rows that cannot be read 1 0 4" in words
    assert "dropped: trips that are too short 1 0 3" in words
    assert "malformed: POLYLINE is not a JSON list" in words
    assert "jump" not in words


def test_import_prints_json(tmp_path: Path, porto: Path) -> None:
    command = ["traces", "import", "--format", "porto", str(porto), "--out", str(tmp_path / "t.parquet"), "--json"]
    result = json.loads(run.invoke(app, command).stdout)
    assert {key: result[key] for key in ("rows_read", "trips", "points", "vehicles")} == {
        "rows_read": 4,
        "trips": 2,
        "points": 9,
        "vehicles": 1,
    }
    assert result["dropped"]["malformed"] == result["dropped"]["too_short"] == 1
    assert result["first_rows"]["malformed"] == [{"file": str(porto), "row": 4}]


def test_options_reach_the_rules(tmp_path: Path) -> None:
    header = "cab\tt\ty\tx"
    rows = [row.replace(",", "\t") for row in [*steady(4), *steady(2), *steady(3, start_s=1_372_700_000)]]
    path = table_file(tmp_path / "p.tsv", rows, header=header)
    command = ["traces", "import", "--format", "table", str(path), "--out", str(tmp_path / "t.parquet"), "--json"]
    command += [
        "--columns",
        "vehicle=cab, time=t,lat=y,lon=x",
        "--set",
        'delimiter="\\t"',
        "--set",
        "time_unit=s",
        "--overwrite",
    ]
    plain = json.loads(run.invoke(app, command).stdout)
    assert (plain["trips"], plain["points"], plain["dropped"]["duplicate"]) == (2, 7, 2)
    options = ["--set", "drop_duplicates=false", "--set", "max_gap_s=none", "--set", "min_points=9"]
    changed = json.loads(run.invoke(app, [*command, *options]).stdout)
    assert (changed["trips"], changed["points"]) == (1, 9)
    assert json.loads(run.invoke(app, [*command, "--set", "min_duration_s=25"]).stdout)["trips"] == 1


def test_strict_stops_with_file_and_row(tmp_path: Path, porto: Path) -> None:
    command = [
        "traces",
        "import",
        "--format",
        "porto",
        str(porto),
        "--out",
        str(tmp_path / "t.parquet"),
        "--set",
        "strict=true",
    ]
    done = run.invoke(app, command)
    assert done.exit_code == 1
    assert "train.csv, row 4: POLYLINE is not" in str(done.exception)
    assert sorted(tmp_path.iterdir()) == [porto]


@pytest.mark.parametrize("columns", ["lat", "lat=y,lat=z", "lat:y"])
def test_columns_that_are_no_mapping_are_refused(tmp_path: Path, porto: Path, columns: str) -> None:
    command = ["traces", "import", "--format", "table", str(porto), "--out", str(tmp_path / "t"), "--columns", columns]
    assert isinstance(run.invoke(app, command).exception, ParameterError)


def test_info_prints_a_table_and_json(tmp_path: Path, porto: Path) -> None:
    out = str(tmp_path / "t.parquet")
    run.invoke(app, ["traces", "import", "--format", "porto", str(porto), "--out", out])
    shown = " ".join(run.invoke(app, ["traces", "info", out]).stdout.split())
    assert "vehicles 1 trips 2 points 9" in shown
    assert "median step 15 s" in shown
    assert json.loads(run.invoke(app, ["traces", "info", out, "--json"]).stdout)["trips"] == 2
