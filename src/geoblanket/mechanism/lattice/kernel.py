"""e^(−ε'·|v|) of a vector v of whole numbers, in whole numbers: the same on every machine.

    q = ⌊2^11·|v|⌋        from |v|² < 2^30
    z = ⌊ρ·q / 2^20⌋      the exponent to the base 2, in units of 2^-24; ρ is the *rate*
    m = ⌊2^31·2^(−(z mod 2^24) / 2^24)⌋, nearly: the *mantissa*
    value = m / 2^31 · 2^(−⌊z / 2^24⌋)

What the proofs use
-------------------
1. *Slope.* If |v'| ≤ |v| + d and d ≥ 1, then q' ≤ q + 2^11·d + 1, so that z' ≤ z + d·((2^11 + 1)·ρ/2^20 + 1): z grows
   by at most `slope(ρ)`/ln 2 · 2^24 for each unit of distance.
2. *Mantissa.* It is the product of two table entries, each rounded down from a number of at least 2^30 and nearly 2^31,
   shifted down to at least 2^30 − 2: the roundings lose a share of less than 2^-30 + 2^-30.9 + 2^-29.9 < 2^-28. So
   2^31·2^(−frac)·(1 − 2^-28) ≤ m ≤ 2^31·2^(−frac).
3. *Root.* N = 2^22·|v|² < 2^52 is a float exactly, and IEEE 754 rounds its square root correctly: never below a whole
   k with k² ≤ N, and never up to one with N < k², for √N ≤ k − 1/(2k) and half a unit in the last place below 2^26 is
   2^-28 < 1/(2k). So ⌊√N⌋ is exact. `verifier` computes every root that can occur a second time, in integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from geoblanket._arrays import Ints

MANTISSA_BITS: Final = 31
LARGEST_SQUARE: Final = 2**30
"""Squared distances must be below it: 32,768 units."""

_DISTANCE_BITS: Final = 11
_RATE_BITS: Final = 20
_EXPONENT_BITS: Final = 24
_TABLE_BITS: Final = 12
_LOG_2: Final = Fraction(6_931_471_805_599_453_095, 10**19)
"""An upper bound of ln 2, by less than 10^-18."""


def slope(rate: int) -> Fraction:
    """Return an upper bound of how much −ln(value) grows with a unit of distance, for distances of 1 or more."""
    steps = Fraction(rate * (2**_DISTANCE_BITS + 1), 2**_RATE_BITS) + 1
    return _LOG_2 * steps / 2**_EXPONENT_BITS


def rate_for(largest_slope: Fraction) -> int:
    """Return the largest rate whose `slope` is at most this; below 1 there is none."""
    steps = largest_slope * 2**_EXPONENT_BITS / _LOG_2 - 1
    return math.floor(steps * 2**_RATE_BITS / (2**_DISTANCE_BITS + 1))


def exponents(squares: Ints, rate: int) -> Ints:
    """Return z of squared distances below 2^30."""
    roots: Ints = np.sqrt(squares << 2 * _DISTANCE_BITS).astype(np.int64)
    roots *= rate
    roots >>= _RATE_BITS
    return roots


def mantissas(z: Ints) -> tuple[Ints, Ints]:
    """Return m and ⌊z / 2^24⌋."""
    coarse, fine = _tables()
    digit = (1 << _TABLE_BITS) - 1
    m = coarse[z >> _TABLE_BITS & digit] * fine[z & digit]
    m >>= MANTISSA_BITS
    return m, z >> _EXPONENT_BITS


@cache
def _tables() -> tuple[Ints, Ints]:
    """Return ⌊2^31·2^(−i/2^12)⌋ and ⌊2^31·2^(−i/2^24)⌋ for i below 2^12."""
    bits = 192
    root = 1 << bits - 1  # 1/2; then its square root, twelve times, and twelve times again
    tables = []
    for _ in range(2):
        for _ in range(_TABLE_BITS):
            root = math.isqrt(root << bits)
        entry, entries = 1 << bits, []
        for _ in range(1 << _TABLE_BITS):
            entries.append(entry >> bits - MANTISSA_BITS)
            entry = entry * root >> bits
        tables.append(np.array(entries, np.int64))
    return tables[0], tables[1]
