from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geoblanket._files import sha256_file
from geoblanket._tables import scan_table
from geoblanket.errors import GeoblanketError, InputError, OutputError, ParameterError
from geoblanket.traces import _text, importing
from geoblanket.traces.cleaning import Cleaning
from geoblanket.traces.importing import import_traces
from geoblanket.traces.table import TRACES_SCHEMA
from tests.traces._files import (
    START_S,
    dropped,
    gzipped,
    imported,
    line,
    porto_file,
    porto_row,
    steady,
    table_file,
)


def fleet(vehicles: int, points: int) -> list[str]:
    """Rows of many vehicles, interleaved as they would come in."""
    rows = [row for k in range(vehicles) for row in steady(points, vehicle=f"v{k}", start_s=START_S + k)]
    return [rows[k] for k in np.random.default_rng(0).permutation(len(rows))]


def test_the_table_says_what_it_is(tmp_path: Path) -> None:
    imported(tmp_path, table_file(tmp_path / "a.csv", steady(3)), format="table", cleaning=Cleaning(min_points=3))
    frame, about = scan_table(tmp_path / "traces.parquet", kind="traces", schema=TRACES_SCHEMA)
    assert frame.collect_schema() == pl.Schema(TRACES_SCHEMA)
    assert about["format"] == "table"
    assert about["files"] == ["a.csv"]
    assert about["cleaning"]["min_points"] == 3


def test_files_are_imported_together(tmp_path: Path) -> None:
    rows = steady(6)
    files = [table_file(tmp_path / "a.csv", rows[::2]), table_file(tmp_path / "b.csv", [*rows[1::2], rows[0], "x,y"])]
    table, summary = imported(tmp_path, *files, format="table")
    assert table["lat"].to_list() == [41.9, 41.9005, 41.901, 41.9015, 41.902, 41.9025]
    assert (summary.rows_read, summary.trips) == (8, 1)
    assert summary.first_rows("duplicate") == [(files[1], 5)]
    assert summary.first_rows("malformed") == [(files[1], 6)]
    assert summary.first_rows("sorted")[0] == (files[1], 2)


def test_small_blocks_and_spilled_points_give_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gzipped(table_file(tmp_path / "points.csv", [*fleet(40, 30), "bad row", *steady(3, vehicle="v7")]))
    expected, summary = imported(tmp_path, path, format="table")
    monkeypatch.setattr(_text, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(importing, "MAX_ROWS", 100)
    table, again = imported(tmp_path, path, format="table")
    assert table.equals(expected)
    assert again.to_json() == summary.to_json()
    assert summary.rows_read == 1204
    assert sorted(tmp_path.iterdir()) == [tmp_path / "points.csv", path, tmp_path / "traces.parquet"]


def test_many_blocks_of_trips_are_numbered_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [porto_row(line(2 + k % 5), taxi=str(k % 9)) for k in range(200)]
    rows[50:50] = [porto_row("nonsense"), porto_row("[]")]
    path = porto_file(tmp_path / "train.csv", rows)
    expected, summary = imported(tmp_path, path, format="porto")
    monkeypatch.setattr(_text, "BLOCK_BYTES", 1000)
    table, again = imported(tmp_path, path, format="porto")
    assert table.equals(expected)
    assert again.to_json() == summary.to_json()
    assert table["trip"].unique().to_list() == list(range(200))
    assert summary.first_rows("malformed") == [(path, 52)]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    path = table_file(tmp_path / "points.csv", fleet(20, 30))
    for name in ("one", "two"):
        import_traces([path], tmp_path / name, format="table")
    assert sha256_file(tmp_path / "one") == sha256_file(tmp_path / "two")


def test_points_and_drops_add_up(tmp_path: Path) -> None:
    rows = [*fleet(10, 20), "v3,0,1", "v3,,,", *steady(1, vehicle="lonely")]
    rows += [f"v1,{START_S + 1},0,0", f"v1,{START_S + 1},41.9,12.5", f"v1,{START_S + 1},41.9,12.5"]
    _, summary = imported(tmp_path, table_file(tmp_path / "points.csv", rows), format="table")
    assert summary.rows_read == len(rows)
    assert summary.points_read == len(rows) - 2
    assert dropped(summary) == {"malformed": 2, "impossible": 1, "duplicate": 2, "too_short": 1}
    assert summary.points == summary.points_read - 4


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    told: dict[str, tuple[float, float | None]] = {}

    def progress(phase: str, done: float, total: float | None) -> None:
        assert total is None or done <= total
        told[phase] = (done, total)

    path = gzipped(table_file(tmp_path / "points.csv", fleet(4, 20)))
    imported(tmp_path, path, format="table", progress=progress)
    size = path.stat().st_size
    assert told == {"Reading": (size, size), "Cleaning": (80, 80)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "berlin"}, "format must be one of"),
        ({"format": "rome", "columns": {"lat": "y"}}, "columns are for the format 'table'"),
        ({"format": "table", "delimiter": ";;"}, "delimiter must be"),
        ({"format": "table", "delimiter": '"'}, "delimiter must be"),
        ({"format": "table", "time_zone": "Nowhere"}, "time zone"),
        ({"format": "table", "columns": {"a": "b"}}, "columns must give names"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        imported(tmp_path, table_file(tmp_path / "a.csv", steady(3)), **options)


def test_files_are_checked_first(tmp_path: Path) -> None:
    path = table_file(tmp_path / "a.csv", steady(3))
    for files, out, error, message in [
        ([], "out", ParameterError, "at least one file"),
        ([tmp_path / "none.csv"], "out", InputError, "no such file"),
        ([tmp_path], "out", InputError, "is a folder"),
        ([path, path], "out", ParameterError, "given twice"),
        ([path], "a.csv", ParameterError, "both read and written"),
        ([path], "none/out", OutputError, "does not exist"),
    ]:
        with pytest.raises(error, match=message):
            import_traces(files, tmp_path / out, format="table")
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b"vehicle,time,lat,lon\n" + b"a,1372636853,41.9,12.5\n" * 99, mtime=0)[:-9]]
)
@pytest.mark.parametrize("trace_format", ["porto", "rome", "table"])
def test_empty_and_truncated_files_leave_the_old_table_alone(tmp_path: Path, content: bytes, trace_format: Any) -> None:
    out = tmp_path / "traces.parquet"
    out.write_bytes(b"old")
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file\.gz: (is empty|the gzip data)"):
        import_traces([path], out, format=trace_format)
    assert out.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [path, out]


def test_a_gzip_file_cut_short_after_many_rows_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(importing, "MAX_ROWS", 100)
    path = gzipped(table_file(tmp_path / "points.csv", fleet(40, 50)))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="cut short"):
        imported(tmp_path, path, format="table")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "points.csv", path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_import_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = table_file(tmp_path / "points.csv", fleet(4, 20))

    def interrupt(phase: str, done: float, total: float | None) -> None:
        raise error(phase, done, total)

    with pytest.raises(error):
        import_traces([path], tmp_path / "traces.parquet", format="table", progress=interrupt)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ended_by_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "out").mkdir()
    path = porto_file(tmp_path / "train.csv", [porto_row(line(50))] * 2000)
    slow = (
        "import time, sys\n"
        "from geoblanket.traces import taxi_files\n"
        "from geoblanket.cli import main\n"
        "parse = taxi_files.PortoFile.parse\n"
        "def slowly(self, block):\n"
        "    print('busy', flush=True)\n"
        "    time.sleep(1)\n"
        "    return parse(self, block)\n"
        "taxi_files.PortoFile.parse = slowly\n"
        "sys.argv = ['geoblanket', *sys.argv[1:]]\n"
        "main()\n"
    )
    command = [sys.executable, "-c", slow, "traces", "import", "--format", "porto", str(path), "--out", "out/t.parquet"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"busy\n"
        assert list((tmp_path / "out").iterdir())
        started = time.monotonic()
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == 130
    assert time.monotonic() - started < 20
    assert list((tmp_path / "out").iterdir()) == []


def test_no_error_tells_a_coordinate(tmp_path: Path) -> None:
    canary = "41.7654321"
    contents = {
        "table": [
            f"vehicle,time,lat,lon\na,{START_S},{canary}",
            f"vehicle,time,lat,lon\na,{START_S},{canary}x,12.5",
            f"vehicle,time,lat,lon\na,{canary},{canary},12.5",
            f"a,{START_S},{canary},12.5\na,{START_S},{canary},12.5",
            f'vehicle,time,lat,lon\na,{START_S},"{canary}\n' * 5,
            f"vehicle,time,lat,lon\na,{START_S},{canary},1\xff",
        ],
        "rome": [f"1;2014-02-01 00:00:00+01;POINT({canary} {canary}", f"1;{canary};POINT({canary} 12.5)"],
        "porto": [f'TAXI_ID,TIMESTAMP,POLYLINE\n7,{START_S},"[[{canary},{canary}"', f"TAXI_ID,TIMESTAMP,{canary}\n"],
    }
    for trace_format, texts in contents.items():
        for text in texts:
            path = tmp_path / "file"
            path.write_text(text + "\n", encoding="latin-1")
            with pytest.raises(GeoblanketError) as raised:
                import_traces([path], tmp_path / "out", format=trace_format, strict=True)  # type: ignore[arg-type]  # keys are formats
            assert canary not in str(raised.value)
            assert raised.value.__cause__ is None
