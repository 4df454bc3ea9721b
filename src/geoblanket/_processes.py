"""Work in several processes: results in order, and never more of them waiting than can be used."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

from geoblanket.errors import ParameterError

__all__ = ["count_workers", "map_in_order"]

_WORTH_A_PROCESS_S = 2.0
"""A worker process takes about a second to start and import SciPy; less work than this per process does not pay."""

Result = TypeVar("Result")


def count_workers(workers: int | None, *, tasks: int, seconds: float) -> int:
    """Decide how many processes to use.

    Parameters
    ----------
    workers
        As asked for; None means as many as pay for their start, at most one per core.
    tasks
        How many independent tasks there are.
    seconds
        How long they would all take in one process, by estimate.
    """
    if workers is None:
        workers = min(_cores(), int(seconds / _WORTH_A_PROCESS_S))
    elif workers < 1:
        raise ParameterError(f"The number of workers must be 1 or more, or None. Got {workers} instead.")
    return max(1, min(workers, tasks))


def map_in_order(
    function: Callable[..., Result], tasks: Iterable[tuple[object, ...]], *, workers: int
) -> Iterator[Result]:
    """Yield `function(*task)` for each task, in order, computed by `workers` processes (1: in this one).

    New processes are spawned, not forked: a fork of a process with running threads (Polars has them) can hang.
    At most two results per worker are held at a time, however slow the consumer is.
    """
    if workers == 1:
        for task in tasks:
            yield function(*task)
        return
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        # Ctrl-C in a terminal reaches every process; only this one acts on it.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, *task))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
