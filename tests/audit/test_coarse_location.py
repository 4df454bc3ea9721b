from __future__ import annotations

import numpy as np
import pytest

from benchmarks.home.coarse_location import CoarseLocation, CoarseReporter
from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError

PORTO = (41.15, -8.61)


def many(reporter: CoarseReporter, count: int = 20_000) -> tuple[Floats, Floats]:
    return reporter.report(np.full(count, PORTO[0]), np.full(count, PORTO[1]))


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


def test_an_accuracy_that_android_does_not_allow_is_refused() -> None:
    with pytest.raises(ParameterError, match="accuracy"):
        CoarseLocation(accuracy_m=10.0)
