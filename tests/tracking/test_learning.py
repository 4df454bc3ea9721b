from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks.chains import of_order_1
from geoblanket._arrays import Indices, Ints
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.mobility.walks import Split
from geoblanket.roads.places import choose_places
from geoblanket.tracking.learning import learn_motion, model_of_counts
from geoblanket.tracking.motion_model import length_bin
from geoblanket.tracking.synthetic_walks import RoadTrips, count_steps, drive
from tests.release.worlds import GRAPH, PLACES, save_walks
from tests.roads.graphs import grid_graph
from tests.tracking.worlds import MIDNIGHT, save_timed_walks

DRIVEN = drive(GRAPH, PLACES, interval_s=60.0, trips=20_000)


def walks_of_order_2(count: int, *, seed: int) -> list[list[int]]:
    """On a grid of 4 by 6: a vehicle goes on as it went with a chance of 0.8, and else to any neighbour."""
    rng = np.random.default_rng(seed)
    walks = []
    for _ in range(count):
        walk = [int(rng.integers(24))]
        step = (0, 0)
        while len(walk) < 12:
            row, column = divmod(walk[-1], 6)
            ways = [(1, 0), (-1, 0), (0, 1), (0, -1)]
            ways = [(down, right) for down, right in ways if 0 <= row + down < 4 and 0 <= column + right < 6]
            if step not in ways or rng.random() > 0.8:
                step = ways[rng.integers(len(ways))]
            walk.append((row + step[0]) * 6 + column + step[1])
        walks.append(walk)
    return walks


def as_trips(walks: list[list[int]]) -> RoadTrips:
    place: Indices = np.concatenate([np.array(walk, np.int32) for walk in walks])
    step: Ints = np.concatenate([np.arange(len(walk)) for walk in walks])
    return RoadTrips(place, step)


def test_a_chain_of_order_2_is_learned() -> None:
    walks = walks_of_order_2(3000, seed=1)
    model = model_of_counts(
        PLACES, count_steps(DRIVEN, largest=1), count_steps(as_trips(walks), largest=1), order=2, interval_s=60.0,
        learned={},
    )  # fmt: skip
    moves = model.moves.toarray()
    number = {tuple(state): index for index, state in enumerate(model.states.tolist())}
    # From 7 (second row, second column), entered from 6: on to 8 with 0.8 + 0.2/4, and to each other neighbour 0.05.
    row = moves[number[7, 6]]
    assert row[number[8, 7]] == pytest.approx(0.85, abs=0.03)
    for neighbour in (1, 13, 6):
        assert row[number[neighbour, 7]] == pytest.approx(0.05, abs=0.03)
    order_1 = of_order_1(model).moves.toarray()
    assert order_1[7, 8] < 0.4


def test_counts_are_mixed_as_by_hand() -> None:
    """With dictionaries: near places, then driven trips, then walks; each level by Witten and Bell."""
    walks = walks_of_order_2(40, seed=2)
    walked = count_steps(as_trips(walks), largest=2)
    driven = count_steps(DRIVEN, largest=2)
    model = model_of_counts(PLACES, driven, walked, order=3, interval_s=60.0, learned={})
    first = model_of_counts(PLACES, driven, walked, order=1, interval_s=60.0, learned={}).moves.toarray()

    def tally(counts: HistoryCounts, places: int) -> dict[tuple[int, ...], Counter[int]]:
        seen: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for history, depth, later, count in zip(
            counts.histories.tolist(), counts.depth, counts.next_place.tolist(), counts.count.tolist(), strict=True
        ):
            if depth >= places - 1 and first[history[0], later] > 0:
                seen[tuple(history[:places])][later] += count
        return seen

    def mixed(base: np.ndarray, seen: Counter[int]) -> np.ndarray:
        total, kinds = sum(seen.values()), len(seen)
        own = np.array([seen[place] for place in range(24)])
        return (own + kinds * base) / (total + kinds) if total else base

    tallies = {places: [tally(driven, places), tally(walked, places)] for places in (2, 3)}
    lengths = Counter((model.states >= 0).sum(axis=1).tolist())
    assert lengths[2] > 50
    assert lengths[3] > 50
    for state, row in zip(model.states.tolist(), model.moves.toarray(), strict=True):
        expected = first[state[0]].astype(float)
        for places in (2, 3):
            if state[places - 1] >= 0:
                for seen in tallies[places]:
                    expected = mixed(expected, seen[tuple(state[:places])])
        found = np.bincount(model.present, row, 24)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_memory_only_where_it_is_asked_for() -> None:
    """Order 2 for who comes from the west, 3 for who comes from the north, else 1."""

    def lengths(now: Indices, before: Indices) -> Ints:
        return np.where(now == before + 1, 2, np.where(now == before + 6, 3, 1))

    walked = count_steps(as_trips(walks_of_order_2(500, seed=3)), largest=2)
    model = model_of_counts(PLACES, count_steps(DRIVEN, largest=2), walked, order=lengths, interval_s=60.0, learned={})
    by_length = {length: model.states[(model.states >= 0).sum(axis=1) == length] for length in (1, 2, 3)}
    assert len(by_length[1]) == 24
    assert set(by_length[2][:, 0] - by_length[2][:, 1]) == {1, 6}
    assert set(by_length[3][:, 0] - by_length[3][:, 1]) == {6}
    # What is entered knows no more than what was left: the new place, the present one, and the one before if known.
    source = np.repeat(np.arange(len(model)), np.diff(model.offsets))
    for state, following in zip(model.states[source].tolist(), model.states[model.targets].tolist(), strict=True):
        assert following[1] in (-1, state[0])
        assert following[2] in (-1, state[1])
        if following[1] >= 0:
            assert lengths(np.array([following[0]]), np.array([following[1]]))[0] >= 2


def test_roads_alone() -> None:
    model = learn_motion(GRAPH, PLACES, interval_s=60.0)
    assert model.memory == 2
    assert model.learned["from"] == "roads"
    assert model.places_identity == PLACES.identity
    moves = model.moves.toarray()
    number = {tuple(state): index for index, state in enumerate(model.states.tolist())}
    going_on, turning_back = number[8, 7], number[6, 7]
    assert moves[number[7, 6], going_on] > 3 * moves[number[7, 6], turning_back]


def test_walks_say_their_interval(tmp_path: Path) -> None:
    walks = save_walks(tmp_path / "walks.parquet", walks_of_order_2(30, seed=4))
    model = learn_motion(GRAPH, PLACES, walks=walks)
    assert model.interval_s == 30.0
    assert model.learned["from"] == "roads and walks"
    assert model.learned["steps"] == 30 * 11
    with pytest.raises(ParameterError, match="30 s"):
        learn_motion(GRAPH, PLACES, walks=walks, interval_s=60.0)
    with pytest.raises(MismatchError, match="places"):
        learn_motion(GRAPH, choose_places(GRAPH, spacing_m=1500.0), walks=walks)


def test_hours_and_lengths_are_those_of_the_walks_learned_from(tmp_path: Path) -> None:
    walks = [(f"taxi {number % 10}", MIDNIGHT + timedelta(hours=number % 10), [7] * (3 + number % 10))
             for number in range(200)]  # fmt: skip
    path = save_timed_walks(tmp_path / "walks.parquet", walks)
    model = learn_motion(GRAPH, PLACES, walks=path)
    assert model.hours[:10].tolist() == pytest.approx([0.1] * 10, abs=1e-3)
    assert model.lengths[length_bin(7)] == pytest.approx(0.2, abs=2e-3)  # of 6 or 7 steps
    # One vehicle for each hour: two of them are held out.
    trained = learn_motion(GRAPH, PLACES, walks=path, split=Split(seed=1))
    assert sorted(trained.hours[:10].round(2).tolist()) == pytest.approx([0, 0, *[0.12] * 8], abs=0.006)
    alone = learn_motion(GRAPH, PLACES)
    assert alone.hours.tolist() == pytest.approx([1 / 24] * 24)
    assert alone.lengths[0] < 1e-3  # trips over the roads have three steps or more


@pytest.mark.parametrize("order", [0, 4])
def test_orders_that_there_are_not(order: int) -> None:
    with pytest.raises(ParameterError, match="1 to 3"):
        learn_motion(GRAPH, PLACES, order=order)


def test_driven_trips_keep_to_the_roads() -> None:
    again = drive(GRAPH, PLACES, interval_s=60.0, trips=20_000)
    np.testing.assert_array_equal(again.place, DRIVEN.place)
    starts = np.flatnonzero(DRIVEN.step == 0)
    assert len(starts) > 1000
    assert starts[0] == 0
    follows = np.flatnonzero(DRIVEN.step[1:] > 0)
    row, column = np.divmod(DRIVEN.place, 6)
    moved = np.abs(np.diff(row)) + np.abs(np.diff(column))
    assert (moved[follows] == 0).mean() > 0.05
    assert moved[follows].max() >= 2


def test_driven_trips_are_as_fast_as_the_roads() -> None:
    """A long straight road: the median of the ways in an interval is that of the speeds, a log-normal one."""
    graph = grid_graph(2, 120, step_deg=0.002)
    places = choose_places(graph)
    trips = drive(graph, places, interval_s=30.0, trips=20_000)
    inner = np.flatnonzero((trips.step[1:] > 0) & (trips.step[:-1] > 0))
    moved_m = np.hypot(
        *(np.diff(np.column_stack([places.lat, places.lon])[trips.place], axis=0)[inner].T * 111_195 * [[1], [0.7]])
    )
    free_m = 30.0 * float(np.median(graph.speed_m_s))
    assert 0.3 < np.median(moved_m) / free_m < 1.0


def test_roads_that_are_too_short() -> None:
    graph = grid_graph(2, 2, step_deg=0.0005)
    with pytest.raises(InputError, match="too short"):
        drive(graph, choose_places(graph), interval_s=600.0)
