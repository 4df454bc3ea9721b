from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.loss.tasks import TaskPrior
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.places import choose_places
from tests.loss.roads import ONE_WAY_RING, roads
from tests.roads.graphs import grid_graph


def walks(rows: list[tuple[int, str, int, int, int, int]]) -> pl.LazyFrame:
    """Steps of (walk, vehicle, trip, step, minute, place)."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    data = [
        (walk, vehicle, trip, step, start + timedelta(minutes=minute), place, None)
        for walk, vehicle, trip, step, minute, place in rows
    ]
    return pl.LazyFrame(data, schema=WALKS_SCHEMA, orient="row")


def test_uniform_is_every_node() -> None:
    tasks = TaskPrior.uniform(grid_graph(3, 4))
    assert tasks.nodes.tolist() == list(range(12))
    np.testing.assert_allclose(tasks.weight, 1 / 12)


def test_nodes_are_sorted_added_up_and_left_out_without_weight() -> None:
    tasks = TaskPrior(np.array([5, 2, 5, 9]), np.array([0.25, 0.25, 0.5, 0.0]))
    assert tasks.nodes.tolist() == [2, 5]
    assert tasks.weight.tolist() == [0.25, 0.75]
    assert not tasks.weight.flags.writeable


def test_a_pick_up_is_where_a_trip_began() -> None:
    """Trip 1 of vehicle a is in two walks, of which the second is listed first; trip 1 of vehicle b is another trip."""
    places = choose_places(grid_graph(4, 4), spacing_m=90)
    table = walks(
        [(0, "a", 1, 0, 9, 3), (0, "a", 1, 1, 10, 2), (1, "a", 1, 0, 1, 1), (2, "b", 1, 0, 5, 1), (3, "b", 2, 0, 8, 4)]
    )
    tasks = TaskPrior.from_pick_ups(table, places)
    assert tasks.nodes.tolist() == places.nodes[[1, 4]].tolist()
    np.testing.assert_allclose(tasks.weight, [2 / 3, 1 / 3])


def test_pick_ups_need_walks_of_these_places() -> None:
    places = choose_places(roads(ONE_WAY_RING))
    with pytest.raises(InputError, match="no pick-ups"):
        TaskPrior.from_pick_ups(walks([]), places)
    with pytest.raises(ParameterError, match="places of the walks"):
        TaskPrior.from_pick_ups(walks([(0, "a", 1, 0, 0, 3)]), places)


def test_a_sample_follows_the_weights() -> None:
    tasks = TaskPrior(np.arange(4, dtype=np.int32), np.array([0.1, 0.2, 0.3, 0.4]))
    sample = tasks.sample(100_000, seed=1)
    np.testing.assert_allclose(sample.weight, tasks.weight, atol=0.008)
    np.testing.assert_allclose(sample.weight * 100_000, np.rint(sample.weight * 100_000))


def test_no_task_within_the_largest_part() -> None:
    graph = roads([*ONE_WAY_RING, (1, 3, 500.0)])
    with pytest.raises(InputError, match="none of the 1 tasks"):
        TaskPrior(np.array([3]), np.array([1.0])).within_largest_part(graph)


@pytest.mark.parametrize(
    ("nodes", "weight", "message"),
    [
        ([0, 1], [0.5, 0.4], "sum to 0.9"),
        ([0, 1], [0.0, 0.0], "sum to 0"),
        ([], [], "sum to 0"),
        ([0, 1], [1.5, -0.5], "not negative"),
        ([0, 1], [np.nan, 1.0], "finite"),
        ([0, 1], [np.inf, 1.0], "finite"),
        ([0, 1], [1.0], "one length"),
        ([[0]], [[1.0]], "one-dimensional"),
        ([0.5, 1.5], [0.5, 0.5], "whole numbers"),
        ([-1, 1], [0.5, 0.5], "whole numbers"),
        ([2**40, 1], [0.5, 0.5], "whole numbers"),
    ],
)
def test_what_is_not_a_prior_is_refused(nodes: list[float], weight: list[float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TaskPrior(np.array(nodes), np.array(weight))


def test_no_counts_no_tasks() -> None:
    with pytest.raises(ParameterError, match="at least one task"):
        TaskPrior.from_counts([0, 1], [0, 0])
