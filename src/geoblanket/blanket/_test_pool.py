"""Tests of many groups at once: on all cores, or on a Dask cluster, with the same results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import joblib
from threadpoolctl import ThreadpoolController

from geoblanket._arrays import Floats
from geoblanket.blanket.hypotheses import lagged
from geoblanket.blanket.independence import IndependenceTest
from geoblanket.errors import UntestableError

__all__ = ["Outcome", "Task", "run_tests"]


class Task(NamedTuple):
    """One hypothesis of one group, with all that its test needs."""

    group: int
    window: Floats
    """Positions X_t, X_{t-1}, ... of each sample, metres, shape (n, T, 2)."""
    m: int
    block: bool
    test: IndependenceTest
    seed: int


class Outcome(NamedTuple):
    """What the test of a hypothesis said; the numbers are None where it could not decide."""

    group: int
    m: int
    status: str
    statistic: float | None = None
    p_value: float | None = None
    effect_size: float | None = None
    n: int = 0


def decide(task: Task) -> Outcome:
    """Test one hypothesis, with one BLAS thread: the same numbers wherever it runs."""
    x, y, z = lagged(task.window, task.m, block=task.block)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            result = task.test(x, y, z, seed=task.seed)
    except UntestableError as error:
        return Outcome(task.group, task.m, error.reason.replace(" ", "_"))
    return Outcome(task.group, task.m, "tested", result.statistic, result.p_value, result.effect_size, result.n)


def run_tests(tasks: Iterable[Task]) -> Iterator[Outcome]:
    """Test hypotheses by the workers that are open (`open_workers`); yield outcomes as they come, in any order."""
    outcomes: Iterator[Outcome] = joblib.Parallel(return_as="generator_unordered")(
        joblib.delayed(decide)(task) for task in tasks
    )
    return outcomes


@cache
def _libraries() -> ThreadpoolController:
    # Looking for the BLAS libraries takes longer than some tests: once per process.
    return ThreadpoolController()
