from __future__ import annotations

import polars as pl
import pytest
from scipy import stats

from geoblanket.blanket.findings import blanket_sizes
from geoblanket.study.blankets.differences import (
    difference_table,
    grouping_for,
    main_grouping,
    rejection_table,
    size_table,
)
from tests.study.blankets.groups import by_chance, by_size, by_speed, made_up


def test_rejections_are_counted() -> None:
    findings = made_up(by_chance, seed=1)
    row = rejection_table(findings).row(by_predicate=pl.col("m") == 2, named=True)
    part = findings.filter(pl.col("m") == 2)
    assert row["tested"] == 60
    assert row["rejected"] == part["rejected"].sum()
    assert row["share"] == pytest.approx(part["rejected"].mean())
    assert row["low"] <= row["share"] <= row["high"]
    assert row["median_p"] == part["p_value"].median()


def test_untested_groups_do_not_count() -> None:
    findings = made_up(by_chance).with_columns(
        status=pl.when(pl.col("hour") == 0).then(pl.lit("too_few")).otherwise("status")
    )
    assert rejection_table(findings)["tested"].to_list() == [50, 50]


def test_hypotheses_that_were_not_resolved_are_counted_apart() -> None:
    refused = (pl.col("hour") == 0) & (pl.col("m") == 2)
    findings = made_up(by_chance).with_columns(
        status=pl.when(refused).then(pl.lit("unresolved")).otherwise("status"),
        rejected=pl.when(~refused).then("rejected"),
    )
    assert rejection_table(findings).sort("m").select("tested", "unresolved").rows() == [(60, 0), (50, 10)]


def test_sizes_are_shares_of_groups() -> None:
    sizes = size_table(blanket_sizes(made_up(by_size)))
    assert sizes["groups"].sum() == 60
    assert sizes["share"].sum() == pytest.approx(1)


def test_kruskal_is_scipys() -> None:
    findings = made_up(by_chance)
    row = difference_table(findings).row(
        by_predicate=(pl.col("factor") == "hour") & (pl.col("m") == 1) & (pl.col("outcome") == "p_value"), named=True
    )
    part = findings.filter(pl.col("m") == 1)
    expected = stats.kruskal(*(part.filter(pl.col("hour") == hour)["p_value"].to_numpy() for hour in range(6)))
    assert row["statistic"] == pytest.approx(expected.statistic)
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert (row["levels"], row["groups"]) == (6, 60)


def test_differences_by_size_vanish_given_size() -> None:
    speed, size = (
        difference_table(made_up(outcome)).filter((pl.col("factor") == "speed") & (pl.col("outcome") == "p_value"))
        for outcome in (by_speed, by_size)
    )
    assert (speed["p_adjusted"] < 1e-4).all()
    assert (size["p_adjusted"] < 1e-4).all()
    assert (size["p_given_n_adjusted"] > 1e-3).all()


def test_adjustment_is_benjamini_and_hochbergs() -> None:
    table = difference_table(made_up(by_chance)).filter(pl.col("outcome") == "effect_size")
    expected = stats.false_discovery_control(table["p_value"].to_numpy())
    assert table["p_adjusted"].to_list() == pytest.approx(expected.tolist())


def test_one_value_of_a_feature_cannot_be_compared() -> None:
    table = difference_table(made_up(by_chance, regions=1)).filter(pl.col("factor") == "region")
    assert table["p_value"].null_count() == table.height
    assert difference_table(made_up(by_chance).clear()).is_empty()


def test_the_grouping_that_serves_a_question_best() -> None:
    findings = made_up(by_chance, hours=2)
    assert main_grouping(findings) == "hour+speed+region"
    assert grouping_for(findings, "speed") == "hour+speed+region"
    assert grouping_for(findings, "time") is None  # two hours only
    alone = findings.with_columns(by=pl.lit("hour"), group=pl.col("group") + 1000, hour=pl.col("group").cast(pl.Int8))
    assert grouping_for(pl.concat([findings, alone]), "time") == "hour"
    assert main_grouping(findings.clear()) == "hour"
