from __future__ import annotations

import numpy as np
import pytest

from benchmarks.chains import mean_steps
from geoblanket.tracking.motion_model import LENGTH_BINS, MOST_STEPS, TripShape, length_bin, steps_of_bins


def test_every_length_has_one_bin() -> None:
    least, most = steps_of_bins(np.arange(LENGTH_BINS))
    assert (least[0], most[-1]) == (2, MOST_STEPS)
    np.testing.assert_array_equal(least[1:], most[:-1] + 1)
    for number, (low, high) in enumerate(zip(least.tolist(), most.tolist(), strict=True)):
        assert set(length_bin(np.arange(low, high + 1)).tolist()) == {number}
        assert high <= np.sqrt(2) * low + 1
    assert length_bin([0, 1, 5000]).tolist() == [0, 0, LENGTH_BINS - 1]


def test_shares_of_trips() -> None:
    shape = TripShape.of([7] * 600 + [8] * 400, [3] * 300 + [10] * 700)
    assert (shape.hours[7], shape.hours[8]) == pytest.approx((0.6, 0.4), abs=2e-3)
    assert shape.lengths[length_bin([3, 10])].tolist() == pytest.approx([0.3, 0.7], abs=2e-3)
    np.testing.assert_allclose([shape.hours.sum(), shape.lengths.sum()], 1.0, atol=1e-6)
    assert mean_steps(shape) == pytest.approx(0.3 * 3 + 0.7 * 9.5, abs=0.1)


def test_noisy_counts() -> None:
    """Counts below zero are none at all; an hour or a length that was not seen remains possible."""
    hours, lengths = np.full(24, -50.0), np.full(LENGTH_BINS, -3.0)
    assert TripShape.of_counts(hours, lengths).hours.tolist() == pytest.approx([1 / 24] * 24)
    hours[5], lengths[4] = 99.0, 9.0
    shape = TripShape.of_counts(hours, lengths)
    np.testing.assert_allclose([shape.hours.sum(), shape.lengths.sum()], 1.0, atol=1e-6)
    assert shape.hours[5] == pytest.approx((99 + 1 / 24) / 100)
    assert shape.lengths[4] > 0.9
    assert 0 < shape.hours[6] < 1e-3
    assert (shape.lengths > 0).all()


@pytest.mark.parametrize(("interval_s", "steps"), [(None, 24), (30.0, 24), (10.0, 72), (120.0, 6)])
def test_usual_trips_take_twelve_minutes(interval_s: float | None, steps: float) -> None:
    assert mean_steps(TripShape.usual(interval_s)) == pytest.approx(steps, rel=0.05)


@pytest.mark.parametrize("interval_s", [0.0, 1e-3, 3600.0, 86_400.0])
def test_trips_of_any_interval(interval_s: float) -> None:
    np.testing.assert_allclose(TripShape.usual(interval_s).lengths.sum(), 1.0, atol=1e-6)
