"""What a report costs the location that it protects: the one place where ε·(1 + Σw) is computed.

The cost depends on the mechanisms of a bundle, on the zone that the report discloses and on whether it has a history,
all of which are public; on nothing else about where the vehicle is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from geoblanket.errors import ParameterError
from geoblanket.mechanism.problem import NEVER_MM

LARGEST_EPSILON: Final = 20.0
"""The largest ε that is made, and that devices accept by default, per kilometre: a report is off by 100 m."""
SMALLEST_EPSILON: Final = 0.01
"""The smallest ε that is made, per kilometre: a report is off by 200 km."""

HOUR_S: Final = 3600
NIGHT_S: Final = 8 * HOUR_S
_MICRO: Final = 10**6


class Counted(Protocol):
    """The part of a mechanism that its cost depends on."""

    @property
    def regime(self) -> str:
        """Its regime."""

    @property
    def epsilon_micro(self) -> int:
        """ε in millionths per kilometre."""

    @property
    def history_weights_micro(self) -> Sequence[int]:
        """What earlier places count, the latest first, in millionths."""


class Costs(NamedTuple):
    """What a location pays for being reported, in millionths per kilometre.

    A location pays once, when it is reported, for its own report and for the next Γ reports, in which it is part of the
    past: ε for the present, ε·w_τ as the past at lag τ. That is ε·(1 + Σ w_τ) for a location with a history. The first
    location of a history pays more, because it also stands for the earlier places that are not known: at lag k it
    counts Σ_(τ ≥ k) w_τ, which makes ε·(1 + Σ τ·w_τ) in all. With ε = 4 and w = (1, 0.5) these are 10 and 12 per
    kilometre. A past that is taken as known (w = ∞) is not protected, and costs nothing.
    """

    start: int
    """The cost of a report without history."""
    other: int
    """The cost of a report with history."""

    @classmethod
    def of(cls, mechanisms: Iterable[Counted], start: str) -> Costs:
        """Return what reports by the mechanisms of a bundle cost at most, in whatever order they are used.

        Parameters
        ----------
        mechanisms
            All of a bundle.
        start
            The regime of reports without history; if no mechanism has it, such reports are taken to use any.
        """
        everything = list(mechanisms)
        each = list(zip(everything, cls.of_each(everything, start), strict=True))
        first = [cost.start for mechanism, cost in each if mechanism.regime == start]
        later = [cost.other for mechanism, cost in each if mechanism.regime != start]
        return cls(start=max(first or [cost.start for _, cost in each], default=0), other=max(later, default=0))

    @classmethod
    def of_each(cls, mechanisms: Sequence[Counted], start: str) -> list[Costs]:
        """Return what a report by each mechanism of a bundle costs; its place is the past of reports by any of them.

        Two lives with the same zones z_1, z_2, ... pay Σ_t d_t·(ε(z_t) + Σ_τ ε(z_(t+τ))·w_τ): the ε of the zone that
        a report discloses, and for the zones to come the largest.
        """
        weights = [
            [0 if weight == NEVER_MM else weight for weight in each.history_weights_micro] for each in mechanisms
        ]
        both = list(zip(mechanisms, weights, strict=True))
        later = [(each.epsilon_micro, past) for each, past in both if each.regime != start]
        longest = max((len(past) for _, past in later), default=0)
        at_lag = sum(max(epsilon * sum(past[k : k + 1]) for epsilon, past in later) for k in range(longest))
        from_lag = sum(max(epsilon * sum(past[k:]) for epsilon, past in later) for k in range(longest))
        now = [each.epsilon_micro * (_MICRO + (sum(past) if each.regime == start else 0)) for each, past in both]
        return [cls(start=-(-(own + from_lag) // _MICRO), other=-(-(own + at_lag) // _MICRO)) for own in now]

    @property
    def largest_per_km(self) -> float:
        """What any report costs at most, per kilometre."""
        return max(self) / _MICRO

    def in_a_row_per_km(self, reports: float) -> float:
        """Return what a number of reports in a row costs at most, per kilometre; only the first has no history."""
        return (max(self) + self.other * max(0.0, reports - 1)) / _MICRO


def check_epsilon(epsilon: float, *, name: str = "ε") -> float:
    """Return the ε of a report, per kilometre; raise ParameterError where nothing is made for it."""
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ParameterError(
            f"{name} must be from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g} per km. Got {epsilon:g} instead. Devices "
            "refuse a larger one by default, and reports with a smaller one tell nothing. `geoblanket plan` finds one."
        )
    return epsilon


def times_counted(history_weights: Sequence[float]) -> float:
    """Return 1 + Σw: how often a location counts, in its own report and as the past of later ones."""
    return 1 + sum(history_weights)


def weight_in_micro(weight: float) -> int:
    """Return a history weight in millionths, rounded down: histories are then nearer, and the promise stronger.

    `NEVER_MM` stands for infinity: a past that is known.
    """
    if not weight >= 0:
        raise ParameterError(f"history_weights must be 0 or more. Got {weight} instead.")
    return NEVER_MM if weight == math.inf else int(weight * _MICRO)
