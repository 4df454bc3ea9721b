from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.blanket.groups import find_regions
from geoblanket.errors import GeoblanketError, MismatchError, ParameterError
from geoblanket.roads.places import Places, choose_places
from geoblanket.roads.regions import PORTO_REGIONS, ROME_REGIONS, SAN_FRANCISCO_REGIONS, RegionGrid
from geoblanket.roads.zones import partition_zones, write_zones
from tests.blanket.worlds import square

GRAPH = square()


@pytest.fixture(scope="module")
def places() -> Places:
    return choose_places(GRAPH)


def test_the_default_covers_all_places_with_16_cells(places: Places) -> None:
    found = find_regions(None, places)
    assert found.count == 16
    assert np.bincount(found.region).tolist() == [9] * 16  # 12 × 12 nodes
    assert found.about["kind"] == "grid"


def test_the_default_copes_with_a_single_street() -> None:
    street = choose_places(square(1))
    assert find_regions(None, street).region.tolist() in ([0], [5], [10], [15])


@pytest.mark.parametrize(
    ("name", "grid"), [("porto", PORTO_REGIONS), ("rome", ROME_REGIONS), ("sanfrancisco", SAN_FRANCISCO_REGIONS)]
)
def test_the_grids_of_the_paper(places: Places, name: str, grid: RegionGrid) -> None:
    found = find_regions(name, places)
    assert np.array_equal(found.region, grid.region(places.lat, places.lon))
    assert found.count == len(grid)


def test_a_grid_as_text(places: Places) -> None:
    grid = RegionGrid(41.0, 41.005, -8.6, -8.59, 2, 3)
    text, same = find_regions("grid:41.0,41.005,-8.6,-8.59,2,3", places), find_regions(grid, places)
    assert np.array_equal(text.region, same.region)
    assert text.about == same.about
    assert set(text.region) == {-1, 0, 1, 2, 3, 4, 5}


def test_zones_from_a_file_or_as_they_are(places: Places, tmp_path: Path) -> None:
    zones = partition_zones(GRAPH, places, max_places=40)
    write_zones(tmp_path / "zones.parquet", GRAPH, places, zones)
    found = find_regions(f"zones:{tmp_path / 'zones.parquet'}", places)
    assert np.array_equal(found.region, zones.zone)
    assert found.about == find_regions(zones, places).about == {"kind": "zones", "identity": zones.identity}
    with pytest.raises(MismatchError, match="other places"):
        find_regions(f"zones:{tmp_path / 'zones.parquet'}", choose_places(GRAPH, spacing_m=200))


def test_numbers_given_for_each_place(places: Places) -> None:
    number = np.arange(len(places), dtype=np.int32) % 5 - 1
    found = find_regions(number, places)
    assert found.region.tolist() == number.tolist()
    assert found.count == 4
    assert found.about != find_regions(number[::-1], places).about


@pytest.mark.parametrize(
    "wrong",
    ["lisbon", "zones:", "grid:", "grid:41,42,-8,-7,3", "grid:41,42,-8,-7,3,x", "grid:42,41,-8,-7,3,3",
     "grid:nan,42,-8,-7,3,3", "grid:41,42,-8,-7,0,3", np.zeros(5, int), np.zeros(144), np.full(144, -2)],
)  # fmt: skip
def test_what_are_no_regions_is_refused_without_a_coordinate(places: Places, wrong: object) -> None:
    with pytest.raises(ParameterError) as caught:
        find_regions(wrong, places)  # type: ignore[arg-type]  # the point
    assert "41" not in str(caught.value)
    assert "-8" not in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(places: Places) -> None:
    with pytest.raises(GeoblanketError, match="no such file"):
        find_regions("zones:nowhere.parquet", places)
