from __future__ import annotations

import itertools

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.build.held_out import measure
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.evaluate.measures.attacker import Cases, attack_report, zone_distance_km
from geoblanket.evaluate.measures.forward_backward import place_posteriors
from geoblanket.evaluate.measures.mobility_model import MobilityModel
from geoblanket.evaluate.measures.tracking import Attack, Tracking, find_runs, track, track_over_time
from geoblanket.mobility.histories import Steps
from tests.evaluate.measures.test_mobility_model import dense
from tests.evaluate.walking import COUNTS, TOWN, ZONE, present, random_channel, rows_of, wandering

HELD_OUT = wandering(TOWN, vehicles=60, length=40, seed=1)
HERE = HELD_OUT.where(np.isin(HELD_OUT.histories[:, 0], ZONE))


def blurring(rows: ZoneRows, epsilon: float) -> Floats:
    """An exponential mechanism about the present place."""
    weight = np.exp(-epsilon * zone_distance_km(rows))[present(rows)]
    table: Floats = weight / weight.sum(axis=1, keepdims=True)
    return table


def success(attack: Attack) -> float:
    found = measure(attack.success)
    assert found is not None
    return found.loss


def error(attack: Attack) -> float:
    found = measure(attack.error_km)
    assert found is not None
    return found.loss


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


@pytest.mark.parametrize("context", ["none", "markov:1", "markov:2"])
def test_without_noise_it_always_knows(context: str) -> None:
    rows = rows_of(context)
    model = MobilityModel.from_counts(rows, COUNTS)
    for found in track_over_time(np.eye(6)[present(rows)], rows, HELD_OUT, model, lengths=[1, 7]).values():
        assert success(found.smoothed) == success(found.filtered) == 1.0
        assert error(found.smoothed) == error(found.filtered) == 0.0
        assert success(found.prior) < 0.6


@pytest.mark.parametrize("memory", [0, 1])
def test_constant_reports_tell_no_more_than_the_prior(memory: int) -> None:
    rows = rows_of("markov:1")
    model = MobilityModel.from_counts(rows, COUNTS, memory=memory)
    found = track(np.tile([0.2, 0, 0.3, 0.1, 0.3, 0.1], (len(rows), 1)), rows, HELD_OUT, model, reports=6)
    assert success(found.smoothed) == success(found.prior)
    assert error(found.smoothed) == pytest.approx(error(found.prior))


@pytest.mark.parametrize("context", ["none", "markov:1", "markov:2"])
def test_one_report_is_the_attacker_on_one_report(context: str) -> None:
    """On the model itself, in expectation over reports; the cases of the single attacker are the states."""
    rows = rows_of(context)
    model = MobilityModel.from_counts(rows, COUNTS)
    q, apart = random_channel(len(rows), 6, seed=1, sharpness=3.0), zone_distance_km(rows)
    emissions = np.asarray(model.mixture(rows) @ q)
    posterior = place_posteriors(model, emissions, np.arange(6)[None]).smoothed[0]
    chance = model.start @ emissions
    states = Cases(
        np.arange(len(model)), model.present, model.start, np.zeros(len(model), np.int64), np.empty((1, 0), np.int64)
    )
    found = attack_report(emissions, states, apart)
    assert posterior.max(axis=0) @ chance == pytest.approx(found.success)
    assert (apart @ posterior).min(axis=0) @ chance == pytest.approx(found.error_km)
    # And the states, rows and histories are one attacker's, but for what smoothing adds to places hardly seen.
    assert attack_report(q, Cases.of_counts(rows, COUNTS), apart).success == pytest.approx(found.success, abs=1e-3)


def test_on_held_out_walks_one_report_does_about_what_it_should_and_more_reports_more() -> None:
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS)
    steps = wandering(TOWN, vehicles=400, length=40, seed=2)
    q = blurring(rows, 4.0)
    found = track_over_time(q, rows, steps, model, lengths=[1, 2, 5, 10])
    single = attack_report(q, Cases.of_counts(rows, COUNTS), zone_distance_km(rows))
    for attack, value in (("error_km", single.error_km), ("success", single.success)):
        interval = measure(getattr(found[1].smoothed, attack))
        assert interval is not None
        assert interval.low - 0.01 < value < interval.high + 0.01
    smoothed = [success(each.smoothed) for each in found.values()]
    noise = 0.01  # of the draws, for 3,600 steps
    assert all(later > earlier - noise for earlier, later in itertools.pairwise(smoothed))
    assert smoothed[-1] > smoothed[0] + 2 * noise
    for each in found.values():
        assert success(each.prior) + 0.1 < success(each.filtered) < success(each.smoothed) + noise
        assert error(each.prior) - 0.05 > error(each.filtered) > error(each.smoothed) - noise


def test_against_a_plain_loop() -> None:
    rows = rows_of("markov:1")
    model = MobilityModel.from_counts(rows, COUNTS)
    q, apart = blurring(rows, 5.0), zone_distance_km(rows)
    found = track(q, rows, HELD_OUT, model, reports=4, seed=7)
    chance = np.random.default_rng(7).random(len(HERE))
    emissions = np.asarray(model.mixture(rows) @ q)
    right, away = 0, 0.0
    ends = [*find_runs(HERE).tolist()[1:], len(HERE)]
    for begin, end in zip(find_runs(HERE).tolist(), ends, strict=True):
        for first in range(begin, end, 4):
            window = range(first, min(first + 4, end))
            used = rows.row_of(HERE.histories[list(window)])
            reports = [int((np.cumsum(q[row]) <= chance[i]).sum()) for row, i in zip(used, window, strict=True)]
            posterior = place_posteriors(model, emissions, np.array(reports)[:, None]).smoothed[:, :, 0]
            for step, belief in zip(window, posterior, strict=True):
                true = ZONE.tolist().index(HERE.histories[step, 0])
                right += int(belief.argmax() == true)
                away += float(apart[(apart @ belief).argmin(), true])
    assert success(found.smoothed) == pytest.approx(right / len(HERE))
    assert error(found.smoothed) == pytest.approx(away / len(HERE))


def test_what_it_believes_is_right_as_often_as_it_believes() -> None:
    """Vehicles that move by the model itself: the probability of the best guess is how often it is right."""
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS, memory=0)
    rng = np.random.default_rng(5)
    # The sixth place counted from 0 stands for elsewhere, whence nobody comes back.
    cumulated = np.vstack([dense(model), np.zeros(6)]).cumsum(axis=1)
    emissions = blurring(rows, 3.0)
    state = np.empty((6, 20_000), np.int64)
    state[0] = (model.start.cumsum() < rng.random((20_000, 1))).sum(axis=1)
    for step in range(1, 6):
        state[step] = (cumulated[state[step - 1]] < rng.random((20_000, 1))).sum(axis=1)
    stayed = (state < 6).all(axis=0)
    state = state[:, stayed]
    reports = (emissions.cumsum(axis=1)[state] < rng.random((*state.shape, 1))).sum(axis=2)
    found = place_posteriors(model, emissions, reports).smoothed
    assert stayed.sum() > 1000
    assert found.max(axis=1).mean() == pytest.approx((found.argmax(axis=1) == state).mean(), abs=0.01)


def test_the_seed_decides() -> None:
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS)
    one, same, other = (
        track(blurring(rows, 2.0), rows, HELD_OUT, model, reports=5, seed=seed).smoothed.error_km.loss.sum()
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS)
    whole = track(blurring(rows, 2.0), rows, HELD_OUT, model)
    monkeypatch.setattr("geoblanket.evaluate.measures.tracking._CELLS", 1000)
    parts = track(blurring(rows, 2.0), rows, HELD_OUT, model)
    assert whole.smoothed.error_km.loss == pytest.approx(parts.smoothed.error_km.loss)


def test_zones_can_be_joined() -> None:
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS)
    found = track(blurring(rows, 2.0), rows, HELD_OUT, model, reports=3)
    twice = Tracking.joined([found, found])
    assert twice.smoothed.success.steps.tolist() == (2 * found.smoothed.success.steps).tolist()
    assert success(twice.prior) == pytest.approx(success(found.prior))
    with pytest.raises(ParameterError, match="same number"):
        Tracking.joined([found, track(blurring(rows, 2.0), rows, HELD_OUT, model, reports=4)])


def test_no_steps_have_no_mean() -> None:
    rows = rows_of("none")
    nowhere = HELD_OUT.where(np.zeros(len(HELD_OUT), bool))
    found = track(blurring(rows, 2.0), rows, nowhere, MobilityModel.from_counts(rows, COUNTS))
    assert measure(found.smoothed.success) is None


def test_what_cannot_be_tracked_is_refused() -> None:
    rows = rows_of("none")
    model = MobilityModel.from_counts(rows, COUNTS)
    with pytest.raises(MismatchError, match="do not belong"):
        track(np.eye(5), rows, HELD_OUT, model)
    with pytest.raises(ParameterError, match="one report or more"):
        track(np.eye(6), rows, HELD_OUT, model, reports=0)
    with pytest.raises(ParameterError, match="one or more earlier places"):
        track(np.eye(6), rows, wandering(TOWN, vehicles=2, length=5, past=0), model)
