"""Travel cost against networkx and against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.loss.standard import TravelCost
from geoblanket.loss.tasks import Effort, TaskPrior
from geoblanket.roads.distances import Weight
from geoblanket.roads.importer import import_roads
from geoblanket.roads.places import choose_places
from tests.loss.roads import ONE_WAY_RING, random_roads, roads, uneven_grid, ways
from tests.roads.graphs import grid_graph

PORTO = Path(__file__).parents[2] / ".." / "shared" / "data" / "porto"


def by_loops(way: np.ndarray, tasks: TaskPrior, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The formula, term by term."""
    result = np.zeros((len(rows), len(columns)))
    for i, true in enumerate(rows):
        for j, reported in enumerate(columns):
            for task, weight in zip(tasks.nodes, tasks.weight, strict=True):
                result[i, j] += weight * abs(way[true, task] - way[reported, task])
    return result


def test_ways_lead_from_the_vehicle_to_the_task() -> None:
    """From 0 a task at 1 is 1 km away, from 2 it is 5 km; the other way round it would be 6 and 2 km."""
    graph = roads(ONE_WAY_RING)
    loss = TravelCost(graph, choose_places(graph), TaskPrior(np.array([1]), np.array([1.0])))
    np.testing.assert_allclose(loss([0, 1, 2], [0, 1, 2]).values, [[0, 1, 4], [1, 0, 5], [4, 5, 0]])


def test_the_mean_is_weighted_by_the_tasks() -> None:
    """Ways to 0: 0, 6, 4 km; to 1: 1, 0, 5; to 2: 3, 2, 0."""
    graph = roads(ONE_WAY_RING)
    tasks = TaskPrior(np.array([2, 0, 1]), np.array([0.5, 0.2, 0.3]))
    found = TravelCost(graph, choose_places(graph), tasks)([0], [1, 2])
    np.testing.assert_allclose(found.values, [[0.2 * 6 + 0.3 * 1 + 0.5 * 1, 0.2 * 4 + 0.3 * 4 + 0.5 * 3]])
    assert found.standard_error is None


def test_time_is_in_minutes() -> None:
    graph = roads(ONE_WAY_RING, speed_m_s=10.0)
    loss = TravelCost(graph, choose_places(graph), TaskPrior(np.array([1]), np.array([1.0])), by="time")
    assert loss.unit == "min"
    np.testing.assert_allclose(loss([0], [2]).values, [[4000 / 10 / 60]])


@given(st.integers(0, 10_000), st.sampled_from(["length", "time"]), st.integers(1, 5_000))
def test_any_roads_match_networkx_whatever_the_memory(seed: int, by: Weight, memory_bytes: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_roads(12, 15, seed=seed)
    graph = dataclasses.replace(graph, speed_m_s=rng.uniform(3, 30, graph.edge_count))
    nodes = rng.permutation(12)[:8]
    tasks = TaskPrior.from_counts(nodes, rng.integers(1, 9, 8))
    rows, columns = rng.integers(0, 12, 5), rng.integers(0, 12, 4)
    loss = TravelCost(graph, choose_places(graph), tasks, by, Effort(memory_bytes=memory_bytes))
    truth = by_loops(ways(graph, by), tasks, rows, columns) / (1000 if by == "length" else 60)
    np.testing.assert_allclose(loss(rows, columns).values, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("memory_mb", "least_mb", "most_mb"), [(2, 0, 6), (256, 15, 40)])
def test_memory_stays_within_its_cap(memory_mb: int, least_mb: float, most_mb: float) -> None:
    """900 places and tasks need 20 MB at once; a part of them takes its own memory and that of its searches."""
    graph = grid_graph(30, 30)
    loss = TravelCost(
        graph, choose_places(graph), TaskPrior.uniform(graph), effort=Effort(memory_bytes=memory_mb << 20)
    )
    tracemalloc.start()
    loss(range(900), range(5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert least_mb < peak / 2**20 < most_mb


def test_it_is_a_distance_between_places() -> None:
    graph = random_roads(40, 60)
    table = TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph))(range(40), range(40)).values
    assert (np.diag(table) == 0).all()
    np.testing.assert_allclose(table, table.T, rtol=1e-12)
    assert (table[:, None, :] <= table[:, :, None] + table[None, :, :] + 1e-12).all()
    assert table[~np.eye(40, dtype=bool)].min() > 0


def test_places_of_a_coarser_choice_stand_for_their_nodes() -> None:
    graph = grid_graph(6, 6)
    places = choose_places(graph, spacing_m=250)
    assert 1 < len(places) < 36
    tasks = TaskPrior.uniform(graph)
    found = TravelCost(graph, places, tasks)(np.arange(len(places)), [1]).values
    np.testing.assert_allclose(found, by_loops(ways(graph), tasks, places.nodes, places.nodes[[1]]) / 1000)


def test_threads_and_processes_change_nothing() -> None:
    graph = random_roads(30, 40)
    one, two = (
        TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph), effort=Effort(workers=workers))
        for workers in (1, 2)
    )
    np.testing.assert_array_equal(one(range(30), range(7)).values, two(range(30), range(7)).values)


def test_a_sample_is_as_near_as_its_standard_error_says() -> None:
    """Over many draws, (sample − truth) / standard error has mean 0 and deviation 1."""
    graph = uneven_grid()
    places, tasks = choose_places(graph), TaskPrior.from_counts(np.arange(144), 1 + np.arange(144) % 7)
    rows, columns = np.arange(0, 144, 17), np.arange(6, 144, 29)
    truth = TravelCost(graph, places, tasks)(rows, columns).values
    off = []
    for seed in range(300):
        found = TravelCost(graph, places, tasks, effort=Effort(max_tasks=100, seed=seed))(rows, columns)
        assert found.standard_error is not None
        off.append((found.values - truth) / found.standard_error)
    # 300 draws: the mean is known to ±0.06, the deviation to about ±0.05 (Student's t with 99 degrees has 1.01).
    mean, deviation = np.mean(off, axis=0), np.std(off, axis=0)
    assert np.abs(mean).max() < 0.3
    assert 0.85 < deviation.min() <= deviation.max() < 1.2
    assert 0.93 < np.mean(np.abs(off) < 2) < 0.97


def test_a_sample_is_the_same_for_the_same_seed_and_any_memory() -> None:
    graph = random_roads(60, 90)
    loss = TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph), effort=Effort(max_tasks=20, seed=3))
    one, again = loss(range(9), range(9)), loss(range(9), range(9))
    blocks = dataclasses.replace(loss, effort=Effort(max_tasks=20, seed=3, memory_bytes=1000))(range(9), range(9))
    other = dataclasses.replace(loss, effort=Effort(max_tasks=20, seed=4))(range(9), range(9))
    np.testing.assert_array_equal(one.values, again.values)
    np.testing.assert_allclose(one.values, blocks.values, rtol=1e-12)
    assert one.standard_error is not None
    assert blocks.standard_error is not None
    np.testing.assert_allclose(one.standard_error, blocks.standard_error, rtol=1e-6, atol=1e-7)
    assert not np.allclose(one.values, other.values)


def test_no_places_no_losses() -> None:
    graph = roads(ONE_WAY_RING)
    loss = TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph))
    assert loss([], [0, 1]).values.shape == (0, 2)
    assert loss([0, 1], []).values.shape == (2, 0)


def test_it_can_be_sent_to_another_process() -> None:
    graph = roads(ONE_WAY_RING)
    loss = TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph))
    again = pickle.loads(pickle.dumps(loss))  # noqa: S301
    np.testing.assert_array_equal(again([0], [1]).values, loss([0], [1]).values)


def test_tasks_out_of_reach_are_named() -> None:
    """Node 3 is a trap: a one-way road leads in, none out."""
    graph = roads([*ONE_WAY_RING, (1, 3, 500.0)])
    places, tasks = choose_places(graph), TaskPrior.uniform(graph)
    # Every other place reaches the trap; from inside it, the three others are out of reach.
    assert np.isfinite(TravelCost(graph, places, tasks)([0, 1], [2]).values).all()
    with pytest.raises(InputError, match=r"3 of 4 tasks .* from 1 of the places .* id 100 .* id 103"):
        TravelCost(graph, places, tasks)([0, 3], [2, 3])
    with pytest.raises(InputError, match="cannot be reached"):
        TravelCost(graph, places, tasks)([0], [3])


def test_tasks_within_the_largest_part_can_be_reached() -> None:
    """Node 3 is a source: a one-way road leads out, none in, so no other place reaches a task there."""
    graph = roads([*ONE_WAY_RING, (3, 1, 500.0)])
    places, tasks = choose_places(graph), TaskPrior.uniform(graph)
    with pytest.raises(InputError, match="1 of 4 tasks cannot be reached from 2 of the places"):
        TravelCost(graph, places, tasks)([0, 3], [2])
    within = tasks.within_largest_part(graph)
    assert within.nodes.tolist() == [0, 1, 2]
    np.testing.assert_allclose(within.weight, 1 / 3)
    assert np.isfinite(TravelCost(graph, places, within)([0, 3], [2]).values).all()


@pytest.mark.parametrize("wrong", [[-1], [3], [0.5], [[0]], ["a"]])
def test_what_is_not_a_place_is_refused(wrong: list[object]) -> None:
    graph = roads(ONE_WAY_RING)
    loss = TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph))
    with pytest.raises(ParameterError, match="true places"):
        loss(np.array(wrong), [0])
    with pytest.raises(ParameterError, match="reported places"):
        loss([0], np.array(wrong))


def test_what_does_not_belong_together_is_refused() -> None:
    graph, other = roads(ONE_WAY_RING), random_roads(9, 9)
    with pytest.raises(MismatchError, match="another road graph"):
        TravelCost(graph, choose_places(other), TaskPrior.uniform(graph))
    with pytest.raises(ParameterError, match="tasks must be node indices from 0 to 2"):
        TravelCost(graph, choose_places(graph), TaskPrior.uniform(other))
    with pytest.raises(ParameterError, match="'length' or 'time'"):
        TravelCost(graph, choose_places(graph), TaskPrior.uniform(graph), by="speed")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"max_tasks": 1}, {"memory_bytes": 0}, {"workers": 0}])
def test_effort_out_of_range_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="Got"):
        Effort(**options)


@pytest.mark.skipif(not PORTO.is_dir(), reason=f"the real roads of Porto are not in {PORTO}")
def test_porto_matches_networkx() -> None:
    graph, _ = import_roads([PORTO / "nodes.csv", PORTO / "edges.csv"])
    rng = np.random.default_rng(0)
    tasks = TaskPrior.from_counts(rng.permutation(graph.node_count)[:40], rng.integers(1, 9, 40))
    places = choose_places(graph, spacing_m=250)
    rows, columns = rng.permutation(len(places))[:9], rng.permutation(len(places))[:5]
    import networkx as nx

    from tests.roads.graphs import to_multigraph

    roads_there = to_multigraph(graph)
    way = {
        place: nx.single_source_dijkstra_path_length(roads_there, int(places.nodes[place]), weight="length")
        for place in {*rows.tolist(), *columns.tolist()}
    }
    truth = [
        [
            sum(
                weight * abs(way[true][task] - way[reported][task])
                for task, weight in zip(tasks.nodes.tolist(), tasks.weight.tolist(), strict=True)
            )
            / 1000
            for reported in columns.tolist()
        ]
        for true in rows.tolist()
    ]
    np.testing.assert_allclose(TravelCost(graph, places, tasks)(rows, columns).values, truth, rtol=1e-12)
