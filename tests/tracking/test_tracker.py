from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.loss import StraightLine
from geoblanket.mechanism import Bundle, load_bundle
from geoblanket.tracking.filtering import BeliefFilter, Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.tracker import Tracker, plain_model
from tests.release.lattices import save_small
from tests.release.worlds import GRAPH, PLACES, report, save_certain

SLOT = 57_326_400  # the start of an hour
CELLS = 121


@pytest.fixture(scope="module")
def lattice(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_small(tmp_path_factory.mktemp("lattice") / "plain.bundle"))


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_certain(tmp_path_factory.mktemp("town") / "town.bundle"))


@pytest.fixture(scope="module")
def town_model() -> MotionModel:
    return learn_motion(GRAPH, PLACES, interval_s=30.0)


def test_a_tracker_follows_as_sequences_are_followed(lattice: Bundle) -> None:
    tracker = Tracker(lattice)
    rng = np.random.default_rng(1)
    slots = np.cumsum(rng.integers(1, 4, size=(3, 20)), axis=1) + SLOT
    outputs = rng.integers(CELLS, size=(3, 20))
    for column in range(20):
        tracker.see_many(["a", "b", "c"], slots[:, column], outputs[:, column])
    last: dict[int, np.ndarray] = {}
    beliefs = BeliefFilter.of(lattice, plain_model(lattice))
    sequences = Sequences(slots.ravel(), outputs.ravel(), np.array([0, 20, 40]))
    follow(
        beliefs,
        sequences,
        lambda positions, values: last.update(zip(positions.tolist(), beliefs.places(values).T, strict=True)),
    )
    for number, vehicle in enumerate("abc"):
        np.testing.assert_allclose(tracker.places(vehicle)[:, 0], last[20 * number + 19], rtol=1e-4, atol=1e-7)


def test_reports_that_are_all_but_certain_tell_the_place(town: Bundle, town_model: MotionModel) -> None:
    """Zones with context: what is reported depends on the place before, and the tracker knows how."""
    tracker = Tracker(town, town_model)
    way = [0, 1, 2, 8, 14, 13, 12, 6]
    for step, place in enumerate(way):
        # Midnight in UTC is day in Tokyo.
        said = report("start", place, 0) if step == 0 else report("day", place, way[step - 1])
        tracked = tracker.see("car", SLOT + step, said)
        likeliest, chance = tracker.likeliest("car", 1)[0]
        assert (likeliest, tracked.outcome) == (place, "used")
        assert chance > 0.99
    assert tracker.estimate("car", loss=StraightLine(PLACES)).lat[0] == pytest.approx(PLACES.lat[6])
    assert tracker.within("car", PLACES.lat[6], PLACES.lon[6], 50.0) > 0.99


def test_a_late_report_counts_as_if_it_had_been_on_time(lattice: Bundle) -> None:
    reports = [(0, 5), (1, 17), (2, 40), (3, 41), (4, 77), (5, 78)]
    on_time, late = Tracker(lattice), Tracker(lattice, late_slots=4)
    for slot, cell in reports:
        on_time.see("car", SLOT + slot, cell)
    for slot, cell in [reports[index] for index in (0, 1, 4, 2, 5, 3)]:
        assert late.see("car", SLOT + slot, cell).outcome == "used"
    np.testing.assert_allclose(late.places("car"), on_time.places("car"), rtol=1e-3, atol=1e-7)
    assert late.see("car", SLOT + 2, 40).outcome == "repeated"
    assert late.see("car", SLOT + 2, 41).outcome == "conflicting"


def test_what_comes_too_late_is_left_out(lattice: Bundle) -> None:
    tracker = Tracker(lattice, late_slots=2)
    for slot, cell in [(3, 5), (5, 17), (7, 40)]:
        tracker.see("car", SLOT + slot, cell)
    before = tracker.places("car").copy()
    assert [tracker.see("car", SLOT + slot, 1).outcome for slot in (4, 2)] == ["late", "late"]
    np.testing.assert_array_equal(tracker.places("car"), before)
    assert tracker.outcomes == {"used": 3, "late": 2}


def test_a_slot_counts_once(lattice: Bundle) -> None:
    tracker = Tracker(lattice)
    tracker.see("car", SLOT, 5)
    before = tracker.places("car").copy()
    _, outcomes = tracker.see_many(["car", "car"], [SLOT, SLOT], [5, 6])
    assert outcomes == ["repeated", "conflicting"]
    np.testing.assert_array_equal(tracker.places("car"), before)


def test_several_reports_of_a_vehicle_in_one_call(lattice: Bundle) -> None:
    one, many = Tracker(lattice), Tracker(lattice)
    for slot, cell in [(0, 5), (1, 17), (3, 40)]:
        one.see("car", SLOT + slot, cell)
    estimates, outcomes = many.see_many(["car", "bus", "car", "car"], SLOT + np.array([0, 7, 1, 3]), [5, 1, 17, 40])
    assert outcomes == ["used"] * 4
    np.testing.assert_allclose(many.places("car"), one.places("car"), rtol=1e-4, atol=1e-7)
    assert len(estimates) == 4


def test_memory_is_bounded(lattice: Bundle) -> None:
    size = BeliefFilter.of(lattice, plain_model(lattice)).bytes_per_vehicle
    tracker = Tracker(lattice, memory_bytes=10 * size)
    for vehicle in range(1000):
        tracker.see(vehicle, SLOT, vehicle % 100)
        tracker.see("kept", SLOT + vehicle, 3)
    assert (tracker.vehicles, tracker.dropped) == (10, 991)
    assert tracker.likeliest("kept")
    with pytest.raises(ParameterError, match="forgotten"):
        tracker.places(0)


def test_a_hundred_thousand_reports_do_no_harm(lattice: Bundle) -> None:
    """Reports that jump to and fro, as no vehicle can: beliefs stay probabilities."""
    tracker = Tracker(lattice)
    cells = np.random.default_rng(2).choice([0, CELLS - 1, 60], size=(400, 250))
    names = list(range(250))
    for tick, outputs in enumerate(cells):
        estimates, _ = tracker.see_many(names, np.full(250, SLOT + tick), outputs)
    assert sum(tracker.outcomes.values()) == 100_000
    assert np.isfinite(estimates.lat).all()
    assert (estimates.radius_m > 0).all()
    np.testing.assert_allclose([tracker.places(name).sum() for name in names], 1.0, atol=1e-4)


@pytest.mark.parametrize("output", [-1, 121, 10**9])
def test_outputs_that_the_bundle_has_not_are_refused(lattice: Bundle, output: int) -> None:
    tracker = Tracker(lattice)
    with pytest.raises(InputError, match="possible are 0 to 120"):
        tracker.see("car", SLOT, output)
    assert tracker.vehicles == 0


@pytest.mark.parametrize("slot", [-1, 1 << 60])
def test_absurd_slots_are_refused(lattice: Bundle, slot: int) -> None:
    with pytest.raises(InputError, match="slot"):
        Tracker(lattice).see("car", slot, 0)


def test_another_citys_model_is_refused(town: Bundle, lattice: Bundle, town_model: MotionModel) -> None:
    far = MotionModel.by_distance([[100_000_000, 100_000_000], [100_010_000, 100_000_000]], interval_s=30.0)
    for bundle in (town, lattice):
        with pytest.raises(MismatchError, match="places"):
            Tracker(bundle, far)
    with pytest.raises(MismatchError, match="30 s"):
        Tracker(load_with_interval(), town_model)


def load_with_interval() -> Bundle:
    """A lattice with a report every 45 s."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return load_bundle(save_small(Path(folder) / "x.bundle", interval_s=45.0))


def test_looking_ahead_spreads_the_belief(lattice: Bundle) -> None:
    tracker = Tracker(lattice)
    for step in range(10):
        tracker.see("car", SLOT + step, 60)
    now, later = tracker.places("car"), tracker.places("car", ahead=20)
    assert later.max() < now.max()
    assert tracker.estimate("car", ahead=20).radius_m[0] >= tracker.estimate("car").radius_m[0] - 0.01  # singles
    tracker.forget("car")
    with pytest.raises(ParameterError, match="No report"):
        tracker.estimate("car")
