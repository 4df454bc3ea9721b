from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.errors import ParameterError
from geoblanket.traces.cleaning import Cleaning, Points, clean
from geoblanket.traces.summary import CHANGES, DROPS

Row = tuple[int, float, float, float]

OFF = Cleaning(drop_impossible=False, drop_duplicates=False, max_speed_m_s=None, max_gap_s=None, min_points=1)


def points(rows: Sequence[Row]) -> Points:
    """Points from (stream, seconds, lat, lon)."""
    stream, seconds, lat, lon = (np.array(column) for column in zip(*rows, strict=True))
    return Points(
        stream.astype(np.int64),
        np.arange(2, len(rows) + 2, dtype=np.int64),
        (seconds * 1e6).astype(np.int64),
        lat.astype(float),
        lon.astype(float),
    )


def cleaned(rows: Sequence[Row], **options: Any) -> tuple[list[int], list[int], dict[str, Any]]:
    """File rows kept, their trips, and file rows touched by each rule."""
    left, trip, tally = clean(points(rows), Cleaning(**options))
    return left.row.tolist(), trip.tolist(), {rule: count.first for rule, count in tally.items()}


def still(seconds: list[float], stream: int = 0) -> list[Row]:
    return [(stream, second, 41.0, 12.0) for second in seconds]


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        (float("nan"), 12.0),
        (41.0, float("nan")),
        (float("inf"), 12.0),
        (41.0, -float("inf")),
        (90.1, 12.0),
        (41.0, -180.1),
        (1e308, 12.0),
        (0.0, 0.0),
        (-0.0, 0.0),
    ],
)
def test_impossible_coordinates_are_dropped(lat: float, lon: float) -> None:
    rows = [(0, 0, 41.0, 12.0), (0, 10, lat, lon), (0, 20, 41.0, 12.0)]
    assert cleaned(rows) == ([2, 4], [0, 0], {"impossible": [3]})


@pytest.mark.parametrize(("lat", "lon"), [(90.0, 180.0), (-90.0, -180.0), (0.0, 12.0), (41.0, 0.0)])
def test_extreme_but_possible_coordinates_are_kept(lat: float, lon: float) -> None:
    rows = [(0, 0, lat, lon), (0, 10, lat, lon)]
    assert cleaned(rows) == ([2, 3], [0, 0], {})


def test_points_out_of_order_are_sorted_and_counted() -> None:
    rows = still([0, 30, 10, 20, 40])
    assert cleaned(rows) == ([2, 4, 5, 3, 6], [0] * 5, {"sorted": [4, 5]})
    assert cleaned(rows, sort=False) == ([2, 3, 6], [0] * 3, {"out_of_order": [4, 5]})


def test_streams_are_in_order_each_for_itself() -> None:
    rows = still([100, 110], 0) + still([0, 10], 1)
    assert cleaned(rows) == ([2, 3, 4, 5], [0, 0, 1, 1], {})


def test_duplicates_keep_the_first_in_the_file() -> None:
    rows = [
        (0, 0, 41.0, 12.0),
        (0, 10, 41.0, 12.0),
        (0, 10, 41.0, 12.0),
        (0, 10, 41.0001, 12.0),
        (0, 20, 41.0, 12.0),
        (0, 10, 41.0, 12.0),
    ]
    assert cleaned(rows) == ([2, 3, 6], [0] * 3, {"sorted": [7], "duplicate": [4, 7], "same_time": [5]})
    assert cleaned(rows, drop_duplicates=False)[0] == [2, 3, 4, 5, 7, 6]


def test_the_same_time_in_another_stream_is_no_duplicate() -> None:
    assert cleaned(still([0, 10], 0) + still([10, 20], 1)) == ([2, 3, 4, 5], [0, 0, 1, 1], {})


def test_trips_are_cut_at_gaps() -> None:
    rows = still([0, 100, 401, 500])
    assert cleaned(rows) == ([2, 3, 4, 5], [0, 0, 1, 1], {"cut_at_gap": [4]})
    assert cleaned(rows, max_gap_s=301.0)[1] == [0, 0, 0, 0]
    assert cleaned(rows, max_gap_s=None)[1] == [0, 0, 0, 0]


def test_jumps_are_dropped() -> None:
    rows = [(0, 10.0 * k, 41.0 + (0.5 if k == 5 else 0.0), 12.0) for k in range(12)]
    assert cleaned(rows)[2] == {"jump": [7]}
    assert cleaned(rows, max_speed_m_s=None)[2] == {}


def test_a_gap_that_appears_where_a_jump_was_dropped_is_cut_too() -> None:
    rows = [(0, 200.0 * k, 41.0 + (5.0 if k == 5 else 0.0), 12.0) for k in range(12)]
    _, trip, touched = cleaned(rows)
    assert touched == {"jump": [7], "cut_at_gap": [8]}
    assert trip == [0] * 5 + [1] * 6


def test_a_jump_over_a_gap_is_only_a_gap() -> None:
    rows = still([0, 10, 20]) + [(0, 1000.0 + 10 * k, 44.0, 12.0) for k in range(3)]
    assert cleaned(rows) == ([2, 3, 4, 5, 6, 7], [0, 0, 0, 1, 1, 1], {"cut_at_gap": [5]})


def test_short_trips_are_dropped_and_numbers_have_no_holes() -> None:
    rows = still([0], 0) + still([0, 10], 1) + still([0, 1000, 1010], 2)
    assert cleaned(rows) == ([3, 4, 6, 7], [0, 0, 1, 1], {"too_short": [2, 5], "cut_at_gap": [6]})
    assert cleaned(rows, min_points=1)[1] == [0, 1, 1, 2, 3, 3]
    assert cleaned(rows, min_duration_s=10.1)[0] == []


def test_no_points_are_no_trouble() -> None:
    nothing = points(still([0])).take(np.zeros(1, dtype=bool))
    left, trip, tally = clean(nothing, Cleaning())
    assert left.row.size == trip.size == 0
    assert tally == {}


POINT = st.tuples(
    st.integers(0, 2), st.integers(0, 2000), st.sampled_from([41.0, 41.001, 41.2, 0.0]), st.sampled_from([12.0, 0.0])
)


@given(st.lists(POINT, min_size=1, max_size=60), st.booleans(), st.booleans())
def test_every_point_is_kept_or_counted_once(rows: Sequence[Row], sort: bool, duplicates: bool) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    left, trip, tally = clean(points(rows), Cleaning(sort=sort, drop_duplicates=duplicates))
    assert set(tally) <= {*DROPS, *CHANGES}
    assert len(rows) == left.row.size + sum(tally[rule].points for rule in DROPS if rule in tally)
    assert len(set(left.row.tolist())) == left.row.size
    same = np.diff(trip) == 0
    assert np.all(np.diff(left.time_us)[same] >= (1 if duplicates else 0))
    assert np.all(np.diff(left.stream)[same] == 0)
    assert np.all(np.isin(np.diff(trip), (0, 1)))
    assert np.all(np.bincount(trip, minlength=1)[trip] >= 2)


@given(st.lists(POINT, min_size=1, max_size=60))
def test_with_every_rule_off_nothing_is_lost(rows: Sequence[Row]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    left, trip, tally = clean(points(rows), OFF)
    assert set(left.row.tolist()) == set(range(2, len(rows) + 2))
    assert set(tally) <= {"sorted"}
    assert len(set(trip.tolist())) == len({row[0] for row in rows})


@given(st.lists(POINT, min_size=1, max_size=60))
def test_cleaning_twice_changes_nothing(rows: Sequence[Row]) -> None:
    once, trip, _ = clean(points(sorted(rows, key=lambda row: row[0])), Cleaning())
    again, same_trip, tally = clean(once._replace(stream=trip), Cleaning())
    assert tally == {}
    assert again.row.tolist() == once.row.tolist()
    assert same_trip.tolist() == trip.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"max_speed_m_s": 0.0},
        {"max_speed_m_s": float("nan")},
        {"max_gap_s": -1.0},
        {"min_points": 0},
        {"min_duration_s": -1.0},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        Cleaning(**options)
