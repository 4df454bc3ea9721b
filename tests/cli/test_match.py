from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli import _options
from geoblanket.cli._options import warn_of_many_places
from geoblanket.cli.main import app
from geoblanket.errors import InputError
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from tests.mobility.simulator import drive, town, write_traces


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    graph = town(8, 8)
    graph.save(tmp_path / "roads")
    traces = write_traces(tmp_path / "traces.parquet", drive(graph, 5, noise_m=5.0, seed=1))
    return ["--traces", str(traces), "--roads", str(tmp_path / "roads"), "--out", str(tmp_path / "walks.parquet")]


@pytest.mark.parametrize("method", ["hmm", "nearest"])
def test_json_says_what_was_written(files: list[str], tmp_path: Path, method: str) -> None:
    result = CliRunner().invoke(app, ["match", *files, "--interval", "15", "--set", f"method={method}", "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    frame, about = scan_walks(tmp_path / "walks.parquet")
    assert summary["steps"] == frame.collect().height
    assert summary["walks"] == 5
    assert 0.9 < summary["matched_share"] <= 1
    assert (about["method"], about["interval_s"]) == (method, 15.0)


def test_the_table_is_readable(files: list[str]) -> None:
    result = CliRunner().invoke(app, ["match", *files, "--spacing", "250", "--set", "max_gap_s=60"])
    assert result.exit_code == 0, result.output
    for words in ("one step every 30 s", "points that were matched", "100.0%", "median distance"):
        assert words in result.stdout
    assert "Walks written to" in result.stderr


def test_swapped_files_are_an_error(files: list[str]) -> None:
    swapped = ["--traces", files[3], "--roads", files[1], *files[4:]]
    result = CliRunner().invoke(app, ["match", *swapped])
    assert isinstance(result.exception, InputError)
    assert "is not a road graph written by geoblanket: it is a table of traces" in str(result.exception)


def test_places_too_many_for_a_build_are_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roads = tmp_path / "roads"
    town(8, 8).save(roads)
    warn_of_many_places(roads, 0.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_options, "_MANY_PLACES", 30)
    warn_of_many_places(roads, 0.0)
    told = capsys.readouterr().err
    assert told.startswith("Warning: `geoblanket build` may take days with 64 places (every road node), about 2 zones.")
    left = len(choose_places(RoadGraph.load(roads), spacing_m=250))
    assert f"Match with --spacing 250, which leaves {left} places." in told
    warn_of_many_places(roads, 250.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_options, "_MANY_PLACES", 0)
    warn_of_many_places(roads, 0.0)
    assert "Cut the roads to a smaller area." in capsys.readouterr().err


def test_an_unknown_method_is_refused(files: list[str]) -> None:
    error = CliRunner().invoke(app, ["match", *files, "--set", "method=magic"]).exception
    assert "'method' must be one of hmm, nearest. Got 'magic' instead." in str(error)
