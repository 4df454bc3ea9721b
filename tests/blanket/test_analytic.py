from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, f, ncx2

from benchmarks.families import HELD_BACK, TUNING, simulate_family
from benchmarks.processes import simulate_windows
from geoblanket._arrays import Floats
from geoblanket.blanket import analytic
from geoblanket.blanket.analytic import _given, _mean_wald, _support, analytic_test, shortened
from geoblanket.blanket.independence import CIResult, lagged
from geoblanket.errors import UntestableError

ALPHA = 0.05
REPETITIONS = 40
REPETITIONS_OF_NOISE = 600


class Kind(NamedTuple):
    field: Literal["smooth", "rough"]
    noise: Literal["gaussian", "heavy"]
    m: int


KINDS = [Kind("smooth", "gaussian", 1), Kind("rough", "heavy", 2), Kind("rough", "gaussian", 3)]
# Where regressions leave a bias, more rows show it: samples for tests of the level.
SAMPLES = {1: 200, 2: 200, 3: 500}


def results(kind: Kind, samples: int, order: int) -> list[CIResult]:
    field, noise, m = kind
    found = []
    for seed in range(REPETITIONS):
        windows = simulate_windows(order, samples, field=field, noise=noise, length=m + 2, seed=seed)
        found.append(analytic_test(*lagged(windows, m), seed=seed))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_true_hypotheses_are_rejected_as_rarely_as_promised(kind: Kind) -> None:
    found = results(kind, SAMPLES[kind.m], kind.m)
    rejected = sum(result.p_value <= ALPHA for result in found)
    assert rejected <= binom.ppf(0.999, REPETITIONS, ALPHA)
    # A test that never doubts would pass the first check.
    assert sum(result.p_value <= 0.5 for result in found) >= binom.ppf(0.001, REPETITIONS, 0.4)
    assert abs(np.mean([result.effect_size for result in found])) < 0.015


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_false_hypotheses_are_rejected(kind: Kind) -> None:
    found = results(kind, 300, kind.m + 1)
    assert sum(result.p_value <= ALPHA for result in found) >= binom.ppf(0.001, REPETITIONS, 0.75)
    assert np.mean([result.effect_size for result in found]) > 0.02


def decisions(family: str, m: int, order: int, *, samples: int, repetitions: int) -> tuple[int, int]:
    """Return how often the hypothesis of order m is rejected, and how often the test refuses."""
    rejected = refused = 0
    for seed in range(repetitions):
        windows = simulate_family(family, order, samples, length=m + 2, seed=seed)
        try:
            rejected += analytic_test(*lagged(windows, m), seed=seed).p_value <= ALPHA
        except UntestableError:
            refused += 1
    return rejected, refused


@pytest.mark.parametrize("family", ["compact", "speeds"])
def test_the_level_is_kept_at_order_3_where_place_and_steps_interact(family: str) -> None:
    """In a family that the test was tuned by, and in one that was held back."""
    rejected, refused = decisions(family, 3, 3, samples=1000, repetitions=60)
    assert rejected <= binom.ppf(0.99, 60, ALPHA)
    assert refused <= 12


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("family", [*TUNING, *HELD_BACK])
def test_the_level_is_kept_in_every_family(family: str, m: int) -> None:
    rejected, refused = decisions(family, m, m, samples=1000, repetitions=150)
    assert rejected <= 0.08 * 150
    assert refused <= 0.25 * 150


def test_evidence_that_is_strong_enough_is_not_refused() -> None:
    assert decisions("compact", 3, 4, samples=1000, repetitions=8) == (8, 0)


def test_what_a_coarser_regression_would_reject_too_is_refused_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the allowance for bias, what is refused would be a rejection."""
    before = decisions("compact", 2, 2, samples=300, repetitions=40)
    monkeypatch.setattr(analytic, "_BIAS_SHARE", 0.0)
    after = decisions("compact", 2, 2, samples=300, repetitions=40)
    assert before[1] > 0 == after[1]
    assert after[0] == sum(before)


def test_an_allowance_for_bias_makes_p_values_larger_and_none_makes_no_difference() -> None:
    products = np.random.default_rng(9).normal(0.05, 1, (3000, 3))
    statistic, plain, granted = _mean_wald(products, np.ones(3), np.full(3, -1), bias=4.0)
    assert _mean_wald(products, np.ones(3), np.full(3, -1)) == (statistic, plain, plain)
    # In large samples the statistic is a noncentral χ².
    assert granted == pytest.approx(ncx2.sf(statistic, 3, 4.0), rel=0.1)
    assert plain < granted


def test_lonely_rows_count_less_but_most_rows_still_count() -> None:
    rng = np.random.default_rng(10)
    z = np.vstack([rng.normal(size=(190, 2)), 20 * rng.normal(size=(10, 2))])
    support = _support(_given(z, rng)[0])
    assert support[190:].max() < 0.5 * np.median(support[:190])
    assert support.sum() ** 2 / (support**2).sum() >= 0.9 * 200


def test_a_dependence_that_skips_a_lag_is_seen_by_the_block_alone() -> None:
    rng = np.random.default_rng(1)
    single, block = [], []
    for seed in range(20):
        steps = list(rng.normal(size=(3, 300, 2)))
        for _ in range(8):
            steps.append(0.6 * steps[-3] + rng.normal(size=(300, 2)))
        # Starts far apart, so that a position does not tell the sum of the steps before it.
        start = rng.uniform(-1e3, 1e3, (300, 2))
        window = (start + np.cumsum(steps, axis=0))[::-1][:6].transpose(1, 0, 2)
        single.append(analytic_test(*lagged(window, 2), seed=seed).p_value <= ALPHA)
        block.append(analytic_test(*lagged(window, 2, block=True), seed=seed).p_value <= ALPHA)
    assert sum(single) <= binom.ppf(0.999, 20, ALPHA)
    assert sum(block) == 20


def test_a_dependence_without_correlation_is_found() -> None:
    rng = np.random.default_rng(2)
    z, y = rng.normal(size=(400, 2)), rng.normal(size=(400, 2))
    x = z + (y**2 - 1) * 0.7 + 0.5 * rng.normal(size=(400, 2))
    result = analytic_test(x, y, z, seed=0)
    assert result.p_value < 1e-4
    assert abs(result.effect_size) < 0.1


@settings(max_examples=8)
@given(
    angle=st.floats(0.1, 6.0),
    unit=st.sampled_from([1e-5, 3.28, 1e6]),
    shift=st.floats(-1e4, 1e4),
    seed=st.integers(0, 2**31),
)
def test_order_of_rows_units_and_axes_do_not_matter(angle: float, unit: float, shift: float, seed: int) -> None:
    windows = simulate_windows(2, 80, noise="heavy", seed=seed)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    order = np.random.default_rng(seed).permutation(len(windows))
    one = analytic_test(*lagged(windows, 2), seed=5)
    shuffled = analytic_test(*lagged(windows[order], 2), seed=5)
    moved = analytic_test(*lagged(((windows + shift) @ turn.T)[order] * unit, 2), seed=5)
    assert shuffled == one
    assert moved.p_value == pytest.approx(one.p_value, rel=1e-4)
    assert moved.effect_size == pytest.approx(one.effect_size, abs=1e-6)


def test_the_order_of_rows_does_not_matter_where_many_are_equal() -> None:
    windows = simulate_windows(2, 200, spacing_m=500, stops=0.4, seed=3)
    order = np.random.default_rng(3).permutation(len(windows))
    assert analytic_test(*lagged(windows[order], 2), seed=1) == analytic_test(*lagged(windows, 2), seed=1)


def test_another_seed_gives_another_but_similar_result() -> None:
    x, y, z = lagged(simulate_windows(3, 300, seed=4), 2)
    found = [analytic_test(x, y, z, seed=seed).p_value for seed in range(10)]
    assert len(set(found)) == 10
    assert sum(p_value <= ALPHA for p_value in found) in (0, 10)


def test_a_mean_of_statistics_has_the_level_it_promises() -> None:
    rng = np.random.default_rng(6)
    draws = np.append([-1] * 4, np.arange(5).repeat(5))
    mixing = np.eye(29) + 0.3 * rng.normal(size=(29, 29))
    p_values = np.array(
        [_mean_wald(rng.normal(size=(200, 29)) @ mixing, np.ones(29), draws)[1] for _ in range(REPETITIONS_OF_NOISE)]
    )
    for level in (0.01, 0.05, 0.5):
        low, high = (binom.ppf(tail, REPETITIONS_OF_NOISE, level) for tail in (0.001, 0.999))
        assert low <= (p_values <= level).sum() <= high


def test_a_mean_of_equal_statistics_is_a_regression_of_one() -> None:
    products = np.random.default_rng(7).normal(0.2, 1, (60, 3))
    statistic, p_value, _ = _mean_wald(products, np.ones(3), np.full(3, -1))
    # Without a constant, R² of a regression of 1 and its F-test: an independent way to the same number.
    fitted = products @ np.linalg.lstsq(products, np.ones(60))[0]
    share = (fitted**2).sum() / 60
    assert statistic == pytest.approx(60 * share)
    assert p_value == pytest.approx(f.sf(share / 3 / ((1 - share) / 57), 3, 57))


def test_shortening_keeps_directions_and_order_of_lengths() -> None:
    steps = np.random.default_rng(5).standard_t(2, (200, 4)) * np.array([1, 1, 90, 90])
    steps -= steps.mean(axis=0)
    short = shortened(steps)
    for pair in (slice(0, 2), slice(2, 4)):
        before, after = (np.linalg.norm(part[:, pair], axis=1) for part in (steps, short))
        assert np.allclose(steps[:, pair] / before[:, None], short[:, pair] / after[:, None])
        assert np.array_equal(np.argsort(before), np.argsort(after))
        assert np.allclose(np.sinh(after) * 2 * np.median(before), before)


def test_shortening_leaves_those_who_stand_still() -> None:
    still: Floats = np.zeros((10, 2))
    assert np.array_equal(shortened(still), still)
