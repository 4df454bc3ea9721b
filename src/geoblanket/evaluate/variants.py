"""What a setting varies without a column of its own: the one place that writes it to `variant` and reads it there."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Varied", "joined", "read_variant", "variant_of"]


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
