"""Findings: what the tests of a group's hypotheses said, one row for each group and order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._tables import is_number, is_text, reading_parquet, scan_table, write_table
from geoblanket.blanket.features import HOURS, LARGEST_ORDER, LARGEST_REGIONS, SPEED_BIN_MPH, SPEED_BINS
from geoblanket.errors import InputError

__all__ = ["FINDINGS_SCHEMA", "STATUSES", "blanket_sizes", "read_findings", "scan_findings", "write_findings"]

STATUSES = ("tested", "imputed", "too_few", "constant", "unresolved")
"""`tested`: the test decided; `imputed`: not tested, and taken as not rejected because a smaller blanket was not;
`too_few`: fewer samples than asked for; `constant`: the vehicles of the sample do not move enough to tell;
`unresolved`: the sample cannot tell memory from what its regressions could not follow, at this order or, where
discovery stopped there, at a smaller one."""
_UNTESTED = ("too_few", "constant", "unresolved")

FINDINGS_SCHEMA: dict[str, pl.DataType] = {
    "group": pl.Int32(),
    "by": pl.String(),
    "hour": pl.Int8(),
    "speed_mph": pl.Int16(),
    "region": pl.Int32(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
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
"""One row for the hypothesis that X_t is independent of X_{t-m-1} given X_{t-1}, ..., X_{t-m} in one group.

`by` says how samples were grouped ("all", "hour", "speed", "hour+speed", ...); `hour` (0 to 23, local), `speed_mph`
(lower edge of a 5 mph bin) and `region` are null where they do not define the group. `lat` and `lon` are the mean
position of the group's samples, degrees, null where there are none. `available` samples exist, of which `n` were used.
`p_adjusted` is Benjamini and Hochberg's p-value over the groups of one `by` and m. `rejected` means p ≤ α, without that
adjustment; it is false where imputed, and null where nothing is known. `status` is one of `STATUSES`."""

_CHECKS = {
    "interval_s": lambda value: is_number(value) and value > 0,
    "time_zone": is_text,
    "regions": lambda value: value is None or isinstance(value, dict),
    "test": is_text,
    "alpha": is_number,
}
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
    frame, about = scan_table(path, kind="findings", schema=FINDINGS_SCHEMA, checks=_CHECKS)
    with reading_parquet(path):
        findings = frame.collect()
    for name, (least, most) in _RANGES.items():
        if not findings[name].drop_nulls().is_between(least, most).all():
            raise InputError(f"'{name}' must be from {least} to {most}", path=path, hint="Make the findings again")
    for name in ("group", "by", "m", "available", "status"):
        if findings[name].null_count():
            raise InputError(f"'{name}' is missing in some rows", path=path, hint="Make the findings again")
    if not findings["status"].is_in(STATUSES).all():
        raise InputError("'status' must be one of those known", path=path, hint="Make the findings again")
    return findings, about


def blanket_sizes(findings: pl.DataFrame) -> pl.DataFrame:
    """Return the blanket of each group: the first order whose hypothesis was not rejected.

    Returns
    -------
    frame
        A row a group: `group`, `by`, `hour`, `speed_mph`, `region`, `lat`, `lon`, then `order` (the size of the
        blanket; null where not even the first hypothesis could be tested), `capped` (the order is only the least that
        it can be: the largest hypothesis was rejected, or the next could not be tested) and `n` (samples of the
        hypothesis of that order).
    """
    rejected = (pl.col("status") == "tested") & pl.col("rejected")
    ended = pl.col("m").filter(~rejected).min()
    size = pl.coalesce(ended, pl.col("m").max())
    untested = pl.col("status").is_in(_UNTESTED)
    return (
        findings.group_by("group", "by", "hour", "speed_mph", "region", maintain_order=True)
        .agg(
            pl.col("lat").first(),
            pl.col("lon").first(),
            size.alias("order"),
            (ended.is_null() | untested.filter(pl.col("m") == size).first()).alias("capped"),
            pl.col("n").filter(pl.col("m") == size).first(),
            untested.filter(pl.col("m") == 1).first().alias("unknown"),
        )
        .with_columns(pl.when(~pl.col("unknown")).then("order"), pl.col("capped") & ~pl.col("unknown"))
        .drop("unknown")
        .sort("group")
    )
