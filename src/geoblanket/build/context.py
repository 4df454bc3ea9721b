"""What of the past decides how a location is perturbed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import LONGEST_PAST

__all__ = ["DEFAULT_HISTORY_WEIGHTS", "Context"]

DEFAULT_HISTORY_WEIGHTS = (1.0, 0.5, 0.25)
"""What the places at t − 1, t − 2 and t − 3 count in the distance of two histories."""


@dataclass(frozen=True)
class Context:
    """What of the past decides; `Context.parsed` reads it from its name."""

    kind: Literal["none", "markov", "blanket", "full"]
    """`none`: the present place only; `markov`: a fixed number of earlier places; `blanket`: as many as the Markov
    blanket has; `full`: all, and every history that was seen has a row of its own."""
    order: int = 0
    """How many earlier places `markov` looks at."""

    @classmethod
    def parsed(cls, text: str) -> Context:
        """Return the context named `none`, `markov:1` (to `markov:3`), `blanket` or `full`."""
        kind, _, order = text.partition(":")
        if kind in ("none", "blanket", "full") and text == kind:
            return cls(kind)  # type: ignore[arg-type]  # mypy does not narrow by membership
        if kind == "markov" and order in [str(number) for number in range(1, LONGEST_PAST + 1)]:
            return cls("markov", int(order))
        raise ParameterError(
            f"The context must be none, markov:1 to markov:{LONGEST_PAST}, blanket or full. Got {text[:20]!r} instead."
        )

    def past(self, most: int) -> int:
        """Return how many earlier places it looks at, of at most so many that there are."""
        return {"none": 0, "markov": self.order}.get(self.kind, most)

    def __str__(self) -> str:
        return f"markov:{self.order}" if self.kind == "markov" else self.kind
