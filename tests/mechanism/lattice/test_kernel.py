"""The kernel against mpmath, and the slope that the proofs use."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.mechanism.lattice.kernel import LARGEST_SQUARE, exponents, mantissas, rate_for, slope

RATE = rate_for(Fraction(2, 1000))


def test_mantissas_are_rounded_down_by_less_than_the_proof_allows() -> None:
    mpmath.mp.prec = 120
    z = np.concatenate([np.arange(5000), np.random.default_rng(0).integers(0, 2**29, 20_000), [2**24 - 1, 2**24]])
    m, whole = mantissas(z)
    for value, mantissa, exponent in zip(z.tolist(), m.tolist(), whole.tolist(), strict=True):
        assert exponent == value >> 24
        exact = mpmath.mpf(2) ** (31 - mpmath.mpf(value % 2**24) / 2**24)
        assert (1 - mpmath.mpf(2) ** -28) * exact <= mantissa <= exact


def test_roots_are_exact_up_to_the_largest_square() -> None:
    k = np.random.default_rng(1).integers(1, math.isqrt(LARGEST_SQUARE), 50_000)
    squares = np.unique(np.concatenate([k**2, k**2 - 1, k**2 + 1, np.arange(20_000), [LARGEST_SQUARE - 1]]))
    z = exponents(squares, 2**20)  # the exponent is the root then
    assert z.tolist() == [math.isqrt(square << 22) for square in squares.tolist()]


@given(st.integers(0, 30_000), st.integers(0, 30_000), st.integers(-200, 200), st.integers(-200, 200))
def test_the_slope_holds_between_any_two_vectors(east: int, north: int, step_east: int, step_north: int) -> None:
    other = (abs(east + step_east), abs(north + step_north))
    distance = math.hypot(step_east, step_north)
    if distance < 1:
        return
    # In integers, as vectors of this size have squares above the largest for floats.
    z, z_other = (math.isqrt(x * x + y * y << 22) * RATE >> 20 for x, y in ((east, north), other))
    assert (z_other - z) * math.log(2) / 2**24 <= float(slope(RATE)) * distance * (1 + 1e-12)


@given(st.fractions(Fraction(1, 10**5), Fraction(1, 2)))
def test_the_rate_is_the_largest_with_its_slope(largest: Fraction) -> None:
    rate = rate_for(largest)
    assert slope(rate) <= largest < slope(rate + 1)
    assert float(largest - slope(rate)) < 1e-9


def test_values_fall_as_the_exponential_does() -> None:
    distance = np.arange(0, 9000, 7)
    m, whole = mantissas(exponents(distance**2, RATE))
    value = np.ldexp(m.astype(float), -31 - whole.astype(np.int32))
    np.testing.assert_allclose(value, np.exp(-0.002 * distance), rtol=0.01)
