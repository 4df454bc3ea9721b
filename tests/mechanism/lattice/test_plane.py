"""The plane stretches no distance, wherever on Earth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.lattice.plane import Plane, plane_over

PORTO = Plane(south_e7=411_000_000, west_e7=-87_000_000, unit_mm=1000, side=30_000)


@settings(deadline=None, max_examples=60)
@given(
    south=st.floats(-80, 79),
    west=st.floats(-180, 179.9),
    side_km=st.floats(1, 800),
    unit_mm=st.sampled_from([1000, 4000]),
)
def test_no_distance_is_stretched(south: float, west: float, side_km: float, unit_mm: int) -> None:
    plane = Plane(round(south * 1e7), round(west * 1e7), unit_mm, round(side_km * 1e6 / unit_mm))
    try:
        plane.check()
    except ParameterError:
        return
    rng = np.random.default_rng(7)
    corners = np.array([0, plane.side - 1])
    x = np.concatenate([rng.integers(0, plane.side, 60), corners, corners])
    y = np.concatenate([rng.integers(0, plane.side, 60), corners, corners[::-1]])
    lat, lon = plane.degrees(x, y)
    back_x, back_y = plane.units(lat, lon)
    assert np.abs(back_x - x).max() <= 1
    assert np.abs(back_y - y).max() <= 1
    on_sphere = haversine_m(lat[:, None], lon[:, None], lat, lon)
    in_plane = np.hypot(x[:, None] - x, y[:, None] - y) * (unit_mm / 1000)
    assert (in_plane <= on_sphere * (1 + 1e-9) + 1e-3).all()


@pytest.mark.parametrize("unit_mm", [1, 2, 700, 10**6])
@pytest.mark.parametrize(("south", "west"), [(41.1, -8.6), (-84.9, 179.99), (0.0, -180.0)])
def test_many_coordinates_become_the_same_units_as_one_in_exact_integers(
    unit_mm: int, south: float, west: float
) -> None:
    """With units of 1 mm, a coordinate on the other side of the Earth would need more than 64 bits."""
    plane = Plane(round(south * 1e7), round(west * 1e7), unit_mm, min(8_000, 10**8 // unit_mm))
    plane.check()
    rng = np.random.default_rng(5)
    edges_lat = [-900_000_000, plane.south_e7 - 1, plane.south_e7, plane.north_e7, plane.north_e7 + 1, 900_000_000]
    edges_lon = [plane.west_e7 + step for step in (-1, 0, 1, plane.width_e7 - 1, plane.width_e7, plane.width_e7 + 1)]
    lat_e7 = np.concatenate([edges_lat, rng.integers(-900_000_000, 900_000_001, 500)])
    lon_e7 = np.concatenate([edges_lon, rng.integers(-1_800_000_000, 1_800_000_001, 500)])
    x, y = plane.units_e7(lat_e7, lon_e7)
    one_by_one = [plane.unit_of_e7(*each) for each in zip(lat_e7.tolist(), lon_e7.tolist(), strict=True)]
    assert list(zip(x.tolist(), y.tolist(), strict=True)) == one_by_one


def test_a_city_is_hardly_shrunk_either() -> None:
    x, y = PORTO.units([41.15, 41.15, 41.2], [-8.65, -8.55, -8.6])
    in_plane = np.hypot(np.diff(x), np.diff(y))
    on_sphere = haversine_m([41.15, 41.15], [-8.65, -8.55], [41.15, 41.2], [-8.55, -8.6])
    np.testing.assert_allclose(in_plane, on_sphere, rtol=0.004)


def test_coordinates_move_by_less_than_the_rounding() -> None:
    rng = np.random.default_rng(3)
    lat, lon = rng.uniform(41.12, 41.3, 5000), rng.uniform(-8.65, -8.45, 5000)
    there_lat, there_lon = PORTO.degrees(*PORTO.units(lat, lon))
    # The plane's own distances are what the rounding is about.
    east = (lon - there_lon) * 1e7 * PORTO.east_scale / 2**30
    north = (lat - there_lat) * 1e7 * PORTO.north_scale / 2**30
    assert np.hypot(east, north).max() * 1000 <= PORTO.rounding_mm


def test_outside_counts_as_the_border() -> None:
    x, y = PORTO.units([-90.0, 90.0, 41.2, 41.2], [0.0, 0.0, -20.0, 171.0])
    assert y.tolist()[:2] == [0, PORTO.side - 1]
    assert x.tolist()[2:] == [0, PORTO.side - 1]
    assert not PORTO.holds(41.2, -20.0)
    assert PORTO.holds(41.2, -8.6)


@pytest.mark.parametrize("coordinate", [(np.nan, 0.0), (91.0, 0.0), (0.0, 181.0), (np.inf, 0.0)])
def test_what_is_not_on_earth_is_refused_without_its_coordinate(coordinate: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="not on Earth"):
        PORTO.units(*coordinate)


def test_a_frame_across_the_antimeridian() -> None:
    plane = plane_over(south=-18.2, west=178.0, north=-17.0, east=-179.5, margin_km=5, unit_mm=1000, cell_units=100)
    x, _ = plane.units([-17.5] * 4, [178.2, 179.9, -179.9, -179.6])
    assert (np.diff(x) > 0).all()
    assert plane.holds(-17.5, 179.99)
    assert plane.holds(-17.5, -179.99)


def test_a_frame_at_a_pole_is_refused() -> None:
    with pytest.raises(ParameterError, match="85°"):
        plane_over(south=88, west=0, north=89, east=10, margin_km=5, unit_mm=1000, cell_units=100)
