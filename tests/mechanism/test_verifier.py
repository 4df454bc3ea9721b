from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from geoblanket._arrays import Ints
from geoblanket.errors import GuaranteeViolation, MechanismError
from geoblanket.mechanism import verifier
from geoblanket.mechanism.exponential_bounds import ExponentialBounds, bounds_for
from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM, Problem
from geoblanket.mechanism.repairer import repair
from geoblanket.mechanism.verifier import DENOMINATOR, Certificate, verify
from tests.mechanism.brute_force import violations
from tests.mechanism.linear_programs import random_problem, solve


def check(weights: Ints, problem: Problem) -> Certificate:
    return verify(
        weights,
        distance_mm=problem.distance_mm,
        epsilon_micro=problem.epsilon_micro,
        eta_mm=problem.eta_mm,
    )


def tight_mechanism() -> tuple[Ints, Problem]:
    """Rows 1 and 2 as different as they may be at outputs 0 (row 1 above) and 1 (row 2 above); the others between."""
    distance = np.full((5, 5), 1.0) - np.eye(5)
    distance[1, 2] = distance[2, 1] = 0.1
    problem = Problem(loss=np.ones((5, 3)), prior=np.full(5, 0.2), distance_km=distance, epsilon=1.5)
    low = DENOMINATOR // 5 + 12_345
    high = bounds_for(problem.epsilon_micro).lower(100_000) * low >> 96
    middle = (low + high) // 2
    rows = [(middle, middle), (high, low), (low, high), (middle, low), (high, high)]
    return np.array([(a, b, DENOMINATOR - a - b) for a, b in rows], dtype=np.int64), problem


def optimal_mechanism(seed: int = 1, epsilon: float = 2.0) -> tuple[Ints, Problem]:
    problem = random_problem(seed, epsilon=epsilon, rows=7, outputs=6)
    answer, status = solve(problem)
    assert status == "Optimal"
    return repair(answer, problem).weights.copy(), problem


def test_a_tight_constraint_passes_and_one_more_is_caught() -> None:
    weights, problem = tight_mechanism()
    certificate = check(weights, problem)
    assert certificate.exact_checks >= 2
    assert certificate.epsilon_effective == pytest.approx(1.5, rel=1e-12)
    assert certificate.epsilon_effective <= 1.5
    for row, other, output in ((1, 2, 0), (2, 1, 1)):
        planted = weights.copy()
        planted[row, output] += 1
        planted[row, 2] -= 1
        assert violations(planted, problem) == [(row, other, output)]
        with pytest.raises(GuaranteeViolation) as caught:
            check(planted, problem)
        found = caught.value
        assert (found.row, found.other_row, found.output, found.excess) == (row, other, output, 1)
        assert "1 units of 2^-62 too much" in str(found)


@pytest.mark.parametrize(("change", "output"), [(1, None), (-1, None)])
def test_a_row_sum_that_is_off_by_one_is_caught(change: int, output: None) -> None:
    weights, problem = optimal_mechanism()
    weights[3, weights[3].argmax()] += change
    with pytest.raises(GuaranteeViolation) as caught:
        check(weights, problem)
    assert (caught.value.row, caught.value.other_row, caught.value.output) == (3, None, output)
    assert caught.value.excess == change


def test_row_sums_cannot_overflow_into_the_right_one() -> None:
    # Five times 2^62 is 2^62 modulo 2^64.
    weights = np.full((1, 5), DENOMINATOR, dtype=np.int64)
    with pytest.raises(GuaranteeViolation) as caught:
        verify(weights, distance_mm=np.zeros((1, 1), np.int64), epsilon_micro=1, eta_mm=0)
    assert caught.value.excess == 4 * DENOMINATOR


def test_an_empty_row_is_caught() -> None:
    weights, problem = optimal_mechanism()
    weights[2] = 0
    with pytest.raises(GuaranteeViolation, match="Row 2 sums to") as caught:
        check(weights, problem)
    assert caught.value.excess == -DENOMINATOR


@pytest.mark.parametrize(("value", "excess"), [(-1, -1), (DENOMINATOR + 1, 1), (-(2**63), -(2**63))])
def test_a_weight_out_of_range_is_caught(value: int, excess: int) -> None:
    weights, problem = optimal_mechanism()
    weights[4, 2] = value
    with pytest.raises(GuaranteeViolation) as caught:
        check(weights, problem)
    assert (caught.value.row, caught.value.other_row, caught.value.output) == (4, None, 2)
    assert caught.value.excess == excess


def assert_caught_as_by_brute_force(weights: Ints, problem: Problem) -> None:
    expected = violations(weights, problem)
    assert expected
    with pytest.raises(GuaranteeViolation) as caught:
        check(weights, problem)
    found = caught.value
    assert found.other_row is not None
    assert found.output is not None
    assert (found.row, found.other_row, found.output) == expected[0]
    bound = bounds_for(problem.epsilon_micro).lower(int(problem.distance_mm[found.row, found.other_row]))
    allowed = bound * int(weights[found.other_row, found.output]) >> 96
    assert found.excess == int(weights[found.row, found.output]) - allowed


@pytest.mark.parametrize("seed", range(5))
def test_swapped_rows_are_caught(seed: int) -> None:
    weights, problem = optimal_mechanism(seed, epsilon=5.0)
    far = np.unravel_index(problem.distance_mm.argmax(), problem.distance_mm.shape)
    weights[list(far)] = weights[list(far[::-1])]
    assert_caught_as_by_brute_force(weights, problem)


@pytest.mark.parametrize("seed", range(5))
def test_two_swapped_outputs_of_one_row_are_caught(seed: int) -> None:
    weights, problem = optimal_mechanism(seed, epsilon=2.0)
    least, most = int(weights[2].argmin()), int(weights[2].argmax())
    weights[2, [least, most]] = weights[2, [most, least]]
    assert_caught_as_by_brute_force(weights, problem)


@pytest.mark.parametrize("seed", range(5))
def test_a_zero_in_one_row_is_caught(seed: int) -> None:
    weights, problem = optimal_mechanism(seed)
    output = int(weights[3].argmax())
    weights[3, output - 1] += weights[3, output]
    weights[3, output] = 0
    assert_caught_as_by_brute_force(weights, problem)


def test_an_output_that_only_one_row_can_send_is_caught_however_rare() -> None:
    weights, problem = tight_mechanism()
    weights = np.column_stack([weights, np.zeros(5, np.int64)])
    weights[0, 3] = 1
    weights[0, 0] -= 1
    with pytest.raises(GuaranteeViolation, match="inf times as probable from row 0 as from row 1") as caught:
        check(weights, problem)
    assert (caught.value.row, caught.value.other_row, caught.value.output, caught.value.excess) == (0, 1, 3, 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_mechanism_made_for_inflated_distances_fails_under_the_true_ones(seed: int) -> None:
    true = random_problem(seed, epsilon=3.0)
    inflated = random_problem(seed, epsilon=15.0)  # ε·(5 d) = (5 ε)·d
    weights = repair(solve(inflated)[0], inflated).weights
    check(weights, inflated)
    assert_caught_as_by_brute_force(weights, true)


def test_verdicts_agree_with_brute_force_near_the_bound() -> None:
    """Small random changes, from 1 unit to many: verifier and brute force find the same, or nothing both."""
    rng = np.random.default_rng(5)
    verdicts = []
    for trial in range(300):
        if trial % 2:
            weights, problem = tight_mechanism()
        else:
            problem = random_problem(trial, epsilon=float(rng.uniform(0.1, 20)))
            weights = repair(np.exp(-problem.epsilon * problem.loss), problem).weights.copy()
        row, gains, loses = rng.integers(len(weights)), *rng.permutation(weights.shape[1])[:2]
        amount = min(int(2 ** rng.uniform(0, 62)) - 1, int(weights[row, loses]))
        weights[row, gains] += amount
        weights[row, loses] -= amount
        expected = violations(weights, problem)
        verdicts.append(bool(expected))
        if expected:
            assert_caught_as_by_brute_force(weights, problem)
        else:
            check(weights, problem)
    assert 50 < sum(verdicts) < 250


def test_the_float_filter_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, problem = tight_mechanism()
    check(weights, problem)
    monkeypatch.setattr(verifier._Comparison, "_largest_ratio", lambda _, __, others: np.full(len(others), np.inf))
    monkeypatch.setattr(ExponentialBounds, "lower_floats", lambda _, distance_mm: np.full(distance_mm.shape, -1.0))
    unfiltered = check(weights, problem)
    assert unfiltered.exact_checks == unfiltered.checks == 60
    weights[1, 0] += 1
    weights[1, 2] -= 1
    with pytest.raises(GuaranteeViolation) as caught:
        check(weights, problem)
    assert (caught.value.row, caught.value.other_row, caught.value.output) == (1, 2, 0)


def test_threads_report_the_first_violation() -> None:
    rows, outputs = 300, 300
    line = np.arange(rows) * 10_000
    distance = np.abs(line[:, None] - line)
    weights = np.full((rows, outputs), DENOMINATOR // outputs, dtype=np.int64)
    weights[:, 0] += DENOMINATOR - weights.sum(axis=1)
    assert rows * rows * outputs > verifier._WORTH_THREADS
    certificate = verify(weights, distance_mm=distance, epsilon_micro=10**6, eta_mm=INFINITE_ETA_MM)
    assert certificate.checks == rows * (rows - 1) * outputs
    for row in (250, 37):
        weights[row, 7] += weights[row, 8]
        weights[row, 8] = 0
    with pytest.raises(GuaranteeViolation) as caught:
        verify(weights, distance_mm=distance, epsilon_micro=10**6, eta_mm=INFINITE_ETA_MM)
    # Row 0 is the first to be more probable at output 8 than a row that never sends it.
    assert (caught.value.row, caught.value.other_row, caught.value.output) == (0, 37, 8)


@pytest.mark.parametrize("epsilon_micro", [0, 10**6])
def test_rows_without_any_distance_must_be_equal(epsilon_micro: int) -> None:
    distance = np.zeros((3, 3), np.int64) if epsilon_micro else np.full((3, 3), 10**6) - 10**6 * np.eye(3, dtype=int)
    weights = np.tile(np.array([[1, DENOMINATOR - 3, 2]]), (3, 1))
    assert verify(weights, distance_mm=distance, epsilon_micro=epsilon_micro, eta_mm=10**9).exact_checks == 18
    weights[2] = [2, DENOMINATOR - 4, 2]
    with pytest.raises(GuaranteeViolation, match="Rows 0 and 2 must be equal") as caught:
        verify(weights, distance_mm=distance, epsilon_micro=epsilon_micro, eta_mm=10**9)
    assert (caught.value.row, caught.value.other_row, caught.value.output, caught.value.excess) == (0, 2, 1, 1)


def test_pairs_beyond_eta_are_counted_and_not_checked() -> None:
    line = np.array([0, 1_000, 2_000, 9_000, 9_500])
    distance = np.abs(line[:, None] - line)
    distance[0, 4] = distance[4, 0] = NEVER_MM
    weights = np.zeros((5, 2), np.int64)
    weights[:3, 0] = weights[3:, 1] = DENOMINATOR
    certificate = verify(weights, distance_mm=distance, epsilon_micro=10**6, eta_mm=1_000)
    assert (certificate.pairs, certificate.pairs_beyond, certificate.components) == (3, 7, 2)
    assert not certificate.connected
    assert certificate.epsilon_effective <= 1e-3  # rows within η are equal
    with pytest.raises(GuaranteeViolation):
        verify(weights, distance_mm=distance, epsilon_micro=10**6, eta_mm=7_000)


def test_one_row_alone_passes() -> None:
    certificate = verify(
        np.array([[DENOMINATOR, 0]]), distance_mm=np.zeros((1, 1), np.int64), epsilon_micro=1, eta_mm=0
    )
    assert (certificate.pairs, certificate.checks, certificate.epsilon_effective) == (0, 0, 0.0)
    assert certificate.connected


def test_epsilon_effective_is_the_largest_ratio_rounded_up() -> None:
    for seed in range(10):
        weights, problem = optimal_mechanism(seed, epsilon=1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nanmax(weights[:, None] / weights[None], axis=2)
            expected = np.nanmax(np.log(ratio) / (problem.distance_mm / 1e6))
        found = check(weights, problem).epsilon_effective
        assert expected * (1 - 1e-9) <= found <= min(1.0, expected * (1 + 1e-9) + 1e-9)


GOOD: dict[str, Any] = {
    "weights": np.array([[DENOMINATOR], [DENOMINATOR]]),
    "distance_mm": np.array([[0, 5], [5, 0]]),
    "epsilon_micro": 1,
    "eta_mm": 5,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": GOOD["weights"].astype(float)}, "weights of a mechanism must be a non-empty matrix of int64"),
        ({"weights": GOOD["weights"].astype(np.uint64)}, "weights of a mechanism must be"),
        ({"weights": GOOD["weights"].tolist()}, "weights of a mechanism must be"),
        ({"weights": np.zeros((2, 0), np.int64)}, "weights of a mechanism must be"),
        ({"distance_mm": np.zeros((3, 3), np.int64)}, r"2 rows needs .* Got the shape \(3, 3\)"),
        ({"distance_mm": np.array([[0, 5], [4, 0]])}, "symmetric: those between rows 0 and 1 differ"),
        ({"distance_mm": np.array([[0, 5], [5, 1]])}, "distance of row 1 to itself must be 0"),
        ({"distance_mm": np.array([[0, -5], [-5, 0]])}, "must not be negative"),
        ({"epsilon_micro": -1}, "ε must be"),
        ({"epsilon_micro": 10**18}, "ε must be"),
        ({"epsilon_micro": True}, "ε must be"),
        ({"epsilon_micro": 1.0}, "ε must be"),
        ({"eta_mm": -1}, "η must be"),
        ({"eta_mm": 2**63 - 1}, "η must be"),
        ({"eta_mm": float("inf")}, "η must be"),
    ],
)
def test_what_cannot_be_a_mechanism_is_refused(change: dict[str, Any], message: str) -> None:
    verify(**GOOD)
    with pytest.raises(MechanismError, match=message):
        verify(**(GOOD | change))


def test_a_violation_survives_a_process_boundary() -> None:
    violation = GuaranteeViolation(1, 2, 3, 4, "Something is wrong")
    copy = pickle.loads(pickle.dumps(violation))  # noqa: S301 - our own bytes
    assert (copy.row, copy.other_row, copy.output, copy.excess, str(copy)) == (1, 2, 3, 4, str(violation))


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0, 0.5))
def test_components_are_those_that_scipy_counts(rows: int, seed: int, share: float) -> None:
    joined = np.random.default_rng(seed).random((rows, rows)) < share
    joined = joined | joined.T | np.eye(rows, dtype=np.bool_)
    assert len(verifier.components(joined)) == connected_components(joined, directed=False)[0]
