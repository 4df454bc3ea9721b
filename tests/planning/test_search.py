from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket import Ledger, Wishes, certainty, make_lattice, make_plan
from geoblanket.errors import ParameterError
from geoblanket.planning.on_the_road import Judges
from geoblanket.planning.picture import plan_figure
from geoblanket.planning.plan import Plan, Rated, in_words, plan_facts
from tests.planning.worlds import jumping, still, walking


def test_where_nobody_moves_few_good_reports_are_best() -> None:
    """n reports of ε each tell n·ε²: for the same n·ε, the fewer the better."""
    plan = make_plan(still(), Wishes(hour=60), grid=False)
    errors = {rated.schedule.interval_s: rated.road.error_m for rated in plan.candidates}
    assert plan.schedule.interval_s == max(errors)
    assert [errors[interval_s] for interval_s in sorted(errors, reverse=True)] == sorted(errors.values())


def test_where_nothing_is_remembered_a_limit_of_a_report_asks_for_all_of_them() -> None:
    plan = make_plan(jumping(), Wishes(report=8), grid=False)
    assert (plan.schedule.interval_s, plan.schedule.epsilon) == (30.0, 8.0)


@pytest.mark.parametrize("name", ["hour", "report"])
def test_more_budget_is_never_worse(name: str) -> None:
    judges, other = walking(6, trips=40, steps=16), {"hour": 240.0, "report": 4.0}
    del other[name]
    found = [
        make_plan(judges, Wishes(**other, **{name: limit}), grid=False).candidates[0].road.error_m
        for limit in {"hour": (60, 120, 480), "report": (1, 3, 9)}[name]
    ]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("limit", [{}, {"sure": 0.97}, {"hour": 960.0}])
def test_a_road_wish_is_kept_by_the_plan_that_tells_least(limit: dict[str, float]) -> None:
    judges = walking(7, trips=60, steps=24)
    best = make_plan(judges, Wishes(sure=0.97), grid=False)
    assert best.road is not None
    need_m = 1.5 * best.road.error_m
    plan = make_plan(judges, Wishes(road_m=need_m, **limit), grid=False)
    assert plan.right < best.right
    assert all(outcome.kept for outcome in plan.outcomes)
    assert plan.road is not None
    assert 0.9 * need_m < plan.road.error_m <= need_m
    assert plan.instead is None


def test_where_wishes_conflict_privacy_is_kept_and_the_other_end_is_named() -> None:
    judges = walking(7, trips=60, steps=24)
    free = make_plan(judges, Wishes(sure=0.9), grid=False)
    assert free.road is not None
    need_m = 0.6 * free.road.error_m
    plan = make_plan(judges, Wishes(home_m=350, sure=0.9, road_m=need_m), grid=False)
    assert plan.schedule == free.schedule
    assert [(each.wish, each.kept) for each in plan.outcomes] == [("home", True), ("sure", True), ("road", False)]
    assert plan.outcomes[2].got == plan.road.error_m if plan.road else False
    words = str(plan)
    assert f"Not kept: at most {need_m:,g} m off on the road. This plan gives" in words
    # The other end keeps the road alone, and asking for it gives it.
    other = plan.instead
    assert isinstance(other, Rated)
    assert other.road.error_m <= need_m
    assert plan.right_with(other.schedule) > 0.9
    alone = make_plan(judges, Wishes(road_m=need_m), grid=False).schedule
    assert alone.epsilon == pytest.approx(other.schedule.epsilon, rel=0.06)
    assert f"told apart {-int(-100 * plan.right_with(other.schedule) // 1)} times in 100" in words


def test_a_road_that_no_epsilon_keeps_gets_the_largest_or_what_privacy_allows() -> None:
    judges = walking(7, trips=60, steps=24)
    alone = make_plan(judges, Wishes(road_m=0.5), grid=False)
    assert alone.schedule.epsilon == 20
    both = make_plan(judges, Wishes(road_m=0.5, sure=0.9), grid=False)
    assert both.right <= 0.9
    for plan in (alone, both):
        assert plan.instead is None
        assert "No schedule keeps the one for the road" in str(plan)
        assert [each.kept for each in plan.outcomes if each.wish == "road"] == [False]


def test_what_a_plan_promises_is_what_certainty_computes(tmp_path: Path) -> None:
    judges = walking(6, trips=40, steps=16)
    plan = make_plan(judges, Wishes(sure=0.9), grid=False)
    south, west, north, east = plan.area
    middle = ((south + north) / 2, (west + east) / 2, 3)
    bundle = make_lattice(middle, tmp_path / "a.bundle", **plan.lattice)
    draws = round(3600 / plan.schedule.interval_s)
    found = certainty(bundle, apart_m=100, reports=draws).right
    assert found <= 0.9
    assert plan.right == pytest.approx(found, abs=2e-5)
    for rated in plan.candidates:
        assert plan.right_with(rated.schedule) <= 0.9


def test_what_the_simulation_cannot_tell_apart_is_tied_and_the_smaller_epsilon_is_taken() -> None:
    """Of few trips the errors are uncertain; their intervals overlap."""
    plan = make_plan(walking(6, trips=6, steps=40), Wishes(hour=240), grid=False)
    best = plan.candidates[0].road
    overlapping = [
        rated
        for rated in plan.candidates
        if rated.road.error_m - rated.road.standard_error_m <= best.error_m + best.standard_error_m
    ]
    assert len(overlapping) > 1
    assert {rated.schedule for rated in plan.tied} == {rated.schedule for rated in overlapping}
    assert plan.schedule.epsilon == min(rated.schedule.epsilon for rated in overlapping)
    assert plan.schedule != plan.candidates[0].schedule
    assert "The simulation cannot tell it from: every " in " ".join(in_words(plan))
    clear = make_plan(still(), Wishes(hour=60), grid=False)
    assert [rated.schedule for rated in clear.tied] == [clear.schedule]
    assert "Tied" not in " ".join(in_words(clear))


def test_no_interval_is_longer_than_the_hour_of_budgets() -> None:
    judges = walking(6, trips=20, steps=60)
    slow = replace(judges, model=replace(judges.model, interval_s=300.0))
    plan = make_plan(slow, Wishes(hour=60), grid=False)
    assert max(rated.schedule.interval_s for rated in plan.candidates) == 2400.0
    assert list(plan.skipped_s) == [6000.0]


def test_reports_that_tell_nothing_are_no_good_advice() -> None:
    plan = make_plan(walking(7, trips=60, steps=24), Wishes(hour=0.001), grid=False)
    assert not plan.tells_something
    assert "These reports tell hardly more than none." in str(plan)
    assert "hardly more" not in str(make_plan(still(), Wishes(hour=60), grid=False))


def test_neither_processes_nor_time_change_a_plan() -> None:
    judges = walking(7, trips=30, steps=16)
    facts = [
        plan_facts(make_plan(judges, Wishes(hour=240), grid=True, workers=workers), roads="a b.roads")
        for workers in (1, 2)
    ]
    assert facts[0] == facts[1]
    assert "'a b.roads'" in facts[0]["commands"][0]
    assert len(facts[0]["epsilon_by_interval"]) == 16


def test_short_trips_leave_long_intervals_out() -> None:
    plan = make_plan(walking(7, trips=60, steps=10), Wishes(hour=240), grid=True)
    assert list(plan.skipped_s) == [240.0, 600.0]
    assert {rated.schedule.interval_s for rated in plan.grid} == {30.0, 60.0, 120.0}
    figure = plan_figure(plan)
    left, right = figure.axes
    assert len([line for line in left.lines if len(np.atleast_1d(line.get_xdata())) == 4]) == 3
    assert len(right.patches) == 4 * 2  # four distances; with the plan, without any report


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(Judges.of_model(walking(6).model, trips=40), Wishes(hour=240, home_m=350), workers=1)


def test_a_plan_reads_as_sentences_and_shows_itself_in_one_line(plan: Plan) -> None:
    assert str(plan) == "\n".join(in_words(plan))
    assert repr(plan).startswith("<Plan: Report every ")
    assert repr(plan).endswith("with a fence of 0.62 km around a home.>")
    assert "held within 50 m" in str(plan)
    assert plan.road is not None
    at_rest_m = plan.road.error_at_reports_m
    assert at_rest_m < plan.road.error_m
    assert f"At rest it stays {round(at_rest_m, -1):.0f} m off" in str(plan)
    assert "anchor" not in str(plan) + plan._repr_html_()


def test_a_home_is_kept_off_as_far_as_was_asked_for(plan: Plan) -> None:
    assert plan.bare_home_m < 100
    assert 350 <= plan.fenced_home_m < 360
    assert f"After 30 nights without one, an attacker is {plan.bare_home_m:.0f} m off" in str(plan)
    assert "With a fence of 0.62 km, an attacker who sees nights only stays about 350 m off" in str(plan)


def test_what_is_planned_can_be_made(plan: Plan, tmp_path: Path) -> None:
    bundle = make_lattice((41.15, -8.61, 2), tmp_path / "a.bundle", **plan.lattice)
    schedule = plan.schedule
    assert (bundle.lattice.epsilon, bundle.lattice.hold_m) == (schedule.epsilon, 50)
    Ledger.create(tmp_path / "a.ledger", budget=plan.budget)
    ledger = Ledger.open(tmp_path / "a.ledger")
    assert ledger.add_fence(41.15, -8.61, radius_km=plan.fence_km).reach_m == 620
    ledger.close()
    assert (plan.budget.epsilon, plan.budget.window_s) == (schedule.hour, 3600)


def test_a_plan_is_judged_by_trips() -> None:
    with pytest.raises(ParameterError, match="1 trip or more"):
        Judges.of_model(still().model, trips=0)
