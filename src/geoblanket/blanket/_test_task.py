"""The test of one hypothesis of one group: a task that any worker can do, with the same result."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from threadpoolctl import ThreadpoolController

from geoblanket._arrays import Floats
from geoblanket.blanket.hypotheses import lagged
from geoblanket.blanket.independence import IndependenceTest
from geoblanket.errors import UntestableError

__all__ = ["HypothesisOutcome", "HypothesisTask", "run_hypothesis_test"]


class HypothesisTask(NamedTuple):
    """One hypothesis of one group, with all that its test needs."""

    group: int
    window: Floats
    """Positions X_t, X_{t-1}, ... of each sample, metres, shape (n, T, 2)."""
    m: int
    block: bool
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
    x, y, z = lagged(task.window, task.m, block=task.block)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            result = task.test(x, y, z, seed=task.seed)
    except UntestableError as error:
        return HypothesisOutcome(task.group, task.m, error.reason.replace(" ", "_"))
    return HypothesisOutcome(
        task.group, task.m, "tested", result.statistic, result.p_value, result.effect_size, result.n
    )


@cache
def _libraries() -> ThreadpoolController:
    # Looking for the BLAS libraries takes longer than some tests: once per process.
    return ThreadpoolController()
