"""The best mechanism and the best bound so far: what a search returns whenever it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from geoblanket._arrays import Floats, Positions

_NEXT_TO_NOTHING = 1e-12


class Stopped(Exception):  # noqa: N818 (not an error: the time is up, or the caller asked)
    """The search is to end now, with what it has."""


@dataclass(eq=False)
class Incumbent:
    """Keeps the best of a search, reports its progress and ends it in time.

    The first mechanism that is offered is the simple one (a single output), so that there always is one. Costs are not
    negative, so 0 is a bound.

    Parameters
    ----------
    deadline
        When to end, on the clock of `time.perf_counter`.
    listener
        Told the phase of the search from time to time; may raise `Stopped`.
    """

    deadline: float
    listener: Callable[[str, Incumbent], None] | None = None
    first_loss: float = 0.0
    loss: float = np.inf
    bound: float = 0.0
    outputs: Positions = field(default_factory=lambda: np.empty(0, np.intp))
    columns: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def gap(self) -> float:
        """(loss − bound) / loss; 0 where both are 0."""
        return 0.0 if self.loss <= self.bound else (self.loss - self.bound) / self.loss

    def offer(self, loss: float, outputs: Positions, columns: Floats) -> None:
        """Keep a mechanism if it is the best so far: columns, shape (outputs, rows), of these outputs; others are 0."""
        self.first_loss = self.first_loss or loss
        if loss < self.loss:
            self.loss, self.outputs, self.columns = loss, outputs, columns

    def prove(self, bound: float) -> None:
        """Keep a bound if it is the best so far."""
        self.bound = max(self.bound, bound)

    def reached(self, gap: float) -> bool:
        """Tell whether the gap is small enough: relative to the loss, or next to nothing of the first loss."""
        return self.loss - self.bound <= max(gap * self.loss, _NEXT_TO_NOTHING * self.first_loss)

    def report(self, phase: str) -> None:
        """Tell how far the search is; raise `Stopped` if it is to end."""
        if self.listener is not None:
            self.listener(phase, self)
        if time.perf_counter() >= self.deadline:
            raise Stopped
