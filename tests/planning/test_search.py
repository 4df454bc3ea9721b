from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket import Ledger, make_lattice, make_plan
from geoblanket.errors import ParameterError, UnmetPlanError
from geoblanket.planning.on_the_road import Judges
from geoblanket.planning.picture import plan_figure
from geoblanket.planning.schedules import Budgets
from geoblanket.planning.search import Plan, in_words, plan_facts
from tests.planning.worlds import jumping, still, walking


def test_where_nobody_moves_few_good_reports_are_best() -> None:
    """n reports of ε each tell n·ε²: for the same n·ε, the fewer the better."""
    plan = make_plan(still(), Budgets(hour=60), grid=False)
    errors = {rated.schedule.interval_s: rated.road.error_m for rated in plan.candidates}
    assert plan.recommended.schedule.interval_s == max(errors)
    assert [errors[interval_s] for interval_s in sorted(errors, reverse=True)] == sorted(errors.values())


def test_where_nothing_is_remembered_a_limit_of_a_report_asks_for_all_of_them() -> None:
    plan = make_plan(jumping(), Budgets(report=8), grid=False)
    assert (plan.recommended.schedule.interval_s, plan.recommended.schedule.epsilon) == (30.0, 8.0)


@pytest.mark.parametrize("name", ["hour", "report"])
def test_more_budget_is_never_worse(name: str) -> None:
    judges, other = walking(6, trips=40, steps=16), {"hour": 240.0, "report": 4.0}
    del other[name]
    found = [
        make_plan(judges, Budgets(**other, **{name: limit}), grid=False).recommended.road.error_m
        for limit in {"hour": (60, 120, 480), "report": (1, 3, 9)}[name]
    ]
    assert found == sorted(found, reverse=True)


def test_the_least_cost_for_an_error_that_is_small_enough() -> None:
    judges = walking(8, trips=100, steps=40)
    best = make_plan(judges, Budgets(hour=960), grid=False)
    enough_m = 1.5 * best.recommended.road.error_m
    plan = make_plan(judges, Budgets(hour=960), error_m=enough_m, grid=False)
    assert plan.recommended.schedule.hour < 0.7 * best.recommended.schedule.hour
    assert 0.9 * enough_m < plan.recommended.road.error_m <= enough_m


def test_what_no_schedule_meets_says_what_would() -> None:
    judges = walking(7, trips=60, steps=24)
    enough_m = 0.5 * make_plan(judges, Budgets(hour=60), grid=False).recommended.road.error_m
    with pytest.raises(UnmetPlanError, match=r"least budgets that would do.*--hour") as unmet:
        make_plan(judges, Budgets(hour=60), error_m=enough_m, grid=False)
    least = unmet.value.least
    assert least is not None
    assert least["hour"] > 60
    copy = pickle.loads(pickle.dumps(unmet.value))  # noqa: S301
    assert (str(copy), copy.least) == (str(unmet.value), least)
    assert make_plan(judges, Budgets(**least), error_m=enough_m, grid=False).recommended.schedule.hour > 60
    with pytest.raises(UnmetPlanError):
        make_plan(judges, Budgets(hour=0.8 * least["hour"]), error_m=enough_m, grid=False)


def test_what_the_simulation_cannot_tell_apart_is_tied_and_the_smaller_epsilon_is_taken() -> None:
    """Of few trips the errors are uncertain; their intervals overlap."""
    plan = make_plan(walking(6, trips=6, steps=40), Budgets(hour=240), grid=False)
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
    assert "The simulation cannot tell it from: every " in " ".join(in_words(plan))
    clear = make_plan(still(), Budgets(hour=60), grid=False)
    assert [rated.schedule for rated in clear.tied] == [clear.recommended.schedule]
    assert "Tied" not in " ".join(in_words(clear))


def test_no_interval_is_longer_than_the_hour_of_budgets() -> None:
    judges = walking(6, trips=20, steps=60)
    slow = replace(judges, model=replace(judges.model, interval_s=300.0))
    plan = make_plan(slow, Budgets(hour=60), grid=False)
    assert max(rated.schedule.interval_s for rated in plan.candidates) == 2400.0
    assert list(plan.skipped_s) == [6000.0]


def test_budgets_within_which_reports_tell_nothing_are_no_plan() -> None:
    judges = walking(7, trips=60, steps=24)
    with pytest.raises(UnmetPlanError, match=r"reports that tell something.*no report can be made.*--hour") as unmet:
        make_plan(judges, Budgets(hour=0.001), grid=False)
    assert unmet.value.least is not None
    with pytest.raises(UnmetPlanError, match="No larger budget would do either") as hopeless:
        make_plan(judges, Budgets(hour=100), error_m=0.5, grid=False)
    assert hopeless.value.least is None


@pytest.mark.parametrize("need_m", [0, -5, float("nan"), float("inf")])
def test_absurd_errors_are_refused(need_m: float) -> None:
    with pytest.raises(ParameterError, match="must be above 0 m"):
        make_plan(walking(trips=20), Budgets(hour=60), error_m=need_m)


def test_neither_processes_nor_time_change_a_plan() -> None:
    judges = walking(7, trips=30, steps=16)
    facts = [
        plan_facts(make_plan(judges, Budgets(hour=240), grid=True, workers=workers), roads="a b.roads")
        for workers in (1, 2)
    ]
    assert facts[0] == facts[1]
    assert "'a b.roads'" in facts[0]["commands"][0]
    assert len(facts[0]["epsilon_by_interval"]) == 16


def test_short_trips_leave_long_intervals_out() -> None:
    plan = make_plan(walking(7, trips=60, steps=10), Budgets(hour=240), grid=True)
    assert list(plan.skipped_s) == [240.0, 600.0]
    assert {rated.schedule.interval_s for rated in plan.grid} == {30.0, 60.0, 120.0}
    figure = plan_figure(plan)
    left, right = figure.axes
    assert len([line for line in left.lines if len(np.atleast_1d(line.get_xdata())) == 4]) == 3
    assert len(right.patches) == 4 * 2  # four distances; with the plan, without any report


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(Judges.of_model(walking(6).model, trips=40), Budgets(hour=240), home_m=350, workers=1)


def test_a_plan_reads_as_sentences_and_shows_itself_in_one_line(plan: Plan) -> None:
    assert str(plan) == "\n".join(in_words(plan))
    assert repr(plan).startswith("<Plan: every ")
    assert repr(plan).endswith("m off on the road, fence of 0.62 km>")
    assert "held within 50 m" in str(plan)
    at_rest_m = plan.recommended.road.error_at_reports_m
    assert at_rest_m < plan.recommended.road.error_m
    assert f"At rest it stays {round(at_rest_m, -1):.0f} m off" in str(plan)
    assert "anchor" not in str(plan) + plan._repr_html_()


def test_a_home_is_kept_off_as_far_as_was_asked_for(plan: Plan) -> None:
    assert plan.bare_home_m < 100
    assert 350 <= plan.fenced_home_m < 360
    assert f"After 30 nights without one, an attacker is {plan.bare_home_m:.0f} m off" in str(plan)
    assert "With a fence of 0.62 km, an attacker who sees nights only stays about 350 m off" in str(plan)


def test_what_is_planned_can_be_made(plan: Plan, tmp_path: Path) -> None:
    bundle = make_lattice((41.15, -8.61, 2), tmp_path / "a.bundle", **plan.lattice)
    schedule = plan.recommended.schedule
    assert (bundle.lattice.epsilon, bundle.lattice.hold_m) == (schedule.epsilon, 50)
    Ledger.create(tmp_path / "a.ledger", budget=plan.budget)
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.add_fence(41.15, -8.61, radius_km=plan.fence_km).reach_m == 620
    ledger.close()
    assert (plan.budget.epsilon, plan.budget.window_s) == (schedule.hour, 3600)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ParameterError, match="needs a limit"):
        Budgets()
    with pytest.raises(ParameterError, match="keep a home off"):
        make_plan(still(), Budgets(hour=60), home_m=1e5)
    with pytest.raises(ParameterError, match="1 trip or more"):
        Judges.of_model(still().model, trips=0)
