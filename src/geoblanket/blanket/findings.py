"""Findings: what the tests of a group's hypotheses said, one row for each group and order; and labels from them.

A label says "fail to reject" or "reject" of one hypothesis, tested or imputed. Parts of labels share no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Ints
from geoblanket._tables import reading_parquet, scan_table, write_table
from geoblanket.blanket.predictor import (
    HOURS,
    LARGEST_ORDER,
    LARGEST_REGIONS,
    SPEED_BIN_MPH,
    SPEED_BINS,
    PredictorInputs,
)
from geoblanket.errors import InputError, ParameterError

STATUSES = ("tested", "imputed", "too_few", "constant", "unresolved")
"""`tested`: the test decided; `imputed`: not tested, and taken as not rejected because a smaller blanket was not;
`too_few`: fewer samples than asked for; `constant`: the vehicles of the sample do not move enough to tell;
`unresolved`: the sample cannot tell memory from what its regressions could not follow, at this order or, where
discovery stopped there, at a smaller one."""
_UNTESTED = ("too_few", "constant", "unresolved")
LEAST_GROUPS = 10
"""With fewer, a part of a fifth would have one group: too few to stop by, and none to judge by."""

RESULT_SCHEMA: dict[str, pl.DataType] = {
    "m": pl.Int8(),
    "available": pl.Int64(),
    "n": pl.Int32(),
    "statistic": pl.Float64(),
    "p_value": pl.Float64(),
    "p_adjusted": pl.Float64(),
    "effect_size": pl.Float64(),
    "rejected": pl.Boolean(),
    "status": pl.String(),
}
"""What is found of a hypothesis, whatever defines the groups."""
FINDINGS_SCHEMA: dict[str, pl.DataType] = {
    "group": pl.Int32(),
    "by": pl.String(),
    "hour": pl.Int8(),
    "speed_mph": pl.Int16(),
    "region": pl.Int32(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
    **RESULT_SCHEMA,
}
"""One row for the hypothesis that X_t is independent of X_{t-m-1} given X_{t-1}, ..., X_{t-m} in one group.

`by` says how samples were grouped ("all", "hour", "speed", "hour+speed", ...); `hour` (0 to 23, local), `speed_mph`
(lower edge of a 5 mph bin) and `region` are null where they do not define the group. `lat` and `lon` are the mean
position of the group's samples, degrees, null where there are none. `available` samples exist, of which `n` were used.
`p_adjusted` is Benjamini and Hochberg's p-value over the groups of one `by` and m. `rejected` means p ≤ α, without that
adjustment; it is false where imputed, and null where nothing is known. `status` is one of `STATUSES`."""

_NEEDED = ("interval_s", "time_zone", "regions", "test", "alpha")
_HINT = "Make the findings again"
_RANGES = {
    "hour": (0, HOURS - 1),
    "speed_mph": (0, SPEED_BIN_MPH * (SPEED_BINS - 1)),
    "region": (0, LARGEST_REGIONS - 1),
    "m": (1, LARGEST_ORDER),
    "available": (0, 1 << 53),
}


def write_findings(findings: pl.DataFrame, path: str | Path, *, about: Mapping[str, Any]) -> None:
    """Write findings as Parquet, wholly or not at all, with how they were made."""
    write_table(findings, path, kind="findings", about=about)


@checked
def scan_findings(path: str | Path) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table written by `geoblanket blanket discover` lazily, and return it with how it was made.

    Returns
    -------
    frame, about
        The rows (`FINDINGS_SCHEMA`), and among others `interval_s`, `time_zone`, `regions`, `alpha`, `largest` (Γ),
        `test` and `seed`.

    Examples
    --------
    >>> from geoblanket import scan_findings
    >>> rows, about = scan_findings("findings.parquet")
    >>> about["test"], about["alpha"]
    ('analytic', 0.05)
    """
    return scan_table(path, kind="findings", schema=FINDINGS_SCHEMA)


def read_findings(path: str | Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read a table written by `geoblanket blanket discover`, and how it was made; see `scan_findings`.

    Raises
    ------
    InputError
        If the file is damaged, or has values that cannot be findings.
    """
    frame, about = scan_table(path, kind="findings", schema=FINDINGS_SCHEMA, needs=_NEEDED)
    with reading_parquet(path):
        findings = frame.collect()
    _check(findings, path)
    return findings, about


def _check(findings: pl.DataFrame, path: str | Path | None = None) -> None:
    """Raise InputError where a value is missing, or outside the tables that it is looked up in."""
    for name, (least, most) in _RANGES.items():
        if not findings[name].drop_nulls().is_between(least, most).all():
            raise InputError(f"'{name}' must be from {least} to {most}", path=path, hint=_HINT)
    for name in ("group", "by", "m", "available", "status"):
        if findings[name].null_count():
            raise InputError(f"'{name}' is missing in some rows", path=path, hint=_HINT)


def blanket_sizes(findings: pl.DataFrame) -> pl.DataFrame:
    """Return the blanket of each group: the first order whose hypothesis was not rejected.

    Returns
    -------
    frame
        A row a group: what defines it (`group`, `by`, and for walks `hour`, `speed_mph`, `region`, `lat`, `lon`),
        then `order` (the size of the blanket; null where not even the first hypothesis could be tested), `capped` (the
        order is only the least that it can be: the largest hypothesis was rejected, or the next could not be tested)
        and `n` (samples of the hypothesis of that order).
    """
    rejected = (pl.col("status") == "tested") & pl.col("rejected")
    ended = pl.col("m").filter(~rejected).min()
    size = pl.coalesce(ended, pl.col("m").max())
    untested = pl.col("status").is_in(_UNTESTED)
    labels = findings.columns[: findings.columns.index("m")]
    positions = [name for name in ("lat", "lon") if name in labels]
    return (
        findings.group_by(pl.exclude(*positions, *findings.columns[len(labels) :]), maintain_order=True)
        .agg(
            *(pl.col(name).first() for name in positions),
            size.alias("order"),
            (ended.is_null() | untested.filter(pl.col("m") == size).first()).alias("capped"),
            pl.col("n").filter(pl.col("m") == size).first(),
            untested.filter(pl.col("m") == 1).first().alias("unknown"),
        )
        .with_columns(pl.when(~pl.col("unknown")).then("order"), pl.col("capped") & ~pl.col("unknown"))
        .drop("unknown")
        .sort("group")
    )


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
        A feature is out of range.
    """
    _check(findings)
    decided = decided_hypotheses(findings)
    hour, speed, region, m = (
        decided[name].cast(pl.Int64).fill_null(-1).to_numpy() for name in ("hour", "speed_mph", "region", "m")
    )
    return labels_of(decided, PredictorInputs(hour, speed, region, m))


def decided_hypotheses(findings: pl.DataFrame) -> pl.DataFrame:
    """Return the hypotheses on which there is a decision, by group and order."""
    decided = pl.col("rejected").is_not_null() & pl.col("status").is_in(["tested", "imputed"])
    return findings.filter(decided).sort("group", "m")


def labels_of(decided: pl.DataFrame, inputs: PredictorInputs) -> Labels:
    """Return the labels of hypotheses with a decision, whatever defines their groups."""
    return Labels(
        group=decided["group"].cast(pl.Int64).to_numpy(),
        inputs=inputs,
        kept=~decided["rejected"].to_numpy(),
        tested=(decided["status"] == "tested").to_numpy(),
    )


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
