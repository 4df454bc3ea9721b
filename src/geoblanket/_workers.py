"""Worker processes: how many pay, and tasks on them or on a Dask cluster, all by joblib."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

import joblib

from geoblanket.errors import MissingExtraError, ParameterError, WorkerError

_WORTH_A_PROCESS_S = 2.0
"""A worker process takes about a second to start and import SciPy; less work than this per process does not pay."""
_CONNECT_S = 10
"""How long to wait for the scheduler and the first worker of a Dask cluster, seconds."""
_BYTES_PER_UNIT = 1 if sys.platform == "darwin" else 1024
"""What the system counts resident memory in."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key")


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


@contextmanager
def open_workers(workers: int, *, cluster: str | None) -> Iterator[tuple[type[Exception], ...]]:
    """Let joblib use these workers, each with one BLAS thread; give the exceptions that a dead worker raises.

    Parameters
    ----------
    workers
        Processes on this machine; 1 means this one.
    cluster
        Address of a Dask scheduler, whose workers are used instead.
    """
    if cluster is not None:
        with _cluster(cluster) as deaths:
            yield deaths
        return
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1), warnings.catch_warnings():
        # A worker that has grown is replaced by a new one, and nothing is lost: not worth a word to users.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        yield (BrokenExecutor,)


def run_in_any_order(function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """Run tasks on the workers that are open, and yield results as they come; tasks are made as they are sent."""
    yield from joblib.Parallel(return_as="generator_unordered", pre_dispatch="2*n_jobs")(
        joblib.delayed(function)(task) for task in tasks
    )


def run_tasks(
    function: Callable[[Task], Result], tasks: Mapping[Key, Task], *, workers: int, cluster: str | None = None
) -> Iterator[tuple[Key, Result]]:
    """Yield the key and result of each task, in any order; a worker that dies costs a retry.

    If a worker process dies, what it and its neighbours had not finished is run again. If that happens a second time,
    each task that is left is run alone, and those whose worker dies again are reported in the end.

    Parameters
    ----------
    function
        What does a task; importable by name.
    tasks
        By a key of the caller's choice.
    workers, cluster
        As in `open_workers`.

    Raises
    ------
    WorkerError
        After all others are finished: tasks whose worker died, by their keys.
    """
    left = dict(tasks)
    with open_workers(workers, cluster=cluster) as deaths:
        for _ in range(2):
            try:
                for key, result in _run_keyed(function, left):
                    del left[key]
                    yield key, result
            except deaths:
                continue
            return
        for key, task in list(left.items()):
            try:
                yield from _run_keyed(function, {key: task})
            except deaths:
                continue
            del left[key]
    if left:
        raise WorkerError([str(key) for key in left])


def map_in_order(
    function: Callable[..., Result], tasks: Sequence[tuple[object, ...]], *, workers: int
) -> Iterator[Result]:
    """Yield `function(*task)` for each task, in order, computed by `workers` processes (1: in this one).

    At most two results per worker are held at a time, however slow the consumer is: joblib goes on with all the tasks
    it is given, so it is given only that many at once.
    """
    if workers == 1:
        yield from (function(*task) for task in tasks)
        return
    # Arrays are sent, not mapped from files: SciPy's graph searches take no read-only arrays.
    with joblib.Parallel(workers, backend="loky", max_nbytes=None, return_as="generator") as parallel:
        for start in range(0, len(tasks), 2 * workers):
            results = parallel(joblib.delayed(function)(*task) for task in tasks[start : start + 2 * workers])
            try:
                for result in results:  # noqa: UP028 - `yield from` would close them with a warning
                    yield result
            finally:
                with warnings.catch_warnings():
                    # A consumer may stop early; joblib warns about the results that nobody wants then.
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()


def _run_keyed(function: Callable[[Task], Result], tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, Result]]:
    # A copy, for the caller takes finished tasks away while others are still to be sent.
    return run_in_any_order(partial(_with_key, function), list(tasks.items()))


def _with_key(function: Callable[[Task], Result], keyed: tuple[Key, Task]) -> tuple[Key, Result]:
    key, task = keyed
    return key, function(task)


@contextmanager
def _cluster(address: str) -> Iterator[tuple[type[Exception], ...]]:
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise MissingExtraError("A Dask cluster", "cluster") from None
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(address, timeout=_CONNECT_S))
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise ParameterError(
                f"No Dask cluster with workers answers at {address} within {_CONNECT_S} s ({type(error).__name__}). "
                "Give the address that its scheduler prints, such as tcp://HOST:8786."
            ) from error
        stack.enter_context(joblib.parallel_config(backend="dask", n_jobs=-1))
        yield (KilledWorker,)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_ctrl_c_to(process: int) -> None:
    """Ignore Ctrl-C, which a terminal sends to every process, unless this is the one that acts on it."""
    if os.getpid() != process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, megabytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0.0
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_UNIT / 1e6, 1)
