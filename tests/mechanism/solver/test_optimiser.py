from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver import interior_point, selection
from geoblanket.mechanism.solver.linear_program import Clusters, Cone, LinearProgram
from geoblanket.mechanism.solver.optimiser import OptimiseResult, Outcome, optimise
from tests.mechanism.problems import grid_problem, history_problem, optimum_by_cvxpy, random_problem, some_seeds

NOTHING_KM = 1e-7
"""Losses are repaired at a cost of about 1e-9 in absolute terms, so that tiny ones have no small relative gap."""


def assert_brackets(result: OptimiseResult, optimum: float, *, rounding: float = 2e-6) -> None:
    """Compare with an optimum that is itself known only to `rounding`."""
    assert result.lower_bound <= optimum + rounding
    assert result.loss >= optimum - rounding


def assert_consistent(one: OptimiseResult, other: OptimiseResult) -> None:
    assert max(one.lower_bound, other.lower_bound) <= min(one.loss, other.loss)


@pytest.mark.parametrize("seed", some_seeds(20, of=60))
def test_agrees_with_cvxpy_and_plain_highs(seed: int) -> None:
    problem = random_problem(seed, largest_exponent=10.0)
    ours, highs = optimise(problem, gap=1e-6), optimise(problem, gap=1e-6, method="highs")
    assert_consistent(ours, highs)
    optimum = optimum_by_cvxpy(problem)
    assert_brackets(ours, optimum)
    assert_brackets(highs, optimum)
    if optimum > NOTHING_KM:
        assert ours.gap <= 1e-6
        assert ours.outcome is Outcome.REACHED
        assert ours.loss == pytest.approx(optimum, rel=2e-6, abs=2e-6)


@given(st.integers(0, 10**6), st.sampled_from([1e-2, 1e-4]))
@settings(max_examples=20, deadline=None)
def test_bounds_of_one_method_never_exceed_losses_of_the_other(seed: int, gap: float) -> None:
    problem = random_problem(seed)
    assert_consistent(optimise(problem, gap=gap), optimise(problem, method="highs"))


@pytest.fixture
def choosy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small problems take the path of large ones: clusters, dropping, pricing, exchanges."""
    monkeypatch.setattr(selection, "_WORTH_CHOOSING", 0)
    monkeypatch.setattr(selection, "_COARSEST", 6)


@pytest.mark.usefixtures("choosy")
@pytest.mark.parametrize("seed", some_seeds(10, of=30))
def test_choosing_outputs_finds_the_same_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(1000 + seed, rows=int(rng.integers(10, 40)), outputs=int(rng.integers(5, 25)))
    ours, highs = optimise(problem, gap=1e-5), optimise(problem, method="highs")
    assert_consistent(ours, highs)
    if highs.loss > NOTHING_KM:
        assert ours.gap <= 1e-5


@pytest.mark.usefixtures("choosy")
@pytest.mark.parametrize("eta_km", [np.inf, 0.8])
def test_a_grid_with_choosing_agrees_with_highs(eta_km: float) -> None:
    problem = grid_problem(5, epsilon=2.0, eta_km=eta_km)
    ours, highs = optimise(problem, gap=1e-4), optimise(problem, method="highs")
    assert_consistent(ours, highs)
    assert ours.gap <= 1e-4


def test_two_rows_and_two_outputs_are_randomised_response() -> None:
    problem = Problem(loss=1 - np.eye(2), prior=np.array([0.5, 0.5]), distance_km=1 - np.eye(2), epsilon=1.5)
    result = optimise(problem, gap=1e-8)
    truth = 1 / (1 + np.exp(1.5))
    assert result.lower_bound <= truth * (1 + 1e-12)
    assert result.loss == pytest.approx(truth, rel=1e-8)
    assert result.mechanism.probabilities == pytest.approx(np.array([[1 - truth, truth], [truth, 1 - truth]]), rel=1e-6)


def test_a_tiny_epsilon_gives_the_best_single_output() -> None:
    problem = grid_problem(4, epsilon=1e-6)
    result = optimise(problem, gap=1e-5)
    assert result.loss == pytest.approx((problem.prior @ problem.loss).min(), rel=1e-5)
    assert result.gap <= 1e-5
    assert result.outputs_used == 1


def test_a_huge_epsilon_gives_the_truth() -> None:
    problem = grid_problem(4, epsilon=100.0)
    result = optimise(problem, gap=1e-3)
    assert result.loss < 1e-8
    assert np.diagonal(result.mechanism.probabilities).min() > 1 - 1e-8


def test_a_single_row_takes_its_best_output() -> None:
    problem = Problem(loss=np.array([[3.0, 1.0, 2.0]]), prior=np.ones(1), distance_km=np.zeros((1, 1)), epsilon=1.0)
    result = optimise(problem, gap=1e-9)
    assert result.loss == pytest.approx(1.0, rel=1e-9)
    assert result.gap <= 1e-9
    assert result.outputs_used == 1


@pytest.mark.parametrize("method", ["structured", "highs"])
def test_a_single_output_costs_what_it_costs(method: str) -> None:
    problem = random_problem(5, outputs=1)
    result = optimise(problem, gap=1e-9, method=method)  # type: ignore[arg-type] # a parameter of the test
    assert result.loss == pytest.approx(float(problem.prior @ problem.loss[:, 0]), rel=1e-12)
    assert result.gap <= 1e-9


def test_a_loss_of_zero_has_no_gap() -> None:
    problem = Problem(loss=np.zeros((3, 2)), prior=np.array([1.0, 0.0, 0.0]), distance_km=1 - np.eye(3), epsilon=1.0)
    result = optimise(problem)
    assert (result.loss, result.lower_bound, result.gap) == (0.0, 0.0, 0.0)


def test_rows_at_distance_zero_share_a_row() -> None:
    problem = random_problem(11, rows=9, outputs=6)
    twice = Problem(
        loss=np.repeat(problem.loss, 2, axis=0),
        prior=np.repeat(problem.prior / 2, 2),
        distance_km=np.repeat(np.repeat(problem.distance_km, 2, axis=0), 2, axis=1),
        epsilon=problem.epsilon,
        eta_km=problem.eta_km,
    )
    one, two = optimise(problem, gap=1e-6), optimise(twice, gap=1e-6)
    assert_consistent(one, two)
    assert (two.mechanism.weights[::2] == two.mechanism.weights[1::2]).all()


def test_parts_that_are_not_connected_are_problems_of_their_own() -> None:
    parts = [random_problem(seed, rows=6, outputs=5) for seed in (21, 22)]
    distance = np.full((12, 12), np.inf)
    distance[:6, :6], distance[6:, 6:] = parts[0].distance_km, parts[1].distance_km
    together = Problem(
        loss=np.concatenate([part.loss for part in parts]),
        prior=np.concatenate([0.25 * parts[0].prior, 0.75 * parts[1].prior]),
        distance_km=distance,
        epsilon=1.0,
    )
    alone = [
        optimise(Problem(loss=part.loss, prior=part.prior, distance_km=part.distance_km, epsilon=1.0), gap=1e-6)
        for part in parts
    ]
    result = optimise(together, gap=1e-6)
    assert result.gap <= 1e-6
    assert result.lower_bound <= 0.25 * alone[0].loss + 0.75 * alone[1].loss
    assert result.loss >= 0.25 * alone[0].lower_bound + 0.75 * alone[1].lower_bound


def test_the_same_input_gives_the_same_bits_with_any_number_of_threads() -> None:
    problem = grid_problem(9)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(optimise(problem, gap=2e-2))
    one, two = found
    assert (one.mechanism.weights == two.mechanism.weights).all()
    assert (one.loss, one.lower_bound) == (two.loss, two.lower_bound)


@pytest.fixture(scope="module")
def converged() -> tuple[Problem, OptimiseResult]:
    """A problem, and the optimum from a run that converges."""
    problem = grid_problem(10)
    return problem, optimise(problem, gap=1e-4)


@pytest.mark.parametrize("time_limit_s", [1e-9, 0.05, 0.4])
def test_at_the_time_limit_the_best_so_far_is_returned_with_an_honest_gap(
    time_limit_s: float, converged: tuple[Problem, OptimiseResult]
) -> None:
    problem, optimum = converged
    result = optimise(problem, gap=1e-9, time_limit_s=time_limit_s)
    assert result.outcome is Outcome.TIME_LIMIT
    assert (
        0 < result.lower_bound <= result.loss <= (problem.prior @ problem.loss).min() * (1 + 1e-9) or time_limit_s < 1
    )
    assert result.gap == pytest.approx((result.loss - result.lower_bound) / result.loss)
    assert_consistent(result, optimum)


def test_progress_tells_losses_that_fall_and_bounds_that_rise() -> None:
    told: list[tuple[str, float, float, float, float]] = []

    def listen(phase: str, loss: float, bound: float, gap: float, seconds: float) -> None:
        told.append((phase, loss, bound, gap, seconds))

    result = optimise(grid_problem(6), progress=listen)
    _, losses, bounds, gaps, seconds = zip(*told, strict=True)
    assert list(losses) == sorted(losses, reverse=True)
    assert list(bounds) == sorted(bounds)
    assert list(seconds) == sorted(seconds)
    assert gaps[-1] <= 1e-3
    assert result.log[-1].gap == pytest.approx(gaps[-1])


@pytest.mark.parametrize("how", ["false", "interrupt"])
def test_an_interrupted_search_returns_the_best_so_far(how: str) -> None:
    calls = 0

    def listen(*_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 8 and how == "interrupt":
            raise KeyboardInterrupt
        return calls < 8

    result = optimise(grid_problem(6), gap=1e-9, progress=listen)
    assert calls == 8
    assert result.outcome is Outcome.INTERRUPTED
    assert 0 < result.lower_bound <= result.loss
    assert_consistent(result, optimise(grid_problem(6), gap=1e-4))


def test_an_error_of_the_listener_is_not_hidden() -> None:
    def listen(*_: object) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        optimise(grid_problem(3), progress=listen)


def test_highs_at_its_time_limit_still_gives_a_verified_mechanism() -> None:
    result = optimise(grid_problem(7), method="highs", time_limit_s=0.01)
    assert result.outcome is Outcome.TIME_LIMIT
    assert result.lower_bound <= result.loss
    assert_consistent(result, optimise(grid_problem(7), gap=1e-3))


def test_highs_refuses_what_is_too_large_for_it() -> None:
    with pytest.raises(ParameterError, match="structured"):
        optimise(grid_problem(17), method="highs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": 0.0}, "gap"),
        ({"gap": float("nan")}, "gap"),
        ({"time_limit_s": 0.0}, "time_limit_s"),
        ({"method": "magic"}, "method"),
    ],
)
def test_options_out_of_range_are_told(options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        optimise(grid_problem(2), **options)  # type: ignore[arg-type] # bad values on purpose


@pytest.mark.parametrize("eta_km", [np.inf, 0.8])
@pytest.mark.parametrize("memory", [0, 2**30])
def test_many_rows_are_solved_where_memory_allows_and_bounded_by_clusters_elsewhere(
    monkeypatch: pytest.MonkeyPatch, eta_km: float, memory: int
) -> None:
    problem = grid_problem(7, epsilon=0.5, eta_km=eta_km)
    optimum = optimise(problem, gap=1e-3)
    monkeypatch.setattr(selection, "_MANY_ROWS", 20)
    monkeypatch.setattr(selection, "_MOST_FULL_MEMORY", memory)
    result = optimise(problem, gap=2e-3)
    assert_consistent(result, optimum)
    assert result.gap < (2e-3 if memory else 0.1)
    assert result.outcome is (Outcome.REACHED if memory else Outcome.NO_PROGRESS)


@pytest.mark.usefixtures("choosy")
@pytest.mark.parametrize("gap", [1e-2, 1e-5])
@pytest.mark.parametrize("seed", range(4))
def test_histories_in_single_precision_agree_with_highs(seed: int, gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior_point, "_SINGLE_ROWS", 0)
    problem = history_problem(seed)
    highs = optimise(problem, gap=1e-6, method="highs")
    result = optimise(problem, gap=gap)
    assert result.outcome is Outcome.REACHED
    assert_consistent(result, highs)
    assert result.loss == pytest.approx(highs.loss, rel=gap)


def program_of(problem: Problem) -> LinearProgram:
    cost = np.ascontiguousarray((problem.prior[:, None] * problem.loss).T)
    return LinearProgram(Cone(problem.log_bound), cost, problem.prior)


def test_lifted_multipliers_sum_to_those_of_the_clusters() -> None:
    fine = program_of(grid_problem(6))
    clusters = Clusters(fine, fine.order_of_centres(9))
    rng = np.random.default_rng(0)
    duals, columns = rng.random(9), rng.random((3, 9))
    lifted = clusters.lift_duals(duals, columns, np.array([2, 3, 5]))
    assert np.bincount(clusters.label, lifted) == pytest.approx(duals)


def test_lifted_columns_lie_inside_the_cone_and_keep_their_slopes() -> None:
    fine = program_of(grid_problem(6))
    clusters = Clusters(fine, fine.order_of_centres(12))
    # A column around each corner, half as steep as the cone allows.
    peaks = np.exp(-0.5 * fine.cone.exponent[[0, 5, 30, 35]])[:, clusters.centres]
    lifted = clusters.lift(peaks / peaks.sum(axis=0), np.arange(36), fine.cone)
    assert lifted.sum(axis=0) == pytest.approx(1.0)
    off_diagonal = fine.cone.exponent + np.eye(36)
    slopes = np.log(lifted[:, :, None] / lifted[:, None, :]) / off_diagonal
    assert 0.3 < slopes.max() < 1.0


def test_clusters_keep_mass_and_connect_rows_beyond_eta() -> None:
    fine = program_of(grid_problem(6, eta_km=0.6))
    clusters = Clusters(fine, fine.order_of_centres(9))
    assert clusters.program.prior.sum() == pytest.approx(1.0)
    assert clusters.program.cost.sum(axis=1) == pytest.approx(fine.cost.sum(axis=1))
    assert np.isfinite(clusters.program.cone.exponent).all()
    lifted = clusters.lift(np.array([np.linspace(0.3, 0.35, 9), np.linspace(0.7, 0.65, 9)]), np.arange(36), fine.cone)
    assert lifted.sum(axis=0) == pytest.approx(1.0)
    assert all((column[:, None] < fine.cone.ratio * column).all() for column in lifted)
