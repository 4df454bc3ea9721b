"""What of the past decides how a location is perturbed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import LONGEST_PAST

__all__ = ["DEFAULT_HISTORY_WEIGHTS", "NO_CONTEXT", "Context"]

DEFAULT_HISTORY_WEIGHTS = (1.0, 0.5, 0.25)
"""What the places at t − 1, t − 2 and t − 3 count in the distance of two histories."""


@dataclass(frozen=True)
class Context:
    """What of the past decides; `Context.of` reads it from its name."""

    kind: Literal["none", "markov", "blanket", "full"]
    """`none`: the present place only; `markov`: a fixed number of earlier places; `blanket`: as many as the Markov
    blanket has; `full`: all, and every history that was seen has a row of its own."""
    order: int = 0
    """How many earlier places `markov` looks at."""

    @classmethod
    def of(cls, context: Context | str) -> Context:
        """Return the context named `none`, `markov:1` (to `markov:3`), `blanket` or `full`, or one that is read."""
        if isinstance(context, Context):
            return context
        if context not in (named := {str(known): known for known in _CONTEXTS}):
            raise ParameterError(
                f"The context must be none, markov:1 to markov:{LONGEST_PAST}, blanket or full. "
                f"Got {str(context)[:20]!r} instead."
            )
        return named[context]

    def past(self, most: int) -> int:
        """Return how many earlier places it looks at, of at most so many that there are."""
        return {"none": 0, "markov": self.order}.get(self.kind, most)

    def __str__(self) -> str:
        return f"markov:{self.order}" if self.kind == "markov" else self.kind


NO_CONTEXT = Context("none")
_CONTEXTS = (
    NO_CONTEXT,
    Context("blanket"),
    Context("full"),
    *(Context("markov", order) for order in range(1, LONGEST_PAST + 1)),
)
