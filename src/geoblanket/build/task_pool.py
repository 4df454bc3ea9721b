"""Independent tasks on all cores or on a Dask cluster; a worker that dies costs a retry, not the build."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import joblib

from geoblanket._workers import open_workers
from geoblanket.errors import WorkerError

__all__ = ["run_tasks"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key")


def run_tasks(
    function: Callable[[Task], Result], tasks: Mapping[Key, Task], *, workers: int, cluster: str | None
) -> Iterator[tuple[Key, Result]]:
    """Yield the key and result of each task, in any order.

    If a worker process dies, what it and its neighbours had not finished is run again; if that happens a second time,
    each remaining task is run alone, and those whose worker dies again are reported at the end.

    Parameters
    ----------
    function
        What does a task; importable by name.
    tasks
        By a key of the caller's choice.
    workers
        Processes on this machine; 1 means this one.
    cluster
        Address of a Dask scheduler, whose workers are used instead.

    Raises
    ------
    WorkerError
        After all others are finished: tasks whose worker died, by their keys.
    """
    unfinished = dict(tasks)
    with open_workers(workers, cluster=cluster) as lost:
        for _ in range(2):
            try:
                for key, result in _run(function, unfinished):
                    del unfinished[key]
                    yield key, result
            except lost:
                continue
            return
        for key, task in list(unfinished.items()):
            try:
                yield from _run(function, {key: task})
            except lost:
                continue
            del unfinished[key]
    if unfinished:
        raise WorkerError([str(key) for key in unfinished])


def _run(function: Callable[[Task], Result], tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, Result]]:
    # A copy, for the caller takes finished tasks away while others are still to be sent.
    yield from joblib.Parallel(return_as="generator_unordered", pre_dispatch="2*n_jobs")(
        joblib.delayed(_keyed)(function, key, task) for key, task in list(tasks.items())
    )


def _keyed(function: Callable[[Task], Result], key: Key, task: Task) -> tuple[Key, Result]:
    return key, function(task)
