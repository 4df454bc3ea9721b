"""A test of conditional independence that is quick and simple: linear residuals, and a χ² of their products.

It stands in for the real ones where a test is not about statistics.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from scipy.stats import chi2

from geoblanket.blanket import independence
from geoblanket.blanket.independence import CIResult, checked_sample
from geoblanket.errors import UntestableError


def quick_test(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, seed: int) -> CIResult:  # noqa: ARG001
    x, y, z = checked_sample(x, y, z)
    design = np.column_stack([np.ones(len(z)), z])
    left, right = (part - design @ np.linalg.lstsq(design, part, rcond=None)[0] for part in (x, y))
    products = np.einsum("na,nb->nab", left, right).reshape(len(x), -1)
    mean = products.mean(axis=0)
    statistic = len(x) * float(mean @ np.linalg.pinv(products.T @ products / len(x)) @ mean)
    return CIResult(statistic, float(chi2.sf(statistic, products.shape[1])), statistic / len(x), len(x))


def where_test(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, seed: int) -> CIResult:  # noqa: ARG001
    """Tell in which process it runs."""
    time.sleep(0.01)
    return CIResult(float(os.getpid()), 0.5, 0.0, len(x))


def unsure_test(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, seed: int) -> CIResult:  # noqa: ARG001
    """Reject order 1, refuse order 2 and keep order 3."""
    order = z.shape[1] // 2
    if order == 2:
        raise UntestableError("Too rough.", "unresolved")
    return CIResult(1.0, {1: 0.001, 3: 0.5}[order], 0.0, len(x))


def use_quick_test(patch: pytest.MonkeyPatch) -> None:
    """Let `find_test` find "quick", "where" and "unsure", in this process."""
    patch.setitem(independence.TESTS, "quick", (__name__, "quick_test"))
    patch.setitem(independence.TESTS, "where", (__name__, "where_test"))
    patch.setitem(independence.TESTS, "unsure", (__name__, "unsure_test"))
