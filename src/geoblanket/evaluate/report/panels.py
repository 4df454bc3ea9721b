"""A results table as the report reads it: methods side by side along ε, or along something else that was varied."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

import polars as pl

from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.results import ALL_ZONES

__all__ = ["ALIKE_WITHIN", "KINDS", "Panel", "Verdict", "decide", "main_panels", "saved", "sweep_panels"]

_About = tuple[str, str, str]
"""Experiment, city and kind of loss."""
_BASE = ("eta_km", "history_weight", "spacing_m", "interval_s", "max_places")
"""The columns of a setting besides ε; each can be varied."""
KINDS = {
    "equal cost": re.compile(r"equal cost(.*)$"),
    "delay": re.compile(r"delay (.+)$"),
    "blanket": re.compile(r"blanket (.+)$"),
    "rows": re.compile(r"(\d+) rows$"),
    "hour": re.compile(r"hour (.+)$"),
    "speed": re.compile(r"speed (.+)$"),
    "reports": re.compile(r"T = (\d+)$"),
}
"""What is varied without a column of its own, and how a part of `variant` tells it."""
_USUAL: Mapping[str, float | str] = {"delay": 1.0, "blanket": "as told"}
"""The values of these in the main comparison."""
ALIKE_WITHIN = 0.01
"""Losses that surely differ by no more than this share are alike: searches end with gaps of that order."""
_REFERENCE = 2.0
"""ε per kilometre that is preferred where several were compared."""


class Verdict(Enum):
    """What intervals say about two losses."""

    LOWER = "lower"
    HIGHER = "higher"
    ALIKE = "alike"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True, eq=False)
class Panel:
    """What was measured of some methods in one city, along one quantity."""

    experiment: str
    city: str
    loss_case: str
    along: str
    """`epsilon`, another column of the results, or one of `KINDS`."""
    setting: Mapping[str, float]
    """Everything else that was set; without ε where that varies."""
    values: Mapping[tuple[str, float | str, str], Value] = field(repr=False)
    """By method, point and measure."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods in the order of `METHODS`."""
        found = {method for method, _, _ in self.values}
        return tuple(key for key in METHODS if key in found)

    @property
    def points(self) -> tuple[float | str, ...]:
        """Values of the quantity, numbers ascending; words as they came."""
        found = dict.fromkeys(point for _, point, _ in self.values)
        numbers = sorted(point for point in found if not isinstance(point, str))
        return (*numbers, *(point for point in found if isinstance(point, str)))

    def value(self, method: str, measure: str, point: float | str) -> Value | None:
        """Return one measure of a method, None if it was not measured."""
        return self.values.get((method, point, measure))

    def number(self, method: str, measure: str, point: float | str) -> float | None:
        """Return the same without its interval; None if there is none or it is not finite."""
        found = self.value(method, measure, point)
        return found.value if found is not None and math.isfinite(found.value) else None

    def series(self, method: str, measure: str) -> list[tuple[float | str, Value]]:
        """Return a measure of a method at every point that has one."""
        found = ((point, self.value(method, measure, point)) for point in self.points)
        return [(point, value) for point, value in found if value is not None and math.isfinite(value.value)]

    def has(self, measure: str) -> bool:
        """Whether a measure was taken of any method."""
        return any(name == measure for _, _, name in self.values)

    def unit(self, measure: str) -> str:
        """Return the unit of a measure, empty if it has none."""
        return next((value.unit for (_, _, name), value in self.values.items() if name == measure), "")


def main_panels(results: pl.DataFrame) -> list[Panel]:
    """Return the main comparison of each city and kind of loss: along ε, in the experiment with the most of them."""
    panels: dict[tuple[str, str], Panel] = {}
    for about, rows in _over_all_zones(results):
        plain = rows.filter(pl.col("variant") == "")
        if plain.is_empty():
            continue
        base = _usual_setting(plain)
        panel = Panel(*about, "epsilon", base, _values(_at(plain, base), "epsilon"))
        key = panel.city, panel.loss_case
        if key not in panels or _size(panel) > _size(panels[key]):
            panels[key] = panel
    return list(panels.values())


def sweep_panels(results: pl.DataFrame, *, reports: int | None = None) -> list[Panel]:
    """Return everything else that was varied, each at the ε with the most points; equal costs along ε.

    Points of different experiments are never put side by side, since these may look at different zones.

    Parameters
    ----------
    reports
        How many reports in a row were looked at where `variant` does not say so, if known.
    """
    usual = _USUAL if reports is None else {**_USUAL, "reports": float(reports)}
    panels: list[Panel] = []
    for about, rows in _over_all_zones(results):
        named = {variant: _named(variant) for variant in rows["variant"].unique(maintain_order=True)}
        base = _usual_setting(rows)
        plain = rows.filter(pl.col("variant").is_in([variant for variant, what in named.items() if what is None]))
        panels += [*_column_sweeps(about, plain, base), *_named_sweeps(about, _at(rows, base), named, usual)]
    return panels


def saved(panel: Panel, method: str, other: str, point: float | str, *, measure: str = "held_out_loss") -> Value | None:
    """Return by which share a method's loss is below another's, with an interval.

    Both are measured on the same vehicles. Where results tell how they compare vehicle by vehicle, that is the
    interval; else it follows from the two separate ones, and is wider.
    """
    paired = panel.value(method, f"gain_over_{other}", point)
    if paired is not None and measure == "held_out_loss":
        return paired
    ours, theirs = panel.value(method, measure, point), panel.value(other, measure, point)
    if ours is None or theirs is None or not theirs.value > 0:
        return None
    low = high = None
    if None not in (ours.low, ours.high, theirs.low, theirs.high) and (theirs.low or 0) > 0:
        low, high = 1 - ours.high / theirs.low, 1 - ours.low / theirs.high  # type: ignore[operator]  # none is None
    return Value("saved", 1 - ours.value / theirs.value, "", low, high)


def decide(difference: Value | None) -> Verdict:
    """Say what an interval of a share saved means; without one nothing is decided, and within 1 % all are alike."""
    if difference is None or difference.low is None or difference.high is None:
        return Verdict.UNDECIDED
    if max(abs(difference.low), abs(difference.high)) <= ALIKE_WITHIN:
        return Verdict.ALIKE
    if difference.low > 0:
        return Verdict.LOWER
    return Verdict.HIGHER if difference.high < 0 else Verdict.UNDECIDED


def _over_all_zones(results: pl.DataFrame) -> Iterator[tuple[_About, pl.DataFrame]]:
    rows = results.filter(pl.col("zone") == ALL_ZONES)
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
    found: dict[tuple[str, float | str, str], Value] = {}
    for row in rows.filter(pl.col("value").is_not_null()).iter_rows(named=True):
        point = row[column] if meaning is None else meaning[row[column]]
        value = Value(row["measure"], row["value"], row["unit"], row["low"], row["high"])
        found.setdefault((row["method"], point, row["measure"]), value)
    return found


def _named(variant: str) -> tuple[str, float | str] | None:
    """Return what a variant is about, and its value; None if it is a column. Several at once are of no kind."""
    found = [
        (kind, match[1]) for part in variant.split("; ") for kind, form in KINDS.items() if (match := form.match(part))
    ]
    if len(found) > 1:
        return "", variant
    return (found[0][0], _number_or_word(found[0][1])) if found else None


def _number_or_word(text: str) -> float | str:
    return float(text) if text.isdigit() else text


def _column_sweeps(about: _About, rows: pl.DataFrame, base: Mapping[str, float]) -> Iterator[Panel]:
    for column in _BASE:
        others = {name: value for name, value in base.items() if name != column}
        here = _at(rows, others)
        epsilon = _fullest_epsilon(here, column)
        if epsilon is not None:
            values = _values(here.filter(pl.col("epsilon") == epsilon), column)
            yield Panel(*about, column, {**others, "epsilon": epsilon}, values)


def _named_sweeps(
    about: _About,
    rows: pl.DataFrame,
    named: Mapping[str, tuple[str, float | str] | None],
    usual: Mapping[str, float | str],
) -> Iterator[Panel]:
    base = {} if rows.is_empty() else {name: rows[name][0] for name in _BASE}
    for kind in KINDS:
        point = {variant: what[1] for variant, what in named.items() if what is not None and what[0] == kind}
        varied = rows.filter(pl.col("variant").is_in(list(point)))
        if kind == "equal cost" and not varied.is_empty():
            yield Panel(*about, kind, base, _values(varied, "epsilon"))
            continue
        epsilon = _fullest_epsilon(varied, "variant", least=1)
        if epsilon is None:
            continue
        here = rows.filter(pl.col("epsilon") == epsilon)
        if kind in usual:
            point[""] = usual[kind]
        values = _values(here.filter(pl.col("variant").is_in(list(point))), "variant", meaning=point)
        yield Panel(*about, kind, {**base, "epsilon": epsilon}, values)


def _fullest_epsilon(rows: pl.DataFrame, column: str, *, least: int = 2) -> float | None:
    """Return the ε at which a column takes the most values, of several the one nearest to 2; None below `least`."""
    if rows.is_empty():
        return None
    best = (
        rows.group_by("epsilon")
        .agg(pl.col(column).n_unique())
        .sort(column, (pl.col("epsilon") - _REFERENCE).abs(), "epsilon", descending=[True, False, False])
    )
    return float(best["epsilon"][0]) if best[column][0] >= least else None
