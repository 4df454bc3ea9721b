"""Tests of conditional independence: what they return, what they refuse, and how they are found by name.

A test is any function with the signature of `IndependenceTest`: x ⟂ y | z is its null hypothesis, and rows are taken
to be independent samples.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Floats
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError, UntestableError

__all__ = ["FEWEST_ROWS", "TESTS", "CIResult", "IndependenceTest", "checked_sample", "find_test", "partial_r_squared"]

FEWEST_ROWS = 50
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
            Samples, one a row: shapes (n, dx), (n, dy) and (n, dz). The first two columns of z are a position, the
            others displacements, as `geoblanket.blanket.hypotheses.lagged` makes them.
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
    rows, needed = len(sample[0]), max(FEWEST_ROWS, _ROWS_PER_COLUMN * sum(part.shape[1] for part in sample))
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
