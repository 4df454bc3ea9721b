"""Differences between groups: shares rejected, sizes, ranks, and which grouping answers a question best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from geoblanket._arrays import Floats
from geoblanket.study.blankets.correlations import FEATURES, OUTCOMES, PART_OF

__all__ = ["difference_table", "grouping_for", "main_grouping", "rejection_table", "size_table"]

_ENOUGH_GROUPS = 20
"""Groups that make shares and rank tests worth reading."""


def main_grouping(findings: pl.DataFrame) -> str:
    """Return the finest grouping with 20 tested groups or more, of those the one with the most; by hour if none has."""
    tested = _tested_groups(findings)
    enough = [by for by, groups in tested.items() if groups >= _ENOUGH_GROUPS]
    return max(enough, key=lambda by: (len(by.split("+")), tested[by]), default="hour")


def grouping_for(findings: pl.DataFrame, feature: str) -> str | None:
    """Return the grouping with the most tested groups among those whose groups differ in a feature.

    None if there is no grouping whose tested groups have three speeds or hours, or two regions.
    """
    part = PART_OF[feature]
    column, fewest = ("region", 2) if part == "region" else (FEATURES[feature], 3)
    values = dict(_first_tested(findings).group_by("by").agg(pl.col(column).drop_nulls().n_unique()).iter_rows())
    tested = _tested_groups(findings)
    able = [by for by in tested if part in by.split("+") and values[by] >= fewest]
    return max(able, key=lambda by: tested[by], default=None)


def _first_tested(findings: pl.DataFrame) -> pl.DataFrame:
    return findings.filter((pl.col("m") == 1) & (pl.col("status") == "tested"))


def _tested_groups(findings: pl.DataFrame) -> dict[str, int]:
    return dict(_first_tested(findings).group_by("by", maintain_order=True).len().iter_rows())


_FACTORS = {"hour": "hour", "speed": "speed_mph", "region": "region"}

_DIFFERENCES: dict[str, pl.DataType] = {
    "by": pl.String(),
    "outcome": pl.String(),
    "factor": pl.String(),
    "m": pl.Int8(),
    "levels": pl.Int32(),
    "groups": pl.Int32(),
    "statistic": pl.Float64(),
    "p_value": pl.Float64(),
    "p_adjusted": pl.Float64(),
    "p_given_n": pl.Float64(),
    "p_given_n_adjusted": pl.Float64(),
}


def rejection_table(findings: pl.DataFrame) -> pl.DataFrame:
    """Return how many hypotheses were rejected in each grouping at each order.

    Returns
    -------
    frame
        `by`, `m`, `tested`, `unresolved` (the test could not tell), `rejected` (p ≤ α), `rejected_adjusted` (Benjamini
        and Hochberg over the groups, at 5 %), `share` (rejected / tested), `low` and `high` (Wilson's 95 % interval of
        the share), `median_p`, `share_above_09` (p > 0.9; a tenth of them would be, were every hypothesis true),
        `median_n`.
    """
    unresolved = (pl.col("status") == "unresolved").sum().over("by", "m").alias("unresolved")
    tested = findings.with_columns(unresolved).filter(pl.col("status") == "tested")
    table = tested.group_by("by", "m", maintain_order=True).agg(
        pl.len().alias("tested"),
        pl.col("unresolved").first(),
        pl.col("rejected").sum().alias("rejected"),
        (pl.col("p_adjusted") <= 0.05).sum().alias("rejected_adjusted"),
        pl.col("rejected").mean().alias("share"),
        pl.col("p_value").median().alias("median_p"),
        (pl.col("p_value") > 0.9).mean().alias("share_above_09"),
        pl.col("n").median().alias("median_n"),
    )
    intervals = [
        stats.binomtest(rejected, tested).proportion_ci(method="wilson")
        for rejected, tested in table.select("rejected", "tested").iter_rows()
    ]
    return table.with_columns(
        pl.Series("low", [interval.low for interval in intervals], pl.Float64),
        pl.Series("high", [interval.high for interval in intervals], pl.Float64),
    )


def size_table(blankets: pl.DataFrame) -> pl.DataFrame:
    """Return how many groups have a blanket of each size: `by`, `order`, `groups`, `capped` of them, `share`."""
    return (
        blankets.drop_nulls("order")
        .group_by("by", "order", maintain_order=True)
        .agg(pl.len().alias("groups"), pl.col("capped").sum())
        .with_columns((pl.col("groups") / pl.col("groups").sum().over("by")).alias("share"))
        .sort("by", "order")
    )


def difference_table(findings: pl.DataFrame) -> pl.DataFrame:
    """Test whether p-values and effects differ between hours, between speeds and between regions (Kruskal and Wallis).

    Each group of a combined grouping is one observation, so an hour has many: one for each speed and region. "Given n"
    is the same on what ranks leave after a straight line in the ranks of n. Both are adjusted after Benjamini and
    Hochberg over the features and orders of one grouping and outcome. Values of a feature with a single group are left
    out.
    """
    schema = {name: kind for name, kind in _DIFFERENCES.items() if not name.endswith("adjusted")}
    tested = findings.filter((pl.col("status") == "tested") & pl.col("by").str.contains("+", literal=True))
    tables = [
        _adjusted(
            pl.DataFrame(
                [
                    (by, outcome, factor, m, *_compare(part, _FACTORS[factor], outcome))
                    for factor, m, part in _parts(rows)
                ],
                schema=schema,
                orient="row",
            )
        )
        for (by,), rows in tested.group_by("by", maintain_order=True)
        for outcome in OUTCOMES
    ]
    return pl.concat([pl.DataFrame(schema=_DIFFERENCES), *tables])


def _parts(rows: pl.DataFrame) -> Iterator[tuple[str, int, pl.DataFrame]]:
    for factor in rows["by"][0].split("+"):
        for m in rows["m"].unique().sort():
            yield factor, m, rows.filter(pl.col("m") == m)


def _adjusted(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(
        _adjust(table["p_value"]).alias("p_adjusted"), _adjust(table["p_given_n"]).alias("p_given_n_adjusted")
    ).select(*_DIFFERENCES)


def _compare(
    part: pl.DataFrame, column: str, outcome: str
) -> tuple[int, int, float | None, float | None, float | None]:
    part = part.filter(pl.len().over(column) >= 2)
    levels = part[column].n_unique()
    values = part[outcome].to_numpy()
    if levels < 2 or np.ptp(values) == 0:
        return levels, part.height, None, None, None
    level = part[column].to_numpy()
    raw = _kruskal(values, level)
    ranks = stats.rankdata(values)
    design = np.column_stack([np.ones(len(ranks)), stats.rankdata(part["n"].to_numpy())])
    left = np.round(ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0], 9)
    given = _kruskal(left, level) if np.ptp(left) > 0 else None
    return levels, part.height, float(raw.statistic), float(raw.pvalue), None if given is None else float(given.pvalue)


def _kruskal(values: Floats, level: Floats) -> Any:
    return stats.kruskal(*(values[level == value] for value in np.unique(level)))


def _adjust(column: pl.Series) -> pl.Series:
    """Return Benjamini and Hochberg's p-values; those that are not known stay so and do not count."""
    known = column.is_not_null()
    result = np.full(len(column), np.nan)
    if known.any():
        result[known.to_numpy()] = stats.false_discovery_control(column.drop_nulls().to_numpy())
    return pl.Series(result, nan_to_null=True)
