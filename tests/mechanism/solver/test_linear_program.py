from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from geoblanket.mechanism.solver.linear_program import slack_below, sum_below, with_slack


@pytest.mark.parametrize("seed", range(20))
def test_slacks_are_never_above_their_exact_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, pairs = 6, 300
    high, low = rng.integers(0, rows, pairs), rng.integers(0, rows, pairs)
    ratio, multiplier = np.exp(rng.uniform(0, 20, pairs)), 10 ** rng.uniform(-12, 3, pairs)
    cost = rng.random(rows) * 10 ** rng.uniform(-8, 8)
    gained, given = np.bincount(high, ratio * multiplier, rows), np.bincount(low, multiplier, rows)
    below = slack_below(cost, gained.astype(float), given.astype(float), rows=pairs)
    for row in range(rows):
        exact = Fraction(float(cost[row]))
        exact -= sum(Fraction(float(ratio[p])) * Fraction(float(multiplier[p])) for p in np.flatnonzero(high == row))
        exact += sum(Fraction(float(multiplier[p])) for p in np.flatnonzero(low == row))
        assert Fraction(float(below[row])) <= exact
        assert float(exact - Fraction(float(below[row]))) <= 1e-12 * (cost[row] + gained[row] + given[row])


def test_sums_are_rounded_down() -> None:
    values = np.array([1e16, 1.0, -1e16, 1e-3] * 100)
    exact = sum(map(Fraction, values.tolist()))
    assert Fraction(sum_below(values)) <= exact
    assert sum_below(values) == pytest.approx(100.1)


@pytest.mark.parametrize(("worst", "bound"), [(-0.5, 2.5), (0.0, 3.0), (0.5, 3.5)])
def test_slack_moves_the_bound_by_its_weight_rounded_down(worst: float, bound: float) -> None:
    found = with_slack(np.array([1.0, 2.0]), worst, np.array([0.25, 0.75]))
    assert found < bound
    assert found == pytest.approx(bound, rel=1e-14)
