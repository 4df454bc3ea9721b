from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from geoblanket._tables import write_table
from geoblanket._training import Unit
from geoblanket.errors import InputError, ParameterError
from geoblanket.learning.units import Units, count_units
from geoblanket.mobility.walks import scan_walks
from tests.release.worlds import save_walks


def save(folder: Path, vehicles: list[str | None], trips: list[int] | None = None) -> Path:
    """Walks of four steps each, of these vehicles and trips."""
    plain = save_walks(folder / "plain.parquet", [[0, 1, 2, 3]] * len(vehicles))
    frame, about = scan_walks(plain)
    names = pl.DataFrame(
        {"walk": range(len(vehicles)), "vehicle": vehicles, "trip": trips or list(range(len(vehicles)))},
        schema={"walk": pl.Int64, "vehicle": pl.String, "trip": pl.Int64},
    )
    columns = frame.collect().columns
    table = frame.collect().drop("vehicle", "trip").join(names, on="walk", maintain_order="left").select(columns)
    write_table(table, folder / "walks.parquet", kind="walks", about=about)
    return folder / "walks.parquet"


def test_vehicles_are_counted_once_and_trips_whole(tmp_path: Path) -> None:
    walks = save(tmp_path, ["a", "a", "b", "b", "b"], [0, 0, 1, 2, 2])
    assert count_units(walks) == Units("vehicle", 2, None)
    assert count_units(walks, unit="trip") == Units("trip", 3, None)


@pytest.mark.parametrize("nobody", [None, "", "  "])
def test_without_names_the_unit_is_the_trip_and_it_is_said(tmp_path: Path, nobody: str | None) -> None:
    units = count_units(save(tmp_path, [nobody] * 4))
    assert (units.unit, units.count) == ("trip", 4)
    assert units.warning is not None
    assert "name no vehicles. So the unit is the TRIP" in units.warning
    assert count_units(save(tmp_path, [nobody] * 4), unit="trip").warning is None


def test_names_of_trips_are_not_taken_for_vehicles(tmp_path: Path) -> None:
    units = count_units(save(tmp_path, ["a", "b", "b", "c"], [0, 1, 1, 2]))
    assert (units.unit, units.count) == ("trip", 3)
    assert units.warning is not None
    assert "may be those of trips" in units.warning


def test_some_names_are_not_enough(tmp_path: Path) -> None:
    walks = save(tmp_path, ["a", "a", None, "", "b"])
    with pytest.raises(InputError, match="2 of 5 trips name no vehicle"):
        count_units(walks)
    assert count_units(walks, unit="trip").count == 5


@pytest.mark.parametrize(
    ("vehicles", "trips", "unit", "words"),
    [
        (["a", "a"], [0, 1], "vehicle", "has 1 vehicle.*or learn with --unit trip"),
        (["a", "a"], [0, 0], "vehicle", "has 1 vehicle"),
        (["a", "a"], [0, 0], "trip", r"has 1 trip.*more trips\.$"),
        ([None, None], [0, 0], "vehicle", "has 1 trip"),
        (["a", "b"], [0, 1], "person", "'vehicle' or 'trip'"),
    ],
)
def test_who_is_alone_cannot_be_hidden(
    tmp_path: Path, vehicles: list[str | None], trips: list[int], unit: Unit, words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        count_units(save(tmp_path, vehicles, trips), unit=unit)


def test_delta_is_less_than_one_of_them() -> None:
    units = Units("vehicle", 50, None)
    units.check_delta(0.0199)
    for delta in (0.02, 0.5):
        with pytest.raises(ParameterError, match=r"too weak for 50 vehicles: from 1/50 on.* such as 2e-04"):
            units.check_delta(delta)
