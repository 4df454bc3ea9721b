"""Released and tracked tables are GeoParquet, by its specification, by Shapely and by GeoPandas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import shapely

from geoblanket import Bundle, load_bundle, perturb_walks, track_table
from geoblanket._tables import scan_table, wkb_lines, wkb_points, write_table
from geoblanket.release.bulk import RELEASED_SCHEMA
from tests.release.worlds import GRAPH, save_certain, save_walks


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_certain(tmp_path_factory.mktemp("town") / "town.bundle"))


@pytest.fixture(scope="module")
def released(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    GRAPH.save(folder / "town.roads")
    walks = save_walks(folder / "walks.parquet", [[0, 1, 2, 7, 8, 13], [12, 13, 14, 9, 4, 3]])
    perturb_walks(walks, folder / "town.roads", folder / "released.parquet", bundle=bundle)
    return folder / "released.parquet"


@pytest.fixture(scope="module")
def tracked(bundle: Bundle, released: Path) -> Path:
    track_table(released, released.with_name("tracked.parquet"), bundle=bundle)
    return released.with_name("tracked.parquet")


@pytest.mark.parametrize("table", ["released", "tracked"])
def test_a_table_says_what_its_geometries_are_and_they_are_its_locations(
    table: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(table)
    assert json.loads(pl.read_parquet_metadata(path)["geo"]) == {
        "version": "1.1.0",
        "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"]}},
    }
    rows = pl.read_parquet(path)
    points = shapely.from_wkb(rows["geometry"].to_list())
    np.testing.assert_array_equal(shapely.get_coordinates(points), rows.select("lon", "lat").to_numpy())


@pytest.mark.parametrize("table", ["released", "tracked"])
def test_geopandas_opens_it(table: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("pyarrow", reason="of the group bench")
    geopandas = pytest.importorskip("geopandas", reason="of the group bench")
    path = request.getfixturevalue(table)
    frame = geopandas.read_parquet(path)
    rows = pl.read_parquet(path)
    assert frame.crs == "OGC:CRS84"
    np.testing.assert_array_equal(frame.geometry.x, rows["lon"])
    np.testing.assert_array_equal(frame.geometry.y, rows["lat"])
    np.testing.assert_array_equal(frame["time"].dt.tz_convert("UTC").astype("int64"), rows["time"].to_physical())


def test_own_readers_do_without_the_geometry_and_read_tables_that_have_none(released: Path, tmp_path: Path) -> None:
    rows, about = scan_table(released, kind="released locations", schema=RELEASED_SCHEMA)
    assert dict(rows.collect_schema()) == RELEASED_SCHEMA
    write_table(rows, tmp_path / "old.parquet", kind="released locations", about={"bundle": about["bundle"]})
    old, _ = scan_table(tmp_path / "old.parquet", kind="released locations", schema=RELEASED_SCHEMA)
    assert old.collect().equals(rows.collect())


def test_points_and_lines_are_what_shapely_writes() -> None:
    lon, lat = np.array([-8.61, 0.0, 180.0, -180.0]), np.array([41.15, -0.0, 90.0, -90.0])
    assert wkb_points(lon, lat).to_list() == shapely.to_wkb(shapely.points(lon, lat), byte_order=1).tolist()
    lines = [shapely.LineString([(0, 1), (2, 3)]), shapely.LineString([(4, 5), (6, 7), (8, 9)])]
    made = wkb_lines(np.array([0, 2, 5]), np.array([0.0, 2, 4, 6, 8]), np.array([1.0, 3, 5, 7, 9]))
    assert made.to_list() == shapely.to_wkb(lines, byte_order=1).tolist()
    assert wkb_points([], []).to_list() == []
