from __future__ import annotations

import numpy as np
import pytest

from geoblanket.planning.at_rest import rest_errors
from geoblanket.planning.judged_trips import JudgedTrips
from geoblanket.planning.on_the_road import RADII_M
from geoblanket.planning.schedules import Schedule
from geoblanket.tracking.motion_model import MotionModel
from tests.planning.worlds import model_of


def city(side: int = 24) -> tuple[MotionModel, JudgedTrips]:
    """A large city in which all vehicles rest in the middle, and nobody knows that they do."""
    middle = side // 2 * side + side // 2
    return model_of(np.eye(side * side), side), JudgedTrips(np.full(40, middle, np.int32), np.arange(0, 40, 5))


def test_reports_average_out_without_an_anchor() -> None:
    model, trips = city()
    found = rest_errors(Schedule(4.0, 30.0), model, trips)
    assert found.error_m == pytest.approx(1000 * np.sqrt(np.pi / 120) / 4, rel=0.1)
    assert found.within[100.0] > 0.9
    rarer = rest_errors(Schedule(4.0, 240.0), model, trips)
    assert 1.8 * found.error_m < rarer.error_m < 3.2 * found.error_m


def test_an_anchor_is_what_is_left_when_they_have() -> None:
    model, trips = city()
    found = rest_errors(Schedule(8.0, 30.0, 4.0), model, trips)
    assert found.error_m == pytest.approx(500, rel=0.08)
    for radius in RADII_M:
        known = 1 - (1 + radius / 250) * np.exp(-radius / 250)
        assert found.within[radius] == pytest.approx(known, abs=0.06)


def test_without_any_report_the_middle_of_the_city_is_as_good_as_it_gets() -> None:
    side = 9
    model = model_of(np.eye(side * side), side)
    trips = JudgedTrips(np.repeat(np.arange(side * side, dtype=np.int32), 5), np.arange(0, 5 * side * side, 5))
    apart = np.hypot(*(model.xy_m - model.xy_m.mean(axis=0)).T)
    assert rest_errors(None, model, trips).error_m == pytest.approx(apart.mean(), rel=0.05)
