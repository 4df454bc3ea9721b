"""What a report costs the location that it protects.

A location is protected in its own report and as the past of the next Γ ones. The cost depends on the mechanisms and on
whether there was a history, which is public; never on where the vehicle is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from geoblanket.mechanism.problem import NEVER_MM

__all__ = ["Costs", "Counted"]

_MICRO: Final = 10**6


class Counted(Protocol):
    """What of a mechanism its cost depends on."""

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
    """What a report costs, in millionths per kilometre."""

    start: int
    """Without history. The first place of a history stands for all earlier ones that are not known, and so counts more
    than once in the reports that follow."""
    other: int
    """With history: ε·(1 + Σw)."""

    @classmethod
    def of(cls, mechanisms: Iterable[Counted], start: str) -> Costs:
        """Return the costs of reports by the mechanisms of a bundle, at most, whatever ones follow one another.

        A report at time t + k has the place of time t at lag k, weighed w_k. Where it is the first of a history, it
        stands at all lags from k on, so that it counts Σ_k Σ_(τ ≥ k) w_τ = Σ τ·w_τ in all.

        Parameters
        ----------
        mechanisms
            All of a bundle.
        start
            The regime of reports without history; if no mechanism has it, such reports are taken to use any.
        """
        every = [(one.regime == start, one.epsilon_micro, _counted(one.history_weights_micro)) for one in mechanisms]
        later = [(epsilon, weights) for first, epsilon, weights in every if not first]
        past = max((len(weights) for _, weights in later), default=0)
        at_lag = sum(max(epsilon * sum(weights[k : k + 1]) for epsilon, weights in later) for k in range(past))
        from_lag = sum(max(epsilon * sum(weights[k:]) for epsilon, weights in later) for k in range(past))
        now = max((epsilon * _MICRO for epsilon, _ in later), default=0)
        now_first = max((epsilon * (_MICRO + sum(weights)) for first, epsilon, weights in every if first), default=now)
        return cls(start=-(-(now_first + from_lag) // _MICRO), other=-(-(now + at_lag) // _MICRO))


def _counted(weights_micro: Sequence[int]) -> list[int]:
    """Return the weights of earlier places, in millionths; a past that is known is not protected, and not counted."""
    return [0 if weight == NEVER_MM else weight for weight in weights_micro]
