"""Noise for sums over vehicles or trips, and its cost: all by OpenDP, in whole numbers.

A *unit* (a vehicle, or a trip) changes the sums of one part by at most a bound, as a Euclidean length. Discrete
Gaussian noise of standard deviation *scale* then costs ρ = (bound / scale)² / 2, in zero-concentrated differential
privacy. The costs of parts add up, and OpenDP converts their sum to an ε for a δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Self, get_args

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import Progress, silent
from geoblanket._training import PrivatePart, Unit
from geoblanket.errors import MissingExtraError, ParameterError, RandomnessError

BOUND: Final = 1 << 16
"""The Euclidean length of one unit's counts, as whole numbers: 1 is 65,536."""
LARGEST_EPSILON: Final = 64.0
"""Beyond it, (ε, δ) promises nothing worth stating."""
FEWEST_UNITS: Final = 2
MOST_UNITS: Final = 1 << 40
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
    """The largest cost of learning for each unit. Make it with `TrainingBudget.of`.

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
    unit: Unit = "vehicle"
    """Whose presence is hidden: a vehicle with all its trips, or a trip."""
    units: int | None = None
    """The number of units, if it is public; None: units are counted with noise."""

    @classmethod
    @checked
    def of(cls, epsilon: float, delta: float, *, unit: Unit = "vehicle", units: int | None = None) -> Self:
        """Return the budget of an ε and a δ.

        Parameters
        ----------
        unit
            Whose presence is hidden: a vehicle with all its trips, or a trip. The choice must not depend on the walks.
            Vehicles are distinguished by their names.
        units
            The number of units, if it is public: it is written into the model as given. It only decides how the budget
            is split and how small δ must be. None: units are counted with noise, for 2 % of the budget.

        Raises
        ------
        ParameterError
            If ε and δ promise nothing, or leave nothing to learn with.
        MissingExtraError
            If OpenDP is not installed.
        """
        if not 0 < epsilon <= LARGEST_EPSILON:
            raise ParameterError(
                f"The ε of learning must be more than 0 and at most {LARGEST_EPSILON:g}. Got {epsilon:g} instead."
            )
        if not 0 < delta < 1:
            raise ParameterError(f"The δ of learning must be more than 0 and less than 1. Got {delta:g} instead.")
        if unit not in get_args(Unit):
            raise ParameterError(f"The unit is 'vehicle' or 'trip'. Got {unit!r} instead.")
        if units is not None:
            if not FEWEST_UNITS <= units <= MOST_UNITS:
                raise ParameterError(f"The number of units must be {FEWEST_UNITS} or more. Got {units} instead.")
            check_delta(delta, units, unit)
        dp = require_opendp()
        converted = dp.c.make_zCDP_to_approxDP(_gaussian(dp, 1.0))

        length = largest_affordable(lambda length: converted.map(length).epsilon(delta) <= epsilon)
        rho = math.nextafter(length * length / 2, 0.0)  # rounded down: `length` was affordable
        if not _scale(rho, BOUND) <= _LARGEST_SCALE:
            raise ParameterError(f"ε = {epsilon:g} with δ = {delta:g} leaves nothing to learn with. Give a larger ε.")
        return cls(float(epsilon), float(delta), rho, unit, units)


def largest_affordable(is_affordable: Callable[[float], bool]) -> float:
    """Return the largest positive number that is affordable, by bisection to the last bit; larger ones must not be."""
    low, high = 0.0, 1.0
    while is_affordable(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if is_affordable(middle) else (low, middle)
    return low


def check_delta(delta: float, units: int, unit: Unit) -> None:
    """Raise ParameterError if δ is so weak that somebody's trips could be published whole."""
    if delta * units >= 1:
        raise ParameterError(
            f"δ = {delta:g} is too weak for {units:,} {unit}s: from 1/{units} on, it allows to publish all of one of "
            f"them. Give a much smaller one, such as {0.01 / units:.0e}."
        )


@checked
def noisy(
    sums: Ints, *, name: str, rho: float, bound: int = BOUND, progress: Progress = silent
) -> tuple[Ints, PrivatePart]:
    """Add discrete Gaussian noise to sums.

    Parameters
    ----------
    sums
        Whole numbers, of any shape. The caller ensures that no unit changes them by more than `bound`, as the Euclidean
        length over all sums.
    name
        What was counted, for the statement.
    rho
        The largest cost; the actual cost is at most a hair less.
    bound
        The largest Euclidean length of one unit's contribution.
    progress
        Called after every few thousand numbers.

    Returns
    -------
    tuple[Ints, PrivatePart]
        The noisy sums, within 64 bits, and the statement about them.

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
    # independent, so it makes no difference how many cells one call draws. Small pieces let Ctrl-C interrupt.
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
        scale = math.nextafter(scale, math.inf)  # a scale rounded up by a few last digits keeps the cost within ρ
    raise ParameterError(f"There is no noise for the cost ρ = {rho:g}.")


def _scale(rho: float, bound: int) -> float:
    return bound / math.sqrt(2 * rho) if rho > 0 else math.inf


def _gaussian(dp: ModuleType, scale: float) -> Any:
    """Return OpenDP's Gaussian measurement of vectors of 64-bit integers: its noise is discrete and drawn exactly."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=scale)
