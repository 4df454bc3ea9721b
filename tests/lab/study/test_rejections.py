from __future__ import annotations

import polars as pl
import pytest

from geoblanket.blanket.findings import blanket_sizes
from geoblanket.lab.study.group_statistics import (
    grouping_for,
    main_grouping,
    rejection_table,
    size_table,
)
from tests.lab.study.groups import by_chance, by_size, made_up


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


def test_the_grouping_that_serves_a_question_best() -> None:
    findings = made_up(by_chance, hours=2)
    assert main_grouping(findings) == "hour+speed+region"
    assert grouping_for(findings, "speed") == "hour+speed+region"
    assert grouping_for(findings, "time") is None  # two hours only
    alone = findings.with_columns(by=pl.lit("hour"), group=pl.col("group") + 1000, hour=pl.col("group").cast(pl.Int8))
    assert grouping_for(pl.concat([findings, alone]), "time") == "hour"
    assert main_grouping(findings.clear()) == "hour"
