from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import ParameterError
from geoblanket.mechanism.costs import HOUR_S
from geoblanket.mechanism.promise import fenced_m
from geoblanket.planning.schedules import (
    Schedule,
    fence_km,
    schedule_commands,
)
from geoblanket.release import Budget, Device, Ledger
from geoblanket.release.fence import Fence
from geoblanket.tracking.estimate import geometric_median
from tests.release.lattices import LAT, LON, START, save_small


@pytest.mark.parametrize("schedule", [Schedule(2.0, 30.0), Schedule(1.5, 120.0), Schedule(0.7, 600.0)])
def test_costs_are_what_a_ledger_charges(schedule: Schedule, tmp_path: Path) -> None:
    bundle = save_small(tmp_path / "a.bundle", hold_m=50, epsilon=schedule.epsilon, interval_s=schedule.interval_s)
    # Nothing may be refused, and nothing may be left.
    Ledger.create(tmp_path / "a.ledger", budget=Budget(schedule.hour, HOUR_S))
    with Device.open(bundle, ledger=tmp_path / "a.ledger", replay=True) as device:
        for step in range(round(HOUR_S // schedule.interval_s)):
            # To and fro by more than hold reaches.
            report = device.report(LAT + step % 2 * 0.001, LON, START + 1700 + step * schedule.interval_s)
        assert math.isclose(report.left, 0, abs_tol=1e-9)


def test_a_stay_costs_one_report(tmp_path: Path) -> None:
    schedule = Schedule(2.0, 60.0)
    bundle = save_small(tmp_path / "a.bundle", hold_m=50, epsilon=schedule.epsilon, interval_s=schedule.interval_s)
    with Device.open(bundle, ledger=None, budget=Budget(schedule.report, 10 * HOUR_S), replay=True) as device:
        cells = {device.report(LAT, LON, START + step * schedule.interval_s).cell for step in range(8 * 60)}
    assert len(cells) == 1


def test_a_fence_keeps_what_was_asked_for_and_little_more() -> None:
    assert fence_km(570) == 1.0
    assert fence_km(350) == 0.62
    for home_m in (57.0, 100.0, 285.0, 333.0, 1000.0, 5700.0):
        assert home_m <= fenced_m(fence_km(home_m)) * (1 + 1e-9) <= 1.1 * home_m
    # Both ends are fences that can be drawn.
    for home_m in (0.001, 5700.0):
        assert Fence.draw(45.001, -30.002, radius_km=fence_km(home_m)).reach_m == round(1000 * fence_km(home_m))


def test_the_centre_of_a_fence_is_two_thirds_of_its_radius_off() -> None:
    """Without a prior over homes; with one the share is less, and what a plan says is below both."""
    home_lat, home_lon = 45.001, -30.002
    fences = [Fence.draw(home_lat, home_lon, radius_km=1) for _ in range(3000)]
    north_m = 111_195 * (np.array([fence.lat_e7 for fence in fences]) / 1e7 - home_lat)
    east_m = 111_195 * (np.array([fence.lon_e7 for fence in fences]) / 1e7 - home_lon) * np.cos(np.radians(home_lat))
    assert np.hypot(north_m, east_m).mean() == pytest.approx(1000 * 2 / 3, rel=0.03)
    assert fenced_m(1) < 2000 / 3


@pytest.mark.parametrize("home_m", [0, -1, 5701, math.nan, math.inf])
def test_absurd_distances_of_a_home_are_refused(home_m: float) -> None:
    with pytest.raises(ParameterError, match=r"keep a home off must be above 0 and at most 5,700 m"):
        fence_km(home_m)


def test_a_month_of_nights_leads_to_the_home_without_a_fence() -> None:
    """30 stays, one draw each: the best guess of a place from 30 reports of planar Laplace noise."""
    schedule, rng = Schedule(4.0, 60.0), np.random.default_rng(1)
    radius, angle = rng.gamma(2, 250, (2000, 30)), rng.uniform(0, 2 * np.pi, (2000, 30))
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    guess = geometric_median(points, nearest=1e-6)  # the most probable place
    assert schedule.found_m(30) == pytest.approx(np.hypot(*guess.T).mean(), rel=0.1)
    assert schedule.found_m(1) == 500


def test_a_fence_is_a_command_only_where_one_is_wanted() -> None:
    schedule = Schedule(4.0, 60.0)
    assert schedule_commands(schedule, "--area=1,2,3,4") == [
        "geoblanket lattice --area=1,2,3,4 --epsilon 4 --interval 60 --out city.bundle",
        "geoblanket ledger create car.ledger --budget 240 --window 3600",
    ]
    *_, fence = schedule_commands(schedule, "--area=1,2,3,4", radius_km=0.62)
    assert fence == "geoblanket fence add --ledger car.ledger --radius-km 0.62"
