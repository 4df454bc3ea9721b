from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import InputError
from geoblanket.traces.cleaning import Cleaning
from geoblanket.traces.taxi_files import BAD_POLYLINE, _rewrite
from tests.traces._files import (
    PORTO_HEADER,
    REAL_DATA,
    START_S,
    dropped,
    gzipped,
    imported,
    line,
    porto_file,
    porto_row,
)

AS_IT_IS = Cleaning(drop_impossible=False, max_speed_m_s=None, min_points=1, drop_duplicates=False)


def minimal(row: str) -> str:
    """The row as pandas writes it again: quotes only where they are needed."""
    return ",".join(f'"{cell}"' if "," in cell else cell for cell in next(csv.reader([row])))


def test_points_are_fifteen_seconds_apart_and_longitude_comes_first(tmp_path: Path) -> None:
    path = porto_file(
        tmp_path / "train.csv", [porto_row(line(3)), porto_row(line(2), taxi="20000001", start=START_S + 7)]
    )
    table, summary = imported(tmp_path, path, format="porto")
    assert table["vehicle"].to_list() == ["20000589"] * 3 + ["20000001"] * 2
    assert table["trip"].to_list() == [0, 0, 0, 1, 1]
    seconds = (table["time"].to_physical() // 1_000_000 - START_S).to_list()
    assert seconds == [0, 15, 30, 7, 22]
    assert table["lat"].to_list() == [41.14, 41.1405, 41.141, 41.14, 41.1405]
    assert table["lon"].to_list() == [-8.61, -8.6095, -8.609, -8.61, -8.6095]
    assert (summary.rows_read, summary.points_read, summary.points, summary.trips) == (2, 5, 5, 2)
    assert summary.vehicles == 2


@pytest.mark.parametrize("change", [minimal, lambda row: row.replace("],[", "], [")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("compress", [False, True])
def test_variants_of_the_file_give_the_same_table(
    tmp_path: Path, change: Callable[[str], str], end: str, mark: str, compress: bool
) -> None:
    rows = [porto_row(line(5)), porto_row(line(1)), porto_row("[]"), porto_row(line(7))]
    expected, _ = imported(tmp_path, porto_file(tmp_path / "a.csv", rows), format="porto")
    other = tmp_path / "b.csv"
    other.write_bytes((mark + end.join([PORTO_HEADER, *map(change, rows)])).encode())
    table, summary = imported(tmp_path, gzipped(other) if compress else other, format="porto")
    assert table.equals(expected)
    assert dropped(summary) == {"too_short": 2}


def test_trips_without_or_with_one_point_are_too_short_not_malformed(tmp_path: Path) -> None:
    rows = [porto_row("[]"), porto_row(line(1)), porto_row(line(2))]
    _, summary = imported(tmp_path, porto_file(tmp_path / "train.csv", rows), format="porto")
    assert dropped(summary) == {"too_short": 2}
    assert summary.first_rows("too_short") == [(tmp_path / "train.csv", 2), (tmp_path / "train.csv", 3)]
    assert (summary.points_read, summary.points, summary.rules["too_short"].points) == (3, 2, 1)


@pytest.mark.parametrize(
    "polyline",
    [
        "not JSON",
        "[[-8.6,41.1]",
        "[[-8.6,41.1],]",
        "[[-8.6]]",
        "[[-8.6,41.1,7]]",
        "[-8.6,41.1]",
        "{}",
        "7",
        "[[-8.6,true]]",
        "[[-8.6,null]]",
        "[['-8.6','41.1']]",
        "[[-8.6,41.1]]]",
        "[[-8.6,٤١]]",
        "=cmd()",
        "[[1 2,3]]",
        "[" * 100_000,
        "[[" + "9" * 10_000 + ",41.1]]",
    ],
)
def test_polylines_that_are_not_points_are_counted(tmp_path: Path, polyline: str) -> None:
    rows = [porto_row(line(3)), porto_row(polyline), porto_row(line(4))]
    path = porto_file(tmp_path / "train.csv", rows)
    table, summary = imported(tmp_path, path, format="porto")
    assert table.height == 7
    assert summary.malformed == {BAD_POLYLINE: 1}
    assert summary.first_rows("malformed") == [(path, 3)]
    with pytest.raises(InputError, match=r"train\.csv, row 3: POLYLINE is not"):
        imported(tmp_path, path, format="porto", strict=True)


def test_unusual_but_right_json_is_read(tmp_path: Path) -> None:
    texts = [
        "[ [ -8.61 , 41.14 ], [-8.6095,4.11405e1] ]",
        "[[-8,41],[-8.0001,41.0001]]",
        "[[NaN,41.1],[-8,1e308],[-8,41],[-8,41]]",
    ]
    table, summary = imported(
        tmp_path, porto_file(tmp_path / "train.csv", [porto_row(text) for text in texts]), format="porto"
    )
    assert table["lon"].to_list() == [-8.61, -8.6095, -8.0, -8.0001, -8.0, -8.0]
    assert table["lat"].to_list() == [41.14, 41.1405, 41.0, 41.0001, 41.0, 41.0]
    assert dropped(summary) == {"impossible": 1}
    assert summary.rules["impossible"].points == 2


@given(st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), max_size=5))
def test_rewriting_a_polyline_keeps_every_digit(points: list[tuple[float, float]]) -> None:
    text = json.dumps(points, indent=1)
    rewritten = _rewrite(text)
    assert rewritten is not None
    assert json.loads(rewritten) == json.loads(text)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (porto_row(line(3), start="soon"), "the time is not readable"),
        (porto_row(line(3), start=""), "a cell that is needed is empty"),
        (porto_row(line(3), taxi=""), "a cell that is needed is empty"),
        (porto_row(line(3), start=START_S * 1000), "the time lies outside the years 1970 to 2100"),
        (porto_row(line(3), start=-5), "the time lies outside the years 1970 to 2100"),
        (porto_row(line(3)) + ',"more"', "wrong number of columns"),
        ('"1","C"', "wrong number of columns"),
        (porto_row(line(3), taxi="a\x00b"), "not UTF-8 text"),
    ],
)
def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, row: str, reason: str) -> None:
    path = porto_file(tmp_path / "train.csv", [porto_row(line(3)), porto_row(line(3)), row, porto_row(line(3))])
    table, summary = imported(tmp_path, path, format="porto")
    assert table["trip"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert summary.rows_read == 4
    assert summary.malformed == {reason: 1}
    assert summary.first_rows("malformed") == [(path, 4)]


def test_trips_with_missing_data_are_dropped_or_kept(tmp_path: Path) -> None:
    path = porto_file(tmp_path / "train.csv", [porto_row(line(3)), porto_row(line(4), missing="True")])
    table, summary = imported(tmp_path, path, format="porto")
    assert (table.height, dropped(summary)) == (3, {"missing_data": 1})
    assert summary.rules["missing_data"].points == 4
    table, summary = imported(tmp_path, path, format="porto", cleaning=Cleaning(drop_missing_data=False))
    assert (table.height, dropped(summary)) == (7, {})


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(f'POLYLINE,extra,TIMESTAMP,TAXI_ID\n"{line(2)}",x,{START_S},7\n', encoding="utf-8")
    table, _ = imported(tmp_path, path, format="porto")
    assert table["vehicle"].to_list() == ["7", "7"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PORTO_HEADER.replace("TAXI_ID", "TAXI") + "\n", "row 1: column 'TAXI_ID'"),
        (PORTO_HEADER.replace("DAY_TYPE", "TAXI_ID") + "\n", "more than one column 'TAXI_ID'"),
        (PORTO_HEADER.replace(",", ";") + "\n", r"delimiter ';'; give --set delimiter"),
        (PORTO_HEADER + "\n", "has a header but no rows"),
        (PORTO_HEADER, "has a header but no rows"),
        (porto_row(line(3)) + "\n", "seems to have no header"),
        (PORTO_HEADER + "\n" + "1,2\n" * 5, "row 2: wrong number of columns, and the same goes for the rows after it"),
        (PORTO_HEADER + "\n" + porto_row(line(3), start=START_S * 1000) + "\n", "Give --set time_unit=ms"),
        (
            PORTO_HEADER + "\n" + porto_row([[lat, lon] for lon, lat in line(9)]) + "\n",
            "latitude and longitude look exchanged",
        ),
        (PORTO_HEADER + "\n" + porto_row("[]") + "\n", r"nothing is left of 1 rows \(rows dropped: too_short 1\)"),
        (PORTO_HEADER + "\n" + porto_row(line(1)) + "\n", r"nothing is left of 1 rows \(rows dropped: too_short 1\)"),
    ],
)
def test_files_that_are_not_porto_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        imported(tmp_path, path, format="porto")
    assert str(path) in str(raised.value)
    assert "41.1" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_milliseconds_are_read_where_they_are_declared(tmp_path: Path) -> None:
    path = porto_file(tmp_path / "train.csv", [porto_row(line(2), start=START_S * 1000)])
    table, _ = imported(tmp_path, path, format="porto", time_unit="ms")
    assert table["time"].to_physical().to_list() == [START_S * 1_000_000, (START_S + 15) * 1_000_000]


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the real data is not there")
def test_the_real_sample_agrees_with_the_json_module(tmp_path: Path) -> None:
    path = REAL_DATA / "porto" / "train_sample.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    points = [json.loads(row["POLYLINE"]) for row in rows]
    table, summary = imported(tmp_path, path, format="porto", cleaning=AS_IT_IS)
    assert summary.rows_read == len(rows) == 5182
    assert summary.points == summary.points_read == sum(map(len, points))
    assert summary.vehicles == len({row["TAXI_ID"] for row, line in zip(rows, points, strict=True) if line})
    assert dropped(summary) == {"too_short": sum(not line for line in points)}
    expected = pl.DataFrame(
        [
            (row["TAXI_ID"], (int(row["TIMESTAMP"]) + 15 * k) * 1_000_000, lat, lon)
            for row, line in zip(rows, points, strict=True)
            for k, (lon, lat) in enumerate(line)
        ],
        schema=["vehicle", "time", "lat", "lon"],
        orient="row",
    )
    assert table.with_columns(pl.col("time").to_physical()).drop("trip").equals(expected)
    _, cleaned = imported(tmp_path, path, format="porto")
    assert 0.995 < cleaned.points / cleaned.points_read < 1.0
    assert cleaned.to_json()["dropped"]["too_short"] >= sum(len(line) < 2 for line in points)
