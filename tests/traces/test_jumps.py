from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._geodesy import haversine_m
from geoblanket.traces.cleaning import CUT_COST, GPS_ERROR_M, find_jumps

DEGREE_M = 111_195.0


def jumps(east_m: list[float], *, step_s: float = 15.0, max_speed_m_s: float = 60.0) -> tuple[list[int], list[int]]:
    """Positions of the dropped points and of the cuts for points along the equator."""
    lon = np.array(east_m) / DEGREE_M
    time_us = (np.arange(lon.size) * step_s * 1e6).astype(np.int64)
    starts = np.zeros(lon.size, dtype=bool)
    starts[0] = True
    keep, cut = find_jumps(time_us, np.zeros_like(lon), lon, starts, max_speed_m_s=max_speed_m_s)
    assert not (cut & ~keep).any()
    return np.flatnonzero(~keep).tolist(), np.flatnonzero(cut).tolist()


def track(points: int, *, start_m: float = 0.0) -> list[float]:
    return [start_m + 100.0 * k for k in range(points)]


def test_a_slow_track_is_kept_whole() -> None:
    assert jumps(track(30)) == ([], [])


def test_one_wild_point_is_dropped_and_nothing_after_it() -> None:
    east = track(30)
    east[10] += 50_000
    assert jumps(east) == ([10], [])


def test_several_wild_points_in_a_row_each_elsewhere_are_dropped() -> None:
    east = track(30)
    east[10] += 50_000
    east[11] -= 70_000
    east[12] += 90_000
    assert jumps(east) == ([10, 11, 12], [])


def test_an_excursion_of_a_few_points_is_dropped() -> None:
    east = track(30)
    for k in (10, 11, 12):
        east[k] += 50_000
    assert jumps(east) == ([10, 11, 12], [])


@pytest.mark.parametrize("wild", [0, 29])
def test_a_wild_point_at_an_end_is_dropped(wild: int) -> None:
    east = track(30)
    east[wild] += 50_000
    assert jumps(east) == ([wild], [])


def test_a_track_that_goes_on_elsewhere_is_cut_not_dropped() -> None:
    assert jumps(track(15) + track(15, start_m=80_000)) == ([], [15])


def test_trips_do_not_touch_each_other() -> None:
    lon = np.array([0.0, 0.001, 5.0, 5.001])
    time_us = np.arange(4) * 1_000_000
    starts = np.array([True, False, True, False])
    keep, cut = find_jumps(time_us, np.zeros(4), lon, starts, max_speed_m_s=500.0)
    assert keep.all()
    assert not cut.any()


def test_gps_noise_within_a_second_is_no_jump() -> None:
    assert jumps([0.0, 40.0, 0.0, 40.0], step_s=0.1, max_speed_m_s=20.0) == ([], [])
    assert jumps(track(20), step_s=1.0, max_speed_m_s=49.0)[0] != []


def test_the_date_line_is_no_jump() -> None:
    lon = np.array([179.9995, -179.9995, 180.0])
    keep, _ = find_jumps(
        np.arange(3) * 15_000_000, np.zeros(3), lon, np.array([True, False, False]), max_speed_m_s=60.0
    )
    assert keep.all()


def _brute_force(east_m: list[float], limit_m: float) -> int:
    """The best value of any choice of points to keep and cuts between them, of a single trip."""
    best = 0
    for size in range(1, len(east_m) + 1):
        for kept in combinations(range(len(east_m)), size):
            cuts = sum(abs(east_m[b] - east_m[a]) > limit_m * (b - a) + GPS_ERROR_M for a, b in pairwise(kept))
            best = max(best, size - CUT_COST * cuts)
    return best


@pytest.mark.parametrize("pattern", list(product([0.0, 5_000.0, -9_000.0], repeat=5)))
def test_the_choice_is_the_best_there_is(pattern: tuple[float, ...]) -> None:
    east = [offset + 10.0 * k for k, offset in enumerate((0.0, *pattern, 0.0))]
    dropped, cuts = jumps(east)
    value = len(east) - len(dropped) - CUT_COST * len(cuts)
    assert value == _brute_force(east, 900.0)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.floats(41.0, 41.3), st.floats(12.0, 12.3), st.booleans()),
        min_size=1,
        max_size=40,
    )
)
def test_no_impossible_step_is_left(points: list[tuple[int, float, float, bool]]) -> None:
    dt, lat, lon, new_trip = (np.array(column) for column in zip(*points, strict=True))
    time_us = np.cumsum(dt) * 1_000_000
    starts = new_trip.astype(bool)
    starts[0] = True
    keep, cut = find_jumps(time_us, lat, lon, starts, max_speed_m_s=60.0)
    trip = np.cumsum(starts)[keep] * 1000 + np.cumsum(cut[keep])
    time_us, lat, lon = time_us[keep], lat[keep], lon[keep]
    distance = haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
    allowed = np.diff(time_us) * 60e-6 + GPS_ERROR_M
    assert np.all((distance <= allowed) | (np.diff(trip) != 0))
    assert set(np.cumsum(starts)[keep].tolist()) == set(np.cumsum(starts).tolist())  # no trip is lost
