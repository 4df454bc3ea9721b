"""Which of some places is nearest, by a rule on which every machine agrees.

A degree of longitude counts as many degrees of latitude as the cosine of the asked place's latitude, rounded to 2^-20.
What follows are sums and products of whole numbers of 1e-7 degrees, which floats hold exactly within nine degrees, and
round in the same way everywhere beyond. Of equally near places the first one counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from geoblanket._arrays import Floats

__all__ = ["COSINE_UNIT", "HALF_TURN_E7", "NOWHERE_E7", "cosine", "squared_distance"]

COSINE_UNIT: Final = 2.0**-20
"""What cosines are rounded to."""
HALF_TURN_E7: Final = 1_800_000_000
"""Half a turn of longitude."""

NOWHERE_E7: Final = 1e15
"""A latitude that fills up lists of places: further from everything than any place."""

_TURN_E7: Final = 2 * HALF_TURN_E7


def cosine(lat_e7: Floats | float) -> Floats:
    """Return what a degree of longitude counts at latitudes in 1e-7 degrees."""
    rounded: Floats = np.rint(np.cos(np.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
    return rounded


def squared_distance(north_e7: Floats, east_e7: Floats, cosine_at: Floats | float, *, around: bool = True) -> Floats:
    """Return squared distances, for comparison only; overwrites its arguments.

    Parameters
    ----------
    north_e7, east_e7
        Differences of latitude and longitude in 1e-7 degrees.
    cosine_at
        The `cosine` at the asked place.
    around
        Whether some may be more than half a turn apart, so that the way around the Earth is shorter. The result is the
        same for those that are not, and comes sooner without.
    """
    if around:
        east_e7 -= np.rint(east_e7 / _TURN_E7) * _TURN_E7
    east_e7 *= cosine_at
    east_e7 *= east_e7
    north_e7 *= north_e7
    north_e7 += east_e7
    return north_e7
