"""What is measured: single numbers, and losses by vehicle of which means with intervals are made later."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DISPLACEMENT", "HELD_OUT", "ONE_DESTINATION_LOSS", "HeldOut", "Value"]

HELD_OUT = "held_out_loss"
DISPLACEMENT = "displacement"
ONE_DESTINATION_LOSS = "one_destination_loss"


@dataclass(frozen=True)
class Value:
    """A measure of a method, with its 95 % confidence interval where there is one."""

    measure: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    part: str = ""
    """Of what part of the setting, for example of how many reports; empty for all of it."""


@dataclass(frozen=True)
class HeldOut:
    """What was measured of the steps of held-out walks."""

    measure: str
    unit: str
    part: str = ""
    """Of which steps or how many reports: empty for what the setting says, else in words."""
