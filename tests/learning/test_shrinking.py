"""Shares from noisy counts of which the truth is known: drawn from priors that no constant was chosen for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Floats
from geoblanket.learning.estimating import normalised, raked, shrunk, summed

CELLS = 2000
TOTAL = 1e5


def prior(kind: str, seed: int) -> tuple[Floats, Floats]:
    """What is expected, and what is true: by a gamma factor, by a mixture with zeros, or by two kinds of cells."""
    rng = np.random.default_rng(seed)
    expected = rng.gamma(0.7, size=CELLS) + 1e-4
    factor = {
        "gamma": rng.gamma(2.0, size=CELLS) / 2,
        "with zeros": np.where(rng.random(CELLS) < 0.3, 0.0, rng.uniform(0.5, 2.0, CELLS)),
        "two kinds": np.where(rng.random(CELLS) < 0.1, 8.0, 0.5) * rng.uniform(0.8, 1.2, CELLS),
    }[kind]
    true = expected * factor
    return expected / expected.sum(), true / true.sum()


def off(shares: Floats, true: Floats) -> float:
    return float(((shares - true) ** 2).sum())


@pytest.mark.parametrize("kind", ["gamma", "two kinds"])
def test_without_noise_the_counts_are_believed(kind: str) -> None:
    expected, true = prior(kind, 0)
    shares = shrunk(TOTAL * true, expected, 1e-9)
    assert np.abs(shares - true).sum() < 1e-3
    assert np.abs(shares / true - 1)[true > expected / 50].max() < 0.01


def test_noise_beyond_all_counts_leaves_what_was_expected() -> None:
    expected, true = prior("gamma", 1)
    noise = np.random.default_rng(2).normal(size=CELLS)
    np.testing.assert_allclose(shrunk(TOTAL * true + 1e7 * noise, 5 * expected, 1e7), expected, rtol=1e-12)


@pytest.mark.parametrize("sigma", [3.0, 10.0, 30.0, 100.0])
@pytest.mark.parametrize("kind", ["gamma", "with zeros", "two kinds"])
def test_between_them_it_is_nearer_than_either(kind: str, sigma: float) -> None:
    """Mean squared errors, over a few draws of the noise; raw counts are divided by the true total."""
    found = raw = before = 0.0
    for seed in range(4):
        expected, true = prior(kind, seed)
        noisy = TOTAL * true + sigma * np.random.default_rng(100 + seed).normal(size=CELLS)
        found += off(shrunk(noisy, expected, sigma), true)
        raw += off(noisy / TOTAL, true)
        before += off(expected, true)
    assert found < raw
    assert found < before
    if sigma >= 30:  # the mean count is 50: by far
        assert found < 0.85 * min(raw, before)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0])
def test_little_noise_is_not_made_worse(sigma: float) -> None:
    """Where counts are nearly exact, hardly anything may be lost by looking at them through factors."""
    expected, true = prior("gamma", 3)
    noisy = TOTAL * true + sigma * np.random.default_rng(4).normal(size=CELLS)
    assert off(shrunk(noisy, expected, sigma), true) < 1.1 * off(noisy / TOTAL, true)


@given(
    st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.floats(1e-12, 1e3)),
        min_size=1,
        max_size=50,
    ),
    st.floats(1e-6, 1e9),
)
def test_any_counts_give_shares(cells: list[tuple[float, float]], sigma: float) -> None:
    noisy, expected = np.array(cells).T
    shares = shrunk(noisy, expected, sigma)
    assert np.isfinite(shares).all()
    assert shares.min() > 0
    assert shares.sum() == pytest.approx(1)


def test_cells_in_several_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, true = prior("two kinds", 5)
    noisy = TOTAL * true + 10 * np.random.default_rng(6).normal(size=CELLS)
    together = shrunk(noisy, expected, 10.0)
    monkeypatch.setattr("geoblanket.learning.estimating._CELLS_AT_ONCE", 7)
    np.testing.assert_allclose(shrunk(noisy, expected, 10.0), together, rtol=1e-6)


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_raked_moves_visit_places_as_often_as_given(places: int, seed: int) -> None:
    """Where each place can be left for any other and for itself, any visits are possible."""
    rng = np.random.default_rng(seed)
    source, target = (ends.ravel() for ends in np.indices((places, places)))
    flow = rng.gamma(1.0, size=places**2) + 0.01
    visits = rng.dirichlet(np.full(places, 2.0)) * 0.9 + 0.1 / places
    moves = raked(flow, source, target, 3 * visits)
    assert moves.sum() == pytest.approx(1)
    ends = (np.bincount(source, moves, places) + np.bincount(target, moves, places)) / 2
    np.testing.assert_allclose(ends, visits, atol=2e-4)


def test_raking_keeps_what_is_right_and_how_moves_compare() -> None:
    rng = np.random.default_rng(7)
    source, target = (ends.ravel() for ends in np.indices((6, 6)))
    flow = rng.gamma(1.0, size=36)
    visits = (np.bincount(source, flow, 6) + np.bincount(target, flow, 6)) / (2 * flow.sum())
    np.testing.assert_allclose(raked(flow, source, target, visits), flow / flow.sum(), rtol=1e-9)
    moves = raked(flow, source, target, rng.dirichlet(np.ones(6) * 5)).reshape(6, 6)
    cross = flow.reshape(6, 6)
    # A factor for each place cancels in moves there and back, over a third place and around.
    assert moves[0, 1] / moves[1, 0] == pytest.approx(cross[0, 1] / cross[1, 0])
    assert moves[0, 1] * moves[2, 3] / (moves[0, 3] * moves[2, 1]) == pytest.approx(
        cross[0, 1] * cross[2, 3] / (cross[0, 3] * cross[2, 1])
    )


def test_places_that_no_move_reaches_do_no_harm() -> None:
    moves = raked(np.array([1.0, 1.0]), np.array([0, 1]), np.array([1, 0]), np.array([0.3, 0.3, 0.4]))
    np.testing.assert_allclose(moves, [0.5, 0.5])


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.just(0.0), st.floats(1e-200, 1e6))), min_size=1))
def test_groups_sum_to_1(cells: list[tuple[int, float]]) -> None:
    group = np.array([number for number, _ in cells])
    weights = np.array([weight for _, weight in cells])
    shares = normalised(weights, group, 5)
    for number in set(group.tolist()):
        some = group == number
        assert shares[some].sum() == pytest.approx(1)
        expected = weights[some] / weights[some].sum() if weights[some].sum() else np.full(some.sum(), 1 / some.sum())
        np.testing.assert_allclose(shares[some], expected)
    assert summed(weights, group, 5).tolist() == pytest.approx([weights[group == number].sum() for number in range(5)])
