"""Statistics over groups: shares rejected, sizes of blankets, correlations with speed, place and hour.

A p-value falls as the sample grows, and groups differ in size: busy hours, the city centre and usual speeds have more
samples. So each correlation stands beside the partial one, given the logarithm of the number of samples used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

from geoblanket._arrays import Floats, Positions

FEATURES = {"speed": "speed_mph", "longitude": "lon", "latitude": "lat", "time": "hour"}
"""The features of the paper's table, and the column of the findings that holds each."""

_TESTS: Mapping[str, Callable[[Floats, Floats], Any]] = {
    "pearson": stats.pearsonr,
    "spearman": stats.spearmanr,
    "kendall": stats.kendalltau,
}
MEASURES = tuple(_TESTS)

OUTCOMES = {"p_value": "p", "effect_size": "effect"}
"""Outcomes that may correlate with features, and their names in reports. The p-value falls as samples are added; the
effect, a partial R², hardly changes."""

PART_OF = {"speed": "speed", "longitude": "region", "latitude": "region", "time": "hour"}
"""The part of a grouping that makes groups differ in each feature."""

_FEWEST = 6
"""With fewer groups a correlation says nothing."""
_MOST_STRATA = 5
_FEWEST_IN_STRATUM = 5
"""Groups, on average."""

_SCHEMA: dict[str, pl.DataType] = {
    "by": pl.String(),
    "outcome": pl.String(),
    "m": pl.Int8(),
    "feature": pl.String(),
    "measure": pl.String(),
    "groups": pl.Int32(),
    "coefficient": pl.Float64(),
    "p_value": pl.Float64(),
    "given_n": pl.Float64(),
    "p_given_n": pl.Float64(),
}


@dataclass(frozen=True)
class Correlation:
    """A coefficient and the p-value of independence, two-sided; None where it is not defined or not known."""

    coefficient: float | None
    p_value: float | None


_UNKNOWN = Correlation(None, None)


def correlate(x: Floats, y: Floats, *, measure: str, given: Floats | None = None) -> Correlation:
    """Return a correlation of x and y, or their partial correlation.

    Parameters
    ----------
    measure
        "pearson", "spearman" or "kendall" (tau-b, which allows for ties).
    given
        What to hold constant. Pearson's and Spearman's partial correlations are those of the values (ranks) that
        remain after a straight line in `given` (its ranks), with Student's t on n - 3 degrees of freedom; Kendall's is
        Kendall's own formula, whose distribution is not known, so it has no p-value.
    """
    if len(x) < _FEWEST or _is_constant(x) or _is_constant(y):
        return _UNKNOWN
    if given is None or _is_constant(given):
        result = _TESTS[measure](x, y)
        return Correlation(float(result.statistic), float(result.pvalue))
    if measure == "kendall":
        return Correlation(_partial_kendall(x, y, given), None)
    if measure == "spearman":
        x, y, given = (stats.rankdata(column) for column in (x, y, given))
    return _partial_pearson(x, y, given)


def circular_linear(hour: Floats, y: Floats, *, given: Floats | None = None) -> Correlation:
    """Correlate y with the hour of day, for which 23 and 0 are neighbours.

    The coefficient (Mardia's) is the multiple correlation of y with the cosine and sine of the hour's angle: from 0 to
    1, without a sign. With `given`, it is the share of what `given` leaves unexplained. The p-value is the F test's.
    """
    if len(y) <= _FEWEST or _is_constant(hour) or _is_constant(y):
        return _UNKNOWN
    turn = 2 * np.pi * hour / 24
    base = _design(len(y), given)
    full = np.column_stack([base, np.cos(turn), np.sin(turn)])
    added = int(np.linalg.matrix_rank(full) - np.linalg.matrix_rank(base))
    left = len(y) - int(np.linalg.matrix_rank(full))
    before, after = _squares(base, y), _squares(full, y)
    if before <= 0 or added == 0 or left < 1:
        return _UNKNOWN
    share = max(0.0, 1 - after / before)
    f_ratio = share / added / max((1 - share) / left, np.finfo(float).tiny)
    return Correlation(float(np.sqrt(share)), float(stats.f.sf(f_ratio, added, left)))


def correlation_table(findings: pl.DataFrame) -> pl.DataFrame:
    """Return the correlations of p-values and effects with speed, longitude, latitude and hour over groups.

    Parameters
    ----------
    findings
        Rows of `FINDINGS_SCHEMA`; only tested ones count.

    Returns
    -------
    frame
        `by`, `outcome` ("p_value" or "effect_size"), `m` (null: the mean over all orders, in groups where each was
        tested, because the orders of a group share its samples and are no observations of their own), `feature`,
        `measure` ("pearson", "spearman", "kendall"; for time also "circular"), `groups`, `coefficient`, `p_value`, and
        the same given log n: `given_n`, `p_given_n`.
    """
    tested = findings.filter(pl.col("status") == "tested")
    rows = [
        (by, outcome, m, *row)
        for by in tested["by"].unique(maintain_order=True)
        for m, part in _parts(tested.filter(pl.col("by") == by))
        for outcome in OUTCOMES
        for row in _part_rows(part, features_of(by), outcome)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def features_of(by: str) -> list[str]:
    """Return the features in which the groups of a grouping ("hour+speed", ...) differ by design."""
    return [feature for feature, part in PART_OF.items() if part in by.split("+")]


def mean_over_orders(tested: pl.DataFrame) -> pl.DataFrame:
    """Return one row a group, in groups where every order was tested: means over the orders, `n` the geometric one."""
    return (
        tested.group_by("group", maintain_order=True)
        .agg(
            pl.len().alias("orders"),
            pl.col("n").log().mean().exp(),
            pl.col("p_value", "effect_size", *FEATURES.values()).mean(),
        )
        .filter(pl.col("orders") == tested["m"].n_unique())
    )


def _parts(tested: pl.DataFrame) -> Iterator[tuple[int | None, pl.DataFrame]]:
    yield None, mean_over_orders(tested)
    for m in tested["m"].unique().sort():
        yield m, tested.filter(pl.col("m") == m)


def _part_rows(part: pl.DataFrame, features: list[str], outcome: str) -> Iterator[tuple[Any, ...]]:
    log_n = np.log(part["n"].to_numpy().astype(np.float64))
    y = part[outcome].to_numpy()
    for feature in features:
        x = part[FEATURES[feature]].to_numpy().astype(np.float64)
        for measure in MEASURES:
            raw, given = correlate(x, y, measure=measure), correlate(x, y, measure=measure, given=log_n)
            yield feature, measure, len(y), raw.coefficient, raw.p_value, given.coefficient, given.p_value
        if feature == "time":
            raw, given = circular_linear(x, y), circular_linear(x, y, given=log_n)
            yield feature, "circular", len(y), raw.coefficient, raw.p_value, given.coefficient, given.p_value


def rank_interval(value: npt.ArrayLike, groups: npt.ArrayLike) -> Floats:
    """Return both ends of the 95 % interval of rank correlations over groups (Fisher's z, with Fieller's factor)."""
    middle = np.arctanh(np.clip(value, -0.999999, 0.999999))
    reach = 1.96 * 1.03 / np.sqrt(np.maximum(np.asarray(groups) - 3, 1))
    return np.stack([np.tanh(middle - reach), np.tanh(middle + reach)])


def size_strata(log_n: Floats) -> Positions:
    """Return a number for each group, the same for groups of about the same size: five kinds or fewer."""
    count = min(_MOST_STRATA, max(1, len(log_n) // _FEWEST_IN_STRATUM))
    edges = np.unique(np.quantile(log_n, np.linspace(0, 1, count + 1)[1:-1]))
    return np.searchsorted(edges, log_n, side="left")


def shuffle_within(stratum: Positions, rng: np.random.Generator) -> Positions:
    """Return a random permutation that moves nothing from one stratum to another."""
    order = np.argsort(stratum, kind="stable")
    shuffled = np.lexsort([rng.random(len(stratum)), stratum])
    result = np.empty(len(stratum), np.intp)
    result[order] = shuffled
    return result


def _is_constant(column: Floats) -> bool:
    return bool(np.ptp(column) <= 1e-12 * max(1.0, float(np.abs(column).max())))


def _design(length: int, given: Floats | None) -> Floats:
    """Return the columns of a straight line in `given`, or of a constant."""
    return np.column_stack([np.ones(length), *(() if given is None else (given,))])


def _squares(design: Floats, y: Floats) -> float:
    """Return the sum of squares that a linear model leaves."""
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return float(left @ left)


def _partial_pearson(x: Floats, y: Floats, given: Floats) -> Correlation:
    design = _design(len(x), given)
    left_x, left_y = (column - design @ np.linalg.lstsq(design, column, rcond=None)[0] for column in (x, y))
    if _is_constant(left_x) or _is_constant(left_y):
        return _UNKNOWN
    coefficient = float(np.clip(left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y)), -1, 1))
    freedom = len(x) - 3
    t = coefficient * np.sqrt(freedom / max(1 - coefficient**2, np.finfo(float).tiny))
    return Correlation(coefficient, float(2 * stats.t.sf(abs(t), freedom)))


def _partial_kendall(x: Floats, y: Floats, given: Floats) -> float | None:
    xy, xz, yz = (float(stats.kendalltau(a, b).statistic) for a, b in ((x, y), (x, given), (y, given)))
    below = (1 - xz**2) * (1 - yz**2)
    return (xy - xz * yz) / float(np.sqrt(below)) if below > 1e-12 else None


_ENOUGH_GROUPS = 20
"""Fewest groups for meaningful shares and rank tests."""


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
