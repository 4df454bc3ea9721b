"""The anchor: a secret shift of a whole period, so that noise does not average out.

At the start of a period a shift N is drawn, a vector of whole units on the torus of the frame, with weights

    A(N) = max(c₀, ⌊2^61·E₀(|N|)⌋),        E₀ the kernel at the anchor's own rate,

and every true point of the period is shifted by N before its report is drawn.

The promise for a trip
----------------------
Let x = (x_1, …, x_T) and x' be two trips of one period, points on the torus, and y = (y_1, …, y_T) any reports. For
every shift s:

    ln(P(y | x) / P(y | x')) ≤ ε₀·|s| + ε₁·Σ_t d(x_t + s, x'_t).

*Proof.* P(y | x) = Σ_N A(N)/ΣA · Π_t W(y_t | x_t + N)/2^62. Shifting is a bijection of the torus, so N may be replaced
by N + s: P(y | x) = Σ_N A(N + s)/ΣA · Π_t W(y_t | x_t + s + N)/2^62. As to the first factor, A(N + s) ≤ e^(ε₀·|s|)·A(N)
(below). As to the others, the points x_t + s + N and x'_t + N are d(x_t + s, x'_t) apart, whatever N is, so that each
is at most e^(ε₁·d(x_t + s, x'_t)) times W(y_t | x'_t + N)/2^62 (`spec`). ∎

Taking s = 0: the promise of independent reports still holds. Taking s = x'_1 − x_1 where both trips stay at one place,
or where one runs parallel to the other: ε₀·|s| for the whole period, however many reports. Different periods have
independent anchors, and add up.

A(N + s) ≤ e^(ε₀·|s|)·A(N) for s ≠ 0 follows as in `spec`, without multipliers: |s| is at least one unit, so that the
kernel's slope, the rounding of its mantissa and ⌊·⌋ above c₀ together give at most e^((slope + 2^-27 + 1/c₀)·|s|), and
the rate is such that this is at most e^(ε₀·|s|).

The draw
--------
By rejection, exactly: the torus is cut into square rings, each with an upper bound of the weights in it; a ring is
drawn by its bound times the points of its square, then a point of that square, evenly, and it is kept with the
probability A(N) / bound if it lies in the ring. The time tells something of the anchor, and nothing of the location.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.errors import LatticeViolation, MechanismError, ParameterError
from geoblanket.mechanism.lattice.kernel import exponent_of, mantissa_of, rate_for, slope
from geoblanket.mechanism.lattice.plane import Plane

__all__ = ["AnchorSpec", "Shift", "make_anchor", "verify_anchor"]

Shift = tuple[int, int]
"""Units east and north, each from 0 to below the side of the frame."""
Below = Callable[[int], int]
"""Draws a whole number below another, evenly."""

_TOP_BITS: Final = 61
_FLOOR_SHARE: Final = Fraction(1, 10_000)
_ROUNDING: Final = Fraction(1, 2**27)
_RINGS_PER_E: Final = 2
"""Rings in which the weights fall by e: a draw takes about six tries."""
LONGEST_PERIOD_S: Final = 31 * 86_400


@dataclass(frozen=True)
class AnchorSpec:
    """The numbers that define an anchor on a frame."""

    epsilon_micro: int
    """ε₀ in millionths per kilometre."""
    period_s: int
    """How long an anchor stays, seconds; periods start at multiples of it since 1970, UTC."""
    rate: int
    """ρ of the kernel."""
    floor: int
    """c₀: the least weight of a shift."""

    @property
    def epsilon(self) -> float:
        """ε₀ per kilometre, of a period."""
        return self.epsilon_micro / 10**6

    def weight(self, east: int, north: int, side: int) -> int:
        """Return A of a shift, in units, on a torus of this side."""
        return self._weight_at(min(east % side, -east % side) ** 2 + min(north % side, -north % side) ** 2)

    def draw(self, side: int, below: Below) -> Shift:
        """Draw a shift on a torus of this side.

        Parameters
        ----------
        side
            Units from edge to edge of the frame.
        below
            Draws a whole number below its argument, evenly.
        """
        rings, masses = _rings(self, side)
        while True:
            ring = rings[bisect_right(masses, below(masses[-1]))]
            east, north = (below(ring.width) - ring.width // 2 for _ in range(2))
            if max(abs(east), abs(north)) < ring.inner:
                continue
            if below(ring.bound) < self.weight(east, north, side):
                return east % side, north % side

    def densities(self, distance_units: Floats) -> Floats:
        """Return how probable shifts of these lengths, in units, are, up to a factor: for trackers and attackers."""
        return np.exp(-float(slope(self.rate)) * np.asarray(distance_units))

    def _weight_at(self, square: int, *, slack: int = 0) -> int:
        m, exponent = mantissa_of(exponent_of(square, self.rate))
        return max(self.floor, m + slack << _TOP_BITS - 31 >> exponent)

    def weight_bound(self, distance: int) -> int:
        """Return what no shift of this length or more, in units, exceeds in weight."""
        # The mantissa may be rounded down by 2^-28 of it, 8 at most; further away the exact value is smaller.
        return self._weight_at(distance**2, slack=9)


@dataclass(frozen=True)
class _Ring:
    """The points of a square whose larger coordinate is not below `inner`."""

    inner: int
    width: int
    """Points from edge to edge of the square."""
    bound: int
    """No point of the ring weighs more."""

    @property
    def mass(self) -> int:
        # Drawn by the whole square, points within the inner one are rejected.
        return self.width**2 * self.bound


@lru_cache(maxsize=8)
def _rings(anchor: AnchorSpec, side: int) -> tuple[list[_Ring], list[int]]:
    """Return the rings of a frame, and the masses of all of them up to each."""
    step = max(math.floor(1 / (_RINGS_PER_E * float(slope(anchor.rate)))), 1)
    rings, inner, bound = [], 0, 1 << _TOP_BITS
    while bound > anchor.floor and inner + step < side // 2:
        rings.append(_Ring(inner, 2 * (inner + step) - 1, bound))
        inner += step
        bound = anchor.weight_bound(inner)
    rings.append(_Ring(inner, side, bound))
    return rings, list(accumulate(ring.mass for ring in rings))


def make_anchor(plane: Plane, *, epsilon_micro: int, period_s: int) -> AnchorSpec:
    """Return the numbers of an anchor; `verify_anchor` decides whether they keep the promise.

    Parameters
    ----------
    plane
        The frame.
    epsilon_micro
        ε₀ in millionths per kilometre, of a period.
    period_s
        How long an anchor stays, seconds.
    """
    if not 1 <= period_s <= LONGEST_PERIOD_S:
        raise ParameterError(f"An anchor stays for 1 second to 31 days. Got {period_s} s instead.")
    epsilon = Fraction(epsilon_micro * plane.unit_mm, 10**12)
    share = 2 * math.pi / float(epsilon) ** 2 / plane.side**2 * float(_FLOOR_SHARE)
    floor = max(math.floor(2**_TOP_BITS * min(share, 1.0)), 1)
    rate = rate_for(epsilon - Fraction(1, floor) - _ROUNDING)
    if rate < 1:
        raise ParameterError("The anchor's ε is too small for this frame. Take a larger one, or a smaller area.")
    return AnchorSpec(epsilon_micro, period_s, rate, floor)


def verify_anchor(anchor: AnchorSpec, plane: Plane) -> None:
    """Check that an anchor keeps its promise on a frame.

    Raises
    ------
    LatticeViolation
        It does not.
    MechanismError
        The numbers cannot be an anchor.
    """
    numbers_are_sound = (
        0 < anchor.epsilon_micro <= 10**9
        and 1 <= anchor.period_s <= LONGEST_PERIOD_S
        and 1 <= anchor.rate < 2**40
        and 1 <= anchor.floor <= 2**_TOP_BITS
    )
    if not numbers_are_sound:
        raise MechanismError("The numbers of the anchor cannot be one.")
    allowed = Fraction(anchor.epsilon_micro * plane.unit_mm, 10**12)
    if slope(anchor.rate) + Fraction(1, anchor.floor) + _ROUNDING > allowed:
        raise LatticeViolation("The anchor's weights fall faster than its ε allows")
