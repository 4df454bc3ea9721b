from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from geoblanket.build.blanket_lengths import read_found_blankets
from geoblanket.errors import InputError, MismatchError
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.lab.evaluate.city_data import CityData
from geoblanket.lab.study.cities import CITY_SOURCES, SETTINGS, CitySource, prepare_city
from geoblanket.lab.study.paper import CITIES
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph

DATA = Path(__file__).parents[4] / "shared" / "data"
TOWN = CitySource(
    "town",
    roads=("roads.osm.pbf",),
    traces={"train.csv": "porto", "porto.csv": "porto"},
    regions="grid:44.9,45.1,-30.1,-29.9,2,2",
    time_zone="UTC",
    box=(45.0, 45.1, -30.1, -29.9),
)


@pytest.mark.slow
def test_from_raw_files_to_what_an_evaluation_needs(tmp_path: Path) -> None:
    write_city(make_city("small"), tmp_path / "raw" / "town", trips=1000, formats=["porto"])
    files = prepare_city(TOWN, tmp_path / "raw", tmp_path / "out", workers=1)
    whole, part = RoadGraph.load(tmp_path / "out" / "whole.roads"), RoadGraph.load(files.roads)
    assert 0 < part.node_count < whole.node_count
    assert part.lat.min() >= 45.0
    assert scan_walks(files.walks)[1]["spacing_m"] == 250.0
    assert files.findings is not None
    assert read_found_blankets(files.findings).origin.interval_s == 30.0
    facts = json.loads((tmp_path / "out" / "training.json").read_text())
    assert sum(facts["groups"].values()) >= 10
    zones = CityData(files).zones(20)
    one = next(CityData(files).zone_data(zones, [0], "population"))
    assert one.predicted is not None
    assert one.found is not None
    # Only what is missing is made again.
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    files.walks.unlink()
    prepare_city(TOWN, tmp_path / "raw", tmp_path / "out", workers=1)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"walks.parquet"}


@pytest.mark.slow
def test_a_whole_city_is_matched_once(tmp_path: Path) -> None:
    write_city(make_city("small"), tmp_path / "raw" / "town", trips=1000, formats=["porto"])
    made: dict[str, bytes] = {}
    for name, box in (("boxed", (44.0, 46.0, -31.0, -29.0)), ("whole", None)):
        prepare_city(replace(TOWN, box=box), tmp_path / "raw", tmp_path / name, workers=1)
        # A box that holds all of the city is matched twice, with the same result.
        tables = {table: (tmp_path / name / table).read_bytes() for table in ("walks.parquet", "walks-nodes.parquet")}
        assert made.setdefault("walks.parquet", tables["walks.parquet"]) == tables["walks.parquet"]
        made |= tables
    published = replace(SETTINGS["ours"], spacing_m=0.0)
    prepare_city(replace(TOWN, box=None), tmp_path / "raw", tmp_path / "nodes", setting=published, workers=1)
    assert (tmp_path / "nodes" / "walks-nodes.parquet").read_bytes() == made["walks-nodes.parquet"]


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nodes\.csv"):
        prepare_city(CITY_SOURCES["porto"], tmp_path, tmp_path / "out")


def test_a_folder_of_another_setting_is_not_used(tmp_path: Path) -> None:
    for setting in ("ours", "ours", "published"):
        # The raw files are missing each time.
        with pytest.raises(InputError if setting == "ours" else MismatchError, match=r"nodes\.csv|another setting"):
            prepare_city(CITY_SOURCES["porto"], tmp_path, tmp_path / "out", setting=SETTINGS[setting])


@pytest.mark.skipif(not DATA.is_dir(), reason="the real data is not here")
def test_the_raw_files_are_where_cities_look_for_them() -> None:
    for name, source in CITY_SOURCES.items():
        assert all((DATA / name / file).exists() for file in source.roads)
        assert any((DATA / name / file).exists() for file in source.traces)


@pytest.mark.skipif(not DATA.is_dir(), reason="the real data is not here")
def test_the_papers_locations_are_in_the_cities() -> None:
    for name in CITIES:
        frame = pl.read_csv(DATA / name / "paper_locations.csv", has_header=False)
        assert frame.height == 500
