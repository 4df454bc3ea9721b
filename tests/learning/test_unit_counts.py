"""Counts of units beside a slow loop, and the one claim on which the promise rests: what a unit can change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Ints
from geoblanket._training import Unit
from geoblanket.errors import InputError
from geoblanket.learning import unit_counts
from geoblanket.learning.noise import BOUND
from geoblanket.learning.unit_counts import UnitCounts, UnitWalks, counted, kinds_of
from geoblanket.mobility import walks as walk_tables
from tests.learning.fleets import ORDERS, Walk, cells_of, drawn_fleet, frame_of, slow_sums

UNITS: tuple[Unit, ...] = ("vehicle", "trip")


def sums_of(
    fleet: Sequence[Walk], order: int, unit: Unit, *, steps_at_once: int = 10**6, rows_at_a_time: int = 10**6
) -> dict[str, Ints]:
    """Sums of all kinds, with so many steps in a pass over the walks and so many rows in a batch."""
    cells, frame = cells_of(order), frame_of(fleet).lazy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_counts, "_STEPS_AT_ONCE", steps_at_once)
        patch.setattr(walk_tables, "_ROWS_AT_A_TIME", rows_at_a_time)
        walks = UnitWalks.read(frame, path="walks", unit=unit)
        return counted(frame, walks, cells, dict(kinds_of(cells)), path="walks")


def assert_sums(found: dict[str, Ints], expected: dict[str, dict[int, int]]) -> None:
    for name, sums in found.items():
        assert {int(cell): int(sums[cell]) for cell in np.flatnonzero(sums)} == expected.get(name, {}), name


@st.composite
def fleets(draw: st.DrawFn) -> list[Walk]:
    """Walks that stay near, so that they fit cells, and jump now and then; several of a trip, and of a vehicle."""
    walks = []
    for _ in range(draw(st.integers(1, 8))):
        places = [draw(st.integers(0, 47))]
        for jump in draw(st.lists(st.sampled_from([0, 0, 1, 1, 1, 8, -1, -8, 9, 2, 16, 29, 40]), max_size=9)):
            places.append((places[-1] + jump) % 48)
        vehicle = draw(st.sampled_from(["a", "b", "c"]))
        walks.append(Walk(vehicle, draw(st.integers(0, 2)), places, hour=draw(st.integers(0, 23))))
    return walks


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("order", ORDERS)
def test_sums_are_those_of_a_slow_loop(order: int, unit: Unit) -> None:
    fleet = drawn_fleet(cells_of(order).road, vehicles=7, trips=40, steps=15, seed=order, lost=0.1)
    expected = slow_sums(fleet, cells_of(order), unit)
    assert_sums(sums_of(fleet, order, unit), expected)
    assert set(expected) == set(dict(kinds_of(cells_of(order))))
    # Passes over the walks, and batches that end in the middle of walks, make no difference.
    assert_sums(sums_of(fleet, order, unit, steps_at_once=70, rows_at_a_time=13), expected)


@settings(max_examples=25)
@given(fleets(), st.sampled_from(ORDERS), st.sampled_from(UNITS), st.integers(4, 60), st.integers(1, 9))
def test_passes_and_batches_make_no_difference(
    fleet: list[Walk], order: int, unit: Unit, steps_at_once: int, rows_at_a_time: int
) -> None:
    found = sums_of(fleet, order, unit, steps_at_once=steps_at_once, rows_at_a_time=rows_at_a_time)
    assert_sums(found, slow_sums(fleet, cells_of(order), unit))


@settings(max_examples=40)
@given(st.data(), fleets(), st.sampled_from(ORDERS), st.sampled_from(UNITS))
def test_no_unit_changes_a_part_by_more_than_the_bound(
    data: st.DataObject, fleet: list[Walk], order: int, unit: Unit
) -> None:
    """The bound is not only kept but used: who is in a part at all changes it by nearly all of the bound."""
    units = sorted({(walk.vehicle, walk.trip) if unit == "trip" else (walk.vehicle,) for walk in fleet}, key=str)
    whose = data.draw(st.sampled_from(units))
    others = [walk for walk in fleet if (walk.vehicle, walk.trip)[: len(whose)] != whose]
    at_once, rows = data.draw(st.sampled_from([(5, 2), (11, 3), (10**6, 10**6)]))
    with_all = sums_of(fleet, order, unit, steps_at_once=at_once, rows_at_a_time=rows)
    without = sums_of(others, order, unit, steps_at_once=at_once, rows_at_a_time=rows)
    for name, sums in with_all.items():
        changed = [int(change) for change in (sums - without[name])]
        square = sum(change**2 for change in changed)
        assert square <= BOUND**2, name
        assert min(changed) >= 0
        if square:
            lost = sum(change > 0 for change in changed) ** 0.5  # by rounding down
            assert square >= (BOUND - lost - 1) ** 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 5), st.integers(1, 10**9)), max_size=30))
def test_no_counts_exceed_the_bound_however_large(rows: list[tuple[int, int, int]]) -> None:
    unit, cell, count = np.array(rows, np.int64).reshape(-1, 3).T
    found = UnitCounts.of(unit, cell, count)
    together = {(int(u), int(c)): 0 for u, c in zip(found.unit, found.cell, strict=True)}
    assert len(together) == len(found.unit)
    for whose, where, often in rows:
        if where >= 0:
            together[whose, where] += often
    assert list(together.values()) == found.count.tolist()
    for whose in range(4):
        values = found.scaled()[found.unit == whose].tolist()
        assert sum(value**2 for value in values) <= BOUND**2
    group = np.array([1, 1, 0, 2, 0, 1])
    assert found.grouped(group).count.sum() == found.count.sum()


def test_one_step_is_a_place_a_start_and_nothing_else() -> None:
    found = sums_of([Walk("a", 0, [5]), Walk("b", 1, [7])], 3, "vehicle")
    for name in ("places", "starts"):
        assert np.flatnonzero(found[name]).tolist() == [5, 7]
    for name in ("moves", "turns", "runs", "long runs"):
        assert not found[name].any()


def test_steps_from_walk_to_walk_are_no_moves() -> None:
    """The last step of a walk and the first of the next are neighbours in the table, of one vehicle or not."""
    apart = [Walk("a", 0, [1]), Walk("a", 0, [2]), Walk("b", 1, [3, 4]), Walk("b", 1, [5])]
    found = sums_of(apart, 2, "vehicle")
    moves = cells_of(2)
    (move,) = np.flatnonzero(found["moves"])
    assert (moves.source[move], moves.target[move]) == (3, 4)
    assert not found["runs"].any()


def test_jumps_that_no_cell_has_are_not_counted() -> None:
    far = sums_of([Walk("a", 0, [0, 47, 0, 47]), Walk("b", 0, [0, 1, 2])], 3, "vehicle")
    near = sums_of([Walk("b", 0, [0, 1, 2])], 3, "vehicle")
    for name in ("moves", "turns", "runs", "long runs"):
        assert (far[name] == near[name]).all()
    assert far["places"][47] > 0


@pytest.mark.parametrize("nobody", [None, "", "  "])
def test_trips_without_a_vehicle_are_units_of_their_own(nobody: str | None) -> None:
    fleet = [Walk(nobody, trip // 2, [trip, trip + 1]) for trip in range(8)]
    walks = UnitWalks.read(frame_of(fleet).lazy(), path="walks", unit="trip")
    assert walks.unit.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sums_of(fleet, 1, "trip")["units"] // BOUND + 1 == 4
    for some in (fleet, [Walk("a", 0, [1]), *fleet]):
        with pytest.raises(InputError, match=r"a walk names no vehicle.*learn with unit=trip"):
            UnitWalks.read(frame_of(some).lazy(), path="walks", unit="vehicle")
    assert_sums(sums_of(fleet, 1, "trip"), slow_sums(fleet, cells_of(1), "trip"))


@pytest.mark.parametrize("second", [Walk("b", 0, [2]), Walk("a", 1, [2]), Walk(None, 0, [2])])
def test_a_walk_of_two_is_refused(second: Walk) -> None:
    """Its steps would all count as those of the first."""
    parts = frame_of([Walk("a", 0, [1]), second])
    joined = parts.with_columns(walk=pl.lit(0, pl.Int64), step=pl.int_range(parts.height, dtype=pl.Int32))
    with pytest.raises(InputError, match="walk 0 names more than one vehicle or trip"):
        UnitWalks.read(joined.lazy(), path="walks", unit="vehicle")


def test_steps_in_another_order_are_refused() -> None:
    frame = frame_of([Walk("a", 0, [1, 2, 3]), Walk("b", 0, [1, 2])]).reverse().lazy()
    walks = UnitWalks.read(frame, path="walks", unit="vehicle")
    assert walks.start_place.tolist() == [1, 1]
    with pytest.raises(InputError, match="does not follow the step before it"):
        counted(frame, walks, cells_of(1), dict(kinds_of(cells_of(1))), path="walks")


@pytest.mark.parametrize("place", [48, -1])
def test_places_that_the_roads_do_not_have_are_refused(place: int) -> None:
    with pytest.raises(InputError, match="has a place that the roads do not have"):
        sums_of([Walk("a", 0, [place, 2, 3]), Walk("b", 0, [1, 2])], 1, "vehicle")
