from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geoblanket._workers import map_in_order, run_tasks
from geoblanket.errors import (
    BudgetError,
    GuaranteeViolation,
    InputError,
    LatticeViolation,
    MissingExtraError,
    RefusedError,
    UntestableError,
    WorkerError,
)


def square_or_die(task: tuple[int, Path | None, int]) -> int:
    """Square a number; die the first `times` that it is asked for with a file to count in."""
    number, deaths, times = task
    if deaths is not None:
        with deaths.open("a") as file:
            file.write("x")
        if deaths.stat().st_size <= times:
            os.kill(os.getpid(), signal.SIGKILL)
    return number**2


KEPT: list[bytes] = []


def grow(number: int) -> int:
    """Keep memory that is never given back, as a leak does; take longer than joblib waits before it looks."""
    KEPT.append(bytes([number % 255 + 1]) * 400_000_000)
    time.sleep(1.1)
    return os.getpid()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from distributed import LocalCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        with LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address=None,
        ) as cluster:
            yield cluster.scheduler_address


def tasks(count: int, **deaths: tuple[Path, int]) -> dict[str, tuple[int, Path | None, int]]:
    return {str(number): (number, *deaths.get(f"of_{number}", (None, 0))) for number in range(count)}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_is_done_once(workers: int) -> None:
    found = list(run_tasks(square_or_die, tasks(9), workers=workers, cluster=None))
    assert sorted(found) == [(str(number), number**2) for number in range(9)]


def test_a_worker_that_dies_costs_a_retry(tmp_path: Path) -> None:
    wanted = tasks(6, of_2=(tmp_path / "deaths", 1))
    found = list(run_tasks(square_or_die, wanted, workers=2, cluster=None))
    assert sorted(found) == [(str(number), number**2) for number in range(6)]
    assert (tmp_path / "deaths").stat().st_size == 2


def test_a_task_that_kills_every_worker_is_told_after_all_others_are_done(tmp_path: Path) -> None:
    wanted = tasks(6, of_2=(tmp_path / "deaths", 99))
    found = []
    with pytest.raises(WorkerError, match=r"1 task\(s\) died, each more than once: 2\.") as caught:
        for one in run_tasks(square_or_die, wanted, workers=2, cluster=None):
            found.append(one)  # noqa: PERF402 - what comes before the error counts
    assert sorted(found) == [(str(number), number**2) for number in range(6) if number != 2]
    assert caught.value.tasks == ("2",)


def test_a_worker_that_has_grown_is_replaced_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    found = dict(run_tasks(grow, {number: number for number in range(6)}, workers=2, cluster=None))
    assert len(set(found.values())) > 2
    assert not recwarn.list


def test_errors_of_a_task_are_not_taken_for_dead_workers() -> None:
    wrong: Any = {"a": ("no number", None, 0), "b": (1, None, 0)}
    with pytest.raises(TypeError):
        list(run_tasks(square_or_die, wrong, workers=2, cluster=None))


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        InputError("has no points", path="traces.parquet", row=7, hint="Import it again"),
        UntestableError("Too few.", "too few"),
        GuaranteeViolation(1, 2, 3, 4, "is violated"),
        LatticeViolation("is violated"),
        WorkerError(["a", "b"]),
        RefusedError("Too soon.", "time", 2.5),
        BudgetError("Too much.", spent=1.0, left=0.5),
        MissingExtraError("A Dask cluster", "cluster"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_task_arrives_unchanged(error: Exception) -> None:
    """Errors cross from the worker to the caller by pickle: their message and their attributes must survive it."""
    with pytest.raises(type(error)) as caught:
        list(run_tasks(fail, {"a": error, "b": error}, workers=2, cluster=None))
    assert type(caught.value) is type(error)
    assert (str(caught.value), vars(caught.value)) == (str(error), vars(error))


def test_on_a_cluster(address: str, tmp_path: Path) -> None:
    wanted = tasks(6, of_2=(tmp_path / "deaths", 1))
    found = list(run_tasks(square_or_die, wanted, workers=1, cluster=address))
    assert sorted(found) == [(str(number), number**2) for number in range(6)]


def leave_a_mark(folder: Path, number: int) -> int:
    (folder / str(number)).touch()
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_few_wait_for_a_slow_consumer(tmp_path: Path, workers: int) -> None:
    results = map_in_order(leave_a_mark, [(tmp_path, number) for number in range(20)], workers=workers)
    assert next(results) == 0
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) <= 2 * workers
    assert list(results) == list(range(1, 20))
