"""Noise for sums over vehicles or trips, and what it costs: all by OpenDP, in whole numbers.

A *unit* (a vehicle, or a trip) changes the sums of one part by at most a bound, as a Euclidean length. Discrete
Gaussian noise of standard deviation *scale* then costs ρ = (bound / scale)² / 2, in zero-concentrated differential
privacy. The costs of parts add up, and OpenDP says which ε they are together for a δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Self

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import Progress, silent
from geoblanket._training import PrivatePart
from geoblanket.errors import MissingExtraError, ParameterError, RandomnessError

__all__ = ["BOUND", "LARGEST_EPSILON", "TrainingBudget", "noisy", "require_opendp"]

BOUND: Final = 1 << 16
"""The Euclidean length of one unit's counts, as whole numbers: 1 is 65,536."""
LARGEST_EPSILON: Final = 64.0
"""Beyond it, (ε, δ) promises nothing worth stating."""
_LARGEST_BOUND: Final = 1 << 40
_LARGEST_SCALE: Final = float(1 << 56)  # of noise that stays far within 64 bits
_CELLS_AT_ONCE: Final = 1 << 14  # a fifth of a second


def require_opendp() -> ModuleType:
    """Return OpenDP, ready for use.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise MissingExtraError("Learning with privacy", "private") from error
    dp.enable_features("contrib")  # all of OpenDP's noise is "contributed", with its proofs beside it
    return dp


@checked
@dataclass(frozen=True)
class TrainingBudget:
    """What learning may cost each unit. Make it with `TrainingBudget.of`.

    Examples
    --------
    >>> from geoblanket import TrainingBudget
    >>> round(TrainingBudget.of(1, 1e-6).rho, 4)
    0.0244
    """

    epsilon: float
    delta: float
    rho: float
    """The largest cost, as zero-concentrated differential privacy, that stays within ε for δ."""

    @classmethod
    @checked
    def of(cls, epsilon: float, delta: float) -> Self:
        """Return the budget of an ε and a δ.

        Raises
        ------
        ParameterError
            If they promise nothing, or leave nothing to learn with.
        MissingExtraError
            If OpenDP is not installed.
        """
        if not 0 < epsilon <= LARGEST_EPSILON:
            raise ParameterError(
                f"The ε of learning must be more than 0 and at most {LARGEST_EPSILON:g}. Got {epsilon:g} instead."
            )
        if not 0 < delta < 1:
            raise ParameterError(f"The δ of learning must be more than 0 and less than 1. Got {delta:g} instead.")
        dp = require_opendp()
        converted = dp.c.make_zCDP_to_approxDP(_gaussian(dp, 1.0))

        def is_affordable(length: float) -> bool:
            return bool(converted.map(length).epsilon(delta) <= epsilon)

        low, high = 0.0, 1.0
        while is_affordable(high):
            low, high = high, 2 * high
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if is_affordable(middle) else (low, middle)
        rho = math.nextafter(low * low / 2, 0.0)  # rounded down: `low` was affordable
        if not _scale(rho, BOUND) <= _LARGEST_SCALE:
            raise ParameterError(f"ε = {epsilon:g} with δ = {delta:g} leaves nothing to learn with. Give a larger ε.")
        return cls(float(epsilon), float(delta), rho)


@checked
def noisy(
    sums: Ints, *, name: str, rho: float, bound: int = BOUND, progress: Progress = silent
) -> tuple[Ints, PrivatePart]:
    """Add discrete Gaussian noise to sums.

    Parameters
    ----------
    sums
        Whole numbers, of any shape. No unit may change them by more than `bound`, all of them together, as a Euclidean
        length: the caller sees to that.
    name
        What was counted, for the statement.
    rho
        What this may cost; it costs that or a hair less.
    bound
        The Euclidean length of one unit's share.
    progress
        Called after some thousand numbers each.

    Returns
    -------
    tuple[Ints, PrivatePart]
        The sums with noise, kept within 64 bits, and what is to be stated of them.

    Raises
    ------
    ParameterError
        If there is no sum, or if the cost or the bound is out of range.
    RandomnessError
        If OpenDP draws nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket.learning import noisy
    >>> sums, part = noisy(np.zeros(24, dtype=np.int64), name="hours", rho=0.02)
    >>> part.cells, round(part.scale), round(part.rho, 4)
    (24, 327680, 0.02)
    """
    if not (np.issubdtype(sums.dtype, np.signedinteger) and sums.size):
        raise ParameterError(f"Noise needs whole numbers to be added to. Got {sums.size} of type {sums.dtype} instead.")
    if not 1 <= bound <= _LARGEST_BOUND:
        raise ParameterError(f"The bound of sums must be 1 to 2^40. Got {bound} instead.")
    if not (0 < rho < math.inf and _scale(rho, bound) <= _LARGEST_SCALE):
        raise ParameterError(f"The cost of noisy sums must be a number of some size. Got ρ = {rho:g} instead.")
    dp = require_opendp()
    measurement, scale = _measurement(dp, rho, bound)
    # The bound holds for all cells together, so they are one measurement in the accounting. The noise of each cell is
    # drawn for itself, so that it makes no difference how many are drawn in one call: pieces leave room for Ctrl-C.
    flat = sums.reshape(-1)
    drawn = np.empty(len(flat), dtype=np.int64)
    for start in range(0, len(flat), _CELLS_AT_ONCE):
        piece = slice(start, start + _CELLS_AT_ONCE)
        try:
            drawn[piece] = measurement(flat[piece].tolist())
        except dp.OpenDPException as error:
            raise RandomnessError(f"OpenDP drew no noise ({error.variant}). Nothing was learned.") from None
        progress("noise", min(start + _CELLS_AT_ONCE, len(flat)), len(flat))
    return drawn.reshape(sums.shape), PrivatePart(name, len(flat), int(bound), scale)


def _measurement(dp: ModuleType, rho: float, bound: int) -> tuple[Any, float]:
    """Return the measurement with the least noise that costs no more than ρ, and the scale of its noise."""
    scale = _scale(rho, bound)
    for _ in range(100):
        measurement = _gaussian(dp, scale)
        if max(measurement.map(float(bound)), PrivatePart("", 1, bound, scale).rho) <= rho:
            return measurement, scale
        scale = math.nextafter(scale, math.inf)  # some of the last digits: rounding up keeps the cost within ρ
    raise ParameterError(f"There is no noise for the cost ρ = {rho:g}.")


def _scale(rho: float, bound: int) -> float:
    return bound / math.sqrt(2 * rho) if rho > 0 else math.inf


def _gaussian(dp: ModuleType, scale: float) -> Any:
    """Return OpenDP's Gaussian measurement of vectors of 64-bit integers: its noise is discrete and drawn exactly."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)
