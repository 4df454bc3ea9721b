"""Sentences follow from numbers."""

from __future__ import annotations

import polars as pl
import pytest

from geoblanket.evaluate.report.answers import attack_answers, cost_answers, which_answers, worth_left
from geoblanket.evaluate.report.panels import Panel, main_panels, sweep_panels
from geoblanket.evaluate.report.sections import sweep_sentences
from geoblanket.evaluate.report.story import Story
from geoblanket.evaluate.report.wording import best_plain
from tests.evaluate.made_up import LOSSES, made_up


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


def test_at_equal_error_of_the_attacker_losses_are_compared_by_interpolation() -> None:
    def results(method: str, points: list[tuple[float, float, float]]) -> pl.DataFrame:
        parts = []
        for epsilon, error, loss in points:
            one = made_up({method: 1.0}, epsilons=(epsilon,))
            for measure, value in (("tracking_error", error), ("held_out_loss", loss)):
                chosen = pl.col("measure") == measure
                one = one.with_columns(
                    pl.when(chosen).then(pl.lit(bound)).otherwise(name).alias(name)
                    for name, bound in (("value", value), ("low", value - 0.01), ("high", value + 0.01))
                )
            parts.append(one)
        return pl.concat(parts)

    lp = results("lp", [(1.0, 1.0, 1.0), (4.0, 0.5, 0.5)])
    context = results("lp_cmdp", [(1.0, 0.75, 0.6), (4.0, 0.1, 0.1)])
    told = " ".join(which_answers(main_panels(pl.concat([lp, context]))[0], None))
    assert "LP+C-mDP loses 20% less than LP (interpolated" in told
    assert "is paid for" not in told
    assert "At equal error" not in " ".join(which_answers(main_panels(lp)[0], None))
    alike = results("lp_cmdp", [(1.0, 0.75, 0.76), (2.0, 0.6, 0.59), (4.0, 0.4, 0.4)])
    told = " ".join(which_answers(main_panels(pl.concat([lp, alike]))[0], None))
    assert "LP+C-mDP loses 1.3% more to 1.7% less than LP" in told
    assert "So almost nothing is left of what looking at the past gains at equal ε." in told


def test_lp_stands_for_methods_without_context_unless_another_is_surely_lower() -> None:
    assert best_plain(_panel({"lp": 1.0, "constopt": 0.99}, uncertainty=0.05)) == "lp"
    assert best_plain(_panel({"lp": 1.0, "constopt": 0.9})) == "constopt"
    assert best_plain(_panel({"constopt": 0.9, "expmech": 1.0})) == "constopt"
    assert best_plain(_panel({"lp_cmdp": 0.9})) is None
