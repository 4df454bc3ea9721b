"""Reports that come late, twice or never, and more vehicles than fit into memory."""

from __future__ import annotations

import numpy as np
import pytest

from geoblanket.errors import InputError, ParameterError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.tracking.observation import Reports
from geoblanket.tracking.tracker import Tracker
from tests.tracking.lattice_reports import SLOT, cells_near, near_model


class Watching:
    """An observation model that writes down how many slots in a row came before each report."""

    def __init__(self, tracker: Tracker) -> None:
        self._observations, self.follows = tracker.filter.observations, list[int]()
        self.outputs, self.interval_s = self._observations.outputs, self._observations.interval_s
        tracker.filter.observations = self

    def likelihood(self, reports: Reports) -> np.ndarray:
        self.follows += reports.follows.tolist()
        return self._observations.likelihood(reports)


def test_slots_in_a_row_are_counted(city: Bundle) -> None:
    tracker = Tracker(city, near_model(), late_slots=3)
    observations = Watching(tracker)
    for slot in (0, 1, 2, 4, 5):
        tracker.see("a", SLOT + slot, 100)
    assert observations.follows == [0, 1, 2, 0, 1]
    observations.follows.clear()
    tracker.see("a", SLOT + 3, 100)  # now those after it follow as well
    assert observations.follows == [3, 4, 5]
    tracker.see("a", SLOT + 6, 100)
    assert observations.follows[-1] == 6


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_late_report_counts_as_if_it_had_been_on_time(city: Bundle, late: int) -> None:
    cells = cells_near(city, near_model(), [24, 25, 26, 27, 20, 13])
    on_time, mixed = (Tracker(city, near_model(), late_slots=late) for _ in range(2))
    for slot, cell in enumerate(cells):
        on_time.see("a", SLOT + slot, cell)
    order = [index for index in range(len(cells)) if index != 2]
    order.insert(order.index(2 + late) + 1, 2)
    outcomes = [mixed.see("a", SLOT + index, cells[index]).outcome for index in order]
    assert outcomes == ["used"] * 6
    assert mixed.places("a") == pytest.approx(on_time.places("a"), abs=1e-6)
    assert mixed.see("a", SLOT + 5 - late - 1, 3).outcome in ("late", "conflicting")


def test_what_comes_too_late_or_twice_is_left_out(city: Bundle) -> None:
    tracker = Tracker(city, near_model(), late_slots=2)
    for slot in (0, 4, 5, 6):
        tracker.see("a", SLOT + slot, 100)
    before = tracker.places("a").copy()
    outcomes = [tracker.see("a", SLOT + slot, cell).outcome for slot, cell in ((3, 7), (6, 100), (6, 7), (5, 7))]
    assert outcomes == ["late", "repeated", "conflicting", "conflicting"]
    assert np.array_equal(tracker.places("a"), before)
    assert dict(tracker.outcomes) == {"used": 4, "late": 1, "repeated": 1, "conflicting": 2}


def test_the_vehicle_silent_for_longest_is_forgotten_first(city: Bundle) -> None:
    bytes_each = Tracker(city, near_model()).filter.bytes_per_vehicle
    tracker = Tracker(city, near_model(), memory_bytes=10 * bytes_each)
    for vehicle in range(10):
        tracker.see(vehicle, SLOT, 100)
    tracker.see(0, SLOT + 1, 100)
    tracker.see_many([f"new {n}" for n in range(5)], np.full(5, SLOT + 1), np.full(5, 100))
    assert (tracker.vehicles, tracker.dropped) == (10, 5)
    assert tracker.places(0).shape == (49, 1)
    with pytest.raises(ParameterError, match="it was forgotten"):
        tracker.places(1)


def test_looking_ahead_is_the_same_at_once_and_later(city: Bundle) -> None:
    tracker, cells = Tracker(city, near_model()), cells_near(city, near_model(), [24, 24])
    ahead = tracker.see("a", SLOT, cells[0], ahead=4)
    later = tracker.estimate("a", ahead=4)
    assert (ahead.lat, ahead.lon, ahead.radius_m) == (later.lat[0], later.lon[0], later.radius_m[0])
    assert ahead.radius_m > tracker.estimate("a").radius_m[0]
    assert tracker.see("a", SLOT, cells[0], ahead=4)[:3] == ahead[:3]  # repeated
    assert tracker.slots_in(120) == 4
    with pytest.raises(ParameterError, match="slots ahead must be 0 to 240"):
        tracker.see("a", SLOT + 1, cells[1], ahead=241)


def test_what_is_no_report_is_refused(city: Bundle) -> None:
    tracker = Tracker(city, near_model())
    for slot, cell, problem in (
        (SLOT, 8281, "an output that the bundle does not have, the first is report 0; possible are 0 to 8280"),
        (SLOT, -1, "possible are 0"),
        (-1, 5, "a slot before 1970 or after 2099"),
        (10**12, 5, "a slot before 1970 or after 2099"),
    ):
        with pytest.raises(InputError, match=problem):
            tracker.see("a", slot, cell)
    assert tracker.vehicles == 0


def test_an_hour_of_rest_leaves_the_estimate_of_the_last_drawn_report(holding: Bundle, city: Bundle) -> None:
    cells = [3920, 4010, 4100]
    tracker, sure = Tracker(holding, near_model()), Tracker(city, near_model())
    for slot, cell in enumerate(cells):
        drawn = tracker.see("a", SLOT + slot, cell)
        sure.see("a", SLOT + slot, cell)
    # Every fifth report is lost on the way. Another vehicle that moves is seen in the same calls.
    for slot in (number for number in range(3, 124) if number % 5):
        names, slots = ["a", "b"], np.full(2, SLOT + slot)
        estimates, outcomes = tracker.see_many(names, slots, [4100, 4000 + slot])
        assert outcomes == ["used", "used"]
        assert (estimates.lat[0], estimates.lon[0], estimates.radius_m[0]) == drawn[:3]
        sure.see("a", SLOT + slot, 4100)
    # Without hold the same reports are evidence, each of them.
    assert abs(sure.places("a") - tracker.places("a")).max() > 0.02
    # The vehicle goes on as if it had rested for no time.
    parted = Tracker(holding, near_model())
    for slot, cell in enumerate([*cells, 4200]):
        parted.see("a", SLOT + slot, cell)
    tracker.see("a", SLOT + 124, 4200)
    assert tracker.places("a") == pytest.approx(parted.places("a"), abs=1e-6)


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("cells", [[50, 70, 70, 70, 90, 90], [70, 70, 50, 70, 70, 90], [70, 90, 70, 90, 90, 90]])
def test_late_reports_make_and_break_rests(holding: Bundle, cells: list[int], first: int) -> None:
    """In any order, what counts is whether a report repeats that of the slot before."""
    on_time, late = (Tracker(holding, near_model(), late_slots=6) for _ in range(2))
    for slot, cell in enumerate(cells):
        on_time.see("a", SLOT + slot, cell)
    order = [0, *(slot for slot in range(1, 6) if slot != first), first]
    assert [late.see("a", SLOT + slot, cells[slot]).outcome for slot in order] == ["used"] * 6
    assert late.places("a") == pytest.approx(on_time.places("a"), abs=1e-6)
    for tracker in (on_time, late):
        tracker.see("a", SLOT + 6, cells[-1])
    assert late.places("a") == pytest.approx(on_time.places("a"), abs=1e-6)
