"""Lower bounds of e^(ε·d), in integers.

ε is a whole number of millionths per kilometre and d a whole number of millimetres, so that ε·d = n / 10^12 for a whole
number n. Two forms of the bound, for every pair the same whichever is asked first:

- `ExponentialBounds.lower(d)`: an integer p ≤ 2^96·min(e^(ε·d), 2^64), at most 2 below it;
- `ExponentialBounds.lower_floats(d)`: floats F with (1 − 2^-47)·min(e^(ε·d), 2^64) ≤ F ≤ (1 − 2^-49)·p/2^96.

Why p is a lower bound
----------------------
Everything is a non-negative integer that stands for a fraction of 2^P, and every division and shift rounds down.
`_exp_fixed` sums terms r^i/i! that are each rounded down, leaves out terms that are not negative, and squares numbers
that are too small: the result is at most 2^P·e^x. A product of lower bounds, shifted down, is a lower bound of the
product, hence so are the tables and the product over the digits of d in base 1024.

How far below
-------------
With W = 256 working bits and x < 45, each rounding loses at most 2^-W of a number that is at least 1. The sum has
fewer than 64 terms, so it is relatively too small by less than 2^-248; at most 8 squarings double that each time and
add 2^-W: less than 2^-239. Cut to P = 192 bits, an entry of a table loses at most 1024·2^-191, and the product of five
digits at most 5·2^-181 + 4·2^-192 < 2^-178. The last shift, to 96 bits, loses less than 1; as e^x < 2^65, all before it
together lose less than 2^-17.

Why the floats are lower bounds
-------------------------------
u = 2^-53. An entry of a table as a float is off by at most the factor 1 ± u, and each of at most four multiplications
by 1 ± u: the product is e^x·(1 ± 10u) up to terms of u². Times (1 − 2^-48) = (1 − 32u), with one more rounding, it lies
between e^x·(1 − 44u) and e^x·(1 − 20u); and p/2^96 ≥ e^x·(1 − 2^-94).

Why the cap costs nothing
-------------------------
Weights are integers between 0 and 2^62. If w' ≥ 1 then w ≤ 2^64·w' always holds, and if w' = 0 then no factor helps:
under the cap 2^64 the same mechanisms pass. So nothing overflows, however large ε·d is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Ints

ONE_BITS: Final = 96
"""A bound p stands for the number p / 2^96."""
CAP_BITS: Final = 64
"""Exponentials are capped at 2^64."""
MAX_EPSILON_MICRO: Final = 10**9
"""The largest ε, in millionths per kilometre: 1,000 per kilometre."""

_UNITS: Final = 10**12
_CAP_EXPONENT: Final = 45  # e^45 > 2^64
_WORKING_BITS: Final = 256
_TABLE_BITS: Final = 192
_DIGIT_BITS: Final = 10


@lru_cache(maxsize=32)
def bounds_for(epsilon_micro: int) -> ExponentialBounds:
    """Return the bounds for one ε, kept for the next call."""
    return ExponentialBounds(epsilon_micro)


class ExponentialBounds:
    """Lower bounds of e^(ε·d) for one ε and any distance: products of table entries, one for each digit of d.

    Parameters
    ----------
    epsilon_micro
        ε in millionths per kilometre, from 0 to 10^9.
    """

    def __init__(self, epsilon_micro: int) -> None:
        if not 0 <= epsilon_micro <= MAX_EPSILON_MICRO:
            raise ValueError(f"epsilon_micro must be from 0 to {MAX_EPSILON_MICRO}. Got {epsilon_micro} instead.")
        self.epsilon_micro = epsilon_micro
        # Without ε all distances behave as 0; else from here on, ε·d ≥ 45 and the cap holds.
        self.capped_from_mm = -(-_CAP_EXPONENT * _UNITS // epsilon_micro) if epsilon_micro else 1
        self._tables: list[list[int]] = []
        place = 1
        while place < self.capped_from_mm:
            self._tables.append(self._table(place))
            place <<= _DIGIT_BITS
        self._float_tables = [np.array([entry / (1 << _TABLE_BITS) for entry in table]) for table in self._tables]

    def lower(self, distance_mm: int) -> int:
        """Return the integer bound for a distance in millimetres."""
        if distance_mm < 0:
            raise ValueError("distance_mm must not be negative.")
        if self.epsilon_micro == 0:
            return 1 << ONE_BITS
        if distance_mm >= self.capped_from_mm:
            return 1 << (ONE_BITS + CAP_BITS)
        product = 1 << _TABLE_BITS
        rest = distance_mm
        for table in self._tables:
            product = product * table[rest & ((1 << _DIGIT_BITS) - 1)] >> _TABLE_BITS
            rest >>= _DIGIT_BITS
        # Just below the threshold e^(ε·d) may already be above the cap.
        return min(product, 1 << (_TABLE_BITS + CAP_BITS)) >> (_TABLE_BITS - ONE_BITS)

    def lower_floats(self, distance_mm: Ints) -> Floats:
        """Return the float bounds for distances in millimetres, an array of any shape."""
        if self.epsilon_micro == 0:
            return np.full(distance_mm.shape, 1 - 2.0**-48)
        result = np.ones(distance_mm.shape)
        rest = np.minimum(distance_mm, self.capped_from_mm - 1)
        for table in self._float_tables:
            result *= table[rest & ((1 << _DIGIT_BITS) - 1)]
            rest >>= _DIGIT_BITS
        result[distance_mm >= self.capped_from_mm] = 2.0**CAP_BITS
        np.minimum(result, 2.0**CAP_BITS, out=result)
        result *= 1 - 2.0**-48
        return result

    def _table(self, place_mm: int) -> list[int]:
        """Return 2^192·e^(ε·v·place) rounded down, for the digits v that distances below the cap can have."""
        step = _exp_fixed(self.epsilon_micro * place_mm) >> (_WORKING_BITS - _TABLE_BITS)
        table = [1 << _TABLE_BITS]
        for digit in range(1, 1 << _DIGIT_BITS):
            if digit * place_mm >= self.capped_from_mm:
                break
            table.append(table[digit - 1] * step >> _TABLE_BITS)
        return table


def _exp_fixed(exponent: int) -> int:
    """Return a lower bound of 2^256·e^(exponent / 10^12), for an exponent from 0 to 45·10^12."""
    # Halve until x/2^k < 1/4, where the series is short; then square k times.
    halvings = max(0, (4 * exponent // _UNITS).bit_length())
    ratio = (exponent << _WORKING_BITS) // (_UNITS << halvings)
    total = term = 1 << _WORKING_BITS
    index = 0
    while term:
        index += 1
        term = (term * ratio >> _WORKING_BITS) // index
        total += term
    for _ in range(halvings):
        total = total * total >> _WORKING_BITS
    return total
