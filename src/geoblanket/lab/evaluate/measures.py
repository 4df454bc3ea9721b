"""Every measure of a comparison: its name, how tables show it, how zones are combined, and measured values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np

from geoblanket._display import Interval, number
from geoblanket.lab.evaluate.experiment import Varied, variant_of


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return float(np.average(values, weights=weights if sum(weights) > 0 else None))


def _largest(values: Sequence[float], weights: Sequence[float]) -> float:  # noqa: ARG001
    return max(values)


def _sum(values: Sequence[float], weights: Sequence[float]) -> float:  # noqa: ARG001
    return math.fsum(values)


def _three_digits(value: float) -> str:
    return number(float(f"{value:.3g}"))


_percent = "{:.1%}".format


class Measure(StrEnum):
    """A measure, by its name in results. Its unit stands in results, because it may depend on the loss."""

    label: str
    """On axes."""
    column: str
    """Above the columns of tables, with the unit."""
    text: Callable[[float], str]
    """Writes a value to the cell of a table."""
    of_zones: Callable[[Sequence[float], Sequence[float]], float]
    """Combines the values of zones, given their shares of the steps."""
    better: str
    """Whether `less` or `more` is better, for the service or for privacy."""

    def __new__(  # noqa: PLR0917  # a row of the table below
        cls,
        name: str,
        label: str = "",
        column: str = "",
        text: Callable[[float], str] = _three_digits,
        of_zones: Callable[[Sequence[float], Sequence[float]], float] = _mean,
        better: str = "less",
    ) -> Self:
        """Return a measure with its attributes."""
        measure = str.__new__(cls, name)
        measure._value_ = name
        measure.label, measure.column, measure.better = label, column, better
        measure.text, measure.of_zones = text, of_zones
        return measure

    VERIFIED = "verified"
    PLACES = "places"
    DESIGN_LOSS = "design_loss"
    LOWER_BOUND = "lower_bound"
    LP_LOSS_ON_ROWS = "lp_loss_on_rows"
    NO_PRIVACY_LOSS = "no_privacy_loss"
    CONSTANT_LOSS = "constant_loss"
    HELD_OUT_LOSS = "held_out_loss", "loss"
    SAVED = "saved", "share of the loss saved", "", _percent, _mean, "more"  # of two methods; not in results
    HELD_OUT_VEHICLES = "held_out_vehicles"
    LOSS_SPREAD = "loss_spread"  # 1.96 standard deviations of the vehicles' mean losses, as the paper tells them
    HELD_OUT_STEPS = "held_out_steps"
    DISPLACEMENT = "displacement", "", "off on held-out walks, km"
    ONE_DESTINATION_LOSS = "one_destination_loss"  # in results, the held-out loss of another loss case
    SINGLE_ERROR = "single_error", "error by one report", "best guess by one report: error, km"
    TRACKED_LOSS = "tracked_loss", "loss, tracked", "loss, tracked"
    TRACKED_ERROR = "tracked_error", "error, tracked", "by all reports so far: error, km"
    TRACKED_ERROR_PRIOR = "tracked_error_prior", "", "by the zones alone: error, km"
    TRACKED_SUCCESS = "tracked_success", "", "", _percent
    EPSILON_EFFECTIVE = "epsilon_effective", "", "ε spent", _three_digits, _largest
    EPSILON_PER_LOCATION = "epsilon_per_location", "", "cost per location", _three_digits, _largest
    EPSILON_PER_HOUR = "epsilon_per_hour", "", "cost per hour", _three_digits, _largest
    COMPOSED_EPSILON = "composed_epsilon", "bound by composition", "cost of reports in a row", _three_digits, _largest
    LEAKAGE_MAX = "leakage_max", "worst leakage / ε", "worst leakage", _three_digits, _largest
    LEAKAGE_EXPECTED = "leakage_expected", "mean leakage / ε", "mean leakage"
    INFERENCE_ERROR = "inference_error", "error of the guess", "error of a guess, km", _three_digits, _mean, "more"
    INFERENCE_ERROR_LIKELIEST = (
        "inference_error_likeliest", "", "most probable place: error, km", _three_digits, _mean, "more",
    )  # fmt: skip
    INFERENCE_SUCCESS = "inference_success", "share of right guesses", "right guesses", _percent
    INFERENCE_ERROR_PRIOR = (
        "inference_error_prior", "", "without the report, km", _three_digits, _mean, "more",
    )  # fmt: skip
    INFERENCE_SUCCESS_PRIOR = "inference_success_prior"
    CONTEXT_INFERENCE_ERROR = (
        "context_inference_error", "error of the guess", "… knowing the place before: error, km", _three_digits, _mean,
        "more",
    )  # fmt: skip
    CONTEXT_INFERENCE_SUCCESS = "context_inference_success", "share of right guesses", "right", _percent
    CONTEXT_INFERENCE_ERROR_PRIOR = "context_inference_error_prior"
    CONTEXT_INFERENCE_SUCCESS_PRIOR = "context_inference_success_prior"
    TRACKING_ERROR = "tracking_error", "error of the guess", "… tracking: error, km", _three_digits, _mean, "more"
    TRACKING_SUCCESS = "tracking_success", "share of right guesses", "right", _percent
    TRACKING_ERROR_PRIOR = "tracking_error_prior"
    TRACKING_SUCCESS_PRIOR = "tracking_success_prior", "", "without reports", _percent
    CROSSING_ERROR = "crossing_error", "", "at a crossing of zones, no report: error, km", _three_digits, _mean, "more"
    CROSSING_SHARE = "crossing_share", "", "steps that cross", _percent
    ROWS = "rows", "", "rows", _three_digits, _sum
    DEEPER_ROWS = "deeper_rows", "", "beyond t − 1", _three_digits, _sum
    DEEPER_SHARE = "deeper_share", "", "their probability", _percent
    SAME_AS_PREDICTED = "same_as_predicted"  # share of the zones where rows are those of the predicted blanket
    OUTPUTS = "outputs", "", "outputs used"
    BUILD_SECONDS = "build_seconds", "time", "build, s", _three_digits, _sum
    PEAK_MEMORY_MB = "peak_memory_mb", "", "memory, MB", _three_digits, _largest
    BUNDLE_BYTES = "bundle_bytes", "", "bundle, kB", lambda value: f"{value / 1000:,.1f}", _sum
    RELEASE_US = "release_us", "", "one report, µs"
    RELEASE_US_LONGEST = "release_us_longest", "", "the longest, µs", _three_digits, _largest
    GAP = "gap", "", "gap to the optimum", _percent


def gain_over(baseline: str, measure: str = Measure.HELD_OUT_LOSS) -> str:
    """Return the name in results of the share by which a loss or an error is below a baseline's."""
    return f"gain_over_{baseline}" if measure == Measure.HELD_OUT_LOSS else f"{measure}_gain_over_{baseline}"


class AttackMeasures(NamedTuple):
    """The measures of one attacker."""

    error: Measure
    """How far off its best guess is, kilometres."""
    success: Measure
    """How often it names the right place."""
    blind_error: Measure
    """The error without reports."""
    blind_success: Measure
    """The success without reports."""


INFERENCE, CONTEXT_INFERENCE, TRACKING = ATTACKS = tuple(
    AttackMeasures(*(Measure(f"{attack}_{what}") for what in ("error", "success", "error_prior", "success_prior")))
    for attack in ("inference", "context_inference", "tracking")
)
"""Attackers on one report, on one report with a known place before, and on reports in a row."""


@dataclass(frozen=True)
class Value:
    """A measure of a method."""

    measure: str
    """Its name: one of `Measure`, or a gain over another method."""
    value: float
    unit: str
    interval: Interval | None = None
    part: str = ""
    """Part of the setting, for example a number of reports; empty for all of it."""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Value:
        """Return a value from columns of results."""
        interval = Interval.of(columns["low"], columns["high"])
        return cls(columns["measure"], float(columns["value"]), columns["unit"], interval, columns.get("part", ""))

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns in results, where `variant` names the part."""
        low, high = (None, None) if self.interval is None else (self.interval.low, self.interval.high)
        return {"measure": str(self.measure), "value": self.value, "low": low, "high": high, "unit": self.unit}


@dataclass(frozen=True)
class HeldOut:
    """A measure of the steps of held-out walks."""

    measure: str
    unit: str
    part: str = ""
    """Which steps or how many reports, in words; empty for all steps and the usual number."""


def by_reports(reports: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield numbers of reports in a row, and their variants in results; empty for the first, the usual number."""
    for place, count in enumerate(reports):
        yield count, "" if place == 0 else variant_of(Varied.REPORTS, count)
