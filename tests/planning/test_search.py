from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from geoblanket.errors import ParameterError, UnmetPlanError
from geoblanket.planning.picture import plan_figure
from geoblanket.planning.schedules import Budgets
from geoblanket.planning.search import search_plan
from geoblanket.planning.words import in_words, plan_facts
from tests.planning.worlds import jumping, still, walking


def test_where_nobody_moves_few_good_reports_are_best() -> None:
    """n reports of ε each tell n·ε²: for the same n·ε, the fewer the better."""
    plan = search_plan(still(), Budgets(hour=60), grid=False)
    errors = {rated.schedule.interval_s: rated.road.error_m for rated in plan.candidates}
    assert plan.recommended.schedule.interval_s == max(errors)
    assert [errors[interval_s] for interval_s in sorted(errors, reverse=True)] == sorted(errors.values())


def test_where_nothing_is_remembered_a_limit_of_a_report_asks_for_all_of_them() -> None:
    plan = search_plan(jumping(), Budgets(report=8), grid=False)
    assert (plan.recommended.schedule.interval_s, plan.recommended.schedule.epsilon) == (30.0, 8.0)
    assert plan.recommended.schedule.anchor_epsilon is None


def test_a_limit_for_a_night_asks_for_an_anchor() -> None:
    plan = search_plan(walking(8, trips=60, steps=24), Budgets(night=36, hour=480), grid=False)
    schedule = plan.recommended.schedule
    assert schedule.anchor_epsilon == 4.0
    assert schedule.night <= 36
    assert plan.without_anchor is not None
    assert plan.without_anchor.road.error_m < plan.recommended.road.error_m
    assert plan.without_anchor.rest is not None
    assert plan.recommended.rest is not None
    assert plan.without_anchor.rest.error_m < 0.4 * plan.recommended.rest.error_m
    assert plan.day is not None
    assert plan.day.schedule.anchor_epsilon == 18.0
    assert plan.day.road.error_m < plan.recommended.road.error_m
    assert "--private-day" in " ".join(in_words(plan))
    private = search_plan(walking(8, trips=60, steps=24), Budgets(night=36, hour=480), grid=False, private_day=True)
    assert private.recommended.schedule.anchor_period_s == 86_400
    assert private.day is None


@pytest.mark.parametrize("name", ["hour", "night", "report"])
def test_more_budget_is_never_worse(name: str) -> None:
    judges, other = walking(6, trips=40, steps=16), {"hour": 240.0, "night": 24.0, "report": 4.0}
    del other[name]
    found = [
        search_plan(judges, Budgets(**other, **{name: limit}), grid=False).recommended.road.error_m
        for limit in {"hour": (60, 120, 480), "night": (16, 40, 100), "report": (1, 3, 9)}[name]
    ]
    assert found == sorted(found, reverse=True)


def test_the_least_cost_for_an_error_that_is_small_enough() -> None:
    judges = walking(8, trips=100, steps=40)
    best = search_plan(judges, Budgets(hour=960), grid=False)
    enough_m = 1.5 * best.recommended.road.error_m
    plan = search_plan(judges, Budgets(hour=960), need_m=enough_m, grid=False)
    assert plan.recommended.schedule.hour < 0.7 * best.recommended.schedule.hour
    assert 0.9 * enough_m < plan.recommended.road.error_m <= 1.02 * enough_m


def test_what_no_schedule_meets_says_what_would() -> None:
    judges = walking(7, trips=60, steps=24)
    enough_m = 0.5 * search_plan(judges, Budgets(hour=60), grid=False).recommended.road.error_m
    with pytest.raises(UnmetPlanError, match=r"least budgets that would do.*--hour") as unmet:
        search_plan(judges, Budgets(hour=60), need_m=enough_m, grid=False)
    least = unmet.value.least
    assert least is not None
    assert least["hour"] > 60
    copy = pickle.loads(pickle.dumps(unmet.value))  # noqa: S301
    assert (str(copy), copy.least) == (str(unmet.value), least)
    assert search_plan(judges, Budgets(**least), need_m=enough_m, grid=False).recommended.schedule.hour > 60
    with pytest.raises(UnmetPlanError):
        search_plan(judges, Budgets(hour=0.8 * least["hour"]), need_m=enough_m, grid=False)


def test_what_the_simulation_cannot_tell_apart_is_tied_and_the_smaller_epsilon_is_taken() -> None:
    """Of few trips the errors are uncertain; their intervals overlap."""
    plan = search_plan(walking(6, trips=6, steps=40), Budgets(hour=240), grid=False)
    best = plan.candidates[0].road
    overlapping = [
        rated
        for rated in plan.candidates
        if rated.road.error_m - rated.road.standard_error_m <= best.error_m + best.standard_error_m
    ]
    assert len(overlapping) > 1
    assert {rated.schedule for rated in plan.tied} == {rated.schedule for rated in overlapping}
    assert plan.recommended.schedule.epsilon == min(rated.schedule.epsilon for rated in overlapping)
    assert plan.recommended.schedule != plan.candidates[0].schedule
    assert "Tied with it, as far as the simulation can tell: every " in " ".join(in_words(plan))
    clear = search_plan(still(), Budgets(hour=60), grid=False)
    assert [rated.schedule for rated in clear.tied] == [clear.recommended.schedule]
    assert "Tied" not in " ".join(in_words(clear))


def test_no_interval_is_longer_than_the_hour_of_budgets_and_anchors() -> None:
    judges = walking(6, trips=20, steps=60)
    slow = replace(judges, model=replace(judges.model, interval_s=300.0))
    plan = search_plan(slow, Budgets(hour=60), grid=False)
    assert max(rated.schedule.interval_s for rated in plan.candidates) == 2400.0
    assert list(plan.skipped_s) == [6000.0]


def test_budgets_within_which_reports_tell_nothing_are_no_plan() -> None:
    judges = walking(7, trips=60, steps=24)
    with pytest.raises(UnmetPlanError, match=r"reports that tell something.*no report can be made.*--hour") as unmet:
        search_plan(judges, Budgets(hour=0.001), grid=False)
    assert unmet.value.least is not None
    with pytest.raises(UnmetPlanError, match="No larger budget would do either") as hopeless:
        search_plan(judges, Budgets(hour=100), need_m=0.5, grid=False)
    assert hopeless.value.least is None


@pytest.mark.parametrize("need_m", [0, -5, float("nan"), float("inf")])
def test_absurd_errors_are_refused(need_m: float) -> None:
    with pytest.raises(ParameterError, match="must be above 0 m"):
        search_plan(walking(trips=20), Budgets(hour=60), need_m=need_m)


def test_neither_processes_nor_time_change_a_plan() -> None:
    judges = walking(7, trips=30, steps=16)
    facts = [
        plan_facts(search_plan(judges, Budgets(night=40, hour=240), grid=True, workers=workers), roads="a b.roads")
        for workers in (1, 2)
    ]
    assert facts[0] == facts[1]
    assert "'a b.roads'" in facts[0]["commands"][0]
    assert len(facts[0]["epsilon_by_interval"]) == 16


def test_short_trips_leave_long_intervals_out() -> None:
    plan = search_plan(walking(7, trips=60, steps=10), Budgets(hour=240), grid=True)
    assert list(plan.skipped_s) == [240.0, 600.0]
    assert {rated.schedule.interval_s for rated in plan.grid} == {30.0, 60.0, 120.0}
    figure = plan_figure(plan)
    left, right = figure.axes
    assert len([line for line in left.lines if len(np.atleast_1d(line.get_xdata())) == 4]) == 3
    assert len(right.patches) == 4 * 3  # four distances; on the road, at rest, without any report
