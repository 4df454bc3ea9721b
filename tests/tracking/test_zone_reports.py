"""Reports of zones with context: beliefs beside those of a hidden Markov model over all pairs, computed by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import MismatchError
from geoblanket.mechanism.bundle.storage import ZoneBundle
from geoblanket.release.bulk import perturb_walks
from geoblanket.release.rule import Regimes
from geoblanket.tracking import filtering
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import Reports, ZoneObservations
from geoblanket.tracking.table import track_table
from geoblanket.tracking.tracker import Tracker
from tests.mechanism.bundles import load_zones
from tests.release.worlds import CLOCK, GRAPH, PLACES, save_certain
from tests.tracking.worlds import MIDNIGHT, chance, dense, pair_model, save_timed_walks, wander

SLOT = int(MIDNIGHT.timestamp()) // 30
NINE = 9 * 120 - 6
"""Tokyo is nine hours ahead: from this slot on, six reports come before 18 h and the rest after."""


@pytest.fixture(scope="module")
def unsure(tmp_path_factory: pytest.TempPathFactory) -> ZoneBundle:
    """Reports that tell little: ε = 0.6 per km, places a kilometre apart."""
    return load_zones(save_certain(tmp_path_factory.mktemp("unsure") / "town.bundle", epsilon=0.6))


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_certain(tmp_path_factory.mktemp("sure") / "town.bundle")


@pytest.fixture(autouse=True)
def no_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a prediction leaves for a vehicle being anywhere is no part of the truth here."""
    monkeypatch.setattr(filtering, "_ANYWHERE", 0.0)


def likelihoods(bundle: ZoneBundle, model: MotionModel, slot: int, output: int, *, follows: bool) -> Floats:
    regime = Regimes(CLOCK).at(slot * 30_000) if follows else "start"
    return np.array([chance(bundle, regime, now, before, output) for now, before in model.states.tolist()])


def by_hand(
    bundle: ZoneBundle, model: MotionModel, slots: list[int], outputs: list[int], follows: list[bool]
) -> tuple[Floats, Floats]:
    """Filtered and smoothed beliefs over states, each of shape (reports, N)."""
    moves = dense(model)
    seen = [
        np.ones(len(model)) if output < 0 else likelihoods(bundle, model, slot, output, follows=after)
        for slot, output, after in zip(slots, outputs, follows, strict=True)
    ]
    forward = [model.start * seen[0]]
    for index in range(1, len(slots)):
        predicted = forward[-1] @ np.linalg.matrix_power(moves, slots[index] - slots[index - 1])
        forward.append(predicted * seen[index])
    backward = [np.ones(len(model))]
    for index in range(len(slots) - 1, 0, -1):
        step = np.linalg.matrix_power(moves, slots[index] - slots[index - 1])
        backward.insert(0, step @ (seen[index] * backward[0]))
    filtered, smoothed = np.array(forward), np.array(forward) * np.array(backward)
    return filtered / filtered.sum(axis=1)[:, None], smoothed / smoothed.sum(axis=1)[:, None]


def beliefs_of(run: object, beliefs: BeliefFilter, sequences: Sequences) -> Floats:
    result = np.zeros((len(sequences.slot), len(beliefs.model)))

    def seen(positions: np.ndarray, found: Singles) -> None:
        result[positions] = found.T

    assert callable(run)
    run(beliefs, sequences, seen)
    return result


def test_likelihoods_are_the_weights_of_the_bundle(unsure: ZoneBundle) -> None:
    model = pair_model()
    observations = ZoneObservations(unsure, model)
    for slot in (SLOT, SLOT + 9 * 120):  # day and night
        for follows in (False, True):
            for output in (0, 3, 8, 10, 22):
                found = observations.likelihood(Reports(np.array([output]), np.array([slot]), np.array([int(follows)])))
                assert found[:, 0] == pytest.approx(likelihoods(unsure, model, slot, output, follows=follows), abs=1e-6)


def test_beliefs_are_those_of_the_hidden_markov_model(unsure: ZoneBundle) -> None:
    """With a gap, a slot that is only asked about, and the change from day to night."""
    model, rng = pair_model(1), np.random.default_rng(2)
    slots = [SLOT + NINE + step for step in (0, 1, 2, 3, 5, 6, 7, 8, 9, 10)]
    outputs = [int(rng.choice([0, 1, 2, 6, 7, 8, 12])) for _ in slots]
    outputs[6] = NO_REPORT
    follows = [False, True, True, True, False, True, False, False, True, True]
    filtered, smoothed = by_hand(unsure, model, slots, outputs, follows)
    sequences = Sequences(np.array(slots), np.array(outputs), np.array([0]))
    beliefs = BeliefFilter.of(unsure, model)
    assert beliefs_of(follow, beliefs, sequences) == pytest.approx(filtered, abs=2e-6)
    assert beliefs_of(smooth, beliefs, sequences) == pytest.approx(smoothed, abs=2e-6)


def test_a_tracker_has_the_same_beliefs(unsure: ZoneBundle) -> None:
    model, rng = pair_model(3), np.random.default_rng(4)
    slots = [SLOT + NINE + step for step in (0, 1, 2, 4, 5, 6, 7)]
    outputs = [int(rng.choice([0, 1, 2, 6, 7, 8, 12])) for _ in slots]
    filtered, _ = by_hand(unsure, model, slots, outputs, [False, True, True, False, True, True, True])
    tracker = Tracker(unsure, model)
    for slot, output, expected in zip(slots, outputs, filtered, strict=True):
        assert tracker.see("a", slot, output).outcome == "used"
        places = np.bincount(model.present, expected, 24)
        assert tracker.places("a")[:, 0] == pytest.approx(places, abs=2e-6)


def test_a_walk_without_a_gap_starts_anew_and_hours_are_those_of_the_step(unsure: ZoneBundle) -> None:
    """Sequences may say themselves how a report was made."""
    model = pair_model(5)
    slots = [SLOT + NINE + step for step in range(6)]
    outputs = [0, 7, 8, 1, 2, 8]
    follows = [False, True, True, False, True, True]
    filtered, _ = by_hand(unsure, model, slots, outputs, follows)
    known = np.array([0, 1, 2, 0, 1, 2])
    sequences = Sequences(np.array(slots), np.array(outputs), np.array([0]), known)
    assert beliefs_of(follow, BeliefFilter.of(unsure, model), sequences) == pytest.approx(filtered, abs=2e-6)
    # The same slots, reported in the night.
    late_ms = np.array(slots) * 30_000 + 5 * 3_600_000
    moved = [slot + 5 * 120 for slot in slots]
    night, _ = by_hand(unsure, model, moved, outputs, follows)
    found = beliefs_of(follow, BeliefFilter.of(unsure, model), replace(sequences, time_ms=late_ms))
    assert found == pytest.approx(night, abs=2e-6)
    assert np.abs(night - filtered).max() > 0.01


def test_a_table_of_perturbed_walks_is_understood(sure: Path, tmp_path: Path) -> None:
    """At ε = 20 the report follows from regime, place and place before: one who has all three right finds the truth."""
    rng = np.random.default_rng(6)  # in the first four columns: a report from the fifth may be from the sixth
    GRAPH.save(tmp_path / "town.roads")
    six = MIDNIGHT + timedelta(hours=9, seconds=-307)  # not at the start of a slot, and over 18 h in Tokyo
    walks = []
    for vehicle in range(12):
        places = wander(rng, 24, columns=4)
        walks.append((f"v{vehicle}", six, places))
        # The next walk begins one interval after the last step: without a gap, and without a past.
        walks.append((f"v{vehicle}", six + timedelta(seconds=30 * 24), wander(rng, 12, start=places[-1], columns=4)))
    save_timed_walks(tmp_path / "walks.parquet", walks)
    bundle = load_zones(sure)
    perturb_walks(tmp_path / "walks.parquet", tmp_path / "town.roads", tmp_path / "released.parquet", bundle=bundle)
    summary = track_table(
        tmp_path / "released.parquet", tmp_path / "tracked.parquet", bundle=bundle, model=pair_model(7)
    )
    tracked = pl.read_parquet(tmp_path / "tracked.parquet")
    true = np.array([place for _, _, places in walks for place in places])
    off = np.hypot(tracked["lat"].to_numpy() - PLACES.lat[true], tracked["lon"].to_numpy() - PLACES.lon[true])
    assert (off < 0.002).mean() > 0.99  # places are 0.012 degrees apart
    reported = tracked["place"].to_numpy()
    assert (reported == true).mean() < 0.5
    assert (summary.reports, summary.vehicles, summary.repeated, summary.impossible) == (432, 12, 0, 0)


def test_a_model_with_other_steps_cannot_know_the_past(unsure: ZoneBundle) -> None:
    with pytest.raises(MismatchError, match="look at places 30 s apart, and a step of the motion model takes 15 s"):
        Tracker(unsure, pair_model(interval_s=15.0))
    with pytest.raises(MismatchError, match="a step of the motion model takes 20 s"):
        Tracker(unsure, pair_model(interval_s=20.0))
