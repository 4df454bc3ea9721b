from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

from geoblanket.blanket.findings import read_labels
from geoblanket.blanket.predictor import (
    Encoding,
    Network,
    Origin,
    Predictor,
    PredictorInputs,
    blanket_lengths,
    save_predictor,
    sigmoid,
)
from geoblanket.errors import ParameterError
from tests.blanket.made_findings import LARGEST, learnable, make_findings

ORIGIN = Origin(
    by="hour+speed+region",
    interval_s=30.0,
    time_zone="Europe/Lisbon",
    regions="null",
    test="analytic",
    alpha=0.05,
    labels="all",
    groups=100,
    seed=0,
)


def trained(by: str = "hour+speed+region") -> tuple[Predictor, MLPClassifier]:
    """Return a predictor and the classifier of scikit-learn with its weights, half trained: so lengths differ."""
    labels = read_labels(make_findings(learnable, hours=8, speeds=10, by=by))
    encoding = Encoding.learned(labels.inputs, largest=LARGEST)
    peer = MLPClassifier((16, 8), random_state=np.random.RandomState(0), learning_rate_init=0.01, batch_size=32)
    for _ in range(20):
        peer.partial_fit(encoding.rows(labels.inputs), labels.kept, classes=[False, True])
    return Predictor(encoding, Network(tuple(peer.coefs_), tuple(peer.intercepts_)), ORIGIN), peer


@pytest.fixture(scope="module")
def pair() -> tuple[Predictor, MLPClassifier]:
    return trained()


@pytest.fixture(scope="module")
def predictor(pair: tuple[Predictor, MLPClassifier]) -> Predictor:
    return pair[0]


def test_the_forward_pass_equals_that_of_scikit_learn(pair: tuple[Predictor, MLPClassifier]) -> None:
    predictor, peer = pair
    largest_difference = 0.0
    for hour, speed, region in product(range(24), range(0, 120, 15), (0, 1, 2, 77)):
        one = PredictorInputs(*(np.array([value]) for value in (hour, speed, region, 1))).with_every_order(LARGEST)
        expected = peer.predict_proba(predictor.encoding.rows(one))[:, 1]
        ours = predictor.probabilities(hour=hour, speed_mph=speed, region=region)
        largest_difference = max(largest_difference, float(np.abs(ours - expected).max()))
    assert largest_difference <= 1e-12


def test_the_table_the_network_and_the_probabilities_agree_everywhere(predictor: Predictor) -> None:
    assert predictor.table.shape == (24, 24, 4)
    assert len(np.unique(predictor.table)) >= 3
    for hour, speed, region, length in predictor.grid():
        cell = {"hour": hour, "speed_mph": speed, "region": region}
        assert predictor.length(**cell) == length
        assert predictor.length_by_network(**cell) == length
        kept = predictor.probabilities(**cell) > 0.5
        assert length == next((m for m, keep in enumerate(kept, start=1) if keep), LARGEST)


def test_many_at_once_are_as_one_by_one(predictor: Predictor) -> None:
    rng = np.random.default_rng(0)
    hour, speed, region = rng.integers(0, 24, 500), rng.uniform(0, 140, 500), rng.integers(-1, 5, 500)
    together = predictor.lengths(hour=hour, speed_mph=speed, region=region)
    alone = [
        predictor.length(hour=h, speed_mph=s, region=r)
        for h, s, r in zip(hour.tolist(), speed.tolist(), region.tolist(), strict=True)
    ]
    assert together.tolist() == alone
    assert predictor.lengths(hour=8, speed_mph=[[10.0, 20.0]], region=None).shape == (1, 2)


def test_speeds_fall_into_bins_and_above_120_mph_into_the_last(predictor: Predictor) -> None:
    def probabilities(speed: float) -> tuple[float, ...]:
        return tuple(predictor.probabilities(hour=2, speed_mph=speed, region=0).tolist())

    assert probabilities(20) == probabilities(24.999) != probabilities(25)
    assert probabilities(1e9) == probabilities(120.0) == probabilities(119.0)
    assert predictor.length(hour=2, speed_mph=1e9, region=0) == predictor.length(hour=2, speed_mph=119, region=0)


@pytest.mark.parametrize("speed", [-0.1, -math.inf, math.inf, math.nan])
def test_a_speed_that_is_none_is_refused(predictor: Predictor, speed: float) -> None:
    for ask in (predictor.length, predictor.length_by_network, predictor.probabilities, predictor.lengths):
        with pytest.raises(ParameterError, match="'speed_mph' must be a finite number, not negative"):
            ask(hour=8, speed_mph=speed, region=0)


@pytest.mark.parametrize("hour", [-1, 24, 8.5, math.nan])
def test_an_hour_that_no_day_has_is_refused(predictor: Predictor, hour: float) -> None:
    asks: list[Callable[..., object]] = [predictor.length, predictor.length_by_network, predictor.lengths]
    for ask in asks:
        with pytest.raises(ParameterError, match="'hour' must be a whole number from 0 to 23"):
            ask(hour=hour, speed_mph=20, region=0)


def test_a_feature_that_defines_the_groups_must_be_given_but_for_the_region(predictor: Predictor) -> None:
    with pytest.raises(ParameterError, match="'hour' must be given"):
        predictor.length(speed_mph=20, region=0)
    with pytest.raises(ParameterError, match="'speed_mph' must be given"):
        predictor.lengths(hour=[3], region=0)
    outside = predictor.length(hour=3, speed_mph=20)
    assert outside == predictor.length(hour=3, speed_mph=20, region=999) == predictor.table[3, 4, 3]


def test_groups_by_speed_alone_need_no_hour_and_no_region() -> None:
    predictor, _ = trained(by="speed")
    lengths = [predictor.length(speed_mph=speed) for speed in range(0, 120, 5)]
    assert lengths == predictor.lengths(speed_mph=np.arange(0, 120, 5)).tolist()
    assert predictor.length(hour=23, speed_mph=30, region=4) == predictor.length(speed_mph=30)
    assert (predictor.table == predictor.table[0, :, 0][None, :, None]).all()


def test_algorithm_2_stops_at_the_first_that_is_not_rejected_and_at_the_cap() -> None:
    probabilities = np.array([[0.9, 0.1, 0.9], [0.1, 0.6, 0.4], [0.1, 0.1, 0.7], [0.1, 0.2, 0.3], [0.5, 0.5, 0.51]])
    assert blanket_lengths(probabilities > 0.5).tolist() == [1, 2, 3, 3, 3]


def test_the_sigmoid_neither_overflows_nor_loses_small_probabilities() -> None:
    np.testing.assert_allclose(sigmoid(np.array([0.0, 2.0, -700.0])), [0.5, 1 / (1 + math.exp(-2)), math.exp(-700)])
    assert sigmoid(np.array([1e6, -1e6])).tolist() == [1.0, 0.0]


def test_a_device_needs_numpy_only(predictor: Predictor, tmp_path: Path) -> None:
    save_predictor(predictor, tmp_path / "a.predictor")
    script = (
        "import sys; from geoblanket.blanket.predictor import load_predictor; "
        "p = load_predictor(sys.argv[1]); print(p.length(hour=8, speed_mph=20, region=1)); "
        "print(p.length_by_network(hour=8, speed_mph=20, region=1), len(p.probabilities(hour=8, speed_mph=2))); "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.predictor"], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "numpy" in imported
    assert imported.isdisjoint({"scipy", "sklearn", "polars", "joblib", "threadpoolctl", "pandas", "typer"})
