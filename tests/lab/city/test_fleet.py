from __future__ import annotations

import numpy as np
import pytest

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.lab.city import fleet
from geoblanket.lab.city.fleet import Walks, make_schedule, walk_blocks
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, speed_range_m_s
from geoblanket.lab.city.plan import DISTRICTS


def test_trips_are_as_long_as_porto_s(walks: Walks) -> None:
    steps = walks.ticks - 1
    assert 8 <= np.median(steps) * 0.5 <= 13
    assert 40 <= (2 * steps + 1).mean() <= 56
    assert steps.min() >= 1


def test_steps_agree_with_their_bands(small_city: City, walks: Walks) -> None:
    graph = small_city.graph
    first = np.zeros(len(walks.node), np.bool_)
    first[walks.offsets[:-1]] = True
    ends = np.flatnonzero(~first)
    here, there = walks.node[ends - 1], walks.node[ends]
    speed = haversine_m(graph.lat[here], graph.lon[here], graph.lat[there], graph.lon[there]) / 30
    for number, band in enumerate(BANDS):
        low, high = speed_range_m_s(band)
        inside = speed[walks.band[ends] == number]
        assert ((inside > low) & (inside <= high)).all() if band != "stopped" else (inside == 0).all()


def test_every_district_is_busy_and_has_its_own_pace(small_city: City, medium_city: City) -> None:
    for city in (small_city, medium_city):
        walks = next(walk_blocks(city, make_schedule(3000, seed=1)))
        first = np.zeros(len(walks.node), np.bool_)
        first[walks.offsets[:-1]] = True
        ends = np.flatnonzero(~first)
        district, band = city.district[walks.node[ends - 1]], walks.band[ends]
        for number, main in enumerate(("slow", "medium", "fast")):
            assert (district == number).mean() > 0.15
            moving = band[(district == number) & (band > 0)]
            assert (moving == BANDS.index(main)).mean() > 0.7
            assert np.bincount(moving, minlength=4).astype(bool).sum() == 2
        crossings = (city.district[walks.node[ends]] != district).mean()
        assert 0.01 < crossings < 0.3
        assert len(DISTRICTS) == 3


def test_no_taxi_makes_two_trips_at_once(small_city: City) -> None:
    schedule = make_schedule(9000, seed=2)
    blocks = list(walk_blocks(small_city, schedule))
    assert [len(block.trip) for block in blocks] == [fleet.BLOCK, 9000 - fleet.BLOCK]
    start = np.concatenate([block.start_s for block in blocks])
    end = start + np.concatenate([block.ticks - 1 for block in blocks]) * 30
    vehicle = np.concatenate([block.vehicle for block in blocks])
    order = np.lexsort((start, vehicle))
    same = vehicle[order[1:]] == vehicle[order[:-1]]
    assert (start[order[1:]] > end[order[:-1]])[same].all()


def test_trips_follow_shifts_and_rush_hours() -> None:
    schedule = make_schedule(20_000, seed=0)
    hour = schedule.start_s // 3600 % 24
    by_hour = np.bincount(hour, minlength=24)
    assert by_hour[8] > 2.5 * by_hour[3]
    assert (schedule.start_s % 30 == 0).all()
    assert (np.diff(schedule.start_s) >= 0).all()
    for vehicle in range(fleet.VEHICLES):
        hours = np.unique(hour[schedule.vehicle == vehicle])
        free = np.diff(np.append(hours, hours[0] + 24)).max()
        assert free >= 24 - fleet._SHIFT_HOURS, "a taxi rests between shifts"


def test_same_arguments_same_trips(small_city: City, walks: Walks) -> None:
    again = next(walk_blocks(small_city, make_schedule(4000, seed=3)))
    other = next(walk_blocks(small_city, make_schedule(4000, seed=4)))
    np.testing.assert_array_equal(again.node, walks.node)
    np.testing.assert_array_equal(again.offsets, walks.offsets)
    assert len(other.node) != len(walks.node) or (other.node != walks.node).any()


def test_where_trips_end_depends_on_the_hour(medium_city: City) -> None:
    walks = next(walk_blocks(medium_city, make_schedule(8000, seed=5)))
    hour = walks.start_s // 3600 % 24
    ends_downtown = medium_city.district[walks.node[walks.offsets[1:] - 1]] == 0
    starts_downtown = medium_city.district[walks.node[walks.offsets[:-1]]] == 0
    morning, evening = (hour >= 6) & (hour < 10), (hour >= 16) & (hour < 21)
    assert starts_downtown[evening].mean() > starts_downtown[morning].mean() + 0.08
    assert walks.ticks[morning & starts_downtown & ends_downtown].mean() < walks.ticks[evening & ends_downtown].mean()


def test_no_trips_is_an_error() -> None:
    with pytest.raises(ParameterError, match="at least 1"):
        make_schedule(0)
