"""Tests of conditional independence: hypotheses of Markov order, results, refusals, and the task of one group.

A test is any function with the signature of `IndependenceTest`: x ⟂ y | z is its null hypothesis, and rows are taken
to be independent samples.

The hypotheses say: "given the last m locations, the present one does not depend on an older one". They are stated in
displacements. Given X_{t-1}, the location X_t and the displacement X_t - X_{t-1} say the same, and so on down the past:
the hypothesis is the same, but columns that were nearly equal (positions a few seconds apart) become columns that are
nearly uncorrelated.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError, UntestableError

_FEWEST_ROWS = 50
"""A test needs at least this many rows, and `_ROWS_PER_COLUMN` for each column of x, y and z."""
_ROWS_PER_COLUMN = 5

TESTS = {
    "analytic": ("geoblanket.blanket.analytic", "analytic_test"),
    "scetbon": ("geoblanket.blanket.scetbon", "scetbon_test"),
}
"""The module and function of each test, by name."""


@dataclass(frozen=True)
class CIResult:
    """What a test of x ⟂ y | z found."""

    statistic: float
    """The larger, the stronger the evidence against independence; its scale is the test's own."""
    p_value: float
    """Chance of evidence at least as strong if x and y were independent given z, in [0, 1]."""
    effect_size: float
    """A partial R²: the share of the variance of x, beyond what z explains, that y explains linearly. Corrected for
    chance, so that it is 0 on average where there is no effect, and may come out slightly negative."""
    n: int
    """Rows used."""

    def __repr__(self) -> str:
        found = f"p = {self.p_value:.3g}", f"statistic {self.statistic:.4g}", f"effect {self.effect_size:.3g}"
        return short_repr(self, *found, counted(self.n, "sample"))


class IndependenceTest(Protocol):
    """A test of x ⟂ y | z."""

    def __call__(self, x: Floats, y: Floats, z: Floats, *, seed: int) -> CIResult:
        """Test whether x and y are independent given z.

        Parameters
        ----------
        x, y, z
            Samples, one a row: shapes (n, dx), (n, dy) and (n, dz). The test may look more closely at the first two
            columns of z, for vehicles a position (the others are displacements, as `lagged` makes them).
        seed
            Where the test makes random choices, they follow from it: the same rows and seed give the same result.

        Raises
        ------
        UntestableError
            If the sample cannot decide: too few rows, an x or y that never changes, or a dependence that may be what
            the test's regressions on z could not follow.
        ParameterError
            If numbers are not finite or shapes do not agree.
        """


@checked
def find_test(name: str) -> IndependenceTest:
    """Return the test called `name`: one of `TESTS`."""
    if name not in TESTS:
        raise ParameterError(f"The test must be one of {', '.join(TESTS)}. Got {name!r} instead.")
    module, function = TESTS[name]
    return cast("IndependenceTest", getattr(importlib.import_module(module), function))


def checked_sample(x: Floats, y: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
    """Return x, y and z as float64 arrays of two dimensions, or say why they cannot be tested.

    Raises
    ------
    UntestableError, ParameterError
        As in `IndependenceTest`.
    """
    sample = tuple(np.asarray(part, np.float64) for part in (x, y, z))
    shapes = ", ".join(f"{name} {part.shape}" for name, part in zip("xyz", sample, strict=True))
    if any(part.ndim != 2 or len(part) != len(sample[0]) or not part.shape[1] for part in sample):
        raise ParameterError(
            f"x, y and z must have the same number of rows and a column or more each. Got {shapes} instead."
        )
    for name, part in zip("xyz", sample, strict=True):
        if not np.isfinite(part).all():
            raise ParameterError(f"{name} holds a number that is missing or infinite; leave such rows out.")
    rows, needed = len(sample[0]), max(_FEWEST_ROWS, _ROWS_PER_COLUMN * sum(part.shape[1] for part in sample))
    if rows < needed:
        raise UntestableError(f"A test of these columns needs {needed} rows or more. Got {rows} instead.", "too few")
    for name, part in zip("xy", sample, strict=False):
        if not np.ptp(part, axis=0).any():
            raise UntestableError(f"{name} is the same in all {rows} rows, so nothing can depend on it.", "constant")
    return sample[0], sample[1], sample[2]


def partial_r_squared(x_left: Floats, y_left: Floats, *, inflation: float = 1.0) -> float:
    """Return the share of the residuals of x that the residuals of y explain linearly, less what chance would explain.

    Parameters
    ----------
    x_left, y_left
        Residuals after regression on z, shapes (n, dx) and (n, dy).
    inflation
        By how much the regressions make a share by chance larger than the 1 / n of independent rows.
    """
    total = (x_left**2).sum()
    vectors, values, _ = np.linalg.svd(y_left, full_matrices=False)
    directions = vectors[:, values > 1e-10 * values[0]]
    if total == 0 or not directions.size:
        return 0.0
    share = min(1.0, ((directions.T @ x_left) ** 2).sum() / total)
    by_chance = directions.shape[1] * inflation / len(x_left)
    return float((share - by_chance) / (1 - by_chance))


@checked
def lagged(window: Floats, m: int, *, block: bool = False) -> tuple[Floats, Floats, Floats]:
    """Return x, y and z of the hypothesis X_t ⟂ X_{t-m-1} | X_{t-1}, …, X_{t-m}.

    Parameters
    ----------
    window
        Positions in metres, east and north, shape (n, T, 2): X_t, X_{t-1}, …, X_{t-T+1} of each sample.
    m
        How many past locations are given, from 1 to T - 2.
    block
        Take for y not X_{t-m-1} alone but all older locations X_{t-m-1}, …, X_{t-T+1}. A dependence that skips a lag
        is seen by this hypothesis alone.

    Returns
    -------
    x, y, z
        x is the displacement X_t - X_{t-1}, shape (n, 2). y is X_{t-m} - X_{t-m-1}, shape (n, 2), or with `block` that
        and each older displacement, shape (n, 2 (T - 1 - m)). z is the position X_{t-1} and then the displacements
        X_{t-1} - X_{t-2}, …, X_{t-m+1} - X_{t-m}, shape (n, 2 m). All in metres.
    """
    window = np.asarray(window, np.float64)
    if window.ndim != 3 or window.shape[2] != 2:
        raise ParameterError(f"The window must have the shape (n, T, 2). Got {window.shape} instead.")
    samples, length, _ = window.shape
    if not 1 <= m <= length - 2:
        raise ParameterError(
            f"m must be from 1 to {length - 2}: the window has {length} locations, and the hypothesis needs m + 2. "
            f"Got {m} instead."
        )
    steps = window[:, :-1] - window[:, 1:]
    last = length - 1 if block else m + 1
    x = steps[:, 0]
    y = steps[:, m:last].reshape(samples, -1)
    z = np.concatenate([window[:, 1], steps[:, 1:m].reshape(samples, -1)], axis=1)
    return x, y, z


class HypothesisTask(NamedTuple):
    """One hypothesis of one group, with all that its test needs."""

    group: int
    m: int
    x: Floats
    y: Floats
    z: Floats
    test: IndependenceTest
    seed: int


class HypothesisOutcome(NamedTuple):
    """What the test of a hypothesis said; the numbers are None where it could not decide."""

    group: int
    m: int
    status: str
    statistic: float | None = None
    p_value: float | None = None
    effect_size: float | None = None
    n: int = 0


def run_hypothesis_test(task: HypothesisTask) -> HypothesisOutcome:
    """Test one hypothesis, with one BLAS thread: the same numbers wherever it runs."""
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            result = task.test(task.x, task.y, task.z, seed=task.seed)
    except UntestableError as error:
        return HypothesisOutcome(task.group, task.m, error.reason.replace(" ", "_"))
    return HypothesisOutcome(
        task.group, task.m, "tested", result.statistic, result.p_value, result.effect_size, result.n
    )


@cache
def _libraries() -> ThreadpoolController:
    # Looking for the BLAS libraries takes longer than some tests: once per process.
    return ThreadpoolController()
