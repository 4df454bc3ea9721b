from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.repairer import Repaired, repair
from geoblanket.mechanism.verifier import DENOMINATOR, Certificate, verify
from tests.mechanism.brute_force import violations
from tests.mechanism.linear_programs import make_problem, random_problem, solve

EPSILONS = (0.1, 0.25, 1.0, 3.0, 8.0, 20.0)
TWINS_KM = (None, 1e-3, 1e-5, 1e-6, 0.0)


def repaired(probabilities: npt.ArrayLike, problem: Problem) -> tuple[Repaired, Certificate]:
    """Repair; check with brute force and with the verifier."""
    result = repair(probabilities, problem)
    assert violations(result.weights, problem) == []
    certificate = verify(
        result.weights,
        distance_mm=problem.distance_mm,
        epsilon_micro=problem.epsilon_micro,
        eta_mm=problem.eta_mm,
    )
    return result, certificate


def truly_expected_loss(table: Floats, problem: Problem) -> float:
    return float((problem.prior[:, None] * table * problem.loss).sum())


@pytest.mark.parametrize("twin_km", TWINS_KM)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_converged_answers_become_exact_at_no_noticeable_cost(epsilon: float, twin_km: float | None) -> None:
    for seed in range(12):
        problem = random_problem(seed, epsilon=epsilon, twin_km=twin_km)
        answer, status = solve(problem.merged(), method=("simplex", "ipm")[seed % 2])
        assert status == "Optimal"
        result, certificate = repaired(answer[problem.row_class], problem)
        assert result.loss_after <= result.loss_before * (1 + 1e-6)
        assert not result.constant
        assert result.loss_after == pytest.approx(truly_expected_loss(result.weights / DENOMINATOR, problem), rel=1e-12)
        # Rows at distance 0 are always compared as integers; of the others the filter decides nearly all.
        equal = 2 * np.count_nonzero(np.triu(problem.distance_mm == 0, 1)) * problem.output_count
        assert certificate.exact_checks - equal <= 0.02 * certificate.checks


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_answers_cut_short_become_exact(epsilon: float) -> None:
    """Simplex, interior point and first order, stopped after a few iterations: infeasible, negative, anything."""
    stopped = 0
    for seed in range(75):
        twin_km = TWINS_KM[seed % 4]
        problem = random_problem(seed, epsilon=epsilon, twin_km=twin_km, eta_km=(np.inf, 1.0)[seed % 2])
        method, iterations = (("simplex", 3), ("simplex", 15), ("ipm", 2), ("ipm", 6), ("pdlp", 40))[seed % 5]
        answer, status = solve(problem, method=method, iterations=iterations)
        stopped += status != "Optimal"
        result, _ = repaired(answer, problem)
        assert result.loss_after == pytest.approx(truly_expected_loss(result.weights / DENOMINATOR, problem), rel=1e-12)
    assert stopped > 40


def garbage(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """A table that no solver should return, of one of several kinds."""
    table: Floats = rng.random(shape)
    match rng.integers(9):
        case 0:
            table = rng.normal(size=shape) * 6
        case 1:
            table[rng.random(shape) < 0.5] = 0
        case 2:
            table[rng.random(shape) < 0.3] = np.nan
        case 3:
            table[rng.random(shape) < 0.3] = [np.inf, -np.inf][rng.integers(2)]
        case 4:
            table = np.zeros(shape)
        case 5:
            table = np.eye(*shape)
        case 6:
            table *= 10.0 ** rng.integers(-320, 308, shape)
        case 7:
            table = np.full(shape, np.nan)
        case _:
            table[0] = -1
    return table


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_garbage_becomes_exact(epsilon: float) -> None:
    for seed in range(100):
        rng = np.random.default_rng([seed, int(epsilon * 100)])
        rows, outputs = (int(count) for count in rng.integers(1, 8, 2))
        twin_km = TWINS_KM[seed % 5] if rows > 1 else None
        problem = random_problem(
            seed, epsilon=epsilon, rows=rows, outputs=outputs, twin_km=twin_km, eta_km=rng.choice([0.5, np.inf])
        )
        result, _ = repaired(garbage(rng, (rows, outputs)), problem)
        constant = float((problem.prior @ problem.loss).min())
        assert result.added <= 0.01 or result.loss_after <= constant * (1 + 1e-12)


@settings(deadline=None)
@given(
    arrays(np.float64, (4, 3)),
    st.floats(1e-6, 1000),
    arrays(np.float64, (4,), elements=st.floats(0, 100)),
    st.floats(0, 50),
)
def test_any_numbers_become_exact(table: Floats, epsilon: float, line: Floats, eta_km: float) -> None:
    problem = make_problem(
        loss=np.abs(line[:, None] - [0, 10, 20]),
        prior=np.full(4, 0.25),
        distance_km=np.abs(line[:, None] - line),
        epsilon=epsilon,
        eta_km=eta_km,
    )
    repaired(table, problem)


def test_what_already_keeps_the_promise_is_kept() -> None:
    problem = random_problem(3, epsilon=2.0)
    # The exponential mechanism at half of ε keeps the promise.
    table = np.exp(-problem.epsilon / 2 * problem.loss)
    table /= table.sum(axis=1, keepdims=True)
    result, _ = repaired(table, problem)
    assert result.added < 2e-9
    assert np.abs(result.weights / DENOMINATOR - table).max() < 2e-9
    assert (result.unusable, result.constant) == (0, False)


def test_rows_need_not_sum_to_one() -> None:
    problem = random_problem(3, epsilon=2.0)
    table = np.exp(-problem.epsilon / 2 * problem.loss)
    table /= table.sum(axis=1, keepdims=True)
    scaled = table * np.array([1e-300, 1e300, 1, 2, 3, 1e-5])[:, None]
    assert np.abs(repair(scaled, problem).weights - repair(table, problem).weights).max() < 2**20


def test_what_is_unusable_is_counted() -> None:
    problem = random_problem(0, epsilon=1.0)
    table = np.full(problem.loss.shape, 0.2)
    table[0, 0], table[1, 1], table[2, 2] = np.nan, -0.1, np.inf
    assert repair(table, problem).unusable == 3


def test_rows_at_distance_zero_get_the_mean_by_the_prior() -> None:
    problem = make_problem(
        loss=np.ones((3, 2)), prior=[0.25, 0.5, 0.25], distance_km=[[0, 0, 9], [0, 0, 9], [9, 9, 0]], epsilon=9.0
    )
    result, _ = repaired(np.array([[1, 0], [0.25, 0.75], [0, 1]]), problem)
    assert np.array_equal(result.weights[0], result.weights[1])
    assert result.weights[0, 0] / DENOMINATOR == pytest.approx(0.5, abs=1e-8)


def test_an_input_that_breaks_the_promise_by_far_is_given_up_for_the_constant() -> None:
    problem = random_problem(0, epsilon=0.1)
    result, _ = repaired(np.eye(6, 5), problem)
    assert result.constant
    assert result.sink == (problem.prior @ problem.loss).argmin()
    assert (result.weights[:, result.sink] == DENOMINATOR).all()
    assert result.loss_after == pytest.approx((problem.prior @ problem.loss).min())


def test_a_mechanism_that_costs_more_than_the_constant_is_not_given_up() -> None:
    problem = random_problem(0, epsilon=0.1)
    result, _ = repaired(np.ones((6, 5)), problem)
    assert not result.constant
    assert result.loss_after > (problem.prior @ problem.loss).min()


def test_the_same_input_gives_the_same_weights_with_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(1, epsilon=4.0, rows=40, outputs=30, twin_km=1e-3)
    table = np.exp(-2.5 * problem.loss)
    alone = repair(table, problem)
    monkeypatch.setattr("geoblanket.mechanism.repairer._WORTH_THREADS", 0)
    assert np.array_equal(alone.weights, repair(table, problem).weights)
    assert 0 < alone.added < 1


def test_weights_are_read_only() -> None:
    weights = repair(np.ones((6, 5)), random_problem(0, epsilon=1.0)).weights
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"shape \(6, 5\) of the loss. Got \(5, 6\)"):
        repair(np.ones((5, 6)), random_problem(0, epsilon=1.0))


@pytest.mark.parametrize("table", [None, "nothing", [["a"] * 5] * 6, [[1.0], [1.0, 2.0]]])
def test_what_is_no_table_of_numbers_is_refused(table: Any) -> None:
    with pytest.raises(ParameterError, match=r"probabilities.* must"):
        repair(table, random_problem(0, epsilon=1.0))
