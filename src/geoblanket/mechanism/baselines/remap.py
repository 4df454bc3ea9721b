"""Bayesian-optimal remapping: what a service would make of a mechanism's outputs, knowing the prior and the loss.

Each output is replaced by the one with the least expected loss given that it was seen (Chatzikokolakis,
Elsalamouny, Palamidessi, "Efficient utility improvement for location privacy", PoPETs 2017). Columns of weights are
added up, nothing else, so the promise holds exactly: a sum of inequalities.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket.errors import MismatchError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["add_columns", "best_replacements", "remap"]

Table = TypeVar("Table", Floats, Ints)


def remap(mechanism: Mechanism, problem: Problem) -> Mechanism:
    """Replace each output of a mechanism by the best output of a problem; never costs more than leaving it.

    Parameters
    ----------
    mechanism
        Any verified mechanism with as many rows as the problem; its outputs may be others than the problem's.
    problem
        Gives the prior and the loss. The promise stays the mechanism's own: its ε, η and distances.
    """
    if mechanism.row_count != problem.row_count:
        raise MismatchError(
            f"The mechanism has {mechanism.row_count} rows and the problem {problem.row_count}: they must be the same."
        )
    replacement = best_replacements(mechanism.weights.astype(np.float64), problem)
    return Mechanism.from_weights(add_columns(mechanism.weights, replacement, problem.output_count), mechanism)


def best_replacements(columns: Floats, problem: Problem) -> Ints:
    """Return, for each column of probabilities (S, any), the problem's output of least expected loss (the first)."""
    expected_loss: Floats = (columns * problem.prior[:, None]).T @ problem.loss
    best: Ints = expected_loss.argmin(axis=1)
    return best


def add_columns(table: Table, replacement: Ints, output_count: int) -> Table:
    """Return the table of `output_count` columns in which each column is added to its replacement."""
    result = np.zeros_like(table, shape=(len(table), output_count))
    np.add.at(result.T, replacement, table.T)
    return result
