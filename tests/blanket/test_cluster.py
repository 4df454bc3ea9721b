"""Discovery in other processes: of this machine, and of a real Dask scheduler with two workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.errors import ParameterError
from tests.blanket.quick_test import use_quick_test
from tests.blanket.worlds import square, wandering, write_world

World = tuple[Path, Path]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    graph = square()
    walks = wandering(graph, side=12, walks=1500, steps=12, seed=3)
    return write_world(tmp_path_factory.mktemp("world"), graph, walks)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_test(monkeypatch)


def found(world: World, *, workers: int | None = None, cluster: str | None = None, test: str = "quick") -> pl.DataFrame:
    return discover(
        *world,
        DiscoveryOptions(by=("speed", "region"), test=test, smallest_group=60, largest_sample=100),
        workers=workers,
        cluster=cluster,
    ).findings


@pytest.fixture(scope="module")
def address(monkeypatch_module: pytest.MonkeyPatch) -> Iterator[str]:
    from distributed import LocalCluster

    # Workers find the tests' own modules.
    monkeypatch_module.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address=None,
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_the_number_of_workers_does_not_change_the_result(world: World) -> None:
    alone = found(world, workers=1)
    assert alone.filter(status="tested").height > 40
    assert found(world, workers=2).equals(alone)


def test_a_cluster_gives_the_same_result(world: World, address: str) -> None:
    assert found(world, cluster=address).equals(found(world, workers=1))


def test_all_workers_of_a_cluster_work(world: World, address: str) -> None:
    processes = set(found(world, cluster=address, test="where")["statistic"].drop_nulls())
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_an_address_where_nobody_answers_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoblanket._workers._CONNECT_S", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ParameterError, match="No Dask cluster with workers answers at tcp"):
        found(world, cluster=f"tcp://127.0.0.1:{port}")
