"""Labelled hypotheses from findings: "fail to reject" or "reject", tested or imputed, and parts that share no group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from geoblanket._arrays import Bools, Ints
from geoblanket.blanket.features import HOURS, LARGEST_ORDER, SPEED_BIN_MPH, SPEED_BINS, PredictorInputs
from geoblanket.errors import InputError, ParameterError

__all__ = ["LEAST_GROUPS", "Labels", "Parts", "choose_grouping", "read_labels", "split_by_group"]

LEAST_GROUPS = 10
"""With fewer, a part of a fifth would have one group: too few to stop by, and none to judge by."""


@dataclass(frozen=True)
class Labels:
    """Hypotheses with a decision, one for each element."""

    group: Ints
    inputs: PredictorInputs
    kept: Bools
    """The label: true is "fail to reject" (the paper's positive class), false is "reject"."""
    tested: Bools
    """False where the decision is imputed from that on a smaller blanket."""

    def __len__(self) -> int:
        return len(self.group)

    def where(self, chosen: Bools) -> Labels:
        """Return some of the hypotheses."""
        return Labels(self.group[chosen], self.inputs.where(chosen), self.kept[chosen], self.tested[chosen])

    def of_groups(self, groups: Ints) -> Labels:
        """Return the hypotheses of some groups."""
        return self.where(np.isin(self.group, groups))


@dataclass(frozen=True)
class Parts:
    """Labels to train on, to stop by and to judge by; no two share a group."""

    train: Labels
    validation: Labels
    test: Labels

    def __iter__(self) -> Iterator[Labels]:
        return iter((self.train, self.validation, self.test))

    def tested(self) -> Parts:
        """Return the parts without imputed labels."""
        return Parts(*(part.where(part.tested) for part in self))


def choose_grouping(findings: pl.DataFrame, by: str | None = None) -> pl.DataFrame:
    """Return the findings of one grouping.

    Groupings overlap in their samples, so two of them must not be mixed: a group to judge by could hold the samples of
    one that was trained on.

    Parameters
    ----------
    by
        The features joined by + ("hour+speed+region"). None: the grouping by the most features.
    """
    groupings = findings["by"].unique().sort().to_list()
    if by is None:
        most = max((name.count("+") for name in groupings), default=0)
        finest = [name for name in groupings if name.count("+") == most]
        if len(finest) > 1:
            raise ParameterError(f"'by' must say which findings to use. There are: {', '.join(groupings)}.")
        by = finest[0] if finest else ""
    if by not in groupings:
        raise ParameterError(
            f"'by' must be one of the groupings of the findings: {', '.join(groupings) or 'there are none'}."
        )
    return findings.filter(pl.col("by") == by)


def read_labels(findings: pl.DataFrame) -> Labels:
    """Return the hypotheses of findings (of one grouping) on which there is a decision.

    Raises
    ------
    InputError
        A hypothesis appears twice, or a feature is out of range.
    """
    if findings.select(pl.struct("group", "m").is_duplicated().any()).item():
        raise InputError("the findings have the same group and m more than once", hint="Make them again")
    decided = findings.filter(pl.col("rejected").is_not_null() & pl.col("status").is_in(["tested", "imputed"]))
    decided = decided.sort("group", "m")
    _check_range(decided, "hour", 0, HOURS - 1)
    _check_range(decided, "speed_mph", 0, SPEED_BIN_MPH * (SPEED_BINS - 1))
    _check_range(decided, "region", 0, 2**31 - 1)
    _check_range(decided, "m", 1, LARGEST_ORDER)
    hour, speed, region, m = (
        decided[name].cast(pl.Int64).fill_null(-1).to_numpy() for name in ("hour", "speed_mph", "region", "m")
    )
    return Labels(
        group=decided["group"].cast(pl.Int64).to_numpy(),
        inputs=PredictorInputs(hour, speed, region, m),
        kept=~decided["rejected"].to_numpy(),
        tested=(decided["status"] == "tested").to_numpy(),
    )


def _check_range(findings: pl.DataFrame, column: str, least: int, most: int) -> None:
    values = findings[column]
    if values.null_count() not in {0, len(values)}:
        raise InputError(
            f"'{column}' of the findings is missing in some groups and not in others", hint="Make them again"
        )
    if not values.drop_nulls().is_between(least, most).all():
        raise InputError(f"'{column}' of the findings must be from {least} to {most}", hint="Make them again")


def split_by_group(labels: Labels, *, seed: int) -> Parts:
    """Return three parts with 60, 20 and 20 % of the groups, drawn by `seed`."""
    groups = np.unique(labels.group)
    if len(groups) < LEAST_GROUPS:
        raise ParameterError(
            f"Training needs at least {LEAST_GROUPS} groups with a decision, and the findings have {len(groups)}. "
            "Use more traces, or group them by more features."
        )
    order = np.random.default_rng(seed).permutation(groups)
    borders = np.rint(np.array([0.6, 0.8]) * len(groups)).astype(int)
    return Parts(*(labels.of_groups(part) for part in np.split(order, borders)))
