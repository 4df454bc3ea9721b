from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.sight import LaplaceSight, LatticeSight, Reports, ZoneSight
from geoblanket.tracking.tracker import plain_model
from tests.release.lattices import save_small
from tests.release.worlds import CLOCK, GRAPH, PLACES, report, save_certain

SLOT = 57_326_400


def reports(outputs: list[int], *, follows: bool = False) -> Reports:
    return Reports(np.array(outputs), np.full(len(outputs), SLOT), np.full(len(outputs), follows))


def test_a_lattice_is_seen_as_it_draws(tmp_path: Path) -> None:
    """Every place and every cell, the sink too, against the weights that are drawn from."""
    bundle = load_bundle(save_small(tmp_path / "x.bundle"))
    assert bundle.lattice is not None
    model = replace(plain_model(bundle), spread_m=0.0)
    sight = LatticeSight(bundle.lattice, model, interval_s=30.0)
    seen = sight.likelihood(reports(list(range(bundle.lattice.cells))))
    exact = np.array([bundle.lattice.weights(lat, lon) for lat, lon in zip(model.lat, model.lon, strict=True)]) / 2**62
    np.testing.assert_allclose(seen / seen.sum(axis=0), exact / exact.sum(axis=0), rtol=2e-3)


def test_zones_are_seen_by_the_history_of_a_state(tmp_path: Path) -> None:
    """Each pair of places has a report that is all but certain; at the start of a trip only the place counts."""
    bundle = load_bundle(save_certain(tmp_path / "x.bundle"))
    model = learn_motion(GRAPH, PLACES, interval_s=30.0)
    sight = ZoneSight(bundle, model)
    first = sight.likelihood(reports(list(range(len(PLACES)))))
    later = sight.likelihood(reports(list(range(len(PLACES))), follows=True))
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
    bundle = load_bundle(save_certain(tmp_path / "x.bundle"))
    model = learn_motion(GRAPH, PLACES, interval_s=30.0, order=1)
    seen = ZoneSight(bundle, model).likelihood(reports(list(range(len(PLACES))), follows=True))
    flow = model.usual[:, None] * model.moves.toarray()
    for now in range(len(PLACES)):
        if now % 6 != 5:
            assert seen[now].argmax() == report("day", now, int(flow[:, now].argmax()))


def test_planar_laplace_noise(tmp_path: Path) -> None:
    bundle = load_bundle(save_small(tmp_path / "x.bundle"))
    model = replace(plain_model(bundle), spread_m=0.0)
    sight = LaplaceSight(model.lat[:2], model.lon[:2], model, epsilon=3.0, interval_s=30.0)
    seen = sight.likelihood(reports([0, 1]))
    distance_km = np.linalg.norm(model.xy_m[:, None] - model.xy_m[:2], axis=2) / 1000
    np.testing.assert_allclose(seen, np.exp(-3.0 * distance_km), rtol=1e-4)
    with pytest.raises(ParameterError, match="ε"):
        LaplaceSight(model.lat, model.lon, model, epsilon=0.0, interval_s=30.0)


def test_other_places_are_refused(tmp_path: Path) -> None:
    bundle = load_bundle(save_certain(tmp_path / "x.bundle"))
    other = MotionModel.by_distance(PLACES.coordinates_e7[:-1], interval_s=30.0)
    with pytest.raises(MismatchError, match="different places"):
        ZoneSight(bundle, other)
