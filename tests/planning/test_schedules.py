from __future__ import annotations

import math
from pathlib import Path

import pytest

from geoblanket.errors import ParameterError
from geoblanket.planning.schedules import DAY_S, HOUR_S, Budgets, Schedule, affordable
from geoblanket.release import Budget, Device, Ledger
from tests.release.lattices import LAT, LON, START, save_small

SCHEDULES = [
    Schedule(2.0, 30.0),
    Schedule(2.0, 60.0, 3.0),
    Schedule(1.5, 120.0, 0.5, 1800),
    Schedule(2.0, 240.0, 4.0, DAY_S),
    Schedule(0.7, 600.0, 1.0, 7200),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_costs_are_what_a_ledger_charges(schedule: Schedule, tmp_path: Path) -> None:
    bundle = save_small(
        tmp_path / "a.bundle",
        epsilon=schedule.epsilon,
        interval_s=schedule.interval_s,
        anchor_epsilon=schedule.anchor_epsilon,
        period_s=schedule.anchor_period_s,
    )
    # Nothing may be refused, and nothing may be left.
    Ledger.create(tmp_path / "a.ledger", budget=Budget(schedule.hour, HOUR_S, schedule.anchors_of_hour or 1.0))
    with Device.open(bundle, ledger=tmp_path / "a.ledger", replay=True) as device:
        for step in range(round(HOUR_S // schedule.interval_s)):
            report = device.report(LAT, LON, START + 1700 + step * schedule.interval_s)
    ledger = Ledger.open(tmp_path / "a.ledger")
    summary = ledger.summary()
    ledger.close()
    assert math.isclose(report.left, 0, abs_tol=1e-9)
    assert math.isclose(summary["spent"], schedule.hour)
    assert summary["anchor_spent"] <= schedule.anchors_of_hour + 1e-9
    if schedule.anchor_epsilon is not None:
        assert math.isclose(summary["hour"], schedule.hour)
        assert math.isclose(summary["night"], schedule.night)
        assert math.isclose(schedule.anchors_of_hour - summary["anchor_spent"], 0.0, abs_tol=schedule.anchor_epsilon)


def test_a_night_costs_every_report_without_an_anchor_and_never_more_with_one() -> None:
    assert Schedule(2.0, 30.0).night == 8 * 120 * 2
    assert Schedule(2.0, 30.0, 4.0).night == 9 * 4  # it may begin within an hour
    assert Schedule(2.0, 30.0, 4.0, DAY_S).night == 2 * 4
    # Where reports are so rare that they tell less than the anchor allows, they are what counts.
    assert Schedule(1.0, 3600.0, 4.0).night == 8


def test_the_largest_epsilons_within_the_budgets_are_candidates() -> None:
    budgets = Budgets(night=36, hour=240, report=6)
    found = list(affordable(budgets, intervals_s=[30.0, 60.0, 240.0], periods_s=[HOUR_S, DAY_S]))
    assert found == [
        Schedule(2.0, 30.0, 4.0, HOUR_S),
        Schedule(2.0, 30.0, 18.0, DAY_S),
        Schedule(0.037, 30.0),
        Schedule(4.0, 60.0, 4.0, HOUR_S),
        Schedule(4.0, 60.0, 18.0, DAY_S),
        Schedule(0.075, 60.0),
        Schedule(6.0, 240.0, 4.0, HOUR_S),
        Schedule(6.0, 240.0, 18.0, DAY_S),
        Schedule(0.3, 240.0),
    ]
    assert all(schedule.within(budgets) for schedule in found)


@pytest.mark.parametrize("name", ["night", "hour", "report"])
def test_no_limit_is_broken_and_none_is_wasted(name: str) -> None:
    for limit in (0.4, 3.0, 17.3, 99.0, 240.0):
        budgets = Budgets(**{name: limit})
        for schedule in affordable(budgets, intervals_s=[30.0, 120.0, 600.0], periods_s=[HOUR_S]):
            assert schedule.within(budgets)
            cost = getattr(schedule, name)
            at_most = schedule.epsilon == 20 or schedule.anchor_epsilon == 20
            assert cost > 0.89 * limit or at_most


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e7, True])
@pytest.mark.parametrize("name", ["night", "hour", "report"])
def test_absurd_budgets_are_refused(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"What an? {name} may cost"):
        Budgets(**{name: value})


def test_a_plan_needs_a_limit() -> None:
    with pytest.raises(ParameterError, match="at least one of night, hour and report"):
        Budgets()
