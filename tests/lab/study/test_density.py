from __future__ import annotations

import numpy as np
import pytest

from geoblanket._geodesy import local_metres
from geoblanket.errors import ParameterError
from geoblanket.lab.study.running import neighbourhood_density


@pytest.fixture
def city() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    lat, lon = 41.15 + 0.002 * rng.normal(size=400), -8.61 + 0.002 * rng.normal(size=400)
    return np.concatenate([lat, lat[:60]]), np.concatenate([lon, lon[:60]])  # some vehicles stand still


def test_against_brute_force(city: tuple[np.ndarray, np.ndarray]) -> None:
    lat, lon = city
    x, y = local_metres(lat, lon, origin_lat=float(np.median(lat)), origin_lon=float(np.median(lon)))
    distance = np.hypot(x[:, None] - x, y[:, None] - y)
    np.fill_diagonal(distance, np.inf)
    nearest = np.sort(distance, axis=1)[:, :20]
    found = neighbourhood_density(lat, lon, radius_m=80, neighbours=20)
    np.testing.assert_array_equal(found.count, (distance <= 80).sum(axis=1))
    np.testing.assert_allclose(found.mean_m, nearest.mean(axis=1), atol=1e-9)
    assert found.share_with(30) == np.mean((distance <= 80).sum(axis=1) >= 30)
    assert found.share_within(60) == np.mean(nearest.mean(axis=1) <= 60)


def test_draws_bound_the_work_and_are_repeatable(city: tuple[np.ndarray, np.ndarray]) -> None:
    one, other = (neighbourhood_density(*city, most_locations=100, queries=30, seed=2) for _ in range(2))
    assert (one.locations, len(one.count)) == (100, 30)
    np.testing.assert_array_equal(one.mean_m, other.mean_m)


def test_all_at_one_spot() -> None:
    found = neighbourhood_density(np.full(300, 41.0), np.full(300, -8.0))
    assert (found.count == 299).all()
    assert (found.mean_m == 0).all()


def test_fewer_locations_than_neighbours() -> None:
    assert neighbourhood_density([41.0, 41.001], [-8.0, -8.0]).mean_m == pytest.approx([111.2, 111.2], abs=0.1)


@pytest.mark.parametrize("lat", [[41.0], [[41.0, 41.1]]])
def test_bad_locations_are_refused_without_being_told(lat: list[float]) -> None:
    with pytest.raises(ParameterError) as caught:
        neighbourhood_density(lat, np.zeros_like(lat))
    assert "41" not in str(caught.value)
