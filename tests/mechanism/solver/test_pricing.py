from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from geoblanket._arrays import Floats
from geoblanket.mechanism.solver.linear_program import Cone
from geoblanket.mechanism.solver.pricing import Pricer, push
from tests.mechanism.problems import grid_problem, random_problem, some_seeds


def true_price(cone: Cone, reduced: Floats, weight: Floats) -> float:
    low, high = np.nonzero(cone.constrained)
    table = np.zeros((len(low), cone.size))
    table[np.arange(len(low)), low] = 1.0
    table[np.arange(len(low)), high] -= np.exp(cone.exponent[low, high])
    result = linprog(reduced, A_ub=table, b_ub=np.zeros(len(low)), A_eq=weight[None], b_eq=[1.0], method="highs")
    assert result.fun is not None
    return float(result.fun)


def example(seed: int) -> tuple[Cone, Floats, Floats]:
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, rows=int(rng.integers(3, 15)), largest_exponent=10.0).merged()
    exponent = np.where(np.isfinite(problem.log_bound), problem.log_bound, 3.0)
    weight = rng.dirichlet(np.ones(len(exponent))) + 0.01
    return Cone(exponent), rng.normal(0.1, 1.0, len(exponent)), weight


@pytest.mark.parametrize("seed", some_seeds(15, of=40))
def test_a_price_lies_between_its_bounds(seed: int) -> None:
    cone, reduced, weight = example(seed)
    truth = true_price(cone, reduced, weight)
    margin = 1e-7 * (1.0 + abs(truth))
    for target in (truth - 0.1, truth - 1e-3, truth + 0.1):
        found = Pricer(cone, weight).price(reduced, target)
        assert found.below <= truth + margin
        assert found.above >= truth - margin
        assert found.below >= target if target < truth else found.above < target


@pytest.mark.parametrize("seed", some_seeds(15, of=40))
def test_pushing_never_claims_too_much(seed: int) -> None:
    cone, reduced, weight = example(seed)
    truth = true_price(cone, reduced, weight)
    for target in (truth - 1.0, truth - 1e-3, truth + 0.5):
        below = push(cone, reduced[None], weight, target)[0]
        assert below <= min(target, truth + 1e-7 * (1.0 + abs(truth)))


def test_pushing_settles_an_easy_case() -> None:
    cone = Cone(np.array([[0.0, 0.1], [0.1, 0.0]]))
    below = push(cone, np.array([[-1.0, 2.0], [-1.0, 0.5]]), np.array([0.5, 0.5]), 0.0)
    assert below[0] == pytest.approx(0.0, abs=1e-11)
    assert below[1] < -0.5


def test_prices_in_a_band_agree_with_those_over_all_pairs() -> None:
    problem = grid_problem(13, epsilon=1.0)
    cone = Cone(problem.log_bound)
    weight = 0.5 * problem.prior + 0.5 / cone.size
    pricer, plain = (Pricer(cone, weight) for _ in range(2))
    assert pricer.band is not None
    assert pricer.band.width < 0.4 * cone.size
    plain.band = None
    costs = (problem.prior[:, None] * problem.loss).T
    for output in (0, 84):
        reduced = costs[output] - costs.mean(axis=0)
        truth = true_price(cone, reduced, weight)
        for target in (truth - 0.05, truth + 0.05):
            banded, over_all = pricer.price(reduced, target), plain.price(reduced, target)
            assert max(banded.below, over_all.below) <= truth + 1e-6
            assert (banded.below >= target) == (over_all.below >= target) == (target < truth)
