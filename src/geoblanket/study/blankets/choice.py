"""Which grouping to answer a question with: the one with enough groups that differ in what is asked about."""

from __future__ import annotations

import polars as pl

from geoblanket.study.blankets.correlations import FEATURES, PART_OF

__all__ = ["grouping_for", "main_grouping"]

_ENOUGH = 20
"""Groups that make shares and rank tests worth reading."""


def main_grouping(findings: pl.DataFrame) -> str:
    """Return the finest grouping with 20 tested groups or more, of those the one with the most; by hour if none has."""
    tested = _tested_groups(findings)
    enough = [by for by, groups in tested.items() if groups >= _ENOUGH]
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
