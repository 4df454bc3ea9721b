from __future__ import annotations

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mechanism.baselines.samplers import CoarseLocation, FloatLaplace, Reporter, TableSampler

PORTO = (41.15, -8.61)


def many(reporter: Reporter, count: int = 20_000) -> tuple[Floats, Floats]:
    return reporter.report(np.full(count, PORTO[0]), np.full(count, PORTO[1]))


def test_planar_laplace_goes_as_far_as_it_should_in_all_directions() -> None:
    lat, lon = many(FloatLaplace(2.0).begin(np.random.default_rng(1)))
    away = haversine_m(lat, lon, *PORTO) / 1000
    assert away.mean() == pytest.approx(2 / 2.0, rel=0.02)
    assert np.mean(away > 1.5) == pytest.approx((1 + 3) * np.exp(-3), rel=0.05)
    assert lat.mean() == pytest.approx(PORTO[0], abs=2e-4)
    assert lon.mean() == pytest.approx(PORTO[1], abs=2e-4)
    east, north = haversine_m(PORTO[0], lon, *PORTO), haversine_m(lat, PORTO[1], *PORTO)
    assert east.mean() == pytest.approx(north.mean(), rel=0.03)


def test_coarse_location_is_a_point_of_a_grid_and_stays_for_the_hour() -> None:
    phone = CoarseLocation()
    lat, lon = many(phone.begin(np.random.default_rng(2)), 100)
    assert len(np.unique(lat)) == len(np.unique(lon)) == 1
    step = 2000 / 111_000
    assert lat[0] / step == pytest.approx(round(lat[0] / step))
    assert haversine_m(lat[0], lon[0], *PORTO) < 4000


def test_coarse_location_drifts_by_three_percent_an_hour() -> None:
    phone = CoarseLocation(accuracy_m=200.0)  # a fine grid, to see where the offset is
    offsets = []
    for seed in range(300):
        reporter = phone.begin(np.random.default_rng(seed))
        hours = []
        for _ in range(20):
            reporter.next_hour()
            hours.append(many(reporter, 1)[0][0])
        offsets.append(hours)
    moved = (np.array(offsets) - PORTO[0]) * 111_000
    # The grid adds its own spread, 200 m / √12, to the offset's 50 m; the offset neither grows nor shrinks.
    assert np.std(moved[:, 0]) == pytest.approx(np.hypot(50, 200 / 12**0.5), rel=0.25)
    assert np.std(moved[:, -1]) == pytest.approx(np.std(moved[:, 0]), rel=0.25)
    assert np.mean(moved[:, 0] == moved[:, 1]) > 0.9


def test_known_offsets_give_the_same_reports() -> None:
    phone = CoarseLocation()
    lat, lon = np.full(2, PORTO[0]), np.full(2, PORTO[1])
    near, far = np.zeros(2), np.array([0.0, 2000.0])
    snapped_lat, snapped_lon = phone.snapped(lat, lon, near, far)
    assert snapped_lat[1] - snapped_lat[0] == pytest.approx(2000 / 111_000)
    assert abs(snapped_lon[1] - snapped_lon[0]) < 0.03


def test_a_table_is_drawn_from_by_the_row_of_the_nearest_place() -> None:
    lat, lon = PORTO[0] + np.array([0.0, 0.01]), np.full(2, PORTO[1])
    table = TableSampler(lat, lon, np.array([[0.75, 0.25], [0.0, 1.0]]), "between two places")
    reporter = table.begin(np.random.default_rng(3))
    assert np.mean(many(reporter, 4000)[0] == lat[0]) == pytest.approx(0.75, abs=0.03)
    away, _ = reporter.report(np.full(50, PORTO[0] + 0.009), np.full(50, PORTO[1]))
    assert (away == lat[1]).all()


def test_each_says_what_it_promises() -> None:
    assert "ε = 2 per km" in FloatLaplace(2.0).promise
    assert CoarseLocation().promise.startswith("Nothing.")
    with pytest.raises(ParameterError, match="accuracy"):
        CoarseLocation(accuracy_m=10.0)
