"""A results table as the report reads it: methods side by side along ε, or along something else that was varied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import polars as pl

from geoblanket._display import Interval
from geoblanket.evaluate.measures.catalogue import Measure, Value, gain_over
from geoblanket.evaluate.methods import METHODS, is_own
from geoblanket.evaluate.results import ALL_ZONES, WHOLE_CITY
from geoblanket.evaluate.settings import Varied, read_variant

__all__ = [
    "ALIKE_WITHIN",
    "REFERENCE_EPSILON",
    "WIDE_GAP",
    "HourPanel",
    "Panel",
    "Relation",
    "Way",
    "decide",
    "hour_panels",
    "main_panels",
    "saved",
    "sweep_panels",
    "whole_city_panels",
]

_Where = tuple[str, str, str]
"""Experiment, city and kind of loss."""
_BASE = ("eta_km", "history_weight", "spacing_m", "interval_s", "max_places")
"""The columns of a setting besides ε; each can be varied."""
_USUAL: Mapping[Varied, float | str] = {Varied.DELAY: 1.0, Varied.BLANKET: "as told"}
"""The values of these in the main comparison."""
ALIKE_WITHIN = 0.01
"""Losses that surely differ by no more than this share are alike: searches end with gaps of that order."""
WIDE_GAP = 0.05
"""A linear program that was stopped this far from its optimum does not tell what the optimum is like."""
REFERENCE_EPSILON = 2.0
"""ε per kilometre that single figures are told for, where it was compared."""


class Relation(Enum):
    """How one method's loss compares with another's, at one ε or over all."""

    LOWER = "lower"
    HIGHER = "higher"
    ALIKE = "alike"
    MIXED = "lower at some ε, higher at others"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True, eq=False)
class Panel:
    """What was measured of some methods in one city, along one quantity."""

    experiment: str
    city: str
    loss_case: str
    along: str
    """`epsilon`, another column of the results, or one of `Varied`."""
    setting: Mapping[str, float]
    """Everything else that was set; without ε where that varies."""
    values: Mapping[tuple[str, float | str, str], Value] = field(repr=False)
    """By method, point and measure."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods in the order of `METHODS`, then those of users."""
        measured = {method for method, _, _ in self.values}
        return (*(key for key in METHODS if key in measured), *sorted(filter(is_own, measured)))

    @property
    def points(self) -> tuple[float | str, ...]:
        """Values of the quantity, numbers ascending; words as they came."""
        points = dict.fromkeys(point for _, point, _ in self.values)
        numbers = sorted(point for point in points if not isinstance(point, str))
        return (*numbers, *(point for point in points if isinstance(point, str)))

    def value(self, method: str, measure: str, point: float | str) -> Value | None:
        """Return one measure of a method, None if it was not measured."""
        return self.values.get((method, point, measure))

    def number(self, method: str, measure: str, point: float | str) -> float | None:
        """Return the same without its interval; None if there is none or it is not finite."""
        value = self.value(method, measure, point)
        return value.value if value is not None and math.isfinite(value.value) else None

    def series(self, method: str, measure: str) -> list[tuple[float | str, Value]]:
        """Return a measure of a method at every point that has one."""
        values = ((point, self.value(method, measure, point)) for point in self.points)
        return [(point, value) for point, value in values if value is not None and math.isfinite(value.value)]

    def first_series(self, methods: Iterable[str], measure: str) -> list[tuple[float | str, Value]]:
        """Return a measure of the first of some methods that has it: for what is the same for all of them."""
        return next((series for method in methods if (series := self.series(method, measure))), [])

    def has(self, measure: str) -> bool:
        """Whether a measure was taken of any method."""
        return any(name == measure for _, _, name in self.values)

    def unit(self, measure: str) -> str:
        """Return the unit of a measure, empty if it has none."""
        return next((value.unit for (_, _, name), value in self.values.items() if name == measure), "")


def main_panels(results: pl.DataFrame) -> list[Panel]:
    """Return the main comparison of each city and kind of loss: along ε, in the experiment with the most of them."""
    panels: dict[tuple[str, str], Panel] = {}
    for where, rows in _over_all_zones(results):
        plain = rows.filter(pl.col("variant") == "")
        if plain.is_empty():
            continue
        base = _usual_setting(plain)
        panel = Panel(*where, "epsilon", base, _values(_at(plain, base), "epsilon"))
        key = panel.city, panel.loss_case
        if key not in panels or _size(panel) > _size(panels[key]):
            panels[key] = panel
    return list(panels.values())


def whole_city_panels(results: pl.DataFrame) -> list[Panel]:
    """Return the comparisons without zones, one for each experiment, city and kind of loss, along ε."""
    return [
        Panel(*where, "epsilon", {}, _values(rows.filter(pl.col("variant") == ""), "epsilon"))
        for where, rows in _over_all_zones(results, WHOLE_CITY)
    ]


@dataclass(frozen=True)
class Way:
    """One way to spend the budget of an hour."""

    method: str
    per_hour: float
    """Per kilometre of a way that is moved all along."""
    per_location: float
    """Per kilometre."""
    seconds: float
    """From one report to the next."""
    error: Value
    """Of the tracker."""


@dataclass(frozen=True)
class HourPanel:
    """Ways to spend the budget of an hour in one city, by what an hour costs; of costs with several intervals."""

    city: str
    whole_city: bool
    interval_s: float
    """Seconds of a step."""
    ways: tuple[Way, ...]


def hour_panels(results: pl.DataFrame) -> list[HourPanel]:
    """Return what an hour costs by fewer reports with a larger ε, and how far off the tracker is then."""
    panels = []
    for zone in (ALL_ZONES, WHOLE_CITY):
        for (_, city, _), rows in _over_all_zones(results, zone):
            every = {
                variant: float(values.get(Varied.EVERY, 1.0))
                for variant in rows["variant"].unique(maintain_order=True)
                if (values := read_variant(variant)).keys() <= {Varied.EVERY, Varied.EQUAL_COST}
            }
            if max(every.values(), default=1.0) > 1:
                panels.append(_hour_panel(rows, every, city=city, whole_city=zone == WHOLE_CITY))
    return panels


def _hour_panel(rows: pl.DataFrame, every: Mapping[str, float], *, city: str, whole_city: bool) -> HourPanel:
    interval_s = float(rows["interval_s"][0])
    chosen = rows.filter(pl.col("variant").is_in(list(every)))
    ways: dict[tuple[float, float, str], Way] = {}
    for (variant, _, method), part in chosen.group_by("variant", "epsilon", "method", maintain_order=True):
        values = {row["measure"]: Value.of(row) for row in part.iter_rows(named=True)}
        cost, location, error = (
            values.get(name) for name in (Measure.EPSILON_PER_HOUR, Measure.EPSILON_PER_LOCATION, Measure.TRACKED_ERROR)
        )
        finished = Measure.GAP not in values or values[Measure.GAP].value <= WIDE_GAP
        if cost is not None and location is not None and error is not None and finished:
            seconds = interval_s * every[str(variant)]
            # Equal costs per location are another ε of the same method; without a past, the same one.
            key = (round(cost.value, 2), seconds, str(method))
            ways.setdefault(key, Way(str(method), cost.value, location.value, seconds, error))
    intervals: dict[float, set[float]] = {}
    for cost_of, seconds, _ in ways:
        intervals.setdefault(cost_of, set()).add(seconds)
    kept = [ways[key] for key in sorted(ways) if len(intervals[key[0]]) > 1]
    return HourPanel(city, whole_city, interval_s, tuple(kept))


def sweep_panels(results: pl.DataFrame, *, reports: int | None = None) -> list[Panel]:
    """Return everything else that was varied, each at the ε with the most points; equal costs along ε.

    Points of different experiments are never put side by side, since these may look at different zones.

    Parameters
    ----------
    reports
        How many reports in a row were looked at where `variant` does not say so, if known.
    """
    usual = _USUAL if reports is None else {**_USUAL, Varied.REPORTS: float(reports)}
    panels: list[Panel] = []
    for where, rows in _over_all_zones(results):
        varied = {variant: read_variant(variant) for variant in rows["variant"].unique(maintain_order=True)}
        base = _usual_setting(rows)
        plain = rows.filter(pl.col("variant").is_in([variant for variant, values in varied.items() if not values]))
        panels += [*_column_sweeps(where, plain, base), *_variant_sweeps(where, _at(rows, base), varied, usual)]
    return panels


def saved(
    panel: Panel, method: str, other: str, point: float | str, measure: Measure = Measure.HELD_OUT_LOSS
) -> Value | None:
    """Return by which share a method's loss is below another's, with an interval.

    Both are measured on the same vehicles. Where results tell how they compare vehicle by vehicle, that is the
    interval; else it follows from the two separate ones, and is wider.
    """
    paired = panel.value(method, gain_over(other, measure), point)
    if paired is not None:
        return paired
    ours, theirs = (panel.value(key, measure, point) for key in (method, other))
    if ours is None or theirs is None or not theirs.value > 0:
        return None
    interval = None
    if ours.interval is not None and theirs.interval is not None and theirs.interval.low > 0:
        interval = Interval(1 - ours.interval.high / theirs.interval.low, 1 - ours.interval.low / theirs.interval.high)
    return Value("saved", 1 - ours.value / theirs.value, "", interval)


def decide(difference: Value | None) -> Relation:
    """Say what an interval of a share saved means; without one nothing is decided, and within 1 % all are alike."""
    if difference is None or difference.interval is None:
        return Relation.UNDECIDED
    low, high = difference.interval.low, difference.interval.high
    if max(abs(low), abs(high)) <= ALIKE_WITHIN:
        return Relation.ALIKE
    if low > 0:
        return Relation.LOWER
    return Relation.HIGHER if high < 0 else Relation.UNDECIDED


def _over_all_zones(results: pl.DataFrame, zone: int = ALL_ZONES) -> Iterator[tuple[_Where, pl.DataFrame]]:
    rows = results.filter(pl.col("zone") == zone)
    for (experiment, city, loss_case), part in rows.group_by("experiment", "city", "loss_case", maintain_order=True):
        yield (str(experiment), str(city), str(loss_case)), part


def _usual_setting(rows: pl.DataFrame) -> dict[str, float]:
    """Return the most common value of each column; of several, the first."""
    counts = (
        rows.group_by(name, maintain_order=True).len().sort("len", descending=True, maintain_order=True)
        for name in _BASE
    )
    return {name: count[name][0] for name, count in zip(_BASE, counts, strict=True)}


def _size(panel: Panel) -> tuple[int, int]:
    return len(panel.points), len(panel.methods)


def _at(rows: pl.DataFrame, setting: Mapping[str, float]) -> pl.DataFrame:
    return rows.filter(pl.col(name) == value for name, value in setting.items())


def _values(
    rows: pl.DataFrame, column: str, *, meaning: Mapping[str, float | str] | None = None
) -> dict[tuple[str, float | str, str], Value]:
    """Return values by method, point and measure; the point is in a column, as it is or by its meaning."""
    values: dict[tuple[str, float | str, str], Value] = {}
    for row in rows.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        point = row[column] if meaning is None else meaning[row[column]]
        values.setdefault((row["method"], point, row["measure"]), Value.of(row))
    return values


def _column_sweeps(where: _Where, rows: pl.DataFrame, base: Mapping[str, float]) -> Iterator[Panel]:
    for column in _BASE:
        others = {name: value for name, value in base.items() if name != column}
        here = _at(rows, others)
        epsilon = _fullest_epsilon(here, column)
        if epsilon is not None:
            values = _values(here.filter(pl.col("epsilon") == epsilon), column)
            yield Panel(*where, column, {**others, "epsilon": epsilon}, values)


def _variant_sweeps(
    where: _Where,
    rows: pl.DataFrame,
    varied: Mapping[str, Mapping[Varied, float | str]],
    usual: Mapping[Varied, float | str],
) -> Iterator[Panel]:
    base = {} if rows.is_empty() else {name: rows[name][0] for name in _BASE}
    for kind in Varied:
        # What varies several things at once is no sweep along one of them.
        point = {variant: values[kind] for variant, values in varied.items() if [*values] == [kind]}
        chosen = rows.filter(pl.col("variant").is_in(list(point)))
        if kind is Varied.EVERY:  # ε varies with it: see `hour_panels`
            continue
        if kind is Varied.EQUAL_COST and not chosen.is_empty():
            yield Panel(*where, kind, base, _values(chosen, "epsilon"))
            continue
        epsilon = _fullest_epsilon(chosen, "variant", least=1)
        if epsilon is None:
            continue
        if kind in usual:
            point[""] = usual[kind]
        shown = rows.filter((pl.col("epsilon") == epsilon) & pl.col("variant").is_in(list(point)))
        yield Panel(*where, kind, {**base, "epsilon": epsilon}, _values(shown, "variant", meaning=point))


def _fullest_epsilon(rows: pl.DataFrame, column: str, *, least: int = 2) -> float | None:
    """Return the ε at which a column takes the most values, of several the one nearest to 2; None below `least`."""
    if rows.is_empty():
        return None
    best = (
        rows.group_by("epsilon")
        .agg(pl.col(column).n_unique())
        .sort(column, (pl.col("epsilon") - REFERENCE_EPSILON).abs(), "epsilon", descending=[True, False, False])
    )
    return float(best["epsilon"][0]) if best[column][0] >= least else None
