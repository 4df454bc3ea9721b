"""Sentences follow from numbers."""

from __future__ import annotations

import polars as pl
import pytest

from geoblanket.evaluate.measures.catalogue import Value
from geoblanket.evaluate.report.answers import attack_answers, cost_answers, which_answers
from geoblanket.evaluate.report.panels import Panel, hour_panels, main_panels, sweep_panels, whole_city_panels
from geoblanket.evaluate.report.sections import sweep_sentences
from geoblanket.evaluate.report.story import Story
from geoblanket.evaluate.report.tracked import at_equal_error, hour_table, whole_city_answers
from geoblanket.evaluate.report.wording import best_plain, worth_left
from geoblanket.evaluate.results import WHOLE_CITY
from tests.evaluate.made_up import LOSSES, made_up, tracked


def _panel(losses: dict[str, float], *, uncertainty: float = 0.01, equal_cost: bool = False) -> Panel:
    variant = "equal cost per location" if equal_cost else ""
    results = made_up(losses, uncertainty=uncertainty, variant=variant)
    return (sweep_panels(results) if equal_cost else main_panels(results))[0]


def _which(losses: dict[str, float], cost: dict[str, float] | None = None, *, uncertainty: float = 0.01) -> str:
    equal = None if cost is None else _panel(cost, equal_cost=True)
    return " ".join(which_answers(_panel(losses, uncertainty=uncertainty), equal))


def _sweep_sentences(results: pl.DataFrame) -> list[str]:
    return sweep_sentences(Story.of(results, {}), sweep_panels(results)[0])


CONTEXT_WINS = {"lp_cmdp": 0.8, "lp": 1.0}
LP_WINS = {"lp_cmdp": 1.1, "lp": 1.0}


def test_context_is_recommended_only_where_it_wins() -> None:
    assert "So use LP+C-mDP" in _which(CONTEXT_WINS, CONTEXT_WINS)
    told = _which(LP_WINS, LP_WINS)
    assert "So use LP:" in told
    assert "10% more at every ε" in told
    assert "So use LP+C-mDP" not in told


def test_what_the_budget_is_for_decides_where_the_two_ways_of_counting_disagree() -> None:
    told = _which(CONTEXT_WINS, LP_WINS)
    assert "it depends on what the budget is for" in told
    assert "20% less at every ε" in told
    assert "10% more at every ε" in told


def test_without_equal_costs_nothing_is_claimed_about_them() -> None:
    assert "equal costs per location were not compared" in _which(CONTEXT_WINS)


def test_overlapping_intervals_decide_nothing() -> None:
    told = _which({"lp_cmdp": 0.97, "lp": 1.0}, uncertainty=0.05)
    assert "cannot be decided" in told
    assert "So use" not in told


def test_a_difference_below_one_per_cent_does_not_matter() -> None:
    told = _which({"lp_cmdp": 0.998, "lp": 1.0}, uncertainty=0.001)
    assert "the same within 1.0%" in told
    assert "makes no difference that matters" in told


def test_the_least_loss_is_named_for_each_epsilon() -> None:
    results = pl.concat([
        made_up(CONTEXT_WINS, epsilons=(1.0, 2.0)),
        made_up(LP_WINS, epsilons=(4.0,)),
    ])  # fmt: skip
    first, against, choice, *_ = which_answers(main_panels(results)[0], None)
    assert first == "The least loss on held-out walks: LP+C-mDP at ε = 1, 2; LP at ε = 4."
    assert "20% less at ε = 1, 2; 10% more at ε = 4" in against
    assert "it depends on ε" in choice


def test_a_mechanism_that_fails_verification_is_named() -> None:
    results = made_up().with_columns(
        value=pl.when((pl.col("method") == "tight") & (pl.col("measure") == "verified")).then(0.0).otherwise("value")
    )
    assert "These methods have no verified mechanism at some ε: Tight constraints." in list(
        which_answers(main_panels(results)[0], None)
    )


def test_what_reports_are_worth_lies_between_exact_ones_and_a_constant() -> None:
    panel = _panel({"lp": 1.7 / 0.97, "lp_cmdp": 0.3 / 0.97})
    assert worth_left(panel, "lp", 1.0) == pytest.approx(0.0)
    assert worth_left(panel, "lp_cmdp", 1.0) == pytest.approx(1.0)
    useless = " ".join(cost_answers(_panel({"lp": 1.7 / 0.97})))
    assert "less than a tenth is left" in useless
    assert "less than a tenth" not in " ".join(cost_answers(_panel({"lp": 1.0})))


@pytest.mark.parametrize(
    ("success", "words"),
    [
        (0.8, "wins (it is right more often than not) at every ε"),
        (0.3, "wrong more often than right"),
        (0.05, "at no ε is the tracking attacker surely better"),
    ],
)
def test_the_attacker_wins_only_if_it_is_right_more_often_than_not(success: float, words: str) -> None:
    tracking = pl.col("measure") == "tracking_success"
    results = made_up({"lp": 1.0}).with_columns(
        value=pl.when(tracking).then(success).otherwise("value"),
        low=pl.when(tracking).then(success - 0.01).otherwise("low"),
        high=pl.when(tracking).then(success + 0.01).otherwise("high"),
    )
    told = " ".join(attack_answers(main_panels(results)[0], reports=7))
    assert words in told
    assert "follows 7 reports in a row" in told


def test_at_equal_epsilon_the_tracker_may_learn_more_with_context() -> None:
    assert "right more often with LP+C-mDP than with LP" in " ".join(attack_answers(_panel(LOSSES), reports=None))
    undecided = " ".join(attack_answers(_panel(LOSSES, uncertainty=0.5), reports=None))
    assert "whether LP+C-mDP or LP tells it more cannot be decided" in undecided


def test_sweeps_are_told_with_their_doubt() -> None:
    def told(uncertainty: float) -> str:
        results = pl.concat([
            made_up({"lp": loss, "lp_cmdp": 0.9}, epsilons=(2.0,), eta_km=eta, uncertainty=uncertainty)
            for eta, loss in ((1.0, 1.0), (5.0, 1.1))
        ])  # fmt: skip
        return " ".join(_sweep_sentences(results))

    assert "from 1 to 5: LP goes from 0.841 to 0.925 km (+10%)" in told(0.01)
    assert "the intervals overlap" in told(0.2)


def test_hours_are_counted_by_what_is_decided() -> None:
    results = pl.concat([
        made_up({"lp_cmdp": loss, "lp": 1.0}, epsilons=(2.0,), variant=f"hour {hour:02d}", uncertainty=0.05)
        for hour, loss in enumerate((0.8, 0.9, 0.98, 1.2))
    ])  # fmt: skip
    (told,) = _sweep_sentences(results)
    assert "LP+C-mDP loses less than LP in 2 of 4 parts and more in 1; 1 cannot be decided." in told
    assert "hour of day 0 (20%), the least at 3 (−20%)" in told


def test_where_vehicles_are_tracked_that_decides() -> None:
    def told(one_by_one: dict[str, float], in_the_end: dict[str, float]) -> str:
        results = tracked(made_up(one_by_one), in_the_end)
        equal_cost = tracked(made_up(one_by_one, variant="equal cost per location"), in_the_end)
        return " ".join(which_answers(main_panels(results)[0], sweep_panels(equal_cost)[0]))

    words = told(CONTEXT_WINS, LP_WINS)
    assert "At equal ε for each report, loss of LP+C-mDP compared with LP: 20% less at every ε" in words
    assert "Tracked, at equal ε for each report, loss of LP+C-mDP compared with LP: 10% more at every ε" in words
    assert "Tracked, at equal cost per location, loss of LP+C-mDP compared with LP: 10% more" in words
    assert "So use LP:" in words
    assert "So use LP+C-mDP: it costs less, whichever way" in told(LP_WINS, CONTEXT_WINS)


def test_at_equal_error_of_the_tracker_costs_are_compared_by_interpolation() -> None:
    def panel(method: str, *points: tuple[float, float]) -> Panel:
        values: dict[tuple[str, float | str, str], Value] = {}
        for cost, error in points:
            values[method, cost, "tracked_error"] = Value("tracked_error", error, "km")
            values[method, cost, "epsilon_per_location"] = Value("epsilon_per_location", cost, "per km")
        return Panel("made up", "porto", "population", "epsilon", {}, values)

    lp = panel("lp", (1.0, 0.9), (2.0, 0.6), (4.0, 0.3))  # the logarithm of the cost falls along a line
    double = panel("lp_cmdp", (2.0, 0.9), (8.0, 0.3), (50.0, 0.1))
    assert "costs 2.00 times as much with LP+C-mDP as with LP" in (at_equal_error([lp, double], "lp_cmdp", "lp") or "")
    halfway = panel("lp_cmdp", (2.0**0.5, 0.75), (4.0, 0.45))
    assert "costs 1.00 to 1.41 times as much" in (at_equal_error([lp, None, halfway], "lp_cmdp", "lp") or "")
    assert at_equal_error([lp, panel("lp_cmdp", (9.0, 0.1))], "lp_cmdp", "lp") is None
    assert at_equal_error([panel("lp", (1.0, 0.9)), double], "lp_cmdp", "lp") is None


def test_the_whole_city_is_told_beside_the_zones() -> None:
    zones = main_panels(tracked(made_up(LP_WINS), LP_WINS))[0]
    whole = whole_city_panels(tracked(made_up({"lattice": 2.0}, zone=WHOLE_CITY), {"lattice": 2.0}))[0]
    first, *_ = whole_city_answers(whole, zones, None)
    assert first.startswith("Tracked over the whole city at ε = 1, no zone disclosed: Lattice 1.000 ±0.010 km off.")
    assert "In zones, which are disclosed, at ε = 1 for each report: LP+C-mDP 0.550 ±0.006 km, LP 0.500" in first


def test_ways_to_spend_an_hour_are_those_that_cost_the_same() -> None:
    def results(epsilon: float, variant: str, cost: float) -> pl.DataFrame:
        made = tracked(made_up({"lp": 1.0}, epsilons=(epsilon,), variant=variant), {"lp": 1.0})
        return pl.concat([made, made.head(1).with_columns(measure=pl.lit("epsilon_per_hour"), value=pl.lit(cost))])

    table = pl.concat([
        results(2.0, "", 240.0), results(4.0, "report every 2 steps", 240.0),
        results(4.0, "", 480.0), results(2.0, "blanket shuffled", 240.0),
    ])  # fmt: skip
    (panel,) = hour_panels(table)
    assert [(way.seconds, way.per_hour) for way in panel.ways] == [(30.0, 240.0), (60.0, 240.0)]
    made = hour_table(panel)
    assert made.rows[1] == ("240", "LP", "60 s", "4", "0.354 ±0.004")
    assert hour_panels(table.filter(variant="")) == []


def test_lp_stands_for_methods_without_context_unless_another_is_surely_lower() -> None:
    assert best_plain(_panel({"lp": 1.0, "constopt": 0.99}, uncertainty=0.05)) == "lp"
    assert best_plain(_panel({"lp": 1.0, "constopt": 0.9})) == "constopt"
    assert best_plain(_panel({"constopt": 0.9, "expmech": 1.0})) == "constopt"
    assert best_plain(_panel({"lp_cmdp": 0.9})) is None
