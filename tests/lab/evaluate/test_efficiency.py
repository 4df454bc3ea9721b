from __future__ import annotations

import sys

import numpy as np
import pytest

from geoblanket.build.rows import make_rows
from geoblanket.lab.baselines import constant
from geoblanket.lab.evaluate.zone_measures import (
    bundle_bytes,
    memory_since_reset_mb,
    release_us,
    reset_peak_memory,
)
from geoblanket.mechanism.problem import Problem
from tests.build.worlds import counted, grid, straight_on

PLACES = grid(4, 3)
STEPS = straight_on(PLACES, 300)
ROWS = make_rows(PLACES, np.arange(12), counted(STEPS), reach_m=700.0, context="order:1", history_weights=[1.0])
PROBLEM = Problem.in_millimetres(
    loss=np.ones((len(ROWS), 12)), prior=ROWS.prior, distance_mm=ROWS.distance_mm, epsilon=1.0
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_peak_memory_is_that_since_the_reset() -> None:
    reset_peak_memory()  # of what other tests took in this process
    large = np.ones(30_000_000)
    with_it = memory_since_reset_mb()
    del large
    reset_peak_memory()
    assert memory_since_reset_mb() < with_it - 200
    assert np.ones(30_000_000).all()
    assert memory_since_reset_mb() > with_it - 40


def test_size_and_time_of_a_mechanism() -> None:
    mechanism = constant(PROBLEM)
    size = bundle_bytes(mechanism, ROWS)
    # Distances in 4 bytes for each pair, one weight of 8 bytes for each row, histories in 4 bytes a place.
    pairs = len(ROWS) * (len(ROWS) - 1) // 2
    assert 4 * pairs < size < 4 * pairs + 8 * len(ROWS) + 12 * len(ROWS.histories) + 4096
    times_us = release_us(mechanism, ROWS, STEPS)
    assert 0 < min(times_us) <= max(times_us) < 1e6
    assert release_us(mechanism, ROWS, STEPS.where(np.zeros(len(STEPS), bool))) == []
