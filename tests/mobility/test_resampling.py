from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._arrays import Bools
from geoblanket._geodesy import haversine_m
from geoblanket.mobility.map_matcher import MapMatcher
from geoblanket.mobility.matching import clock_ticks, positions_between, positions_on_roads
from tests.mobility.simulator import METRE, drive, town

S = 1_000_000


def flags(*values: int) -> Bools:
    return np.array(values, dtype=bool)


def test_a_clock_that_fits_the_points_hits_them() -> None:
    time_us = np.arange(0, 90, 15) * S + 7
    ticks = clock_ticks(
        np.zeros(6, np.int64), time_us, matched=np.ones(6, bool), begins=flags(1, 0, 0, 0, 0, 0), interval_us=30 * S
    )
    assert ticks.time_us.tolist() == [7, 30 * S + 7, 60 * S + 7]
    assert ticks.before.tolist() == ticks.after.tolist() == [0, 2, 4]
    assert (ticks.part == 0).all()


def test_the_clock_of_a_trip_starts_at_its_first_matched_point_and_runs_through_breaks() -> None:
    time_us = np.array([0, 10, 20, 45, 100, 131]) * S
    ticks = clock_ticks(
        np.zeros(6, np.int64),
        time_us,
        matched=flags(0, 1, 1, 1, 1, 1),
        begins=flags(0, 1, 0, 0, 1, 0),
        interval_us=30 * S,
    )
    assert (ticks.time_us / S).tolist() == [10, 40, 100, 130]
    assert ticks.stretch.tolist() == [0, 0, 1, 1]
    assert ticks.begins.tolist() == [True, False, True, False]
    assert ticks.before.tolist() == [1, 2, 4, 4]
    assert ticks.after.tolist() == [1, 3, 4, 5]
    np.testing.assert_allclose(ticks.part, [0, 20 / 25, 0, 30 / 31])


@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=8), min_size=1, max_size=5),
    st.integers(1, 60),
    st.data(),
)
def test_ticks_lie_between_their_points_one_interval_apart(
    gaps: list[list[int]], interval: int, data: st.DataObject
) -> None:
    trip = np.concatenate([np.full(len(part), number) for number, part in enumerate(gaps)])
    time = np.concatenate([np.cumsum(part) for part in gaps])
    matched = np.array(data.draw(st.lists(st.booleans(), min_size=len(trip), max_size=len(trip))))
    some = np.flatnonzero(matched)
    first = np.diff(trip[some], prepend=-1) != 0
    begins = np.zeros(len(trip), dtype=bool)
    begins[some] = first | np.array(data.draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some))), bool)
    ticks = clock_ticks(trip, time, matched=matched, begins=begins, interval_us=interval)
    same = ~ticks.begins[1:]
    assert (np.diff(ticks.time_us)[same] == interval).all()
    assert (trip[ticks.before] == trip[ticks.after]).all()
    assert (time[ticks.before] <= ticks.time_us).all()
    assert (ticks.time_us <= time[ticks.after]).all()
    assert matched[ticks.before].all()
    assert matched[ticks.after].all()
    zero = {int(trip[point]): int(time[point]) for point in some[first]}
    assert all(
        (tick - zero[int(trip[point])]) % interval == 0 for tick, point in zip(ticks.time_us, ticks.before, strict=True)
    )
    # Every clock time within a stretch is there.
    number = np.cumsum(begins[some]) - 1
    expected = 0
    for stretch in range(number.max(initial=-1) + 1):
        inside = some[number == stretch]
        clock = zero[int(trip[inside[0]])]
        expected += sum((t - clock) % interval == 0 for t in range(int(time[inside[0]]), int(time[inside[-1]]) + 1))
    assert len(ticks.time_us) == expected


def test_straight_positions_and_distances() -> None:
    lat, lon = np.array([41.0, 41.0 + 300 * METRE, 41.0]), np.full(3, -8.6)
    ticks = clock_ticks(
        np.array([0, 0, 1]),
        np.array([0, 30, 50]) * S,
        matched=np.ones(3, bool),
        begins=flags(1, 0, 1),
        interval_us=10 * S,
    )
    at_lat, at_lon, moved = positions_between(ticks, lat, lon)
    np.testing.assert_allclose((at_lat - 41.0) / METRE, [0, 100, 200, 300, 0], atol=1e-6)
    np.testing.assert_allclose(at_lon, -8.6)
    np.testing.assert_allclose(moved, [np.nan, 100, 100, 100, np.nan], rtol=1e-6)


def test_positions_on_roads_are_the_true_ones_of_a_steady_drive() -> None:
    graph = town()
    matcher = MapMatcher(graph)
    # Every second point is hidden; the clock asks for it.
    drives = drive(graph, 15, interval_s=5.0, steady=True, seed=3)
    seen = np.arange(len(drives.trip)) % 2 == 0
    new_trip = np.diff(drives.trip, prepend=-1) != 0
    seen |= new_trip
    points = matcher.match(*drives.take(seen).points())
    ticks = clock_ticks(
        drives.trip[seen], drives.time_us[seen], matched=points.matched, begins=points.begins, interval_us=5 * S
    )
    lat, lon, moved = positions_on_roads(ticks, points, matcher)
    where = {
        (int(trip), int(time)): row for row, (trip, time) in enumerate(zip(drives.trip, drives.time_us, strict=True))
    }
    truth = [
        where[int(trip), int(time)] for trip, time in zip(drives.trip[seen][ticks.before], ticks.time_us, strict=True)
    ]
    away = haversine_m(lat, lon, drives.lat[truth], drives.lon[truth])
    assert (ticks.before != ticks.after).sum() > 100
    assert np.quantile(away, 0.97) < 1.0
    speed = np.nanmedian(moved) / 5
    assert 9.5 < speed < 10.5
    assert (np.isnan(moved) == ticks.begins).all()
