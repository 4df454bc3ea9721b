from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import lambertw

from geoblanket._arrays import Floats
from geoblanket.errors import MechanismError, MismatchError, ParameterError
from geoblanket.lab import baselines
from geoblanket.lab.baselines import (
    const_opt,
    constant,
    exponential,
    peaks,
    planar_laplace,
    remap,
    tight_constraints,
    truncated_exponential,
)
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem


@dataclass(frozen=True)
class Plane:
    """A problem whose rows and outputs are points, and whose loss is their distance."""

    problem: Problem
    rows: Floats
    outputs: Floats

    @property
    def distance(self) -> Floats:
        return cdist(self.rows, self.outputs)


def plane(
    seed: int, *, rows: int = 9, outputs: int = 7, epsilon: float = 2.0, eta_km: float = np.inf, twins: bool = False
) -> Plane:
    random = np.random.default_rng(seed)
    where = random.uniform(0, 2, (rows, 2))
    if twins:
        where[1] = where[0]
        where[2] = where[3] + [1e-3, 0]
    targets = random.uniform(0, 2, (outputs, 2))
    problem = Problem(
        loss=cdist(where, targets),
        prior=random.dirichlet(np.ones(rows)),
        distance_km=cdist(where, where),
        epsilon=epsilon,
        eta_km=eta_km,
    )
    return Plane(problem, where, targets)


def line(count: int, *, epsilon: float = 1.0) -> Problem:
    """Points one kilometre apart; outputs are the rows."""
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).astype(float)
    return Problem(loss=distance, prior=np.full(count, 1 / count), distance_km=distance, epsilon=epsilon)


def optimum(problem: Problem) -> float:
    """Return the least expected loss of any mechanism, by SciPy's linear programming.

    Ratios above e^20 are left out, as no solver could handle them: a relaxation, so that it stays a lower bound.
    """
    rows, outputs = problem.loss.shape
    row, other = np.nonzero(problem.constrained & (problem.log_bound < 20))
    ratio = np.exp(problem.log_bound[row, other])
    pairs = np.arange(len(row))
    privacy = sparse.csr_array(
        (np.concatenate([np.ones(len(row)), -ratio]), (np.tile(pairs, 2), np.concatenate([row, other]))),
        shape=(len(row), rows),
    )
    result = linprog(
        (problem.prior[:, None] * problem.loss).T.ravel(),
        A_ub=sparse.kron(sparse.eye_array(outputs), privacy).toarray(),
        b_ub=np.zeros(outputs * len(row)),
        A_eq=np.tile(np.eye(rows), outputs),
        b_eq=np.ones(rows),
        method="highs-ds",
    )
    assert result.success
    assert result.fun is not None
    return result.fun


def test_the_best_single_output_spends_nothing() -> None:
    case = plane(1)
    mechanism = constant(case.problem)
    assert mechanism.expected_loss(case.problem) == pytest.approx((case.problem.prior @ case.problem.loss).min())
    assert mechanism.certificate.epsilon_effective < 1e-9
    assert (np.count_nonzero(mechanism.weights, axis=1) == 1).all()


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 15.0])
@pytest.mark.parametrize("eta", [0.6, np.inf])
def test_no_mechanism_is_below_the_optimum(epsilon: float, eta: float) -> None:
    tight = 0
    for seed in range(4):
        case = plane(seed, epsilon=epsilon, eta_km=eta)
        problem = case.problem
        found = [
            constant(problem),
            exponential(problem, case.distance),
            exponential(problem, case.distance, calibrated=True),
            planar_laplace(problem, case.rows, case.outputs),
            const_opt(problem, case.distance, near_km=0.6),
        ]
        try:
            found.append(tight_constraints(problem))
            tight += 1
        except MechanismError:
            pass
        least = optimum(problem)
        for mechanism in [*found, *(remap(one, problem) for one in found)]:
            assert mechanism.expected_loss(problem) >= least * (1 - 1e-6)
    assert tight or epsilon < 15


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_the_published_form_is_the_formula_even_where_the_constant_mechanism_costs_less(epsilon: float) -> None:
    case = plane(1, epsilon=epsilon)
    weights = np.exp(-case.problem.epsilon * case.distance / 2)
    mechanism = exponential(case.problem, case.distance)
    np.testing.assert_allclose(mechanism.probabilities, weights / weights.sum(axis=1, keepdims=True), atol=2e-9)


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.1, 20), twins=st.booleans(), eta=st.sampled_from([0.5, np.inf]))
@settings(max_examples=25, deadline=None)
def test_the_published_form_stays_below_epsilon_and_the_calibrated_spends_it(
    seed: int, epsilon: float, twins: bool, eta: float
) -> None:
    case = plane(seed, epsilon=epsilon, twins=twins, eta_km=eta)
    published = exponential(case.problem, case.distance)
    calibrated = exponential(case.problem, case.distance, calibrated=True)
    assert published.certificate.epsilon_effective <= epsilon
    if case.problem.constrained.any():
        assert calibrated.certificate.epsilon_effective >= 0.99 * case.problem.epsilon_micro / 1e6


def test_between_two_rows_the_calibrated_form_is_randomised_response() -> None:
    mechanism = exponential(line(2), [[0, 1], [1, 0]], calibrated=True)
    right = math.e / (1 + math.e)
    np.testing.assert_allclose(mechanism.probabilities, [[right, 1 - right], [1 - right, right]], atol=1e-6)


def test_distances_that_break_the_triangle_inequality_scale_the_noise() -> None:
    """The outputs tell the rows apart by 1 km although the rows are only 100 m apart."""
    problem = Problem(loss=np.ones((2, 2)), prior=np.full(2, 0.5), distance_km=0.1 * (1 - np.eye(2)), epsilon=1.0)
    mechanism = exponential(problem, [[0, 1], [1, 0]])
    right = np.exp(0.1) / (1 + np.exp(0.1))
    assert mechanism.probabilities[0, 0] == pytest.approx(right, abs=1e-6)


def test_rows_that_are_never_told_apart_allow_any_scale() -> None:
    problem = Problem(loss=np.ones((2, 2)), prior=np.full(2, 0.5), distance_km=1 - np.eye(2), epsilon=1.0)
    mechanism = exponential(problem, [[0, 1], [0, 1]], calibrated=True)
    np.testing.assert_allclose(mechanism.probabilities, [[1, 0], [1, 0]], atol=1e-6)


@pytest.mark.parametrize("distance", [np.ones((2, 3)), -np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_distances_to_outputs_are_checked(distance: Floats) -> None:
    with pytest.raises(ParameterError, match="output_distance_km"):
        exponential(line(2), distance)


def drawn(case: Plane, row: int, draws: int) -> Floats:
    """Return how often each output is nearest to a noisy point, the published way of drawing the noise."""
    random = np.random.default_rng(7)
    angle, share = random.uniform(0, 2 * np.pi, draws), random.uniform(0, 1, draws)
    radius = -(lambertw((share - 1) / math.e, -1).real + 1) / case.problem.epsilon
    points = case.rows[row] + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.bincount(cKDTree(case.outputs).query(points)[1], minlength=len(case.outputs)) / draws


@pytest.mark.parametrize("outputs", [2, 3, 12])
def test_it_is_the_published_noise_given_to_the_nearest_output(outputs: int) -> None:
    case = plane(3, outputs=outputs)
    mechanism = planar_laplace(case.problem, case.rows, case.outputs)
    for row in range(3):
        np.testing.assert_allclose(mechanism.probabilities[row], drawn(case, row, 400_000), atol=0.004)


@pytest.mark.parametrize("epsilon", [0.3, 2.0, 8.0])
def test_it_spends_at_most_epsilon_and_repair_changes_little(epsilon: float) -> None:
    case = plane(4, rows=20, outputs=20, epsilon=epsilon)
    coarse = planar_laplace(case.problem, case.rows, case.outputs)
    fine = planar_laplace(case.problem, case.rows, case.outputs, rays=8192)
    assert fine.certificate.epsilon_effective <= epsilon
    assert abs(coarse.probabilities - fine.probabilities).max() < 1e-3


def test_twin_rows_outputs_in_one_place_and_outputs_on_a_line() -> None:
    case = plane(5, twins=True)
    outputs = np.array([[0.0, 0], [1, 0], [2, 0], [1, 0], [3, 0], [4, 0], [5, 0]])
    mechanism = planar_laplace(case.problem, case.rows, outputs)
    assert (mechanism.weights[0] == mechanism.weights[1]).all()
    assert mechanism.probabilities[:, 3].max() < 1e-6
    straight = drawn(Plane(case.problem, case.rows, outputs), 4, 400_000)
    np.testing.assert_allclose(mechanism.probabilities[4], straight, atol=0.004)


def test_smaller_row_distances_mean_more_noise() -> None:
    case = plane(6)
    halved = Problem(
        loss=case.problem.loss, prior=case.problem.prior, distance_km=case.problem.distance_km / 2, epsilon=4.0
    )
    np.testing.assert_allclose(
        planar_laplace(halved, case.rows, case.outputs).probabilities,
        planar_laplace(case.problem, case.rows, case.outputs).probabilities,
        atol=1e-3,
    )


def test_a_single_output_is_always_given() -> None:
    problem = Problem(loss=np.ones((2, 1)), prior=np.full(2, 0.5), distance_km=1 - np.eye(2), epsilon=1.0)
    assert (planar_laplace(problem, [[0, 0], [1, 0]], [[0, 0]]).probabilities == 1).all()


def test_bad_positions_are_refused() -> None:
    with pytest.raises(ParameterError, match="row_xy_km"):
        planar_laplace(line(2), np.full((2, 2), np.inf), [[0, 0], [1, 1]])


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_on_a_line_it_is_the_truncated_geometric_mechanism(epsilon: float) -> None:
    problem = line(7, epsilon=epsilon)
    alpha = np.exp(-epsilon)
    truth = alpha**problem.distance_km * (1 - alpha) / (1 + alpha)
    truth[:, [0, -1]] = alpha ** problem.distance_km[:, [0, -1]] / (1 + alpha)
    mechanism = tight_constraints(problem, remapped=False)
    np.testing.assert_allclose(mechanism.probabilities, truth, atol=2e-9)
    assert mechanism.certificate.epsilon_effective == pytest.approx(epsilon, rel=1e-6)


def test_on_a_line_remapping_makes_it_optimal() -> None:
    """Ghosh, Roughgarden and Sundararajan: the remapped geometric mechanism is optimal for every prior."""
    random = np.random.default_rng(1)
    distance = line(6).distance_km
    for _ in range(5):
        problem = Problem(loss=distance**1.5, prior=random.dirichlet(np.ones(6)), distance_km=distance, epsilon=0.7)
        assert tight_constraints(problem).expected_loss(problem) == pytest.approx(optimum(problem), rel=1e-6)


def test_within_eta_peaks_fall_along_chains() -> None:
    free = tight_constraints(line(6), remapped=False)
    distance = line(6).distance_km
    problem = Problem(loss=distance, prior=np.full(6, 1 / 6), distance_km=distance, epsilon=1.0, eta_km=1.0)
    np.testing.assert_allclose(tight_constraints(problem, remapped=False).probabilities, free.probabilities, atol=2e-9)


def test_parts_without_a_chain_are_told_apart() -> None:
    distance = np.array([[0, 1, 50], [1, 0, 50], [50, 50, 0]], float)
    problem = Problem(loss=distance, prior=np.full(3, 1 / 3), distance_km=distance, epsilon=1.0, eta_km=5.0)
    mechanism = tight_constraints(problem)
    assert mechanism.probabilities[2, 2] == pytest.approx(1, abs=1e-8)
    assert "2 parts" in mechanism.guarantee


def test_rows_in_one_place_share_their_peak() -> None:
    case = plane(2, rows=6, outputs=6, epsilon=30.0, twins=True)
    for remapped in (True, False):
        mechanism = tight_constraints(case.problem, remapped=remapped)
        assert (mechanism.weights[0] == mechanism.weights[1]).all()


def test_it_may_not_exist_and_needs_rows_as_outputs() -> None:
    with pytest.raises(MechanismError, match="does not exist"):
        tight_constraints(plane(3, rows=25, epsilon=0.5).problem)
    with pytest.raises(ParameterError, match="outputs must be the rows"):
        tight_constraints(plane(3, epsilon=30.0).problem, remapped=False)


def grid(side: int, pitch_km: float, epsilon: float) -> tuple[Problem, Floats]:
    axis = np.arange(side) * pitch_km
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    return Problem(loss=apart, prior=np.full(len(points), 1 / len(points)), distance_km=apart, epsilon=epsilon), points


def test_where_all_places_are_kept_it_is_the_tight_mechanism() -> None:
    problem = line(7, epsilon=1.0)
    made = peaks(problem)
    assert made.kept.tolist() == list(range(7))
    assert made.snapped_mm == 0
    assert (made.mechanism.weights == tight_constraints(problem, remapped=False).weights).all()


def test_on_a_plane_every_ratio_keeps_the_promise() -> None:
    problem, _ = grid(5, 0.5, 2.0)
    weights = peaks(problem).mechanism.weights.astype(np.float64)
    for row in range(25):
        for other in range(25):
            bound = np.exp(2.0 * problem.distance_km[row, other])
            assert (weights[row] <= bound * weights[other] * (1 + 1e-12)).all()


def test_places_too_near_together_use_the_row_of_a_kept_one() -> None:
    problem, points = grid(8, 0.1, 1.0)
    # A place in the middle of others that are much nearer to it than to each other has a negative mass.
    crowd = np.concatenate([points, points[27] + [[0.01, 0.0], [0.0, 0.012], [-0.011, 0.003]]])
    apart = np.hypot(*(crowd[:, None] - crowd).transpose(2, 0, 1))
    problem = Problem(loss=apart, prior=np.full(len(crowd), 1 / len(crowd)), distance_km=apart, epsilon=1.0)
    made = peaks(problem)
    assert 0 < len(made.kept) < len(crowd)
    left_out = np.setdiff1d(np.arange(len(crowd)), made.kept)
    assert (made.nearest[made.kept] == made.kept).all()
    for place in left_out:
        nearest = made.kept[np.argmin(problem.distance_mm[place, made.kept])]
        assert made.nearest[place] == nearest
        assert (made.mechanism.weights[place] == made.mechanism.weights[nearest]).all()
    assert (made.mechanism.weights[:, left_out].sum(axis=0) <= 2**40).all()  # nobody is reported to be there
    assert made.snapped_mm == problem.distance_mm[np.arange(len(crowd)), made.nearest].max() > 0


def test_there_are_not_too_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST_PLACES", 5)
    with pytest.raises(ParameterError, match="at most 5 places"):
        peaks(line(6))


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
@pytest.mark.parametrize("eta", [0.8, np.inf])
def test_it_lies_between_the_exponential_mechanism_and_the_optimum(epsilon: float, eta: float) -> None:
    case = plane(1, epsilon=epsilon, eta_km=eta)
    losses = [
        const_opt(case.problem, case.distance, near_km=near).expected_loss(case.problem)
        for near in (0.0, 0.5, 1.0, np.inf)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] <= exponential(case.problem, case.distance).expected_loss(case.problem) * (1 + 1e-6)
    assert losses[1] > losses[-1]
    assert losses[-1] == pytest.approx(optimum(case.problem), rel=1e-6)


def test_far_outputs_fall_as_in_the_exponential_mechanism() -> None:
    case = plane(2)
    near_km = 0.7
    ratio = const_opt(case.problem, case.distance, near_km=near_km).probabilities
    ratio = ratio / exponential(case.problem, case.distance).probabilities
    for output in range(case.problem.output_count):
        far = case.distance[:, output] > near_km
        np.testing.assert_allclose(ratio[far, output], ratio[far, output].mean(), rtol=1e-4, atol=1e-6)


def test_far_outputs_of_the_other_reading_fall_with_the_whole_epsilon() -> None:
    problem, near_km = line(8), 1.0
    distance = problem.distance_km
    mechanism = const_opt(problem, distance, near_km=near_km, far="peaks")
    scale = mechanism.probabilities * np.exp(problem.epsilon * distance)
    for output in range(problem.output_count):
        far = distance[:, output] > near_km
        np.testing.assert_allclose(scale[far, output], scale[far, output].mean(), rtol=1e-4, atol=1e-6)
    # On a line the truncated geometric mechanism, which consists of such peaks, is among the candidates.
    assert mechanism.expected_loss(problem) <= tight_constraints(problem, remapped=False).expected_loss(problem) + 1e-6
    whole = const_opt(problem, distance, near_km=np.inf, far="peaks")
    assert whole.expected_loss(problem) == pytest.approx(optimum(problem), rel=1e-6)


def test_the_other_reading_need_not_exist() -> None:
    case = plane(2, epsilon=0.1)
    const_opt(case.problem, case.distance, near_km=0.0)  # the exponential mechanism always does
    with pytest.raises(MechanismError, match="ConstOPT"):
        const_opt(case.problem, case.distance, near_km=0.0, far="peaks")


def test_the_truncated_exponential_mechanism_is_what_its_authors_draw() -> None:
    """Scores −D of near outputs and one ⊥ for all far ones, Gumbel noise of scale 2/ε, the largest wins."""
    epsilon, radius, draws = 3.0, 0.8, 200_000
    case, random = plane(4, epsilon=epsilon), np.random.default_rng(0)
    mechanism = truncated_exponential(case.problem, case.distance, radius_km=radius)
    for row, distance in enumerate(case.distance):
        near, far = np.flatnonzero(distance <= radius), np.flatnonzero(distance > radius)
        scores = np.append(-distance[near], -radius + 2 * np.log(len(far)) / epsilon)
        winner = (scores + random.gumbel(scale=2 / epsilon, size=(draws, len(scores)))).argmax(axis=1)
        drawn = np.where(winner < len(near), np.append(near, -1)[winner], random.choice(far, draws))
        share = np.bincount(drawn, minlength=len(distance)) / draws
        np.testing.assert_allclose(mechanism.probabilities[row], share, atol=5 * np.sqrt(0.25 / draws))
    assert mechanism.epsilon == epsilon


def test_truncation_goes_from_uniform_to_exponential() -> None:
    case = plane(4)
    uniform, whole = (truncated_exponential(case.problem, case.distance, radius_km=far) for far in (0.0, np.inf))
    np.testing.assert_allclose(uniform.probabilities, 1 / case.problem.output_count, atol=2e-9)
    assert (whole.weights == exponential(case.problem, case.distance).weights).all()
    with pytest.raises(ParameterError, match="radius_km"):
        truncated_exponential(case.problem, case.distance, radius_km=-1.0)


def test_rows_in_one_place_stay_equal() -> None:
    case = plane(3, twins=True)
    mechanism = const_opt(case.problem, case.distance, near_km=0.5)
    assert (mechanism.weights[0] == mechanism.weights[1]).all()


def test_a_problem_that_no_solver_would_finish_is_refused() -> None:
    with pytest.raises(ParameterError, match="small problems"):
        const_opt(line(300), line(300).distance_km, near_km=1.0)


def test_a_radius_must_not_be_negative() -> None:
    with pytest.raises(ParameterError, match="near_km"):
        const_opt(line(2), np.zeros((2, 2)), near_km=np.nan)


@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.1, 20))
@settings(max_examples=25, deadline=None)
def test_remapping_never_costs_and_a_second_time_changes_nothing(seed: int, epsilon: float) -> None:
    case = plane(seed, epsilon=epsilon, twins=True)
    before = exponential(case.problem, case.distance)
    after = remap(before, case.problem)
    assert after.expected_loss(case.problem) <= before.expected_loss(case.problem) * (1 + 1e-12)
    assert after.certificate.epsilon_effective <= before.certificate.epsilon_effective * (1 + 1e-9)
    again = remap(after, case.problem)
    assert again.expected_loss(case.problem) == pytest.approx(after.expected_loss(case.problem), rel=1e-12)


def test_every_output_gets_its_best_replacement() -> None:
    case = plane(8)
    before = exponential(case.problem, case.distance)
    joint = before.probabilities * case.problem.prior[:, None]
    best = sum((joint[:, [y]] * case.problem.loss).sum(axis=0).min() for y in range(case.problem.output_count))
    assert remap(before, case.problem).expected_loss(case.problem) == pytest.approx(best, rel=1e-9)


def test_outputs_may_be_others_than_the_mechanisms() -> None:
    case = plane(9)
    problem = Problem(
        loss=case.problem.loss[:, :2],
        prior=case.problem.prior,
        distance_km=case.problem.distance_km,
        epsilon=9.0,
    )
    result = remap(exponential(case.problem, case.distance), problem)
    assert result.weights.shape == (9, 2)
    assert result.epsilon == case.problem.epsilon  # the promise stays the mechanism's own


def test_what_tells_nothing_becomes_constant() -> None:
    case = plane(10)
    weights = np.full(case.problem.loss.shape, 2**62 // 7)
    weights[:, 0] += 2**62 - weights[0].sum()
    uniform = Mechanism.verified(
        weights,
        distance_mm=case.problem.distance_mm,
        epsilon_micro=case.problem.epsilon_micro,
        eta_mm=case.problem.eta_mm,
    )
    np.testing.assert_array_equal(remap(uniform, case.problem).weights, constant(case.problem).weights)


def test_another_number_of_rows_is_refused() -> None:
    case = plane(1)
    with pytest.raises(MismatchError, match="9 rows"):
        remap(exponential(case.problem, case.distance), line(3))
