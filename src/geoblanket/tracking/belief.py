"""Beliefs over where vehicles are: predict by the motion model, weigh by the report, normalise.

Beliefs of several vehicles are the columns of one array of shape (N, B), N states, so that a step of all of them is one
sparse product.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Ints
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import Reports, Sight, sight_of

__all__ = ["BeliefFilter"]

_ANYWHERE: Final = 1e-5
"""What a prediction leaves for a vehicle being anywhere: no report can then be impossible for good."""


class BeliefFilter:
    """Takes beliefs from one report to the next.

    Parameters
    ----------
    model
        How vehicles move.
    sight
        How probable reports are; `BeliefFilter.of` finds it for a bundle.
    holds
        Whether a vehicle at rest repeats its last report, which then tells nothing new.
    """

    def __init__(self, model: MotionModel, sight: Sight, *, holds: bool = False) -> None:
        self.model, self.sight, self._holds = model, sight, holds
        self.steps_per_slot = model.steps_in(sight.interval_s)
        self.interval_ms = round(sight.interval_s * 1000)

    @classmethod
    def of(cls, bundle: Bundle, model: MotionModel, *, fences: Fences = NO_FENCES) -> BeliefFilter:
        """Return the filter of a bundle's reports, made by vehicles with these fences."""
        holds = bundle.lattice is not None and bundle.lattice.hold_mm > 0
        return cls(model, sight_of(bundle, model, fences), holds=holds)

    @property
    def bytes_per_vehicle(self) -> int:
        """Memory of one belief."""
        return self.model.start.nbytes

    def are_held(self, output: Ints, last: Ints) -> Bools:
        """Return which reports repeat the last one because the vehicle rests, by all that one can tell.

        That a moving vehicle draws the same cell again is rare: less than one draw in a hundred.
        """
        held: Bools = (output == last) & self._holds & (output >= 0)
        return held

    def begin(self, count: int) -> Singles:
        """Return the beliefs of vehicles of which nothing is known, shape (N, count)."""
        return np.repeat(self.model.start[:, None], count, axis=1)

    def predicted(self, beliefs: Singles, steps: int) -> Singles:
        """Return beliefs some steps of the model later."""
        result = beliefs
        for _ in range(steps):
            result = self.model.moves_into @ result
        if steps:
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * self.model.start[:, None]
        return result

    def predicted_back(self, values: Singles, steps: int) -> Singles:
        """Return what is expected, some steps earlier, of values at each state."""
        result = values
        for _ in range(steps):
            result = self.model.moves @ result
        if steps:
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * (self.model.start @ values)
        return result

    def weigh(self, beliefs: Singles, reports: Reports) -> Bools:
        """Take reports into account, in place; return which of them the beliefs held impossible, and left out."""
        weighed = beliefs * self.sight.likelihood(reports)
        total = _totals(weighed)
        impossible: Bools = ~(total > np.finfo(np.float32).tiny)
        if impossible.any():
            weighed[..., impossible] = beliefs[..., impossible]
            total = _totals(weighed)
        np.multiply(weighed, 1 / total, out=beliefs)
        return impossible

    def places(self, beliefs: Singles) -> Singles:
        """Return the beliefs in places, shape (P, B)."""
        result: Singles = self.model.to_places @ beliefs
        return result


def _totals(beliefs: Singles) -> Singles:
    """Return the sums of beliefs, shape (B,): a product with ones, which is quicker than a sum over an axis."""
    totals: Singles = np.ones(len(beliefs), np.float32) @ beliefs
    return totals
