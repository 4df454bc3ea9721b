"""Cells of small chains beside all runs of places, tried one after the other."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._arrays import Floats, Ints
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.roads.places import choose_places
from geoblanket.tracking.learning import learn_motion
from tests.learning.fleets import ORDERS, cell_runs, cells_of, usually
from tests.roads.graphs import grid_graph

SMALL = grid_graph(3, 3, step_deg=0.006)
"""Nine places, 500 to 670 m apart: some moves between them are too far for 30 s."""


@pytest.fixture(scope="module", params=ORDERS)
def small(request: pytest.FixtureRequest) -> ChainCells:
    cells = ChainCells(learn_motion(SMALL, choose_places(SMALL), order=request.param))
    assert cells.road.memory == request.param
    return cells


def all_runs(cells: ChainCells, length: int) -> Ints:
    """Every run of so many of the places, whether a vehicle can drive it or not, shape (n, length)."""
    return np.array(list(product(range(cells.places), repeat=length)), np.int64)


def numbers(cells: ChainCells, name: str, length: int) -> tuple[Ints, list[int]]:
    """All runs, and the cell that each is, −1 for none."""
    known = {run: number for number, run in enumerate(cell_runs(cells)[name])}
    runs = all_runs(cells, length)
    return runs, [known.get(tuple(run), -1) for run in runs.tolist()]


def test_moves_are_found_among_all_pairs(small: ChainCells) -> None:
    runs, expected = numbers(small, "moves", 2)
    assert small.move(runs[:, 0], runs[:, 1]).tolist() == expected
    assert 9 < small.move_count == len(set(expected)) - 1 < 81


def test_runs_are_found_among_all_of_three_and_four_places(small: ChainCells) -> None:
    assert len(small.runs) == small.road.memory - 1
    if not small.runs:
        return
    three = small.runs[0]
    runs, expected = numbers(small, "runs", 3)
    found = small.run(three, small.move(runs[:, 0], runs[:, 1]), runs[:, 2])
    assert found.tolist() == expected
    assert len(three) == len(set(expected)) - 1
    if len(small.runs) == 1:
        return
    four = small.runs[1]
    runs, expected = numbers(small, "long runs", 4)
    shorter = small.run(three, small.move(runs[:, 0], runs[:, 1]), runs[:, 2])
    assert small.run(four, shorter, runs[:, 3]).tolist() == expected
    assert len(four) == len(set(expected)) - 1


def test_prefixes_and_suffixes_are_the_shorter_runs(small: ChainCells) -> None:
    names = ["moves", "runs", "long runs"]
    for number, runs in enumerate(small.runs):
        shorter, longer = (cell_runs(small)[name] for name in names[number : number + 2])
        assert len(longer) == len(runs)
        for run, prefix, suffix in zip(longer, runs.prefix.tolist(), runs.suffix.tolist(), strict=True):
            assert shorter[prefix] == run[:-1]
            assert shorter[suffix] == run[1:]
        entries = range(runs.first, runs.last)
        assert [int(small.road.states[small.road.targets[entry], 0]) for entry in entries] == [
            run[-1] for run in longer
        ]
        of_state = [
            tuple(int(place) for place in small.road.states[state][::-1] if place >= 0) for state in runs.state.tolist()
        ]
        assert of_state == [run[:-1] for run in longer]
    assert (small.runs[-1].last if small.runs else small.move_count) == len(small.road.chances)


def test_unknown_runs_have_no_longer_ones(small: ChainCells) -> None:
    for runs in small.runs:
        assert small.run(runs, np.full(9, -1), np.arange(9)).tolist() == [-1] * 9


@pytest.mark.parametrize("order", ORDERS)
def test_flow_is_that_of_the_long_run(order: int) -> None:
    """As many vehicles come to a place as leave it; and it is what the chain does, driven for long, by hand."""
    cells = cells_of(order)
    road = cells.road
    assert cells.flow.sum() == pytest.approx(1)
    assert cells.flow.min() > 0
    into, out = (np.bincount(ends, cells.flow, cells.places) for ends in (cells.target, cells.source))
    assert np.abs(into - out).max() < 2e-4
    state = usually(road, steps=3000)
    expected = np.zeros((cells.places, cells.places))
    moves = np.repeat(np.arange(len(road)), np.diff(road.offsets))
    np.add.at(expected, (road.present[moves], road.present[road.targets]), state[moves] * road.chances)
    found = np.zeros_like(expected)
    found[cells.source, cells.target] = cells.flow
    assert np.abs(found - expected / expected.sum()).sum() < 0.02


@pytest.mark.parametrize("order", ORDERS)
def test_turns_have_no_gaps_and_tell_left_from_right_nowhere(order: int) -> None:
    cells = cells_of(order)
    assert np.unique(cells.turn).tolist() == list(range(cells.turn.max() + 1))
    runs = cell_runs(cells)["runs" if order > 1 else "moves"]
    turn = dict(zip(runs, cells.turn.tolist(), strict=True))
    assert len(turn) == len(cells.turn)
    # Places are numbered along rows of eight: the same shape elsewhere, and its mirror image, are the same turn.
    if order == 1:
        assert turn[9, 10] == turn[33, 34] != turn[9, 11]
        assert turn[9, 9] == turn[20, 20] != turn[9, 10]
    else:
        assert turn[9, 10, 11] == turn[33, 34, 35] == turn[35, 34, 33]
        assert turn[17, 18, 26] == turn[17, 18, 10]
        assert len({turn[17, 18, 19], turn[17, 18, 26], turn[17, 18, 17], turn[17, 18, 18], turn[17, 17, 18]}) == 5
        assert turn[17, 17, 18] == turn[17, 17, 16]  # who stays has no direction


def point(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_subnormal=False)


@given(st.lists(st.tuples(point(-5e4, 5e4), point(-2e4, 2e4)), min_size=1, max_size=300))
def test_each_square_lies_in_one_larger(points: list[tuple[float, float]]) -> None:
    assert_nested(np.array(points))


def test_squares_of_a_large_city() -> None:
    rng = np.random.default_rng(0)
    xy_m = rng.normal(size=(3000, 2)) * (5000, 2000)
    found = regions(xy_m)
    assert list(found) == [4, 8, 16, 32, 64][: len(found)]
    assert len(found) >= 3
    assert_nested(xy_m)


def test_places_on_one_spot_end_the_search() -> None:
    """Squares cannot part them, however small."""
    assert set(regions(np.zeros((300, 2)))) == {4 * 2**level for level in range(9)}


def assert_nested(xy_m: Floats) -> None:
    found = list(regions(xy_m).items())
    for across, region in found:
        assert np.unique(region).tolist() == list(range(region.max() + 1))
        assert region.max() + 1 <= min(across**2, len(xy_m) / 3)
        side = np.ptp(xy_m, axis=0).max() / across
        for square in range(region.max() + 1):
            assert np.ptp(xy_m[region == square], axis=0).max() <= side * 1.001 + 1e-6
    for (_, larger), (_, smaller) in pairwise(found):
        assert len(np.unique(larger * 10**6 + smaller)) == smaller.max() + 1
