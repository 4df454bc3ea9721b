from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from benchmarks.membership_game import ErrorRates, attack, clopper_pearson, epsilon_of_mu
from geoblanket._training import epsilon_of
from geoblanket.errors import ParameterError


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (5, 10), (10, 10), (37, 1000), (999, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.999, 1 - 1e-9])
def test_bounds_on_a_probability_are_those_of_scipy(hits: int, trials: int, confidence: float) -> None:
    low, high = clopper_pearson(hits, trials, confidence=confidence)
    result = binomtest(hits, trials)
    two_sided = 1 - 2 * (1 - confidence)
    interval = result.proportion_ci(two_sided, method="exact")
    assert low == pytest.approx(interval.low, rel=1e-6)
    assert high == pytest.approx(interval.high, rel=1e-6)


def test_bounds_on_a_probability_in_closed_form() -> None:
    """Without a hit in n trials p is below 1 − α^(1/n); and so on."""
    for trials in (1, 7, 500):
        low, high = clopper_pearson([0, trials], trials, confidence=0.99)
        assert low == pytest.approx([0.0, 0.01 ** (1 / trials)])
        assert high == pytest.approx([1 - 0.01 ** (1 / trials), 1.0])


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_epsilon_of_gaussian_noise_is_exact_and_less_than_by_concentrated_privacy(mu: float, delta: float) -> None:
    epsilon = epsilon_of_mu(mu, delta)
    assert epsilon <= epsilon_of(mu**2 / 2, delta)
    if epsilon > 0:
        # By integration: how much more of N(μ, 1) than e^ε of N(0, 1) there is.
        x = np.linspace(-12, mu + 12, 400_001)
        more = np.maximum(norm.pdf(x, mu) - np.exp(epsilon + norm.logpdf(x)), 0.0)
        assert np.trapezoid(more, x) == pytest.approx(delta, rel=1e-3)


def test_epsilon_of_gaussian_noise_by_hand() -> None:
    delta = norm.cdf(-0.5) - math.e * norm.cdf(-1.5)
    assert epsilon_of_mu(1.0, delta) == pytest.approx(1.0)
    assert epsilon_of_mu(0.0, 1e-5) == epsilon_of_mu(1e-6, 1e-5) == 0.0


def test_rates_bound_privacy_by_its_definition() -> None:
    rates = ErrorRates(found=900, present=1000, false_alarms=50, absent=1000)
    (found, _), (_, alarms) = (clopper_pearson(hits, 1000, confidence=0.995) for hits in (900, 50))
    assert rates.mu(confidence=0.99) == pytest.approx(norm.ppf(found) - norm.ppf(alarms))
    assert rates.epsilon(0.01, confidence=0.99) == pytest.approx(math.log((found - 0.01) / alarms))
    # Exchanged: misses are the rarer error, so that absence is what is told best.
    rates = ErrorRates(found=990, present=1000, false_alarms=400, absent=1000)
    (found, _), (_, alarms) = (clopper_pearson(hits, 1000, confidence=0.995) for hits in (990, 400))
    assert rates.epsilon(0.01, confidence=0.99) == pytest.approx(math.log((1 - alarms - 0.01) / (1 - found)))
    for useless in (ErrorRates(0, 10, 10, 10), ErrorRates(5, 10, 5, 10), ErrorRates(10, 10, 10, 10)):
        assert useless.mu(confidence=0.9) == useless.epsilon(1e-5, confidence=0.9) == 0


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_bounds_hold_as_often_as_they_say_and_are_not_idle(mu: float) -> None:
    """Gaussian noise whose μ is known, seen through three numbers, of which one is of no use."""
    rng = np.random.default_rng(1)
    direction = np.array([0.8, 0.6, 0.0]) * mu
    runs, repeats = 400, 200
    found = [
        attack(rng.normal(size=(runs, 3)) + direction, rng.normal(size=(runs, 3)), delta=1e-3, confidence=0.9)
        for _ in range(repeats)
    ]
    bounds = np.array([result.mu for result in found])
    assert (bounds > mu).mean() < 0.1
    assert bounds.mean() > mu - 0.4
    exact = epsilon_of_mu(mu, 1e-3)
    assert (np.array([result.epsilon for result in found]) > exact).mean() < 0.1
    assert all(result.epsilon_by_mu == epsilon_of_mu(result.mu, 1e-3) for result in found)


def test_randomised_response_is_found_to_be_what_it_is() -> None:
    """A true answer with probability 3/4 has ε = log 3, and an attack gets all of it."""
    rng = np.random.default_rng(2)
    found, alarms = (int((rng.random(40_000) < chance).sum()) for chance in (0.75, 0.25))
    rates = ErrorRates(found, 40_000, alarms, 40_000)
    assert math.log(3) - 0.1 < rates.epsilon(0.0, confidence=0.999) < math.log(3)


def test_what_differs_for_certain_is_proven_the_better_the_more_runs_there_are() -> None:
    """From n runs without an error follows ε ≥ log(n / log(2 / α)), about: it grows without end."""
    bounds = [
        attack(np.ones((runs, 2)), np.zeros((runs, 2)), delta=1e-5, confidence=0.999)
        for runs in (20, 200, 2000, 20_000)
    ]
    for runs, bound in zip((20, 200, 2000, 20_000), bounds, strict=True):
        alarms = 1 - 0.0005 ** (2 / runs)
        assert (bound.rates.found, bound.rates.false_alarms) == (runs // 2, 0)
        assert bound.epsilon == pytest.approx(max(math.log((1 - alarms - 1e-5) / alarms), 0.0))


def test_what_does_not_differ_proves_nothing() -> None:
    result = attack(np.ones((50, 2)), np.ones((50, 2)), delta=1e-5, confidence=0.9)
    assert (result.mu, result.epsilon, result.epsilon_by_mu) == (0.0, 0.0, 0.0)


def test_attack_is_judged_by_runs_that_it_has_not_seen() -> None:
    """With more numbers to look at than runs it tells its own runs apart, but no others."""
    rng = np.random.default_rng(3)
    present, absent = rng.normal(size=(2, 40, 200))
    assert attack(present, absent, delta=1e-5, confidence=0.999).mu == 0.0


def test_what_cannot_be_audited_is_refused() -> None:
    runs = np.zeros((4, 1))
    with pytest.raises(ParameterError, match="4 trainings or more"):
        attack(runs[:3], runs, delta=1e-5, confidence=0.9)
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ParameterError, match="confidence"):
            attack(runs, runs, delta=1e-5, confidence=confidence)
