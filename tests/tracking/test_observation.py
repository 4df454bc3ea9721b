from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket._arrays import Floats
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.release.fence import Fence, Fences
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.observation import LaplaceObservations, LatticeObservations, Reports, ZoneObservations
from geoblanket.tracking.tracker import Tracker, plain_model
from tests.mechanism.bundles import load_zones
from tests.release.lattices import save_small
from tests.release.worlds import CLOCK, GRAPH, PLACES, report, save_certain
from tests.tracking.worlds import chance, dense, pair_model

SLOT = 57_326_400


def reports(outputs: list[int], *, follows: bool = False) -> Reports:
    return Reports(np.array(outputs), np.full(len(outputs), SLOT), np.full(len(outputs), follows))


def test_a_lattice_is_seen_as_it_draws(tmp_path: Path) -> None:
    """Every place and every cell, the sink too, against the weights that are drawn from."""
    bundle = load_bundle(save_small(tmp_path / "x.bundle"))
    assert isinstance(bundle, LatticeBundle)
    model = replace(plain_model(bundle), spread_m=0.0)
    observations = LatticeObservations(bundle.lattice, model, interval_s=30.0)
    seen = observations.likelihood(reports(list(range(bundle.lattice.cells))))
    exact = np.array([bundle.lattice.weights(lat, lon) for lat, lon in zip(model.lat, model.lon, strict=True)]) / 2**62
    np.testing.assert_allclose(seen / seen.sum(axis=0), exact / exact.sum(axis=0), rtol=2e-3)


def test_zones_are_seen_by_the_history_of_a_state(tmp_path: Path) -> None:
    """Each pair of places has a report that is all but certain; at the start of a trip only the place counts."""
    bundle = load_zones(save_certain(tmp_path / "x.bundle"))
    model = learn_motion(GRAPH, PLACES, interval_s=30.0)
    observations = ZoneObservations(bundle, model)
    first = observations.likelihood(reports(list(range(len(PLACES)))))
    later = observations.likelihood(reports(list(range(len(PLACES))), follows=True))
    assert CLOCK.regime(9) == "day"  # midnight in UTC
    inside = 0
    for state, (now, before) in enumerate(model.states.tolist()):
        if now % 6 == 5:
            continue  # in no zone: another place stands for it
        inside += 1
        assert first[state].argmax() == report("start", now, 0)
        assert later[state].argmax() == report("day", now, before)
        assert later[state].sum() == pytest.approx(1.0, abs=1e-5)
    assert inside > 20


def test_states_that_are_too_short_take_their_likeliest_past(tmp_path: Path) -> None:
    bundle = load_zones(save_certain(tmp_path / "x.bundle"))
    model = learn_motion(GRAPH, PLACES, interval_s=30.0, order=1)
    seen = ZoneObservations(bundle, model).likelihood(reports(list(range(len(PLACES))), follows=True))
    flow = model.usual[:, None] * model.moves.toarray()
    for now in range(len(PLACES)):
        if now % 6 != 5:
            assert seen[now].argmax() == report("day", now, int(flow[:, now].argmax()))


def test_planar_laplace_noise(tmp_path: Path) -> None:
    bundle = load_bundle(save_small(tmp_path / "x.bundle"))
    model = replace(plain_model(bundle), spread_m=0.0)
    observations = LaplaceObservations(model.lat[:2], model.lon[:2], model, epsilon=3.0, interval_s=30.0)
    seen = observations.likelihood(reports([0, 1]))
    distance_km = np.linalg.norm(model.xy_m[:, None] - model.xy_m[:2], axis=2) / 1000
    np.testing.assert_allclose(seen, np.exp(-3.0 * distance_km), rtol=1e-4)
    with pytest.raises(ParameterError, match="ε"):
        LaplaceObservations(model.lat, model.lon, model, epsilon=0.0, interval_s=30.0)


def test_other_places_are_refused(tmp_path: Path) -> None:
    bundle = load_zones(save_certain(tmp_path / "x.bundle"))
    other = MotionModel.by_distance(PLACES.coordinates_e7[:-1], interval_s=30.0)
    with pytest.raises(MismatchError, match="different places"):
        ZoneObservations(bundle, other)


def fences_around(lat: float, lon: float, *, radius_m: int) -> Fences:
    """A fence with its centre at a point, and one that was taken away."""
    lat_e7, lon_e7 = round(lat * 1e7), round(lon * 1e7)
    south, west = lat_e7 - 5_000_000, lon_e7 - 5_000_000
    return Fences([
        Fence("gone", lat_e7 + 20_000, lon_e7, 5000, 5000, south, west, active=False),
        Fence("home", lat_e7, lon_e7, 100, radius_m, south, west),
    ])  # fmt: skip


def test_beliefs_with_fences_are_those_of_the_lattice_s_weights(tmp_path: Path) -> None:
    """A hidden Markov model by hand: a place inside a fence reports as its centre does.

    The chain forgets directions, so half of each belief takes a second step.
    """
    bundle = load_bundle(save_small(tmp_path / "x.bundle"))
    assert isinstance(bundle, LatticeBundle)
    steps = np.arange(4) * 25_000
    places_e7 = np.array([[411_010_000 + north, -85_960_000 + east] for north in steps for east in steps], np.int32)
    model = MotionModel.by_distance(places_e7, interval_s=30.0)
    fences = fences_around(41.1052, -8.5930, radius_m=320)
    weights = np.array([
        bundle.lattice.weights(*(value * 1e-7 for value in fences.apply_e7(*place))) for place in places_e7.tolist()
    ]) / 2**62  # fmt: skip
    inside = [fences.apply_e7(*place) != tuple(place) for place in places_e7.tolist()]
    assert 3 <= sum(inside) <= 12
    exact: Floats = model.start.astype(np.float64)
    tracker, once = Tracker(bundle, model, fences=fences), model.moves.toarray().astype(np.float64)
    moves = 0.5 * (once + once @ once)
    for slot, cell in enumerate([60, 61, 49, 60, 71, 38, 27]):
        exact = (exact @ moves if slot else exact) * weights[:, cell]
        exact /= exact.sum()
        tracker.see("car", SLOT + slot, cell)
        np.testing.assert_allclose(tracker.places("car")[:, 0], exact, atol=3e-4)
    # Places inside are told apart by how vehicles move alone.
    seen = LatticeObservations(bundle.lattice, replace(model, spread_m=80.0), interval_s=30.0, fences=fences)
    assert (np.ptp(seen.likelihood(reports([60, 3]))[inside], axis=0) == 0).all()


def test_zones_with_fences_are_seen_as_from_the_place_nearest_to_the_centre(tmp_path: Path) -> None:
    bundle = load_zones(save_certain(tmp_path / "x.bundle", epsilon=0.6))
    model = pair_model(3)
    fences = fences_around(PLACES.lat[8] + 0.001, PLACES.lon[8], radius_m=1500)
    seen_as = [
        8 if fences.apply_e7(*place) != tuple(place) else number
        for number, place in enumerate(PLACES.coordinates_e7.tolist())
    ]
    assert 4 <= seen_as.count(8) <= 9
    exact, moves = model.start.astype(np.float64), dense(model)
    tracker = Tracker(bundle, model, fences=fences)
    for slot, output in enumerate([8, 7, 8, 13, 9]):
        regime = "day" if slot else "start"
        likely = [
            chance(bundle, regime, seen_as[now], seen_as[before], output) for now, before in model.states.tolist()
        ]
        exact = (exact @ moves if slot else exact) * likely
        exact /= exact.sum()
        tracker.see("car", SLOT + slot, output)
        by_place = np.bincount(model.present, exact, model.place_count)
        np.testing.assert_allclose(tracker.places("car")[:, 0], by_place, atol=3e-4)
