from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.build.measures import VehicleLosses, measure
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.lab.evaluate.attacker import zone_distance_km
from geoblanket.lab.evaluate.tracking import (
    RowObservation,
    WalkTracker,
    ZoneReports,
    draw_reports,
    find_runs,
    only_the_zone,
    place_distance_km,
)
from geoblanket.mobility.histories import Steps
from geoblanket.tracking.filtering import NO_REPORT
from geoblanket.tracking.learning import model_of_counts
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.observation import Reports
from tests.lab.evaluate.walking import COUNTS, TOWN, ZONE, present, random_channel, rows_of, wandering

HELD_OUT = wandering(TOWN, vehicles=60, length=40, seed=1)
HERE = HELD_OUT.where(np.isin(HELD_OUT.histories[:, 0], ZONE))
MOTION = model_of_counts(TOWN, COUNTS, None, order=2, interval_s=30.0, learned={})
WEST: Indices = np.flatnonzero(np.arange(20) < 10).astype(np.int32)
EAST: Indices = np.flatnonzero(np.arange(20) >= 10).astype(np.int32)


def blurring(rows: ZoneRows, epsilon: float) -> Floats:
    """An exponential mechanism about the present place."""
    weight = np.exp(-epsilon * zone_distance_km(rows))[present(rows)]
    table: Floats = weight / weight.sum(axis=1, keepdims=True)
    return table


def mean(losses: VehicleLosses | None) -> float:
    assert losses is not None
    found = measure(losses)
    assert found is not None
    return found.loss


def in_both_halves(epsilon: float, context: str = "none", steps: Steps = HELD_OUT) -> tuple[RowObservation, Ints]:
    """Reports of mechanisms in two zones that are the whole town, and the report of each step."""
    zones: list[ZoneReports] = []
    for zone in (WEST, EAST):
        rows = rows_of(context, zone=zone)
        zones.append(draw_reports(blurring(rows, epsilon), rows, steps, MOTION, COUNTS, seed=[1, len(zones)]))
    sight = RowObservation(MOTION, zones)
    outputs = np.empty(len(steps), np.int64)
    for zone, reports, first in zip((WEST, EAST), zones, sight.first, strict=True):
        outputs[np.isin(steps.histories[:, 0], zone)] = first + reports.sent
    return sight, outputs


def test_runs_are_the_stays_of_walks_in_the_zone() -> None:
    begins = set(find_runs(HERE).tolist())
    expected, number, inside = set(), 0, False
    for index, (history, depth) in enumerate(zip(HELD_OUT.histories, HELD_OUT.depth, strict=True)):
        if depth == 0:
            inside = False
        if history[0] in ZONE:
            if not inside:
                expected.add(number)
            number += 1
        inside = bool(history[0] in ZONE)
        assert depth > 0 or index % 40 == 0
    assert begins == expected
    assert 60 < len(begins) < len(HERE)


def test_a_vehicle_that_parks_begins_a_new_run() -> None:
    parked = Steps(
        histories=np.full((6, 3), 7, np.int32),
        depth=np.array([0, 1, 2, 0, 1, 2], np.uint8),
        regime=np.zeros(6, np.uint8),
        next_place=np.full(6, 7, np.int32),
        vehicle=np.zeros(6, np.int32),
    )
    assert find_runs(parked).tolist() == [0, 3]
    assert find_runs(parked.where(parked.depth > 0)).tolist() == [0, 2]
    assert find_runs(parked.where(parked.depth > 5)).tolist() == []
    assert WalkTracker(MOTION, parked).number_in_walk.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("context", ["none", "order:1", "order:2"])
def test_without_noise_it_always_knows(context: str) -> None:
    sight, outputs = in_both_halves(1000.0, context)
    tracker = WalkTracker(MOTION, HELD_OUT, loss=place_distance_km(MOTION))
    for found in (
        tracker.tracked(sight, outputs), tracker.single(sight, outputs), tracker.in_hindsight(sight, outputs, steps=7),
    ):  # fmt: skip
        assert mean(found.success) == 1.0
        assert mean(found.error_km) == 0.0
    # Where a vehicle goes next it does not know.
    assert 0.05 < mean(tracker.tracked(sight, outputs).loss) < mean(tracker.single(sight, outputs).loss)


def test_reports_that_tell_nothing_leave_what_is_known_without_them() -> None:
    rows = rows_of("none", zone=np.arange(20, dtype=np.int32))
    noise = draw_reports(np.tile(np.arange(1.0, 6) / 15, (20, 1)), rows, HELD_OUT, MOTION, COUNTS)
    tracker = WalkTracker(MOTION, HELD_OUT)
    sight = RowObservation(MOTION, [noise])
    nothing = np.full(len(HELD_OUT), NO_REPORT)
    for found, without in (
        (tracker.tracked(sight, noise.sent), tracker.tracked(sight, nothing)),
        (tracker.in_hindsight(sight, noise.sent, steps=6), tracker.in_hindsight(sight, nothing, steps=6)),
    ):
        assert mean(found.error_km) == pytest.approx(mean(without.error_km), rel=1e-3)
    # One report that tells nothing: the best constant guess by what is usual.
    usual = MOTION.to_places @ MOTION.start
    apart = place_distance_km(MOTION)
    guess = int((apart @ usual).argmin())
    assert mean(tracker.single(sight, noise.sent).error_km) == pytest.approx(
        apart[HELD_OUT.histories[:, 0], guess].mean(), rel=1e-5
    )


def test_only_the_zone_is_a_report_that_tells_the_zone() -> None:
    zones = [only_the_zone(zone, 3, MOTION) for zone in (WEST, EAST)]
    sight = RowObservation(MOTION, zones)
    likelihood = sight.likelihood(Reports(np.array([0, 1]), np.arange(2), np.zeros(2, bool)))
    assert sight.outputs == 2
    assert likelihood[:, 0].tolist() == np.isin(MOTION.present, WEST).tolist()
    assert likelihood[:, 1].tolist() == np.isin(MOTION.present, EAST).tolist()


@pytest.mark.parametrize("epsilon", [2.0, 5.0])
def test_all_reports_tell_more_than_one_and_hindsight_more_than_that(epsilon: float) -> None:
    sight, outputs = in_both_halves(epsilon)
    tracker = WalkTracker(MOTION, HELD_OUT, loss=place_distance_km(MOTION))
    single, tracked = tracker.single(sight, outputs), tracker.tracked(sight, outputs)
    hindsight = tracker.in_hindsight(sight, outputs, steps=10)
    assert mean(hindsight.error_km) < mean(tracked.error_km) < 0.95 * mean(single.error_km)
    assert mean(single.success) < mean(tracked.success) < mean(hindsight.success)
    assert mean(tracked.loss) < mean(single.loss)
    fewer = tracker.in_hindsight(sight, outputs, steps=2)
    assert mean(hindsight.error_km) < mean(fewer.error_km)


@pytest.mark.parametrize("context", ["none", "order:1"])
def test_against_all_ways_that_a_vehicle_may_have_gone(context: str) -> None:
    """Four places, five reports: the filter against the sum over all ways, of the model's states."""
    zone = np.array([6, 7, 11, 12], np.int32)
    steps = HELD_OUT.where(np.arange(3, 8))
    inside = np.isin(MOTION.present, zone)
    states = np.flatnonzero(inside)
    rows = rows_of(context, zone=zone)
    q = random_channel(len(rows), 3, seed=3)
    known = draw_reports(q, rows, HELD_OUT, MOTION, COUNTS)
    assert known.chances == pytest.approx(q, abs=1e-6)
    outputs = np.array([0, 2, 1, 1, 0])
    emission = np.asarray((known.rows @ known.chances)[:, outputs])
    moves = MOTION.moves.toarray().astype(np.float64)[np.ix_(states, states)]
    belief = MOTION.start[states].astype(np.float64) * emission[:, 0]
    for step in range(1, 5):
        belief = (belief @ moves) * emission[:, step]
    assert belief.sum() > 0
    last = np.zeros(20)
    np.add.at(last, MOTION.present[states], belief / belief.sum())
    # The same by brute force over short ways, to trust the loop above.
    way = np.zeros(len(states))
    for first, then in product(range(len(states)), repeat=2):
        way[then] += MOTION.start[states[first]] * emission[first, 0] * moves[first, then] * emission[then, 1]
    assert (MOTION.start[states] * emission[:, 0]) @ moves * emission[:, 1] == pytest.approx(way)
    apart = place_distance_km(MOTION)
    same_walk = Steps(
        histories=np.array([[6, 6, 6], [7, 6, 6], [12, 7, 6], [11, 12, 7], [6, 11, 12]], np.int32),
        depth=np.array([0, 1, 2, 2, 2], np.uint8),
        regime=steps.regime, next_place=steps.next_place, vehicle=np.zeros(5, np.int32),
    )  # fmt: skip
    judged = np.array([False, False, False, False, True])
    found = WalkTracker(MOTION, same_walk, judged=judged).tracked(RowObservation(MOTION, [known]), outputs)
    assert mean(found.error_km) == pytest.approx(apart[6, (apart @ last).argmin()], rel=1e-5)
    assert mean(found.success) == float(last.argmax() == 6)


def test_a_state_that_forgets_older_places_takes_them_as_they_were_seen() -> None:
    rows = rows_of("order:2", max_rows=200)
    known = draw_reports(random_channel(len(rows), 4, seed=1), rows, HELD_OUT, MOTION, COUNTS)
    assert known.rows.sum(axis=1) == pytest.approx(1.0)
    assert (np.diff(known.rows.indptr) > 1).any()
    state = int(np.argmax(np.diff(known.rows.indptr)))
    place, before = MOTION.states[known.states[state]]
    seen = COUNTS.where((COUNTS.histories[:, 0] == place) & (COUNTS.histories[:, 1] == before))
    expected = np.bincount(rows.row_of(seen.histories), seen.count, len(rows)) / seen.count.sum()
    assert known.rows[[state]].toarray().ravel() == pytest.approx(expected)


def test_fewer_reports_tell_less_and_every_step_is_judged() -> None:
    sight, outputs = in_both_halves(4.0)
    tracker = WalkTracker(MOTION, HELD_OUT)
    every, third = outputs, np.where(tracker.number_in_walk % 3 == 0, outputs, NO_REPORT)
    often, seldom = tracker.tracked(sight, every), tracker.tracked(sight, third)
    assert often.error_km.steps.tolist() == seldom.error_km.steps.tolist()
    assert mean(often.error_km) < mean(seldom.error_km)
    assert tracker.single(sight, third).error_km.steps.sum() == np.count_nonzero(third != NO_REPORT)


def test_the_seed_decides_and_arrays_hold_everything() -> None:
    rows = rows_of("order:1")
    one, same, other = (
        draw_reports(blurring(rows, 2.0), rows, HELD_OUT, MOTION, COUNTS, seed=seed) for seed in (1, 1, 2)
    )
    assert one.sent.tolist() == same.sent.tolist() != other.sent.tolist()
    again = ZoneReports.from_arrays(one.as_arrays("x/"), "x/")
    assert again.rows.toarray().tolist() == one.rows.toarray().tolist()
    assert again.chances.tolist() == one.chances.tolist()
    assert again.sent.tolist() == one.sent.tolist()


def test_reports_come_as_often_as_they_should() -> None:
    rows = rows_of("none")
    q = random_channel(6, 4, seed=2)
    known = draw_reports(q, rows, HELD_OUT, MOTION, COUNTS)
    place = np.searchsorted(ZONE, HERE.histories[:, 0])
    for number in range(6):
        share = np.bincount(known.sent[place == number], minlength=4) / (place == number).sum()
        assert share == pytest.approx(q[number], abs=4 / np.sqrt((place == number).sum()) / 2)


def test_what_cannot_be_tracked_is_refused() -> None:
    rows = rows_of("none")
    with pytest.raises(MismatchError, match="do not belong"):
        draw_reports(np.eye(5), rows, HELD_OUT, MOTION, COUNTS)
    sight, outputs = in_both_halves(2.0)
    with pytest.raises(ParameterError, match="one step or more"):
        WalkTracker(MOTION, HELD_OUT).in_hindsight(sight, outputs, steps=0)
    with pytest.raises(ParameterError, match="one or more earlier places"):
        find_runs(wandering(TOWN, vehicles=2, length=5, past=0))


def test_no_steps_have_no_mean() -> None:
    nobody = HELD_OUT.where(np.zeros(len(HELD_OUT), bool))
    known = only_the_zone(np.arange(20, dtype=np.int32), 0, MOTION)
    tracker = WalkTracker(MotionModel.by_distance(TOWN.coordinates_e7, interval_s=30.0), nobody)
    assert len(known.sent) == 0
    motion = tracker.motion
    found = tracker.tracked(
        RowObservation(motion, [only_the_zone(np.arange(20, dtype=np.int32), 0, motion)]), known.sent
    )
    assert measure(found.success) is None
