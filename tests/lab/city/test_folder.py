from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._files import sha256_file
from geoblanket.errors import OutputError, ParameterError
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import City
from geoblanket.traces.importing import import_traces
from tests.towns import simulate

TRIPS = 1500
FILES = {
    "roads.osm.pbf", "porto.csv", "points.csv", "districts.csv", "orders.csv", "true_walks.parquet", "city.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(small_city: City, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("city") / "new"
    write_city(small_city, path, trips=TRIPS, seed=1)
    return path


def porto_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "porto.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_everything_is_there_and_nothing_else(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES


def test_porto_file_has_the_format_of_the_real_one(folder: Path) -> None:
    text = (folder / "porto.csv").read_text().splitlines()
    assert text[0] == (
        '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"'
    )
    number = r"-?\d+\.\d{1,6}"
    point = rf"\[{number},{number}\]"
    row = re.compile(
        r'"(?P<start>\d{10})6(?P<taxi>200\d{5})","[ABC]","\d*","\d*","(?P=taxi)","(?P=start)","A","(True|False)",'
        rf'"\[({point}(,{point})*)?\]"'
    )
    assert all(row.fullmatch(line) for line in text[1:])
    rows = porto_rows(folder)
    assert len(rows) == TRIPS == len({row["TRIP_ID"] for row in rows})
    assert all(bool(row["ORIGIN_STAND"]) == (row["CALL_TYPE"] == "B") for row in rows)
    assert all(bool(row["ORIGIN_CALL"]) == (row["CALL_TYPE"] == "A") for row in rows)


def test_porto_file_holds_the_simulated_points(small_city: City, folder: Path) -> None:
    points = next(simulate(small_city, trips=TRIPS, seed=1))
    found = [json.loads(row["POLYLINE"]) for row in porto_rows(folder)]
    assert [len(trip) for trip in found] == np.diff(points.offsets).tolist()
    flat = np.array([point for trip in found for point in trip])
    np.testing.assert_array_equal(flat, np.stack([points.lon, points.lat], 1))


def test_importer_finds_the_faults_that_were_put_in(folder: Path, tmp_path: Path) -> None:
    about = json.loads((folder / "city.json").read_text())
    summary = import_traces([folder / "points.csv"], tmp_path / "t.parquet", format="table")
    assert summary.rows_read == about["points"]["table"]
    assert summary.rules["duplicate"].rows == about["faults"]["table"]["duplicates"] > 0
    assert summary.rules["sorted"].rows == about["faults"]["table"]["out_of_order"] > 0


def test_importer_finds_porto_s_faults(folder: Path, tmp_path: Path) -> None:
    faults = json.loads((folder / "city.json").read_text())["faults"]["porto"]
    summary = import_traces([folder / "porto.csv"], tmp_path / "t.parquet", format="porto")
    assert summary.rows_read == TRIPS
    assert summary.rules["missing_data"].rows == faults["trips_missing_data"] > 0
    assert summary.vehicles > 400


def test_true_walks_tell_node_district_band_and_order(folder: Path) -> None:
    truth = pl.read_parquet(folder / "true_walks.parquet")
    assert truth["trip"].n_unique() == TRIPS
    assert truth.filter(pl.col("step") == 0)["band"].null_count() == TRIPS
    assert len(truth) == TRIPS + json.loads((folder / "city.json").read_text())["steps"]
    districts = pl.read_csv(folder / "districts.csv")
    joined = truth.join(districts, on="node", how="left")
    assert (joined["district"].cast(pl.String) == joined["district_right"]).all()
    assert joined["at_ticks"].all()
    left = pl.col("district").shift().over("trip").cast(pl.String)
    inside = truth.with_columns(left.alias("left"), pl.col("band").cast(pl.String)).filter(
        (pl.col("left") == pl.col("district").cast(pl.String)) & (pl.col("band") != "stopped")
    )
    orders = pl.read_csv(folder / "orders.csv")
    declared = inside.join(orders, left_on=["left", "band"], right_on=["district", "band"], how="left")
    # A few nodes beside a border have too few candidates to remember anything.
    used, said = declared["order"].to_numpy(), declared["order_right"].to_numpy()
    assert (used == said).mean() > 0.8
    assert (used <= said).all()


def test_same_arguments_give_the_same_bytes(small_city: City, folder: Path, tmp_path: Path) -> None:
    write_city(small_city, tmp_path, trips=TRIPS, seed=1)
    for name in FILES:
        assert sha256_file(tmp_path / name) == sha256_file(folder / name), name


def test_interruption_leaves_no_half_written_file(small_city: City, tmp_path: Path) -> None:
    def interrupt(phase: str, done: float, total: float | None) -> None:
        if phase == "trips" and done and total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_city(small_city, tmp_path, trips=100, progress=interrupt)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"roads.osm.pbf", "districts.csv", "orders.csv"}


def test_bad_arguments_are_named(small_city: City, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"porto, table.*'excel'"):
        write_city(small_city, tmp_path, trips=10, formats=["excel"])
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file"):
        write_city(small_city, tmp_path / "file", trips=10)
