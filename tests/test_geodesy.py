from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m, local_metres

latitudes = st.floats(-89, 89)
longitudes = st.floats(-180, 180)


def test_quarter_of_the_equator_is_known() -> None:
    assert haversine_m(0, 0, 0, 90) == pytest.approx(np.pi / 2 * EARTH_RADIUS_M)


def test_antipodes_are_half_a_circumference_apart() -> None:
    assert haversine_m(90, 0, -90, 0) == pytest.approx(np.pi * EARTH_RADIUS_M)


def test_published_distance_between_two_airports() -> None:
    # BNA to LAX: 2887.26 km on a sphere of radius 6372.8 km (Rosetta Code).
    assert haversine_m(36.12, -86.67, 33.94, -118.40) == pytest.approx(
        2_887_259.95 * EARTH_RADIUS_M / 6_372_800, rel=1e-8
    )


@given(latitudes, longitudes, latitudes, longitudes, latitudes, longitudes)
def test_is_a_metric(lat1: float, lon1: float, lat2: float, lon2: float, lat3: float, lon3: float) -> None:
    there = float(haversine_m(lat1, lon1, lat2, lon2))
    assert there == pytest.approx(float(haversine_m(lat2, lon2, lat1, lon1)))
    assert haversine_m(lat1, lon1, lat1, lon1) == 0
    detour = float(haversine_m(lat1, lon1, lat3, lon3)) + float(haversine_m(lat3, lon3, lat2, lon2))
    assert there <= detour + 1e-6 * EARTH_RADIUS_M * 1e-3


@given(st.floats(-60, 60), longitudes, st.floats(-0.05, 0.05), st.floats(-0.05, 0.05))
def test_local_projection_agrees_with_the_sphere_in_a_city(lat: float, lon: float, north: float, east: float) -> None:
    x, y = local_metres(lat + north, lon + east, origin_lat=lat, origin_lon=lon)
    assert float(np.hypot(x, y)) == pytest.approx(
        float(haversine_m(lat, lon, lat + north, lon + east)), rel=2e-3, abs=1e-3
    )
