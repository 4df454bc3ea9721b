"""The constant mechanism: the best single output, whatever the row; it tells nothing, at any ε."""

from __future__ import annotations

import numpy as np

from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.verifier import DENOMINATOR

__all__ = ["constant"]


def constant(problem: Problem) -> Mechanism:
    """Return the mechanism that always gives the output of least expected loss (the first of them)."""
    weights = np.zeros((problem.row_count, problem.output_count), np.int64)
    weights[:, np.argmin(problem.prior @ problem.loss)] = DENOMINATOR
    return Mechanism.from_weights(weights, problem)
