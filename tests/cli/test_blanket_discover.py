from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.blanket.findings import scan_findings
from geoblanket.cli.main import app
from geoblanket.errors import MismatchError
from tests.blanket.quick_test import use_quick_test
from tests.blanket.worlds import Walk, square, wandering, write_world


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    use_quick_test(monkeypatch)
    graph = square()
    walks, roads = write_world(tmp_path, graph, wandering(graph, side=12, walks=400, steps=12, seed=2))
    return ["--walks", str(walks), "--roads", str(roads), "--out", str(tmp_path / "findings.parquet")]


QUICK = ["--set", "test=quick", "--set", "workers=1"]


def test_json_says_what_was_found(files: list[str], tmp_path: Path) -> None:
    options = ["--by", "speed", "--by", "all", "--set", "largest=2", "--set", "time_zone=Europe/Lisbon", "--json"]
    result = CliRunner().invoke(app, ["blanket", "discover", *files, *QUICK, *options])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert list(facts["groupings"]) == ["speed", "all"]
    assert facts["groupings"]["all"]["tested"] == 1
    assert facts["groupings"]["speed"]["groups"] == 24
    rows, about = scan_findings(tmp_path / "findings.parquet")
    assert rows.collect().height == (24 + 1) * 2
    assert about["time_zone"] == facts["time_zone"] == "Europe/Lisbon"


def test_the_table_is_readable(files: list[str]) -> None:
    result = CliRunner().invoke(app, ["blanket", "discover", *files, *QUICK, "--by", "region,speed"])
    assert result.exit_code == 0, result.output
    for words in ("speed+region", "too few", "vehicles"):
        assert words in result.stdout
    assert "Regions are 4 × 4 cells over the bounding box of the roads" in result.stderr
    assert "Findings written to" in result.stderr


@pytest.mark.parametrize(
    ("walks", "options", "note"),
    [
        ([Walk("only", 0.0, [1, 2, 3, 4])], ["--by", "all"], "There is only one vehicle"),
        ([Walk("a", 0.0, [1, 2, 3, 4]), Walk("b", 0.0, [1, 2])], ["--by", "all"], "No group has enough samples"),
        ([Walk("a", 0.0, [1, 2, 3, 4])], ["--by", "region"], "All samples lie in one region"),
    ],
)
def test_odd_samples_are_told(
    files: list[str], tmp_path: Path, walks: list[Walk], options: list[str], note: str
) -> None:
    write_world(tmp_path, square(), walks)
    result = CliRunner().invoke(app, ["blanket", "discover", *files, *QUICK, *options])
    assert result.exit_code == 0, result.output
    assert note in result.stderr


def test_walks_of_other_roads_are_an_error(files: list[str], tmp_path: Path) -> None:
    square(9).save(tmp_path / "roads")
    result = CliRunner().invoke(app, ["blanket", "discover", *files, *QUICK])
    assert isinstance(result.exception, MismatchError)


def test_ctrl_c_keeps_what_is_finished(files: list[str], tmp_path: Path) -> None:
    script = (
        "from geoblanket.blanket import independence; from geoblanket.cli import main; "
        "independence.TESTS['quick'] = ('tests.blanket.quick_test', 'where_test'); main()"
    )
    command = [sys.executable, "-c", script, "blanket", "discover", *files, *QUICK]
    command += ["--by", "hour,speed,region", "--set", "smallest_group=1"]
    side = tmp_path / "findings.parquet.unfinished"
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) as process:
        while not (side.exists() and side.read_bytes().count(b"\n") > 5):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "continue with --resume" in talk
    assert "Traceback" not in talk
    kept = side.read_bytes().count(b"\n") - 1
    assert kept >= 5
