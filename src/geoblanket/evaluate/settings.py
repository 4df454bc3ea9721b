"""What a comparison is made for: privacy, zones, loss, which methods take part, and what is varied."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from geoblanket.build.config import DEFAULT_MAX_PLACES
from geoblanket.build.rows import DEFAULT_HISTORY_WEIGHTS, MAX_ROWS
from geoblanket.build.validation import Number, Parameters

__all__ = ["ONE_DESTINATION", "Blanket", "LossCase", "Setting", "Varied", "joined", "read_variant", "variant_of"]


class Varied(StrEnum):
    """What can be varied so."""

    EQUAL_COST = "equal cost"
    DELAY = "delay"
    BLANKET = "blanket"
    ROWS = "rows"
    HOUR = "hour"
    SPEED = "speed"
    REPORTS = "reports"
    EVERY = "every"


_FORMS = {
    Varied.EQUAL_COST: "equal cost {}",
    Varied.DELAY: "delay {}",
    Varied.BLANKET: "blanket {}",
    Varied.ROWS: "{} rows",
    Varied.HOUR: "hour {}",
    Varied.SPEED: "speed {}",
    Varied.REPORTS: "T = {}",
    Varied.EVERY: "report every {} steps",
}
_COUNTS = (Varied.ROWS, Varied.REPORTS, Varied.EVERY)
_BETWEEN = "; "


def variant_of(varied: Varied, value: float | str) -> str:
    """Return how `variant` tells that something has a value."""
    return _FORMS[varied].format(value)


def joined(*variants: str) -> str:
    """Return several variants as one."""
    return _BETWEEN.join(filter(None, variants))


def read_variant(variant: str) -> dict[Varied, float | str]:
    """Return what a variant says, numbers as such; words of a user's own are left out."""
    values: dict[Varied, float | str] = {}
    for part in variant.split(_BETWEEN):
        for varied, form in _FORMS.items():
            before, after = form.split("{}")
            value = part.removeprefix(before).removesuffix(after)
            if part == variant_of(varied, value) and value and (value.isdigit() or varied not in _COUNTS):
                values[varied] = float(value) if value.isdigit() else value
    return values


LossCase = Literal["population", "case II", "straight line"]
"""`population`: the error of the way to a task anywhere in the city; `case II`: how often the service is mistaken about
which of fifty vehicles is nearest to a task; `straight line`: how far off the reported place is."""
ONE_DESTINATION = "one destination"
"""The loss case of vehicles with one destination each: the mechanisms are those of `population`, since a mechanism is
made before its vehicle is sent anywhere."""

Blanket = Literal["as told", "too short", "too long", "shuffled"]
"""What is made of the lengths of blankets, to see what wrong ones cost."""


class Setting(Parameters):
    """One point of an experiment.

    Examples
    --------
    >>> from geoblanket.evaluate import Setting
    >>> Setting(methods=("lp", "expmech"), epsilon=2.0).eta_km
    5.0
    """

    title_of_errors: ClassVar[str] = "A setting of the experiment is wrong"

    methods: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Keys of `METHODS`."""
    epsilon: Number = Field(ge=1e-6, le=1000)
    """ε per kilometre."""
    eta_km: Annotated[Number, Field(ge=1e-3)] = 5.0
    """Rows at most this far apart are protected from each other, kilometres."""
    history_weights: Annotated[
        tuple[Annotated[Number, Field(ge=0)], ...],
        Field(strict=False, min_length=1, max_length=len(DEFAULT_HISTORY_WEIGHTS)),
    ] = DEFAULT_HISTORY_WEIGHTS
    """Weights of the places at t − 1, t − 2, ... in distances."""
    max_places: Annotated[int, Field(ge=2, le=8192)] = DEFAULT_MAX_PLACES
    """Places of a zone, at most."""
    max_rows: Annotated[int, Field(ge=1, le=8192)] = MAX_ROWS
    """Rows of a zone, at most."""
    city_wide: bool = False
    """Compare over all places of the city instead of zones: no zone is disclosed, and any two places are protected from
    each other. Neither `max_places` nor `eta_km` matters then, and methods that use the past cannot take part."""
    loss_case: LossCase = "population"
    delay: Annotated[int, Field(ge=1, le=1000)] = 1
    """How many intervals later the service uses the location."""
    spacing_m: Annotated[Number | None, Field(ge=0, le=1e5)] = None
    """Between places, metres; None for that of the walks."""
    interval_s: Annotated[Number | None, Field(ge=1e-3, le=1e5)] = None
    """Between reports, seconds; None for that of the walks."""
    every: Annotated[int, Field(ge=1, le=1000)] = 1
    """Report in one of so many intervals; tracked vehicles are looked at in all of them."""
    blanket: Blanket = "as told"
    equal_cost: bool = False
    """Let ε be what all reports together cost a location: methods that use the past get ε / (1 + Σw) for each."""
    near_km: Annotated[Number, Field(ge=0)] = 1.0
    """ConstOPT optimises the outputs within this distance of a place, kilometres."""
    variant: str = ""
    """What this setting is about, in words; for results."""

    @property
    def protected_km(self) -> float:
        """Rows at most this far apart are protected from each other, kilometres."""
        return math.inf if self.city_wide else self.eta_km

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
            self.city_wide,
            self.loss_case,
            self.described,
        )

    @property
    def described(self) -> str:
        """What tells this setting from others that have the same columns in results, in words."""
        return joined(
            self.variant,
            variant_of(Varied.EQUAL_COST, "per location") if self.equal_cost else "",
            variant_of(Varied.BLANKET, self.blanket) if self.blanket != "as told" else "",
            variant_of(Varied.DELAY, self.delay) if self.delay != 1 else "",
            variant_of(Varied.EVERY, self.every) if self.every != 1 else "",
        )
