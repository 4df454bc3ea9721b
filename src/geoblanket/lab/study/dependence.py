"""A classifier's test of dependence: it tries to tell real pairs from shuffled ones.

Where x and y are independent, a pair (x_i, y_i) and a pair (x_i, y_j) look alike, and no classifier does better than
chance on pairs that it has not seen. The idea is that of the paper's classifier test (Sen et al. 2017). The null
distribution here is a permutation's: y is shuffled and the whole procedure repeated, so the level is exact whatever the
classifier, and the folds' dependence on each other needs no formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from numpy.polynomial import legendre
from scipy import stats

from geoblanket._arrays import Floats, Positions
from geoblanket._display import Progress, silent
from geoblanket.lab.study.group_statistics import FEATURES, grouping_for, shuffle_within, size_strata

_DEGREE = 3
"""Of the polynomials in the ranks of x and y whose products the classifier sees."""

_RIDGE = 10.0
"""For products of variance 1; large, because a study has tens or hundreds of groups, not thousands."""

_SHUFFLES = 5
"""Shuffled pairs for each real one: more of them, less noise."""

_FOLDS = 5  # of the cross-validation
_AT_A_TIME = 20
"""Permutations that are computed together."""

_FEWEST = 15
"""With fewer pairs nothing can be learnt and held out."""

_SCHEMA: dict[str, pl.DataType] = {
    "by": pl.String(),
    "m": pl.Int8(),
    "feature": pl.String(),
    "groups": pl.Int32(),
    "accuracy": pl.Float64(),
    "p_value": pl.Float64(),
    "p_given_n": pl.Float64(),
}


@dataclass(frozen=True)
class DependenceResult:
    """How well a classifier tells real pairs from shuffled ones."""

    accuracy: float
    """Share of held-out pairs told rightly, real and shuffled ones counting alike; 0.5 is chance."""
    p_value: float
    """Of independence, by permutation: at least 1 / (1 + permutations)."""
    n: int
    """Real pairs."""


def dependence_test(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    seed: int,
    period: float | None = None,
    strata: npt.ArrayLike | None = None,
    permutations: int = 199,
) -> DependenceResult:
    """Test the independence of x and y by a linear classifier of smooth features, with held-out data.

    Parameters
    ----------
    x
        Values, shape (n,).
    y
        Values, shape (n,) or (n, k). Rows must be exchangeable where x and y are independent.
    seed
        Of the folds and the shuffles.
    period
        Where x is circular: the value at which it begins again (24 for hours).
    strata
        Shuffle only within these: tests independence given what the strata hold constant.
    permutations
        Of y, for the null distribution.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y
    stratum = np.zeros(len(x), np.intp) if strata is None else np.unique(np.asarray(strata), return_inverse=True)[1]
    rng = np.random.default_rng(seed)
    trial = _Trial(_basis(x, period=period), stratum, rng)
    columns = np.concatenate([_basis(column, period=None) for column in y.T], axis=1)
    apart, accuracy = trial.run(columns[None])
    null = []
    for start in range(0, permutations, _AT_A_TIME):
        orders = [shuffle_within(stratum, rng) for _ in range(min(_AT_A_TIME, permutations - start))]
        null.append(trial.run(columns[np.stack(orders)])[0])
    at_least = int(np.sum(np.concatenate(null) >= apart - 1e-12))
    return DependenceResult(float(accuracy[0]), (1 + at_least) / (1 + permutations), len(x))


def dependence_table(
    findings: pl.DataFrame, *, permutations: int = 199, seed: int = 0, progress: Progress = silent
) -> pl.DataFrame:
    """Test the dependence of p-values on speed, longitude, latitude and hour, each in its best grouping.

    Returns
    -------
    frame
        `by`, `m` (null: the p-values of all orders at once, in groups where each was tested), `feature`, `groups`,
        `accuracy`, `p_value`, and `p_given_n`: shuffled only among groups of about the same number of samples.
        Nothing is known, and all null, where there are fewer than 15 groups or the feature does not vary.
    """
    tested = findings.filter(pl.col("status") == "tested")
    orders: list[int] = tested["m"].unique().sort().to_list()
    tasks = [(feature, m) for feature in FEATURES for m in (None, *orders)]
    rows = []
    for done, (feature, m) in enumerate(tasks):
        progress("classifier tests", done, len(tasks))
        by = grouping_for(findings, feature)
        groups = _one_row_a_group(tested.filter(pl.col("by") == (by or "")), orders if m is None else [m])
        seeds = np.random.SeedSequence([seed, done]).generate_state(2).tolist()
        rows.append(
            (by, m, feature, groups.height, *_test_rows(groups, feature, permutations=permutations, seeds=seeds))
        )
    progress("classifier tests", len(tasks), len(tasks))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _one_row_a_group(tested: pl.DataFrame, orders: list[int]) -> pl.DataFrame:
    """Return the p-values of each group that was tested at all these orders, as a list, and its features and size."""
    return (
        tested.filter(pl.col("m").is_in(orders))
        .sort("group", "m")
        .group_by("group", maintain_order=True)
        .agg("p_value", pl.col("n").log().mean().alias("log_n"), *(pl.col(c).mean() for c in FEATURES.values()))
        .filter(pl.col("p_value").list.len() == len(orders))
    )


def _test_rows(
    rows: pl.DataFrame, feature: str, *, permutations: int, seeds: list[int]
) -> tuple[float | None, float | None, float | None]:
    column = rows[FEATURES[feature]]
    if rows.height < _FEWEST or column.n_unique() < 2:
        return None, None, None
    x, y = column.to_numpy().astype(np.float64), np.array(rows["p_value"].to_list(), np.float64)
    period = 24.0 if feature == "time" else None
    raw, given = (
        dependence_test(x, y, seed=number, period=period, strata=strata, permutations=permutations)
        for number, strata in zip(seeds, (None, size_strata(rows["log_n"].to_numpy())), strict=True)
    )
    return raw.accuracy, raw.p_value, given.p_value


class _Trial:
    """Fixed folds and fixed shuffles; only the assignment of y to x varies."""

    def __init__(self, x: Floats, stratum: Positions, rng: np.random.Generator) -> None:
        self._x = x
        # Folds cut every stratum alike, and shuffled pairs are made within a fold: nothing held out is seen before.
        place = np.empty(len(x), np.intp)
        place[np.lexsort([rng.random(len(x)), stratum])] = np.arange(len(x))
        self._fold = place % _FOLDS
        self._partners = [shuffle_within(stratum * _FOLDS + self._fold, rng) for _ in range(_SHUFFLES)]

    def run(self, y: Floats) -> tuple[Floats, Floats]:
        """Return how far held-out scores of real pairs lie above those of shuffled ones, and the accuracy.

        Parameters
        ----------
        y
            Functions of y in several orders, shape (p, n, k); each order is a trial of its own.
        """
        real = _products(self._x, y)[:, None]
        shuffled = np.stack([_products(self._x, y[:, partner]) for partner in self._partners], axis=1)
        scores_real, scores_shuffled = np.empty(real.shape[:3]), np.empty(shuffled.shape[:3])
        for fold in range(_FOLDS):
            seen, held = self._fold != fold, self._fold == fold
            weights = _discriminant(real[:, :, seen], shuffled[:, :, seen])[:, None, :, None]
            scores_real[:, :, held] = (real[:, :, held] @ weights)[..., 0]
            scores_shuffled[:, :, held] = (shuffled[:, :, held] @ weights)[..., 0]
        among = (1, 2)
        spread = np.sqrt((scores_real.var(axis=among) + scores_shuffled.var(axis=among)) / 2)
        apart = scores_real.mean(axis=among) - scores_shuffled.mean(axis=among)
        above = np.sign(scores_real).mean(axis=among) - np.sign(scores_shuffled).mean(axis=among)
        return np.asarray(apart / np.maximum(spread, np.finfo(float).tiny)), np.asarray(0.5 + above / 4)


def _basis(values: Floats, *, period: float | None) -> Floats:
    """Return smooth functions of a column that do not depend on its scale: of its ranks, or of its angle."""
    if period is not None:
        turn = 2 * np.pi * values / period
        return np.asarray(
            np.sqrt(2) * np.column_stack([np.cos(turn), np.sin(turn), np.cos(2 * turn), np.sin(2 * turn)])
        )
    centred = (2 * stats.rankdata(values) - 1) / len(values) - 1
    scale = np.sqrt(2 * np.arange(1, _DEGREE + 1) + 1)
    return np.asarray(legendre.legvander(centred, _DEGREE)[:, 1:] * scale)


def _products(x: Floats, y: Floats) -> Floats:
    """Return every product of a function of x and one of y: by themselves, x and y are alike in both kinds of pair."""
    return (x[:, :, None] * y[..., None, :]).reshape(*y.shape[:-1], -1)


def _discriminant(real: Floats, shuffled: Floats) -> Floats:
    """Return the weights of Fisher's linear discriminant with a ridge, both kinds of pair weighing the same.

    The border is at 0: the products have mean 0 in shuffled pairs, up to chance. Shapes (p, copies, n, columns).
    """
    columns = real.shape[-1]
    real, shuffled = (pairs.reshape(len(pairs), -1, columns) for pairs in (real, shuffled))
    within = sum(pairs.transpose(0, 2, 1) @ pairs / pairs.shape[1] for pairs in (real, shuffled))
    apart = real.mean(axis=1) - shuffled.mean(axis=1)
    return np.asarray(np.linalg.solve(within + _RIDGE * np.eye(columns), apart[..., None])[..., 0])
