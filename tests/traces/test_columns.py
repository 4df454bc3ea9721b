from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.traces.cleaning import Cleaning
from geoblanket.traces.importing import Reading
from tests.traces._files import REAL_DATA, START_S, dropped, gzipped, imported, steady, table_file

COLUMNS = {"time": "t", "lat": "y", "lon": "x", "vehicle": "taxi"}


def test_columns_are_mapped_by_role(tmp_path: Path) -> None:
    rows = [f"{41.9 + 0.0001 * k:.4f};12.5;note;{START_S + 10 * k};cab {k % 2}" for k in range(6)]
    path = table_file(tmp_path / "points.csv", rows, header="y;x;note;t;taxi")
    table, summary = imported(tmp_path, path, format="table", columns=COLUMNS, delimiter=";")
    assert table["vehicle"].to_list() == ["cab 0"] * 3 + ["cab 1"] * 3
    assert table["lat"].to_list() == [41.9, 41.9002, 41.9004, 41.9001, 41.9003, 41.9005]
    assert (summary.rows_read, summary.trips, summary.vehicles) == (6, 2, 2)


def test_trips_are_kept_apart_and_follow_each_other_in_time(tmp_path: Path) -> None:
    rows = [f"v,{trip},{START_S + start + 10 * k},41.9,12.5" for trip, start in [("z", 0), ("a", 35)] for k in range(3)]
    path = table_file(tmp_path / "points.csv", rows[::-1], header="vehicle,trip,time,lat,lon")
    table, summary = imported(tmp_path, path, format="table")
    seconds = (table["time"].to_physical() // 1_000_000 - START_S).to_list()
    assert list(zip(table["trip"], seconds, strict=True)) == [(0, 0), (0, 10), (0, 20), (1, 35), (1, 45), (1, 55)]
    assert summary.vehicles == 1


def test_without_vehicle_the_trip_is_one_and_without_both_the_file_is(tmp_path: Path) -> None:
    rows = [row.split(",", 1)[1] for row in steady(4)]
    one = table_file(tmp_path / "first.day.csv", rows, header="time,lat,lon")
    two = gzipped(table_file(tmp_path / "second.csv", rows, header="time,lat,lon"))
    three = table_file(tmp_path / "trips.csv", ["7," + row for row in rows], header="trip,time,lat,lon")
    table, _ = imported(tmp_path, one, two, three, format="table")
    assert table["vehicle"].unique(maintain_order=True).to_list() == ["7", "first.day", "second"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numeric_times_of_any_unit(tmp_path: Path, unit: str) -> None:
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    path = table_file(tmp_path / "points.csv", [f"a,{(START_S + k) * scale},41.9,12.5" for k in range(3)])
    for declared in (None, unit):
        table, _ = imported(tmp_path, path, format="table", time_unit=declared)
        assert table["time"].to_physical().to_list() == [(START_S + k) * 1_000_000 for k in range(3)]


def parquet(path: Path, **columns: Any) -> Path:
    base = {"vehicle": [1, 1, 2, 2], "lat": [41.9] * 4, "lon": [12.5] * 4}
    pl.DataFrame({**base, **columns}, strict=False).write_parquet(path)
    return path


MOMENTS = [datetime(2014, 2, 1, 12, 0, second, tzinfo=UTC) for second in (0, 10, 0, 10)]


@pytest.mark.parametrize(
    ("times", "zone"),
    [
        (MOMENTS, None),
        (pl.Series(MOMENTS).dt.convert_time_zone("Asia/Tokyo").dt.cast_time_unit("ns"), None),
        (pl.Series(MOMENTS).dt.convert_time_zone("Europe/Rome").dt.replace_time_zone(None), "Europe/Rome"),
        ([int(moment.timestamp()) for moment in MOMENTS], None),
        ([moment.timestamp() * 1000 for moment in MOMENTS], None),
        ([moment.isoformat() for moment in MOMENTS], None),
    ],
)
def test_parquet_tables_with_times_of_any_type(tmp_path: Path, times: Any, zone: str | None) -> None:
    path = parquet(tmp_path / "points.parquet", time=times)
    table, summary = imported(tmp_path, path, format="table", time_zone=zone)
    assert table["time"].to_list() == MOMENTS
    assert table["vehicle"].to_list() == ["1", "1", "2", "2"]
    assert summary.rows_read == 4


def test_parquet_rows_that_cannot_be_read_are_counted_by_their_number(tmp_path: Path) -> None:
    path = parquet(tmp_path / "points.parquet", time=MOMENTS, lat=["41.9", "41.9", "12,5", None], vehicle=["a"] * 4)
    table, summary = imported(tmp_path, path, format="table")
    assert table.height == 2
    assert summary.first_rows("malformed") == [(path, 3), (path, 4)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": pl.Series(MOMENTS).dt.replace_time_zone(None)}, "--time-zone"),
        ({"time": [True] * 4}, "must hold times"),
        ({"time": MOMENTS, "lat": [True] * 4}, "column 'lat' must hold numbers"),
        ({"moment": MOMENTS}, "column 'time' is missing"),
    ],
)
def test_parquet_tables_that_cannot_be_used(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        imported(tmp_path, parquet(tmp_path / "points.parquet", **columns), format="table")


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "points.parquet", time=MOMENTS)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:4]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            imported(tmp_path, path, format="table")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (f"a,{START_S + 15},41.9", "wrong number of columns"),
        (f"a,{START_S + 15},41.9,12.5,7", "wrong number of columns"),
        (f"a,{START_S + 15},12,5,12,5", "wrong number of columns"),
        (f'a,{START_S + 15},"12,5","12,5"', "a coordinate is not a number (with a point as decimal mark)"),
        (f"a,{START_S + 15},١٢,12.5", "a coordinate is not a number (with a point as decimal mark)"),
        (f"a,{START_S + 15},=cmd(),12.5", "a coordinate is not a number (with a point as decimal mark)"),
        (f"a,{START_S + 15},,12.5", "a cell that is needed is empty"),
        (f" ,{START_S + 15},41.9,12.5", "a cell that is needed is empty"),
        ("a,,41.9,12.5", "a cell that is needed is empty"),
        ("a,later,41.9,12.5", "the time is not readable"),
        (f"a,{START_S}000000,41.9,12.5", "the time lies outside the years 1970 to 2100"),
        (f"a,{START_S + 15},41.9\x00,12.5", "not UTF-8 text"),
    ],
)
def test_rows_that_cannot_be_read_are_counted(tmp_path: Path, bad: str, reason: str) -> None:
    path = table_file(tmp_path / "points.csv", [*steady(4), bad, *steady(4, vehicle="b")])
    table, summary = imported(tmp_path, path, format="table")
    assert table.height == 8
    assert summary.malformed == {reason: 1}
    assert summary.first_rows("malformed") == [(path, 6)]
    with pytest.raises(InputError, match=r"points\.csv, row 6: ") as raised:
        imported(tmp_path, path, format="table", strict=True)
    assert "12" not in str(raised.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "1e400", "90.1", "-91"])
def test_impossible_latitudes_are_counted(tmp_path: Path, value: str) -> None:
    path = table_file(tmp_path / "points.csv", [*steady(4), f"a,{START_S + 35},{value},12.5"])
    _, summary = imported(tmp_path, path, format="table")
    assert dropped(summary) == {"impossible": 1}
    assert summary.first_rows("impossible") == [(path, 6)]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (steady(3), {"delimiter": ";"}, "single cell that contains the delimiter ','"),
        (
            steady(3),
            {"columns": {"lat": "Breite"}},
            "row 1: column 'Breite' is missing. The file has: vehicle,",
        ),
        (steady(3), {"columns": {"trip": "ride"}}, "row 1: column 'ride'"),
        (steady(3), {"time_unit": "ms"}, "Give --set time_unit=s"),
        ([f"a,{k},41.9,12.5" for k in range(3)], {}, "cannot be told"),
        ([f"a,2014-02-01 00:00:0{k},41.9,12.5" for k in range(3)], {}, "--time-zone"),
        ([f"a,01.02.2014 00:0{k},41.9,12.5" for k in range(3)], {}, "row 2: the time is not readable, and the same"),
        ([f"a,{START_S + k},139.7,35.6" for k in range(3)], {}, "latitude and longitude look exchanged"),
        (["a,1372636853,north,east"], {}, "row 2: a coordinate is not a number"),
        ([], {}, "has a header but no rows"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, rows: list[str], options: dict[str, Any], message: str) -> None:
    path = table_file(tmp_path / "points.csv", rows)
    with pytest.raises(InputError, match=message):
        imported(tmp_path, path, format="table", **options)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_missing_column_is_told_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("latitude,longitude,ts\n41.9,12.5,2014-02-01\n")
    with pytest.raises(InputError) as raised:
        imported(tmp_path, path, format="table")
    assert str(raised.value) == (
        f"{path}, row 1: column 'time' is missing. The file has: latitude, longitude, ts. Say which is which: "
        "--columns time=ts,lat=latitude,lon=longitude."
    )


@pytest.mark.parametrize("first_row", ["a,41.9,12.5", "POINT(12.5 41.9),taxi 7", "taxi,2014-02-01 10:00", "taxi 1.5,b"])
def test_cells_are_never_told(tmp_path: Path, first_row: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"{first_row}\n{first_row}\n")
    with pytest.raises(InputError, match="column 'time' is missing") as raised:
        imported(tmp_path, path, format="table")
    assert not any(cell in f"{raised.value.problem} {raised.value.hint}" for cell in ("41.9", "12.5", "taxi", "2014"))


@pytest.mark.parametrize("content", [b"\0\0\0\x0d\n\x09OSMHeader", b"GBROADS1" + bytes(99), b"<?xml?>\n<osm>"])
def test_what_is_no_table_at_all_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "points.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a table of GPS points: it is a"):
        imported(tmp_path, path, format="porto")


def test_seconds_of_a_simulation_are_read_where_they_are_declared(tmp_path: Path) -> None:
    path = table_file(tmp_path / "points.csv", [f"a,{k},41.9,12.5" for k in range(3)])
    table, _ = imported(tmp_path, path, format="table", time_unit="s")
    assert table["time"].to_physical().to_list() == [0, 1_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"speed": "v"}, "must give names"),
        ({"lat": ""}, "must give names"),
        ({"lat": "Longitude", "lon": "Latitude"}, "look exchanged"),
        ({"lat": "x", "lon": "y"}, "look exchanged"),
    ],
)
def test_mappings_that_make_no_sense_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Reading(columns=columns)


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the real data is not there")
def test_the_real_trips_of_rome(tmp_path: Path) -> None:
    path = REAL_DATA / "rome" / "trips_sample.csv.gz"
    as_it_is = Cleaning(max_speed_m_s=None, max_gap_s=None, min_points=1, drop_duplicates=False)
    table, summary = imported(tmp_path, path, format="table", cleaning=as_it_is)
    expected = pl.read_csv(path, schema_overrides={"trip": pl.String}, try_parse_dates=True)
    assert summary.trips == summary.vehicles == 381
    assert summary.points == summary.rows_read == expected.height
    found = table.select(trip="vehicle", time="time", lat="lat", lon="lon")
    assert found.equals(
        expected.select(pl.col("trip"), pl.col("time").dt.cast_time_unit("us"), "lat", "lon").sort(
            "trip", "time", maintain_order=True
        )
    )
