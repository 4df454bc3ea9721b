from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics

from geoblanket.blanket.models import calibration_bins, score

PREDICTIONS = st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=60)


@given(PREDICTIONS)
def test_measures_are_those_of_the_confusion_matrix_and_of_scikit_learn(pairs: list[tuple[bool, float]]) -> None:
    kept, probability = np.array([one for one, _ in pairs]), np.array([p for _, p in pairs])
    found = score(kept, probability)
    said = probability > 0.5
    right, wrong = int((said & kept).sum()), int((said & ~kept).sum())
    missed, negative = int((~said & kept).sum()), int((~said & ~kept).sum())
    assert found.accuracy == (right + negative) / len(kept)
    assert found.precision == (right / (right + wrong) if right + wrong else None)
    assert found.recall == (right / (right + missed) if right + missed else None)
    assert found.negative_precision == (negative / (negative + missed) if negative + missed else None)
    assert found.negative_recall == (negative / (negative + wrong) if negative + wrong else None)
    assert found.bce == pytest.approx(metrics.log_loss(kept, probability, labels=[False, True]))
    if right:
        assert found.f1 == pytest.approx(metrics.f1_score(kept, said))
    if negative:
        assert found.negative_f1 == pytest.approx(metrics.f1_score(~kept, ~said))


@given(PREDICTIONS)
def test_calibration_bins_hold_every_prediction_once(pairs: list[tuple[bool, float]]) -> None:
    kept, probability = np.array([one for one, _ in pairs]), np.array([p for _, p in pairs])
    bins = calibration_bins(kept, probability)
    assert sum(one.n for one in bins) == len(pairs)
    for one in bins:
        assert (one.predicted is None) == (one.observed is None) == (one.n == 0)
        if one.predicted is not None:
            assert one.least - 1e-12 <= one.predicted <= one.most + 1e-12


def test_calibration_error_by_hand() -> None:
    kept = np.array([True, False, True, True])
    probability = np.array([0.72, 0.78, 0.95, 1.0])
    # Two in [0.7, 0.8): 0.75 predicted, 0.5 observed. Two in [0.9, 1]: 0.975 predicted, 1 observed.
    assert score(kept, probability).calibration_error == pytest.approx(0.5 * 0.25 + 0.5 * 0.025)


@given(st.integers(0, 2**32 - 1))
def test_true_probabilities_are_nearly_calibrated_and_wrong_ones_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probability = rng.random(4000)
    kept = rng.random(4000) < probability
    assume(kept.any())
    assert score(kept, probability).calibration_error < 0.05
    assert score(kept, 1 - probability).calibration_error > 0.4


def test_one_class_only_has_no_measures_of_the_other() -> None:
    found = score(np.ones(3, np.bool_), np.array([0.9, 0.8, 0.7]))
    assert found.accuracy == found.precision == found.recall == found.f1 == 1.0
    assert found.negative_precision is None
    assert found.negative_recall is None
    assert found.negative_f1 is None
