"""Mechanisms that look two places back, at the second report of a trip: the device does not know that much yet."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, save_bundle
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.storage import ZoneBundle
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.metric import Metric
from geoblanket.mechanism.row_distances import row_distances
from geoblanket.release.rule import ReleaseRule
from geoblanket.roads.places import choose_places
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.observation import Reports, ZoneObservations
from tests.mechanism.bundles import load_zones
from tests.roads.graphs import grid_graph

PLACES = choose_places(grid_graph(1, 5, step_deg=0.012))
COUNT = len(PLACES)
CLOCK = Clock(30_000, "UTC", (("all", tuple(range(24))),))


def mechanism(regime: str, past: int) -> BundledMechanism:
    """One zone, a row for each history, and outputs at random."""
    histories = np.array(list(product(range(COUNT), repeat=1 + past)), np.int32)
    table = HistoryTable(PLACES.coordinates_e7, histories, np.arange(len(histories), dtype=np.int32))
    mm = row_distances(table, [Metric.haversine(PLACES.coordinates_e7)] * (1 + past), [500_000] * past)
    loss = np.random.default_rng(past).random((len(histories), COUNT))
    problem = Problem(loss, np.full(len(loss), 1 / len(loss)), mm / 1e6, epsilon=2.0)
    return BundledMechanism.of(
        Mechanism.from_probabilities(np.exp(-4 * loss) / np.exp(-4 * loss).sum(axis=1, keepdims=True), problem),
        zone="all",
        regime=regime,
        history_weights=[0.5] * past,
        histories=histories,
        output_places=range(COUNT),
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> ZoneBundle:
    path = tmp_path_factory.mktemp("past") / "a.bundle"
    parts = [mechanism("start", 0), mechanism("all", 2)]
    save_bundle(path, parts, version=1, places_e7=PLACES.coordinates_e7, clock=CLOCK)
    return load_zones(path)


def triples() -> MotionModel:
    """All triples of places, each followed by any place."""
    states = np.array(list(product(range(COUNT), repeat=3)), np.int32)
    number = {tuple(state): index for index, state in enumerate(states.tolist())}
    targets = [number[after, now, before] for now, before, _ in states.tolist() for after in range(COUNT)]
    return MotionModel(
        places_e7=PLACES.coordinates_e7,
        places_identity=PLACES.identity,
        interval_s=30.0,
        states=states,
        start=np.full(len(states), 1 / len(states), np.float32),
        offsets=np.arange(0, len(targets) + 1, COUNT, dtype=np.int64),
        targets=np.array(targets, np.int32),
        chances=np.full(len(targets), 1 / COUNT, np.float32),
    )


def test_reports_are_weighed_by_what_the_device_knew(bundle: ZoneBundle) -> None:
    model = triples()
    observations = ZoneObservations(bundle, model)
    early, full = bundle.get("all", "start").mechanism.weights, bundle.get("all", "all").mechanism.weights
    for follows in range(5):
        found = observations.likelihood(Reports(np.arange(COUNT), np.full(COUNT, 1000), np.full(COUNT, follows)))
        for state, (now, before, earlier) in enumerate(model.states.tolist()):
            if follows == 0:
                row = early[now]
            else:  # what is not known is taken as the oldest place that is
                oldest = before if follows == 1 else earlier
                row = full[(now * COUNT + before) * COUNT + oldest]
            assert found[state] == pytest.approx(np.asarray(row, np.float64) / 2**62, abs=1e-6)


def test_the_device_draws_by_the_same_rows(bundle: ZoneBundle) -> None:
    """From the rule that devices draw by: a history of two places is one of three whose last two are alike."""
    rule = ReleaseRule(bundle)
    for history, full in (([3, 1], [3, 1, 1]), ([0], [0, 0, 0])):
        (short,), (long,) = (
            [chances for _, _, chances in rule.distributions(np.array([given], np.int32), "all")]
            for given in (history, full)
        )
        assert np.array_equal(short, long)
