"""Beliefs over where vehicles are: predict by the motion model, weigh by the report, normalise.

A belief is a table over states × shifts. Without an anchor there is one shift, none; with one, all reports of a period
share a secret shift, and place and shift can only be told together. Beliefs of several vehicles are the columns of one
array of shape (N, S, B), so that a step of all of them is one sparse product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.lattice.anchor import AnchorSpec
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import LatticeSight, Reports, ShiftedSight, Sight, sight_of

__all__ = ["BeliefFilter", "Shifts", "shifts_of"]

_ANYWHERE: Final = 1e-5
"""What a prediction leaves for a vehicle being anywhere: no report can then be impossible for good."""
_SHIFT_MASS: Final = 0.995
_SHORTEST_STEP_M, _LONGEST_STEP_M = 50.0, 250.0
_STEP_OF_SCALE: Final = 0.8
"""Shifts are told apart on a grid of this share of 1/ε₀."""
_MOST_SHIFTS: Final = 4096


@dataclass(frozen=True, eq=False)
class Shifts:
    """The shifts of an anchor that a recipient thinks of."""

    metres: Floats
    """East and north, shape (S, 2)."""
    chances: Singles
    """How probable each is at the start of a period, shape (S,)."""
    period_ms: int | None
    """How long a shift stays, milliseconds; None: for good."""


_NO_SHIFT: Final = Shifts(np.zeros((1, 2)), np.ones(1, np.float32), None)


def shifts_of(anchor: AnchorSpec, unit_m: float, *, step_m: float | None = None) -> Shifts:
    """Return a grid of shifts that holds 99.5 % of an anchor's distribution.

    Parameters
    ----------
    unit_m
        Metres in a unit of the lattice's plane.
    step_m
        From one shift to the next, metres; by default 0.8/ε₀ km, from 50 to 250 m.
    """
    scale_m = 1000 / anchor.epsilon
    step = float(np.clip(_STEP_OF_SCALE * scale_m, _SHORTEST_STEP_M, _LONGEST_STEP_M)) if step_m is None else step_m
    if not step > 0:
        raise ParameterError(f"Shifts must be more than 0 m apart. Got {step_m} instead.")
    reach = min(10 * scale_m, step * _MOST_SHIFTS**0.5)
    axis = np.arange(-(reach // step), reach // step + 1) * step
    metres = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    chances = anchor.densities(np.hypot(*metres.T) / unit_m)
    order = np.argsort(-chances, kind="stable")
    order = order[: int(np.searchsorted(np.cumsum(chances[order]), _SHIFT_MASS * chances.sum())) + 1]
    kept = chances[order] / chances[order].sum()
    return Shifts(metres[order], kept.astype(np.float32), anchor.period_s * 1000)


class BeliefFilter:
    """Takes beliefs from one report to the next.

    Parameters
    ----------
    model
        How vehicles move.
    sight
        How probable reports are; `BeliefFilter.of` finds it for a bundle.
    shifts
        Of an anchor; None without one.
    """

    def __init__(self, model: MotionModel, sight: Sight, shifts: Shifts | None = None) -> None:
        self.model, self.sight = model, sight
        self.steps_per_slot = model.steps_in(sight.interval_s)
        self.interval_ms = round(sight.interval_s * 1000)
        self._shifts = _NO_SHIFT if shifts is None else shifts
        self._shifted = sight if shifts is not None and isinstance(sight, ShiftedSight) else None
        if shifts is not None and self._shifted is None:
            raise MismatchError("Nothing is known of these reports with a shift: only a lattice has an anchor.")
        self._start: Singles = model.start[:, None] * self._shifts.chances

    @classmethod
    def of(cls, bundle: Bundle, model: MotionModel, *, shift_step_m: float | None = None) -> BeliefFilter:
        """Return the filter of a bundle's reports; with an anchor, over shifts so many metres apart."""
        sight = sight_of(bundle, model)
        lattice = bundle.lattice
        if lattice is None or lattice.anchor is None or not isinstance(sight, LatticeSight):
            return cls(model, sight)
        return cls(model, sight, shifts_of(lattice.anchor, sight.unit_m, step_m=shift_step_m))

    @property
    def bytes_per_vehicle(self) -> int:
        """Memory of one belief."""
        return self._start.nbytes

    @property
    def shifts_m(self) -> Floats:
        """Shifts that are told apart, metres east and north, shape (S, 2)."""
        return self._shifts.metres

    def begin(self, count: int) -> Singles:
        """Return the beliefs of vehicles of which nothing is known, shape (N, S, count)."""
        return np.repeat(self._start[:, :, None], count, axis=2)

    def predicted(self, beliefs: Singles, steps: int) -> Singles:
        """Return beliefs some steps of the model later."""
        shape = beliefs.shape
        flat = beliefs.reshape(shape[0], -1)
        for _ in range(steps):
            flat = self.model.moves_into @ flat
        result: Singles = flat.reshape(shape)
        if steps:
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * self._start[:, :, None]
        return result

    def renewed(self, beliefs: Singles) -> Singles:
        """Return beliefs in the place alone: a new period has a shift of its own."""
        result: Singles = beliefs.sum(axis=1, keepdims=True) * self._shifts.chances[:, None]
        return result

    def period(self, slot: Ints | int) -> Ints | int:
        """Return the period of the anchor that slots lie in; all in one without an anchor."""
        if self._shifts.period_ms is None:
            return slot * 0
        return slot * self.interval_ms // self._shifts.period_ms

    def predicted_back(self, values: Singles, steps: int) -> Singles:
        """Return what is expected, some steps earlier, of values at each state and shift."""
        shape = values.shape
        flat = values.reshape(shape[0], -1)
        for _ in range(steps):
            flat = self.model.moves @ flat
        result: Singles = flat.reshape(shape)
        if steps:
            # As a product of matrices, and in place: as quick as can be.
            anywhere = self._start.ravel() @ values.reshape(-1, shape[2])
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * anywhere
        return result

    def renewed_back(self, values: Singles) -> Singles:
        """Return what is expected of values at each state before a new period draws a shift."""
        expected = np.einsum("s,nsb->nb", self._shifts.chances, values)
        result: Singles = np.repeat(expected[:, None], values.shape[1], axis=1)
        return result

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state and shift, each up to a factor, shape (N, S, B)."""
        if self._shifted is not None:
            return self._shifted.of_shifts(reports.output, self._shifts.metres)[self.model.present]
        return self.sight.likelihood(reports)[:, None]

    def weigh(self, beliefs: Singles, reports: Reports) -> Bools:
        """Take reports into account, in place; return which of them the beliefs held impossible, and left out."""
        weighed = beliefs * self.likelihood(reports)
        total = _totals(weighed)
        impossible: Bools = ~(total > np.finfo(np.float32).tiny)
        if impossible.any():
            weighed[..., impossible] = beliefs[..., impossible]
            total = _totals(weighed)
        np.multiply(weighed, 1 / total, out=beliefs)
        return impossible

    def places(self, beliefs: Singles) -> Singles:
        """Return the beliefs in places, shape (P, B)."""
        over_states = beliefs.sum(axis=1) if beliefs.shape[1] > 1 else beliefs[:, 0]
        result: Singles = self.model.to_places @ over_states
        return result

    def shift_chances(self, beliefs: Singles) -> Singles:
        """Return the beliefs in shifts, shape (S, B)."""
        result: Singles = beliefs.sum(axis=0)
        return result


def _totals(beliefs: Singles) -> Singles:
    """Return the sums of beliefs, shape (B,): a product with ones, which is quicker than a sum over axes."""
    flat = beliefs.reshape(-1, beliefs.shape[2])
    totals: Singles = np.ones(len(flat), np.float32) @ flat
    return totals
