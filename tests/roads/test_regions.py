"""The paper's grids of regions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.roads.regions import PORTO_REGIONS, ROME_REGIONS, SAN_FRANCISCO_REGIONS, RegionGrid


def test_rome_and_porto_as_in_the_paper() -> None:
    assert len(ROME_REGIONS) == 20
    assert len(PORTO_REGIONS) == 9
    # The Colosseum and Porto's cathedral, placed by hand on the paper's grids.
    assert ROME_REGIONS.region(41.8902, 12.4922) == 2 * 5 + 2
    assert PORTO_REGIONS.region(41.1428, -8.6112) == 1 * 3 + 1
    assert SAN_FRANCISCO_REGIONS.region([37.7793, 37.6152], [-122.4193, -122.3899]).tolist() == [3 * 3 + 1, 2]
    np.testing.assert_allclose(ROME_REGIONS.bounds(12), (41.88, 42.00, 12.47, 12.59))


@given(st.integers(1, 7), st.integers(1, 7), st.floats(-1, 3), st.floats(-1, 3))
def test_a_point_lies_within_the_bounds_of_its_region(rows: int, columns: int, lat: float, lon: float) -> None:
    grid = RegionGrid(south=0.1, north=1.3, west=0.2, east=2.1, rows=rows, columns=columns)
    region = int(grid.region(lat, lon))
    if region < 0:
        assert not (0.1 <= lat <= 1.3 and 0.2 <= lon <= 2.1)
        return
    south, north, west, east = grid.bounds(region)
    assert south <= lat <= north
    assert west <= lon <= east
    assert lat < north or north == 1.3
    assert lon < east or east == 2.1


@given(st.integers(1, 9), st.integers(1, 9))
def test_the_corner_and_the_middle_of_a_region_are_its_own(rows: int, columns: int) -> None:
    grid = RegionGrid(south=41.64, north=42.12, west=12.23, east=12.83, rows=rows, columns=columns)
    south, north, west, east = np.array([grid.bounds(region) for region in range(len(grid))]).T
    np.testing.assert_array_equal(grid.region(south, west), np.arange(len(grid)))
    np.testing.assert_array_equal(grid.region((south + north) / 2, (west + east) / 2), np.arange(len(grid)))


def test_the_far_edges_of_the_box_are_inside() -> None:
    assert ROME_REGIONS.region(42.12, 12.83) == 19
    assert ROME_REGIONS.region(np.nextafter(42.12, 90), 12.83) == -1


@pytest.mark.parametrize(("lat", "lon"), [(math.nan, 12.5), (41.9, math.nan), (math.inf, 12.5), (41.9, -math.inf)])
def test_what_is_no_point_is_outside(lat: float, lon: float) -> None:
    assert ROME_REGIONS.region([41.9, lat], [12.5, lon]).tolist() == [12, -1]


@pytest.mark.parametrize(
    "change",
    [{"rows": 0}, {"columns": 0}, {"south": 2.0}, {"west": 2.0}, {"north": 91.0}, {"east": 181.0}, {"south": math.nan}],
)
def test_an_impossible_grid_is_refused(change: dict[str, float]) -> None:
    box = {"south": 0.0, "north": 1.0, "west": 0.0, "east": 1.0, "rows": 2, "columns": 2}
    with pytest.raises(ParameterError, match="grid of regions"):
        RegionGrid(**{**box, **change})  # type: ignore[arg-type]  # rows and columns are whole numbers here


@pytest.mark.parametrize("region", [-1, 20])
def test_a_region_that_does_not_exist_is_refused(region: int) -> None:
    with pytest.raises(ParameterError, match="from 0 to 19"):
        ROME_REGIONS.bounds(region)
