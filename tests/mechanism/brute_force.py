"""The promise, checked the slow and obvious way: every pair and output, in fractions, with intervals of mpmath."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import mpmath

from geoblanket._arrays import Ints
from geoblanket.mechanism.problem import Problem

__all__ = ["exponential_interval", "violations"]


@cache
def exponential_interval(epsilon_micro: int, distance_mm: int) -> tuple[Fraction, Fraction]:
    """Return proven bounds of e^(ε·d) by interval arithmetic with 320 bits."""
    before = mpmath.iv.prec
    mpmath.iv.prec = 320
    try:
        interval = mpmath.iv.exp(mpmath.iv.mpf(epsilon_micro) * distance_mm / 10**12)
        return _fraction(interval.a), _fraction(interval.b)
    finally:
        mpmath.iv.prec = before


def _fraction(end: Any) -> Fraction:
    # An end of an interval is itself an interval of one point; its raw parts are sign, mantissa, exponent and size.
    sign, mantissa, exponent, _ = end._mpi_[0]
    return Fraction(int(-mantissa if sign else mantissa)) * (Fraction(2) ** int(exponent))


def violations(weights: Ints, problem: Problem) -> list[tuple[int, int, int]]:
    """Return every (row, other row, output) whose ratio is not proven to be at most e^(ε·d)."""
    table = weights.tolist()
    if any(sum(row) != 2**62 or min(row) < 0 for row in table):
        raise AssertionError("a row is not a distribution")
    distance = problem.distance_mm.tolist()
    found = []
    for row, own in enumerate(table):
        for other, others in enumerate(table):
            if row == other or distance[row][other] > problem.eta_mm:
                continue
            lower, _ = exponential_interval(problem.epsilon_micro, distance[row][other])
            numerator, denominator = lower.numerator, lower.denominator
            for output, (weight, other_weight) in enumerate(zip(own, others, strict=True)):
                if weight * denominator > numerator * other_weight:
                    found.append((row, other, output))
    return found
