from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from geoblanket.errors import MismatchError
from geoblanket.lab.baselines import constant
from geoblanket.lab.evaluate.leakage import effective_epsilon, worst_pair
from geoblanket.mechanism import DENOMINATOR, Mechanism
from tests.mechanism.problems import random_problem

NO_LIMIT = 2**63 - 2


def by_a_loop(mechanism: Mechanism) -> mpf:
    """The largest ln(ratio) / distance, to 60 digits."""
    mp.dps = 60
    weights, distance = mechanism.weights.tolist(), mechanism.distance_mm.tolist()
    worst = mpf(0)
    for row, own in enumerate(weights):
        for other, others in enumerate(weights):
            if 0 < distance[row][other] <= mechanism.eta_mm:
                for weight, other_weight in zip(own, others, strict=True):
                    if weight > other_weight:
                        ratio = mpf(weight) / other_weight
                        worst = max(worst, mp.log(ratio) / (mpf(distance[row][other]) / 10**6))
    return worst


@given(st.integers(0, 10_000))
def test_bounds_hold_the_truth_and_the_promise(seed: int) -> None:
    problem = random_problem(seed)
    table = np.random.default_rng(seed).dirichlet(np.full(problem.output_count, 0.5), problem.row_count)
    mechanism = Mechanism.from_probabilities(table, problem)
    worst = effective_epsilon(mechanism)
    truth = by_a_loop(mechanism)
    assert worst.low <= truth <= worst.epsilon
    assert worst.epsilon <= mechanism.epsilon
    assert worst.epsilon - worst.low <= 2.0**-46 * worst.epsilon
    # The witness itself shows it.
    if truth > 0:
        above, below = (int(mechanism.weights[row, worst.output]) for row in (worst.row, worst.other_row))
        shown = mp.log(mpf(above) / below) / mpf(worst.distance_km)
        assert float(shown) == pytest.approx(float(truth), rel=1e-12)
        assert 0 < worst.distance_km * 1e6 <= mechanism.eta_mm + 0.5


def test_a_constant_mechanism_spends_nothing() -> None:
    assert effective_epsilon(constant(random_problem(3))).epsilon == 0.0


def test_rows_a_millimetre_apart_are_told_apart_to_the_last_digits() -> None:
    half = DENOMINATOR // 2
    weights = np.array([[half + 1000, half - 1000], [half, half]])
    distance = np.array([[0, 1], [1, 0]])
    worst = worst_pair(weights, distance_mm=distance, eta_mm=NO_LIMIT)
    mp.dps = 60
    truth = mp.log(1 + mpf(1000) / (half - 1000)) * 10**6  # the other output, the other way, tells a little more
    assert worst.low <= truth <= worst.epsilon
    assert (worst.row, worst.other_row, worst.output) == (1, 0, 1)


def test_what_is_possible_from_one_row_only_is_infinite() -> None:
    weights = np.array([[DENOMINATOR - 1, 1], [DENOMINATOR, 0]])
    worst = worst_pair(weights, distance_mm=np.array([[0, 10**6], [10**6, 0]]), eta_mm=NO_LIMIT)
    assert worst.epsilon == worst.low == np.inf
    assert (worst.row, worst.other_row, worst.output) == (0, 1, 1)


def test_rows_at_distance_zero_must_be_equal() -> None:
    half = DENOMINATOR // 2
    distance = np.zeros((2, 2), np.int64)
    assert worst_pair(np.full((2, 2), half), distance_mm=distance, eta_mm=0).epsilon == 0.0
    assert worst_pair(np.array([[half, half], [half - 1, half + 1]]), distance_mm=distance, eta_mm=0).epsilon == np.inf


def test_rows_beyond_eta_are_not_compared() -> None:
    weights = np.array([[DENOMINATOR, 0], [0, DENOMINATOR]])
    distance = np.array([[0, 101], [101, 0]])
    assert worst_pair(weights, distance_mm=distance, eta_mm=100).epsilon == 0.0
    assert worst_pair(weights, distance_mm=distance, eta_mm=101).epsilon == np.inf


def test_distances_of_other_rows_are_refused() -> None:
    with pytest.raises(MismatchError, match="do not belong"):
        worst_pair(np.full((2, 2), DENOMINATOR // 2), distance_mm=np.zeros((3, 3), np.int64), eta_mm=0)
