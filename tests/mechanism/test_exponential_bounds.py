from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.mechanism.exponential_bounds import MAX_EPSILON_MICRO, ExponentialBounds, bounds_for
from tests.mechanism.brute_force import exponential_interval

ONE = 2**96
CAP = 2**160
EDGES = [0, 1, 2, 1023, 1024, 1025, 2**20 - 1, 2**20, 2**30, 44_361_419, 45_000_000, 10**15, 2**63 - 1]


def assert_bounds(epsilon_micro: int, distance_mm: int) -> None:
    """The integer is at most 2 below the truth and never above it; the float is below the integer by its margin."""
    bound = bounds_for(epsilon_micro).lower(distance_mm)
    if epsilon_micro * distance_mm >= 45 * 10**12:
        assert bound == CAP
    else:
        lower, upper = exponential_interval(epsilon_micro, distance_mm)
        assert bound <= ONE * lower
        assert bound + 2 >= min(ONE * upper, Fraction(CAP))
    [as_float] = bounds_for(epsilon_micro).lower_floats(np.array([distance_mm]))
    ratio = Fraction(float(as_float)) * ONE / bound
    assert 1 - Fraction(1, 2**47) <= ratio <= 1 - Fraction(1, 2**49)


@pytest.mark.parametrize("epsilon_micro", [1, 7, 99_999, 10**6, 20 * 10**6, MAX_EPSILON_MICRO])
@pytest.mark.parametrize("distance_mm", EDGES)
def test_bounds_hold_at_the_edges_of_digits_and_of_the_cap(epsilon_micro: int, distance_mm: int) -> None:
    assert_bounds(epsilon_micro, distance_mm)


@given(st.integers(1, MAX_EPSILON_MICRO), st.floats(0, 50))
def test_bounds_hold_against_interval_arithmetic(epsilon_micro: int, exponent: float) -> None:
    assert_bounds(epsilon_micro, int(exponent * 1e12 / epsilon_micro))


def test_distance_zero_and_epsilon_zero_are_exactly_one() -> None:
    assert bounds_for(123_456).lower(0) == ONE
    assert bounds_for(0).lower(10**15) == ONE


def test_the_cap_holds_where_doubles_would_overflow() -> None:
    assert bounds_for(MAX_EPSILON_MICRO).lower(10**15) == CAP
    assert math.isfinite(ExponentialBounds(MAX_EPSILON_MICRO).lower_floats(np.array([2**63 - 1]))[0])


def test_the_largest_value_below_the_threshold_is_still_capped() -> None:
    bounds = bounds_for(10**6)
    assert bounds.lower(bounds.capped_from_mm - 1) == CAP
    assert bounds.lower(44_000_000) < CAP


def test_floats_keep_the_shape() -> None:
    distance = np.arange(12).reshape(3, 4)
    assert bounds_for(10**6).lower_floats(distance).shape == (3, 4)
    assert np.array_equal(distance, np.arange(12).reshape(3, 4))


@pytest.mark.parametrize("epsilon_micro", [-1, MAX_EPSILON_MICRO + 1])
def test_epsilon_out_of_range_is_refused(epsilon_micro: int) -> None:
    with pytest.raises(ValueError, match="epsilon_micro"):
        ExponentialBounds(epsilon_micro)


def test_negative_distance_is_refused() -> None:
    with pytest.raises(ValueError, match="distance_mm"):
        bounds_for(1).lower(-1)
