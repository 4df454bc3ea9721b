"""Panels: methods side by side along ε or another varied quantity, as the report shows them.

One loss is called lower than another only if the interval of their difference says so; otherwise it is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import polars as pl

from geoblanket._display import Interval
from geoblanket.lab.evaluate.experiment import Varied, read_variant
from geoblanket.lab.evaluate.measures import Measure, Value, gain_over
from geoblanket.lab.evaluate.methods import METHODS, is_own
from geoblanket.lab.evaluate.results import ALL_ZONES, WHOLE_CITY

_Where = tuple[str, str, str]
"""Experiment, city and kind of loss."""
_BASE = ("eta_km", "history_weight", "spacing_m", "interval_s", "max_places")
"""The columns of a setting besides ε; each can be varied."""
_USUAL: Mapping[Varied, float | str] = {Varied.DELAY: 1.0, Varied.BLANKET: "as told"}
"""The values of these in the main comparison."""
ALIKE_WITHIN = 0.01
"""Losses that surely differ by at most this share are alike: searches end with gaps of that order."""
WIDE_GAP = 0.05
"""A linear program that was stopped further from its optimum than this says little about the optimum."""
REFERENCE_EPSILON = 2.0
"""ε of single figures, per kilometre, if it was compared."""


class Relation(Enum):
    """How one method's loss compares with another's at one ε."""

    LOWER = "lower"
    HIGHER = "higher"
    ALIKE = "alike"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True, eq=False)
class Panel:
    """Measures of some methods in one city, along one quantity."""

    experiment: str
    city: str
    loss_case: str
    along: str
    """`epsilon`, another column of the results, or one of `Varied`."""
    setting: Mapping[str, float]
    """The other parameters; without ε where it varies."""
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
        """Return a measure of the first method that has it, for measures that are the same for all methods."""
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


def sweep_panels(results: pl.DataFrame, *, reports: int | None = None) -> list[Panel]:
    """Return panels of all other varied quantities, each at the ε with the most points; equal costs along ε.

    Points of different experiments are never put side by side, since these may look at different zones.

    Parameters
    ----------
    reports
        Number of reports in a row where `variant` does not give it, if known.
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
    """Return the share by which a method's loss is below another's, with an interval.

    Both are measured on the same vehicles. If results compare them vehicle by vehicle, the interval is that of the
    comparison. Otherwise it follows from the two separate intervals, and is wider.
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
    return Value(Measure.SAVED, 1 - ours.value / theirs.value, "", interval)


def decide(difference: Value | None) -> Relation:
    """Decide by the interval of a share saved; without an interval undecided, within 1 % alike."""
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
        # A variant that changes several quantities at once belongs to no sweep.
        point = {variant: values[kind] for variant, values in varied.items() if [*values] == [kind]}
        chosen = rows.filter(pl.col("variant").is_in(list(point)))
        # With the interval ε varies too (see `hour_tables`).
        if kind is Varied.EVERY:
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


_CONTEXT = ("lp_cmdp", "lp_markov1", "lp_true_mb")
"""Methods that use the past, the most interesting for users first."""


def label_of(method: str) -> str:
    """Return the name of a method."""
    return METHODS[method].label


def primary(panel: Panel) -> str | None:
    """Return the method with context that the report discusses: with the predicted blanket, if compared."""
    return next((method for method in _CONTEXT if panel.series(method, Measure.HELD_OUT_LOSS)), None)


def best_plain(panel: Panel) -> str | None:
    """Return LP, the optimum without context; if it was not compared, the method with the least loss at one ε."""
    point = reference_epsilon(panel)
    losses = {
        method: loss
        for method in panel.methods
        if not METHODS[method].uses_past and (loss := panel.number(method, Measure.HELD_OUT_LOSS, point)) is not None
    }
    return "lp" if "lp" in losses else min(losses, key=lambda method: losses[method], default=None)


def recommended(panel: Panel) -> str | None:
    """Return the method with context where it is surely lower at the ε of `reference_epsilon`, else the best without.

    Tracked losses decide where they are known, since recipients remember earlier reports.
    """
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return context or plain
    difference = saved(panel, context, plain, reference_epsilon(panel), deciding_measure(panel))
    return context if decide(difference) is Relation.LOWER else plain


def deciding_measure(panel: Panel) -> Measure:
    """Return the loss by which methods are recommended: of tracked vehicles if it was measured."""
    return Measure.TRACKED_LOSS if panel.has(Measure.TRACKED_LOSS) else Measure.HELD_OUT_LOSS


def reference_epsilon(panel: Panel) -> float | str:
    """Return the ε that tables and answers of one ε are for: 2 per km, or else the one in the middle."""
    return REFERENCE_EPSILON if REFERENCE_EPSILON in panel.points else panel.points[len(panel.points) // 2]


def worth_left(panel: Panel, method: str, point: float | str) -> float | None:
    """Return the share of the value of exact reports that is left in design: 1 if exact, 0 if constant."""
    loss, exact, nothing = (
        panel.number(method, name, point)
        for name in (Measure.DESIGN_LOSS, Measure.NO_PRIVACY_LOSS, Measure.CONSTANT_LOSS)
    )
    if loss is None or exact is None or nothing is None or nothing <= exact:
        return None
    return (nothing - loss) / (nothing - exact)


PAPER_METHODS = ("lp_cmdp", "lp_true_mb", "lp_markov1", "lp", "constopt", "expmech")
"""The six methods of the paper."""
IN_USE = ("lp_cmdp", "lp_markov1", "lp", "planar_laplace", "planar_laplace_remap", "expmech_remap", "tight")
"""Mechanisms in use today, with methods with context and LP to compare."""
_MAIN_LOSS = "population"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Panels of results, sorted by purpose."""

    main: tuple[Panel, ...]
    """One for each city, with the main kind of loss."""
    other_losses: tuple[Panel, ...]
    sweeps: tuple[Panel, ...]
    """Of the main kind of loss."""
    whole_city: tuple[Panel, ...]
    """Comparisons without zones, which have another promise."""
    reports: int | None
    """Number of reports in a row that the tracking attacker sees, if the same in all experiments."""

    @classmethod
    def of(cls, results: pl.DataFrame, about: Mapping[str, Any]) -> Comparison:
        """Sort results.

        Parameters
        ----------
        about
            How they were made, as `read_results` returns it.
        """
        panels = main_panels(results)
        losses = [panel.loss_case for panel in panels]
        loss = _MAIN_LOSS if _MAIN_LOSS in losses else next(iter(losses), _MAIN_LOSS)
        reports = {_first(experiment.get("reports")) for experiment in about.get("experiments", {}).values()}
        usual = reports.pop() if len(reports) == 1 else None
        return cls(
            main=tuple(panel for panel in panels if panel.loss_case == loss),
            other_losses=tuple(panel for panel in panels if panel.loss_case != loss),
            sweeps=tuple(panel for panel in sweep_panels(results, reports=usual) if panel.loss_case == loss),
            whole_city=tuple(whole_city_panels(results)),
            reports=usual,
        )

    def sweep(self, along: str) -> list[Panel]:
        """Return the panels along a quantity, one for each city: that with the most points."""
        best: dict[str, Panel] = {}
        for panel in self.sweeps:
            if panel.along == along and (panel.city not in best or len(panel.points) > len(best[panel.city].points)):
                best[panel.city] = panel
        return list(best.values())

    def equal_cost(self, city: str) -> Panel | None:
        """Return the comparison at equal cost per location, if there was one."""
        return next((panel for panel in self.sweep(Varied.EQUAL_COST) if panel.city == city), None)

    def zones_beside(self, panel: Panel) -> Panel | None:
        """Return the comparison in zones of the same experiment, city and kind of loss as one without zones."""
        same = (panel.experiment, panel.city, panel.loss_case)
        panels = (*self.main, *self.other_losses)
        return next((other for other in panels if (other.experiment, other.city, other.loss_case) == same), None)

    def pair(self, panel: Panel) -> tuple[str, str] | None:
        """Return the method with context and the best without of a panel; None if it lacks one of them."""
        context, plain = primary(panel), best_plain(panel)
        return None if context is None or plain is None else (context, plain)


def _first(value: Any) -> Any:
    """Return the usual number of reports, which comes first, if there is one."""
    return next(iter(value), None) if isinstance(value, list) else value
