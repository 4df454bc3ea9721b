from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.mechanism import history_table
from geoblanket.mechanism.history_table import HistoryTable, squared_distance
from tests.build.worlds import grid, places_at

LINE = places_at(np.arange(8) * 300.0, np.zeros(8)).coordinates_e7
HISTORIES = np.array(
    [[3, 2, -1], [3, 3, 2], [3, 3, 4], [3, 5, -1], [2, 2, -1]],
    np.int32,
)
TABLE = HistoryTable(LINE, HISTORIES, np.array([4, 3, 2, 1, 0], np.int32))


@pytest.mark.parametrize(
    ("history", "row"),
    [
        ([3, 2, 0], 4),
        ([3, 2, 7], 4),
        ([3, 3, 2], 3),
        ([3, 3, 4], 2),
        ([3, 3, 7], 2),
        ([3, 3, 0], 3),
        ([3, 0, 0], 4),
        ([3, 7, 0], 1),
        ([2, 7, 7], 0),
        # The place at t − 1 decides before the one at t − 2.
        ([3, 6, 2], 1),
        # Not known: as the oldest that is known, which is as near to 2 as to 4, so the first.
        ([3, 3, -1], 3),
        ([3, -1, -1], 3),
        ([3], 3),
        ([3, 5], 1),
        ([3, 3, 4, 0, 0], 2),
    ],
)
def test_the_row_of_a_history(history: list[int], row: int) -> None:
    assert TABLE.row_of([history]).tolist() == [row]


def test_no_histories_have_no_rows() -> None:
    assert TABLE.row_of(np.empty((0, 3), np.int32)).tolist() == []


def test_the_order_of_the_table_does_not_matter() -> None:
    order = np.array([4, 2, 0, 3, 1])
    turned = HistoryTable(LINE, HISTORIES[order], np.array([4, 3, 2, 1, 0], np.int32)[order])
    asked = np.array(np.meshgrid([2, 3], range(8), range(8))).reshape(3, -1).T
    assert np.array_equal(turned.row_of(asked), TABLE.row_of(asked))


@pytest.mark.parametrize("history", [[1, 2, 2], [4, 3, 3], [-1, 3, 3]])
def test_a_present_place_outside_the_zone(history: list[int]) -> None:
    with pytest.raises(ParameterError, match="not in the zone"):
        TABLE.row_of([history])


@pytest.mark.parametrize("histories", [[[3, 8, 0]], [[3, -2, 0]], [3, 3], [[3.0, 3.0]], [[]]])
def test_what_is_no_history(histories: list[list[int]]) -> None:
    with pytest.raises(ParameterError):
        TABLE.row_of(histories)


def test_a_million_histories_take_about_a_second() -> None:
    places = grid(20, 20).coordinates_e7
    pairs = np.array(np.meshgrid(range(60), range(300))).reshape(2, -1).T.astype(np.int32)
    table = HistoryTable(places, pairs, np.arange(len(pairs), dtype=np.int32))
    rng = np.random.default_rng(0)
    asked = np.column_stack([rng.integers(0, 60, 1_000_000), rng.integers(0, 400, 1_000_000)])
    table.row_of(asked[:1])
    start = time.process_time()
    table.row_of(asked)
    assert time.process_time() - start < 5.0


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5).map(lambda past: [past[0] % 2 + 2, *past[1:]]))
def test_one_history_has_the_row_that_it_has_among_many(history: list[int]) -> None:
    assert TABLE.row_of_one(history) == TABLE.row_of([history])[0]


def test_the_work_for_one_history_does_not_tell_whether_its_past_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's latency would tell: the same arrays are compared, of the same sizes, whatever the places."""
    compared: list[int] = []

    def counting(north: np.ndarray, east: np.ndarray, cosine_at: float, *, around: bool) -> np.ndarray:
        compared.append(north.size)
        return squared_distance(north, east, cosine_at, around=around)

    monkeypatch.setattr(history_table, "squared_distance", counting)
    seen = set()
    for history in itertools.product([2, 3], range(8), range(8)):
        compared.clear()
        TABLE.row_of_one(history)
        seen.add(tuple(compared))
    # At t − 1 some place lists three, at t − 2 two at most; others are filled up.
    assert seen == {(3, 2)}


def test_one_history_outside_of_the_zone_has_no_row() -> None:
    with pytest.raises(ParameterError, match="not in the zone at present"):
        TABLE.row_of_one([5, 2])
