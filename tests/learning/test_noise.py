"""OpenDP cannot be seeded, so statistics are checked to seven standard errors: a false alarm in 4·10¹¹ runs each."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from geoblanket._training import PrivatePart, TrainingPromise, epsilon_of
from geoblanket.errors import MissingExtraError, ParameterError, RandomnessError
from geoblanket.learning import noise
from geoblanket.learning.noise import BOUND, TrainingBudget, noisy, require_opendp

SURE = 7.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 64.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_budget_is_the_largest_that_opendp_converts_to_epsilon(epsilon: float, delta: float) -> None:
    budget = TrainingBudget.of(epsilon, delta)
    assert budget.epsilon == epsilon
    assert budget.delta == delta
    converted = dp.c.make_zCDP_to_approxDP(
        dp.m.make_gaussian(dp.atom_domain(T="i64"), dp.absolute_distance(T="f64"), scale=1.0)
    )

    def by_opendp(rho: float) -> float:
        return float(converted.map(math.sqrt(2 * rho)).epsilon(delta))

    assert by_opendp(budget.rho) <= epsilon * (1 + 1e-14)
    assert by_opendp(budget.rho * (1 + 1e-9)) > epsilon
    assert epsilon_of(budget.rho, delta) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 64.1, math.inf, math.nan])
def test_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="ε of learning"):
        TrainingBudget.of(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, math.inf])
def test_delta_that_promises_nothing_is_refused(delta: float) -> None:
    with pytest.raises(ParameterError, match="δ of learning"):
        TrainingBudget.of(1.0, delta)


def test_budget_too_small_for_any_noise_is_refused() -> None:
    with pytest.raises(ParameterError, match="leaves nothing to learn with"):
        TrainingBudget.of(1e-13, 1e-300)


@pytest.mark.parametrize("rho", [1e-12, 0.0244, 0.5, 7.0])
@pytest.mark.parametrize("bound", [1, 1000, BOUND, 1 << 35])
def test_cost_is_what_the_statement_says_and_never_more_than_asked(rho: float, bound: int) -> None:
    _, part = noisy(np.zeros((2, 3), dtype=np.int64), name="moves", rho=rho, bound=bound)
    assert part == PrivatePart("moves", 6, bound, part.scale)
    assert part.rho == pytest.approx((bound / part.scale) ** 2 / 2, rel=1e-15)
    assert rho * (1 - 1e-14) <= part.rho <= rho
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    assert dp.m.make_gaussian(*space, scale=part.scale).map(float(bound)) <= rho


def test_parts_keep_to_the_budget_and_their_statement_can_be_checked() -> None:
    budget = TrainingBudget.of(1.0, 1e-6)
    shares = {"places": 0.3, "moves": 0.6, "hours": 0.1}
    sums = np.zeros(4, dtype=np.int64)
    parts = tuple(noisy(sums, name=name, rho=share * budget.rho)[1] for name, share in shares.items())
    promise = TrainingPromise("vehicle", 350, budget.epsilon, budget.delta, parts, "order 2, always")
    assert promise.rho <= budget.rho * (1 + 1e-15)
    assert promise.problem() is None
    halved = PrivatePart("moves", 4, BOUND, parts[1].scale / 2)
    assert TrainingPromise("vehicle", 350, 1.0, 1e-6, (*parts[:1], halved), "order 2").problem() is not None


def test_noise_is_discrete_gaussian_of_the_stated_scale() -> None:
    count = 60_000
    values, part = noisy(np.full(count, -500, dtype=np.int64), name="n", rho=0.5, bound=3)  # a scale of 3
    drawn = (values + 500).astype(float)
    assert values.dtype == np.int64
    scale = part.scale
    support = np.arange(-200, 201)
    weights = np.exp(-(support**2) / (2 * scale**2))
    weights /= weights.sum()
    variance, fourth = weights @ support**2, weights @ support**4
    assert abs(drawn.mean()) < SURE * math.sqrt(variance / count)
    assert abs((drawn**2).mean() - variance) < SURE * math.sqrt((fourth - variance**2) / count)
    for value in range(-4, 5):
        share = weights[200 + value]
        assert abs((drawn == value).mean() - share) < SURE * math.sqrt(share * (1 - share) / count)
    neighbours = drawn[1:] * drawn[:-1]  # independent, across the ends of pieces too
    assert abs(neighbours.mean()) < SURE * variance / math.sqrt(count)


def test_large_noise_has_the_stated_variance() -> None:
    count = 40_000
    values, part = noisy(np.zeros(count, dtype=np.int64), name="n", rho=0.02)
    assert part.scale == pytest.approx(BOUND / 0.2)
    assert abs(values.mean()) < SURE * part.scale / math.sqrt(count)
    assert abs((values / part.scale).var() - 1) < SURE * math.sqrt(2 / count)


def test_half_the_noise_would_be_noticed() -> None:
    """The bounds above are narrow enough: noise of half the scale lies far outside of them."""
    values, part = noisy(np.zeros(40_000, dtype=np.int64), name="n", rho=0.08)
    assert abs((values / (2 * part.scale)).var() - 1) > 4 * SURE * math.sqrt(2 / 40_000)


def test_sums_are_kept_exactly_whatever_their_size_and_sign() -> None:
    """With noise so small that it is 0, all digits of a sum come out."""
    sums = np.array([[0, 1, -1], [2**62 + 1, -(2**62) - 1, 2**53 + 1]])
    values, _ = noisy(sums, name="n", rho=1e9, bound=1)
    assert np.array_equal(values, sums)
    assert values is not sums


def test_sums_at_the_ends_of_64_bits_do_not_overflow() -> None:
    ends = np.iinfo(np.int64)
    values, part = noisy(np.array([ends.max, ends.min] * 50), name="n", rho=0.5)
    assert (values[::2] > ends.max - 40 * int(part.scale)).all()
    assert (values[1::2] < ends.min + 40 * int(part.scale)).all()


def test_pieces_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_CELLS_AT_ONCE", 4)
    told: list[tuple[str, float, float | None]] = []
    values, part = noisy(
        np.arange(10), name="n", rho=1e9, bound=1, progress=lambda phase, done, total: told.append((phase, done, total))
    )
    assert told == [("noise", 4, 10), ("noise", 8, 10), ("noise", 10, 10)]
    assert values.tolist() == list(range(10))
    assert part.cells == 10


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sums": np.zeros(0, dtype=np.int64)}, "whole numbers"),
        ({"sums": np.zeros(3)}, "whole numbers"),
        ({"sums": np.zeros(3, dtype=np.uint64)}, "whole numbers"),
        ({"rho": 0.0}, "cost"),
        ({"rho": -1.0}, "cost"),
        ({"rho": math.nan}, "cost"),
        ({"rho": math.inf}, "cost"),
        ({"rho": 1e-30}, "cost"),
        ({"bound": 0}, "bound"),
        ({"bound": 1 << 41}, "bound"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        noisy(**dict[str, Any](sums=np.zeros(3, dtype=np.int64), name="n", rho=1.0) | options)


def test_without_randomness_nothing_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise dp.OpenDPException("EntropyExhausted")

    monkeypatch.setattr(dp.Measurement, "__call__", fail)
    with pytest.raises(RandomnessError, match="EntropyExhausted"):
        noisy(np.zeros(3, dtype=np.int64), name="n", rho=1.0)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("opendp"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"geoblanket\[private\]"):
        require_opendp()
    with pytest.raises(MissingExtraError, match=r"geoblanket\[private\]"):
        TrainingBudget.of(1.0, 1e-6)
