from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from geoblanket.errors import InputError
from geoblanket.traces.cleaning import Cleaning
from tests.traces._files import REAL_DATA, dropped, imported


def rome_file(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def row(second: int, *, taxi: str = "156", fraction: str = "", lat: float = 41.88, lon: float = 12.48) -> str:
    return f"{taxi};2014-02-01 00:00:{second:02}{fraction}+01;POINT({lat} {lon})"


def test_interleaved_taxis_become_trips_and_fractions_are_kept(tmp_path: Path) -> None:
    rows = [row(0, fraction=".739166"), row(1, taxi="9", fraction=".5"), row(10), row(20, taxi="9"), row(30)]
    table, summary = imported(tmp_path, rome_file(tmp_path / "taxi.txt", rows), format="rome")
    assert table["vehicle"].to_list() == ["156", "156", "156", "9", "9"]
    assert table["trip"].to_list() == [0, 0, 0, 1, 1]
    times = [moment.isoformat() for moment in table["time"]]
    assert times == [
        "2014-01-31T23:00:00.739166+00:00",
        "2014-01-31T23:00:10+00:00",
        "2014-01-31T23:00:30+00:00",
        "2014-01-31T23:00:01.500000+00:00",
        "2014-01-31T23:00:20+00:00",
    ]
    assert (summary.rows_read, summary.vehicles, summary.trips, dropped(summary)) == (5, 2, 2, {})


@pytest.mark.parametrize(
    "bad",
    [
        "156;2014-02-01 00:00:05+01",
        "156;2014-02-01 00:00:05+01;POINT(41.88 12.48);x",
        "156;2014-02-01 00:00:05+01;POINT(41.88)",
        "156;2014-02-01 00:00:05+01;POINT(41,88 12,48)",
        "156;2014-02-01 00:00:05+01;POINT(41.88 12.48 5)",
        "156;2014-02-01 00:00:05+01;POINT EMPTY",
        "156;2014-02-01 00:00:05;POINT(41.88 12.48)",
        "156;1391209200;POINT(41.88 12.48)",
        ";2014-02-01 00:00:05+01;POINT(41.88 12.48)",
        "156,2014-02-01 00:00:05+01,POINT(41.88 12.48)",
    ],
)
def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, bad: str) -> None:
    path = rome_file(tmp_path / "taxi.txt", [row(0), row(3), bad, row(10)])
    table, summary = imported(tmp_path, path, format="rome")
    assert table.height == 3
    assert summary.rows_read == 4
    assert dropped(summary) == {"malformed": 1}
    with pytest.raises(InputError, match=r"taxi\.txt, row 3: ") as raised:
        imported(tmp_path, path, format="rome", strict=True)
    assert "41" not in str(raised.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(k).replace(";", ",") for k in range(9)], r"row 1: wrong number of columns, and .*POINT\(lat lon\)"),
        ([row(k, lat=12.48, lon=41.88) for k in range(9)], "latitude and longitude look exchanged"),
        ([row(k).replace("+01", "") for k in range(9)], "--time-zone"),
    ],
)
def test_files_that_are_not_rome_are_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(tmp_path, rome_file(tmp_path / "taxi.txt", rows), format="rome")


def test_times_without_offset_are_read_in_the_given_zone(tmp_path: Path) -> None:
    path = rome_file(tmp_path / "taxi.txt", [row(k).replace("+01", "") for k in range(3)])
    table, _ = imported(tmp_path, path, format="rome", time_zone="Europe/Rome")
    assert table["time"][0].isoformat() == "2014-01-31T23:00:00+00:00"


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the real data is not there")
def test_the_real_sample_agrees_with_the_standard_library(tmp_path: Path) -> None:
    path = REAL_DATA / "rome" / "taxi_february_head.txt"
    expected = set()
    for text in path.read_text().splitlines():
        taxi, time, lat, lon = re.fullmatch(r"(\d+);(.*);POINT\((\S+) (\S+)\)", text).groups()  # type: ignore[union-attr]  # a failure is one
        moment = datetime.fromisoformat(re.sub(r"\.(\d+)", lambda found: f".{found[1]:0<6}", time))
        expected.add((taxi, moment, float(lat), float(lon)))
    as_it_is = Cleaning(max_speed_m_s=None, min_points=1, drop_duplicates=False)
    table, summary = imported(tmp_path, path, format="rome", cleaning=as_it_is)
    assert summary.rows_read == summary.points == 5000
    assert set(table.drop("trip").rows()) == expected
    assert summary.vehicles == len({taxi for taxi, *_ in expected})
