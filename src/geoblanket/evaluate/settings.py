"""What a comparison is made for: privacy, zones, loss, and which methods take part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from geoblanket.build.context import DEFAULT_HISTORY_WEIGHTS
from geoblanket.build.rows import MAX_ROWS
from geoblanket.errors import ParameterError

__all__ = ["ONE_DESTINATION", "Blanket", "LossCase", "Setting"]

LossCase = Literal["population", "case II"]
"""`population`: the error of the way to a task anywhere in the city; `case II`: how often the service is mistaken about
which of fifty vehicles is nearest to a task."""
ONE_DESTINATION = "one destination"
"""The loss case of vehicles with one destination each: the mechanisms are those of `population`, since a mechanism is
made before its vehicle is sent anywhere."""

Blanket = Literal["as told", "too short", "too long", "shuffled"]
"""What is made of the lengths of blankets, to see what wrong ones cost."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One point of an experiment: methods, ε and the other parameters.

    Raises
    ------
    ParameterError
        Lists everything that is wrong.

    Examples
    --------
    >>> from geoblanket.evaluate import Setting
    >>> Setting(methods=("lp", "expmech"), epsilon=2.0).eta_km
    5.0
    """

    methods: tuple[str, ...]
    """Keys of `METHODS`."""
    epsilon: float
    """ε per kilometre."""
    eta_km: float = 5.0
    """Rows at most so far apart are protected from each other, kilometres."""
    history_weights: tuple[float, ...] = DEFAULT_HISTORY_WEIGHTS
    """What the places at t − 1, t − 2, ... count in distances."""
    max_places: int = 40
    """Places of a zone, at most."""
    max_rows: int = MAX_ROWS
    """Rows of a zone, at most."""
    loss_case: LossCase = "population"
    delay: int = 1
    """How many intervals later the service uses the location."""
    spacing_m: float | None = None
    """Between places, metres; None for that of the walks."""
    interval_s: float | None = None
    """Between reports, seconds; None for that of the walks."""
    blanket: Blanket = "as told"
    equal_cost: bool = False
    """Let ε be what all reports together cost a location: methods that use the past get ε / (1 + Σw) for each."""
    near_km: float = 1.0
    """ConstOPT optimises the outputs within this distance of a place, kilometres."""
    variant: str = ""
    """What this setting is about, in words; for results."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ParameterError("A setting of the experiment is wrong: " + "; ".join(problems) + ".")

    @property
    def columns(self) -> tuple[object, ...]:
        """What identifies the setting in results, besides city and zone."""
        return (
            self.epsilon,
            self.eta_km,
            self.history_weights[0],
            self.spacing_m,
            self.interval_s,
            self.max_places,
            self.loss_case,
            self.described,
        )

    @property
    def described(self) -> str:
        """What tells this setting from others that have the same columns in results, in words."""
        parts = [self.variant]
        if self.equal_cost:
            parts.append("equal cost per location")
        if self.blanket != "as told":
            parts.append(f"blanket {self.blanket}")
        if self.delay != 1:
            parts.append(f"delay {self.delay}")
        return "; ".join(filter(None, parts))

    def _problems(self) -> Iterator[str]:
        if not self.methods:
            yield "it names no methods"
        for name, least, most in (
            ("epsilon", 1e-6, 1000.0),
            ("eta_km", 1e-3, math.inf),
            ("max_places", 2, 8192),
            ("max_rows", 1, 8192),
            ("delay", 1, 1000),
            ("spacing_m", 0.0, 1e5),
            ("interval_s", 1e-3, 1e5),
            ("near_km", 0.0, math.inf),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                yield f"{name} must be from {least:g} to {most:g}, got {value:g}"
        if not 1 <= len(self.history_weights) <= len(DEFAULT_HISTORY_WEIGHTS) or min(self.history_weights) < 0:
            yield f"history_weights must be 1 to {len(DEFAULT_HISTORY_WEIGHTS)} numbers of 0 or more"
