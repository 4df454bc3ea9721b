"""Answers are filled in from the tables, and never say more than the intervals do."""

from __future__ import annotations

import polars as pl
import pytest

from geoblanket.lab.evaluate.panels import (
    Comparison,
    Panel,
    best_plain,
    main_panels,
    sweep_panels,
    worth_left,
)
from geoblanket.lab.evaluate.report import answers
from geoblanket.lab.evaluate.tables import hour_tables, sweep_table
from tests.lab.evaluate.made_up import made_up, tracked

CONTEXT_WINS = {"lp_cmdp": 0.8, "lp": 1.0}
LP_WINS = {"lp_cmdp": 1.1, "lp": 1.0}
EQUAL_COST = "equal cost per location"


def _panel(losses: dict[str, float], *, uncertainty: float = 0.01) -> Panel:
    return main_panels(made_up(losses, uncertainty=uncertainty))[0]


def _lines(*results: pl.DataFrame, reports: int = 7) -> list[str]:
    """Return the one line that answers each of the three questions."""
    about = {"experiments": {"made up": {"reports": [reports]}}}
    return [cities["porto"] for cities in answers(pl.concat(results), about).values()]


def _which(losses: dict[str, float], cost: dict[str, float] | None = None, *, uncertainty: float = 0.01) -> str:
    beside = [] if cost is None else [made_up(cost, variant=EQUAL_COST)]
    return _lines(made_up(losses, uncertainty=uncertainty), *beside)[0]


def test_context_is_recommended_only_where_it_wins() -> None:
    assert _which(CONTEXT_WINS, CONTEXT_WINS) == (
        "Recommended at equal ε per report: LP+C-mDP; at equal cost per location: LP+C-mDP. At ε = 2 per km: "
        "LP+C-mDP loses 0.673 ±0.007 km; LP loses 0.841 ±0.008 km; the first saves 20.0% ±1.0."
    )
    told = _which(LP_WINS, LP_WINS)
    assert told.startswith("Recommended at equal ε per report: LP; at equal cost per location: LP. ")
    assert "the first saves −10.0% ±1.0." in told


def test_what_the_budget_is_for_decides_where_the_two_ways_of_counting_disagree() -> None:
    told = _which(CONTEXT_WINS, LP_WINS)
    assert told.startswith("Recommended at equal ε per report: LP+C-mDP; at equal cost per location: LP. ")


def test_without_equal_costs_nothing_is_claimed_about_them() -> None:
    assert _which(CONTEXT_WINS).startswith("Recommended at equal ε per report: LP+C-mDP. ")
    assert _which(LP_WINS).startswith("Recommended at equal ε per report: LP. ")


def test_overlapping_intervals_decide_nothing() -> None:
    told = _which({"lp_cmdp": 0.97, "lp": 1.0}, uncertainty=0.05)
    assert told.startswith("Recommended at equal ε per report: LP. ")
    assert told.endswith("it cannot be decided which is lower.")


def test_a_difference_below_one_per_cent_does_not_matter() -> None:
    assert _which({"lp_cmdp": 0.998, "lp": 1.0}, uncertainty=0.001).startswith(
        "Recommended at equal ε per report: LP. "
    )


def test_where_vehicles_are_tracked_that_decides() -> None:
    def told(one_by_one: dict[str, float], in_the_end: dict[str, float]) -> list[str]:
        return _lines(
            tracked(made_up(one_by_one), in_the_end), tracked(made_up(one_by_one, variant=EQUAL_COST), in_the_end)
        )

    which, cost, attack = told(CONTEXT_WINS, LP_WINS)
    assert which.startswith(
        "Recommended at equal ε per report: LP; at equal cost per location: LP. At ε = 2 per km, tracked: "
    )
    assert cost.startswith("LP loses ")
    assert "with LP," in attack
    assert told(LP_WINS, CONTEXT_WINS)[0].startswith("Recommended at equal ε per report: LP+C-mDP; ")


def test_the_cost_is_told_between_exact_reports_and_a_constant() -> None:
    panel = _panel({"lp": 1.7 / 0.97, "lp_cmdp": 0.3 / 0.97})
    assert worth_left(panel, "lp", 1.0) == pytest.approx(0.0)
    assert worth_left(panel, "lp_cmdp", 1.0) == pytest.approx(1.0)
    assert _lines(made_up(CONTEXT_WINS))[1] == (
        "LP+C-mDP loses 0.673 ±0.007 km at ε = 2 per km. Exact reports would lose 0.3 km, constant ones 1.7 km: in "
        "design, 75% of the value of exact reports is left."
    )


@pytest.mark.parametrize(("success", "verdict"), [(0.8, "Yes: "), (0.3, "Not in most cases: ")])
def test_the_attacker_wins_only_if_it_is_right_more_often_than_not(success: float, verdict: str) -> None:
    tracking = pl.col("measure") == "tracking_success"
    results = made_up({"lp": 1.0}).with_columns(value=pl.when(tracking).then(success).otherwise("value"))
    told = _lines(results)[2]
    assert told.startswith(verdict)
    assert f"that sees 7 reports in a row names the right place in {success:.0%} of cases (" in told
    single = results.filter(~pl.col("measure").str.contains("tracking|context_inference"))
    assert "that sees a single report names" in _lines(single)[2]


def test_sweeps_are_tables_with_their_doubt() -> None:
    results = pl.concat([
        made_up({"lp": 1.0, "lp_cmdp": loss}, epsilons=(2.0,), variant=f"{rows} rows", uncertainty=0.05)
        for rows, loss in enumerate((0.8, 0.98, 1.2))
    ])  # fmt: skip
    (panel,) = sweep_panels(results)
    pair = Comparison.of(results, {}).pair(panel)
    assert pair == ("lp_cmdp", "lp")
    made = sweep_table(panel, "rows", pair)
    assert made.header == ("rows", "LP+C-mDP", "LP", "below LP by")
    assert [row[-1] for row in made.rows] == ["20.0% ±5.0", "2.0% ±5.0 ?", "−20.0% ±5.0"]
    assert made.rows[0][:3] == ("0", "0.673 ±0.034", "0.841 ±0.042")


def test_ways_to_spend_an_hour_are_those_that_cost_the_same() -> None:
    def results(epsilon: float, variant: str, cost: float) -> pl.DataFrame:
        made = tracked(made_up({"lp": 1.0}, epsilons=(epsilon,), variant=variant), {"lp": 1.0})
        return pl.concat([made, made.head(1).with_columns(measure=pl.lit("epsilon_per_hour"), value=pl.lit(cost))])

    table = pl.concat([
        results(2.0, "", 240.0), results(4.0, "report every 2 steps", 240.0),
        results(4.0, "", 480.0), results(2.0, "blanket shuffled", 240.0),
    ])  # fmt: skip
    (made,) = hour_tables(table)
    assert [row[:3] for row in made.rows] == [("240", "LP", "30 s"), ("240", "LP", "60 s")]
    assert made.rows[1] == ("240", "LP", "60 s", "4", "0.354 ±0.004")
    assert list(hour_tables(table.filter(variant=""))) == []


def test_lp_stands_for_methods_without_context() -> None:
    assert best_plain(_panel({"lp": 1.0, "constopt": 0.9})) == "lp"
    assert best_plain(_panel({"constopt": 0.9, "expmech": 1.0})) == "constopt"
    assert best_plain(_panel({"lp_cmdp": 0.9})) is None
