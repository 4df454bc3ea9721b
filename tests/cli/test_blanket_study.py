from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import InputError, OutputError, ParameterError
from tests.blanket.quick_test import use_quick_test
from tests.blanket.worlds import square, wandering, write_world

QUICK = [
    "--set",
    "test=quick",
    "--set",
    "workers=1",
    "--set",
    "largest=2",
    "--set",
    "smallest_group=60",
    "--set",
    "permutations=19",
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    use_quick_test(monkeypatch)
    graph = square()
    walks, roads = write_world(tmp_path, graph, wandering(graph, side=12, walks=300, steps=12, seed=2))
    return ["--walks", str(walks), "--roads", str(roads), "--out", str(tmp_path / "study")]


def test_a_study_from_the_command_line(files: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["blanket", "study", *files, *QUICK, "--set", "paper=rome"])
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "study" / "study.json").read_text())
    assert "rejected at |B| = 1" in result.stdout
    assert summary["summary"][0].startswith("300 walks")
    assert (tmp_path / "study" / "report.html").is_file()
    assert "Report written to" in result.stderr
    assert "Spearman's correlation of p with time" in {claim["topic"] for claim in summary["claims"]}
    (tmp_path / "study" / "report.html").unlink()  # as if it had been interrupted
    error = CliRunner().invoke(app, ["blanket", "study", *files, *QUICK, "--set", "alpha=0.01"]).exception
    assert isinstance(error, OutputError)
    assert f"{tmp_path / 'study'}: has findings of another study" in str(error)


def test_wrong_files_and_cities_are_errors(files: list[str], tmp_path: Path) -> None:
    assert isinstance(
        CliRunner().invoke(app, ["blanket", "study", *files, *QUICK, "--set", "paper=paris"]).exception, ParameterError
    )
    swapped = ["--walks", files[3], "--roads", files[1], *files[4:]]
    assert isinstance(CliRunner().invoke(app, ["blanket", "study", *swapped, *QUICK]).exception, InputError)
    assert not (tmp_path / "study").exists()
