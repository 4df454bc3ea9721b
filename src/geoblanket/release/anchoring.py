"""Anchors of periods: when one begins, what it is good for, and the draw.

A period is a number of slots by the clock alone: the schedule is public, and blind to where a vehicle is and whether it
moves.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from typing import Final

from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.lattice.anchor import AnchorSpec, Shift
from geoblanket.mechanism.sampling import random_below
from geoblanket.release.budget import Anchor

__all__ = ["Anchoring"]

_MS_PER_S: Final = 1000


class Anchoring:
    """The anchors of a bundle with a lattice.

    Parameters
    ----------
    spec
        The anchor's numbers.
    tables
        The bundle.
    """

    def __init__(self, spec: AnchorSpec, tables: ReleaseTables, *, side: int) -> None:
        self.period_ms = spec.period_s * _MS_PER_S
        self.cost_micro = spec.epsilon_micro
        self.frame = hashlib.sha256(repr((tables.domain, *astuple(spec))).encode()).hexdigest()
        self._spec, self._side = spec, side
        self._report_micro, self._interval_ms = tables.costs.other, tables.needed_clock().interval_ms

    def shift(self) -> Shift:
        """Draw a shift with the operating system's randomness."""
        return self._spec.draw(self._side, random_below)

    def drawn(self, slot_ms: int) -> Anchor:
        """Draw the anchor of the period of a slot, for the report in that slot."""
        starts_ms = slot_ms - slot_ms % self.period_ms
        return Anchor(
            slot_ms=slot_ms,
            starts_ms=starts_ms,
            ends_ms=starts_ms + self.period_ms,
            cost_micro=self.cost_micro,
            report_micro=self._report_micro,
            interval_ms=self._interval_ms,
            frame=self.frame,
            shift=self.shift(),
        )
