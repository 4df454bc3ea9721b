"""The error rate of finding the nearest vehicle against trials, against all deployments, and by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.loss.standard import NearestVehicle
from geoblanket.loss.tasks import Effort, TaskPrior
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from tests.loss.roads import ONE_WAY_RING, random_roads, roads, uneven_grid, ways
from tests.roads.graphs import grid_graph


def nearest(graph: RoadGraph, tasks: TaskPrior, prior: np.ndarray, **options: Any) -> NearestVehicle:
    return NearestVehicle(graph, choose_places(graph), tasks, prior, **options)


def error(way: np.ndarray, task: int, true: int, reported: int, others: np.ndarray) -> np.ndarray:
    """Whether the service errs for each deployment of the others, shape (deployments, others)."""
    shortest = way[others, task].min(axis=1)
    wrong: np.ndarray = (way[true, task] <= shortest) != (way[reported, task] <= shortest)
    return wrong


def test_two_vehicles_by_hand() -> None:
    """Task at 1; ways from 0, 1, 2: 1, 0, 5 km. The other vehicle is at 0, 1, 2 with probability .5, .2, .3.

    From 0 this one has the shortest way unless the other is at 1: 0.8. From 1 always: 1. From 2 if it is at 2: 0.3.
    """
    loss = nearest(
        roads(ONE_WAY_RING), TaskPrior(np.array([1]), np.array([1.0])), np.array([0.5, 0.2, 0.3]), vehicles=2
    )
    found = loss([0, 1, 2], [0, 1, 2]).values
    np.testing.assert_allclose(found, [[0, 0.2, 0.5], [0.2, 0, 0.7], [0.5, 0.7, 0]], atol=1e-15)


@pytest.mark.parametrize("seed", range(4))
def test_every_deployment_of_three_others(seed: int) -> None:
    """All 7³ deployments, with their probabilities; few different lengths, so that there are many ties."""
    graph = random_roads(7, 9, seed=seed, whole_metres=True)
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(7))
    tasks = TaskPrior.from_counts(np.arange(7), rng.integers(1, 5, 7))
    deployments = np.array(list(itertools.product(range(7), repeat=3)))
    probability = prior[deployments].prod(axis=1)
    way = ways(graph)
    truth = [
        [
            sum(
                weight * probability @ error(way, task, true, reported, deployments)
                for task, weight in zip(tasks.nodes, tasks.weight, strict=True)
            )
            for reported in range(7)
        ]
        for true in range(7)
    ]
    found = nearest(graph, tasks, prior, vehicles=4)(range(7), range(7))
    np.testing.assert_allclose(found.values, truth, atol=1e-12)


def test_ways_of_the_same_length_tie_on_a_grid_of_odd_lengths() -> None:
    """Metres like 0.1 + 0.2 and 0.3 differ by rounding, and must not count as nearer and farther."""
    graph = roads([(0, 1, 0.1), (1, 2, 0.2), (3, 2, 0.1 + 0.2 + 1e-15), (2, 0, 1.0), (2, 3, 1.0)])
    tasks = TaskPrior(np.array([2]), np.array([1.0]))
    found = nearest(graph, tasks, np.array([0, 0, 0, 1.0]), vehicles=2)([0], [3]).values
    assert found == 0


@pytest.mark.parametrize("by", ["length", "time"])
def test_fifty_vehicles_against_trials(by: str) -> None:
    """As in the paper, by many trials: fifty vehicles at random, a task at random."""
    graph = grid_graph(6, 6)
    rng = np.random.default_rng(8)
    prior = rng.dirichlet(np.ones(36))
    tasks = TaskPrior.from_counts(np.arange(36), rng.integers(1, 9, 36))
    loss = nearest(graph, tasks, prior, by=by)
    assert loss.vehicles == 50
    way = ways(graph, by)
    trials = 40_000
    others = rng.choice(36, (trials, 49), p=prior)
    task = rng.choice(tasks.nodes, trials, p=tasks.weight)
    shortest = way[others, task[:, None]].min(axis=1)
    rows, columns = np.array([0, 7, 20, 35]), np.array([1, 7, 14, 21])
    wins = way[:, task] <= shortest
    wrong = wins[rows][:, None, :] != wins[columns][None, :, :]
    rate, truth = wrong.mean(axis=2), loss(rows, columns).values
    deviation = np.sqrt(np.maximum(truth * (1 - truth), 1e-9) / trials)
    assert (np.abs(rate - truth) < 4 * deviation).all()
    assert truth[1, 1] == 0
    assert truth.max() > 0.02


def test_it_is_a_distance_that_is_at_most_one() -> None:
    graph = random_roads(30, 40)
    loss = nearest(graph, TaskPrior.uniform(graph), np.full(30, 1 / 30), vehicles=5)
    table = loss(range(30), range(30)).values
    assert (np.diag(table) == 0).all()
    np.testing.assert_allclose(table, table.T, atol=1e-15)
    assert 0.05 < table.max() <= 1


def test_blocks_give_the_same_numbers() -> None:
    graph = random_roads(30, 40)
    tasks, prior = TaskPrior.uniform(graph), np.full(30, 1 / 30)
    whole = nearest(graph, tasks, prior)(range(30), range(5))
    for memory_bytes in (1, 2_000, 20_000):
        blocks = nearest(graph, tasks, prior, effort=Effort(memory_bytes=memory_bytes))(range(30), range(5))
        np.testing.assert_allclose(blocks.values, whole.values, rtol=1e-12, atol=1e-15)


def test_a_sample_is_as_near_as_its_standard_error_says() -> None:
    """Over many draws, (sample − truth) / standard error has mean 0 and deviation 1."""
    graph = uneven_grid()
    tasks, prior = TaskPrior.uniform(graph), np.full(144, 1 / 144)
    rows, columns = np.arange(0, 144, 17), np.arange(6, 144, 29)
    truth = nearest(graph, tasks, prior, vehicles=3)(rows, columns).values
    off = []
    for seed in range(60):
        effort = Effort(max_tasks=100, seed=seed)
        found = nearest(graph, tasks, prior, vehicles=3, effort=effort)(rows, columns)
        assert found.standard_error is not None
        off.append((found.values - truth) / found.standard_error)
    # 60 draws: mean ±0.13 and deviation ±0.09 (one standard error each).
    mean, deviation = np.mean(off, axis=0), np.std(off, axis=0)
    assert np.abs(mean).max() < 0.6
    assert 0.7 < deviation.min() <= deviation.max() < 1.4


def test_other_vehicles_out_of_reach_are_never_nearer() -> None:
    """Node 3 is a trap from which no task can be reached: with all others there, this vehicle is always nearest."""
    graph = roads([*ONE_WAY_RING, (1, 3, 500.0)])
    tasks = TaskPrior(np.array([0, 1]), np.array([0.5, 0.5]))
    loss = nearest(graph, tasks, np.array([0, 0, 0, 1.0]))
    np.testing.assert_array_equal(loss([0, 1, 2], [0, 1, 2]).values, 0)
    with pytest.raises(InputError, match="cannot be reached"):
        loss([3], [0])


@pytest.mark.parametrize(
    ("prior", "vehicles", "message"),
    [
        ([0.5, 0.5], 50, "each of 3 places"),
        ([0.5, np.nan, 0.5], 50, "each of 3 places"),
        ([1.5, -0.5, 0.0], 50, "each of 3 places"),
        ([0.5, 0.4, 0.0], 50, "sums to 0.9"),
        ([0.0, 0.0, 0.0], 50, "sums to 0"),
        ([0.5, 0.5, 0.0], 1, "2 or more vehicles"),
    ],
)
def test_what_is_not_a_fleet_is_refused(prior: list[float], vehicles: int, message: str) -> None:
    graph = roads(ONE_WAY_RING)
    with pytest.raises(ParameterError, match=message):
        nearest(graph, TaskPrior.uniform(graph), np.array(prior), vehicles=vehicles)
