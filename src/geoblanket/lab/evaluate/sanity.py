"""Checks that every sound comparison passes; violations are always reported.

Most checks are theorems, used with the proven bounds of the searches. For example, the best mechanism over finer rows,
or for a larger ε, cannot cost more than one over coarser rows, or for a smaller ε, which keeps its promise too. Two
checks are about held-out walks, where nothing can be proven. There a method that uses the past must not be worse than
LP beyond doubt and the gap of the searches, and tracking must not have a larger error than one report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._display import short_repr
from geoblanket.lab.evaluate.experiment import Varied, read_variant
from geoblanket.lab.evaluate.measures import Measure, gain_over
from geoblanket.lab.evaluate.methods import METHODS, is_own
from geoblanket.lab.evaluate.results import ALL_ZONES, SETTING_COLUMNS, WHOLE_CITY
from geoblanket.mechanism.bundle.zones import zone_in_words

_FALLS = "loss falls as ε grows"
_TOLERANCE = 1e-9
_SOLVER_TOLERANCE = 1e-6
"""Of HiGHS, which ConstOPT's linear program is solved with."""
_WORST_GAIN = -0.02
_MAY_NOT_EXIST = ("tight", "constopt_peaks")
_MAY_PROMISE_LESS = ("peaks",)
"""It may leave places out, which are then snapped to others."""
_OPTIMAL = tuple(key for key, method in METHODS.items() if method.maker is METHODS["lp"].maker)
_PAIRS = (("expmech_remap", "expmech"), ("planar_laplace_remap", "planar_laplace"), ("constopt", "expmech_published"))
"""Methods of which the first can never cost more than the second, in design."""

Measures = Mapping[str, float]
_Problems = Iterator[tuple[str, str]]
"""Method and what is wrong."""


@dataclass(frozen=True)
class Violation:
    """Something that must hold and does not."""

    check: str
    """One of `CHECKS`."""
    where: str
    """City, experiment, zone, method and setting."""
    detail: str

    def __repr__(self) -> str:
        return short_repr(self, self.check, self.where, self.detail)


@checked
def check_results(results: pl.DataFrame) -> tuple[Violation, ...]:
    """Return every violated check of the results, in order.

    Examples
    --------
    >>> import polars as pl
    >>> from geoblanket.lab.evaluate import RESULTS_SCHEMA, check_results
    >>> check_results(pl.DataFrame(schema=RESULTS_SCHEMA))
    ()
    """
    violations = []
    for keys, methods in _settings(results):
        for name, check in CHECKS.items():
            violations += [Violation(name, _where(keys, method), detail) for method, detail in check(methods)]
    violations += _falls(results)
    return tuple(violations)


def _settings(results: pl.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, dict[str, float]]]]:
    """Yield the columns of each setting and zone, and the measures of each method in it."""
    columns = [name for name in SETTING_COLUMNS if name != "method"]
    for keys, part in results.group_by(columns, maintain_order=True):
        methods: dict[str, dict[str, float]] = {}
        for method, measure, value, low, high in part.select("method", "measure", "value", "low", "high").iter_rows():
            known = {name: keys[columns.index(name)] for name in ("epsilon", "zone")}
            known["every"] = read_variant(keys[columns.index("variant")]).get(Varied.EVERY, 1.0)
            methods.setdefault(method, known)[measure] = value
            if high is not None:
                methods[method] |= {f"{measure} (low)": low, f"{measure} (high)": high}
        yield dict(zip(columns, keys, strict=True)), methods


def _where(keys: Mapping[str, Any], method: str) -> str:
    zone = {ALL_ZONES: "all zones", WHOLE_CITY: "whole city"}.get(keys["zone"], zone_in_words(keys["zone"]))
    variant = f", {keys['variant']}" if keys["variant"] else ""
    return (
        f"{keys['city']}, {keys['experiment']}, {zone}, {METHODS[method].label}, ε = {keys['epsilon']:g}, "
        f"η = {keys['eta_km']:g} km, w = {keys['history_weight']:g}, {keys['loss_case']}{variant}"
    )


def _verified(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        # A whole city may be too large for a method, and a user's own method may break its promise: see the notes.
        may_not_exist = method in _MAY_NOT_EXIST or measures.get("zone") == WHOLE_CITY or is_own(method)
        if measures.get(Measure.VERIFIED) == 0 and not may_not_exist:
            yield method, "there is no verified mechanism"


def _same_domain(methods: Mapping[str, Measures]) -> _Problems:
    for measure in (Measure.PLACES, Measure.HELD_OUT_STEPS, Measure.HELD_OUT_VEHICLES):
        values = {method: measures[measure] for method, measures in methods.items() if measure in measures}
        first = next(iter(values.values()), None)
        for method, value in values.items():
            if value != first:
                yield method, f"{measure} is {value:g}, and {first:g} for another method"


def _within_budget(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        spent = measures.get(Measure.EPSILON_EFFECTIVE, 0.0)
        if spent > measures.get("epsilon", float("inf")) * (1 + _TOLERANCE):
            yield method, f"it spends ε = {spent:.9g} per km of {measures['epsilon']:.9g}"
        if measures.get(Measure.LEAKAGE_MAX, 0.0) > spent * (1 + _TOLERANCE) + _TOLERANCE:
            yield (
                method,
                f"its leakage of {measures[Measure.LEAKAGE_MAX]:.9g} per km is above what it spends, {spent:.9g}",
            )


def _above_no_privacy(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        if measures.get(Measure.NO_PRIVACY_LOSS, 0.0) > measures.get(Measure.DESIGN_LOSS, float("inf")) * (
            1 + _TOLERANCE
        ):
            yield method, f"its loss {measures[Measure.DESIGN_LOSS]:.6g} is below that without privacy"
        if measures.get(Measure.LOWER_BOUND, 0.0) > measures.get(Measure.CONSTANT_LOSS, float("inf")) * (
            1 + _TOLERANCE
        ):
            yield method, "it is proven to cost more than always reporting one place, which is among its choices"


def _context_helps(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        bound, plain = measures.get(Measure.LOWER_BOUND, 0.0), measures.get(Measure.LP_LOSS_ON_ROWS, float("inf"))
        if bound > plain * (1 + _TOLERANCE):
            yield method, f"it is proven to cost at least {bound:.6g}, and LP costs {plain:.6g} on the same rows"


def _order(methods: Mapping[str, Measures]) -> _Problems:
    for better, worse in _PAIRS:
        if better in methods and worse in methods:
            low, high = (methods[name].get(Measure.DESIGN_LOSS) for name in (better, worse))
            if low is not None and high is not None and low > high * (1 + _SOLVER_TOLERANCE):
                yield better, f"its loss {low:.6g} is above that of {METHODS[worse].label}, {high:.6g}"
    bound = methods.get("lp", {}).get(Measure.LOWER_BOUND)
    for method, measures in methods.items():
        if METHODS[method].uses_past or bound is None or method in _MAY_PROMISE_LESS:
            continue
        if measures.get(Measure.DESIGN_LOSS, bound) < bound * (1 - _TOLERANCE):
            yield method, f"its loss {measures[Measure.DESIGN_LOSS]:.6g} is below the least possible, {bound:.6g}"


def _held_out(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        # Not at equal cost, where LP has the larger ε.
        compared = METHODS[method].uses_past and Measure.LP_LOSS_ON_ROWS in measures
        if compared and measures.get(f"{gain_over('lp')} (high)", 0.0) < _WORST_GAIN:
            yield method, f"it is worse than LP on held-out walks, by {-measures[gain_over('lp')]:.1%}"


def _tracked(methods: Mapping[str, Measures]) -> _Problems:
    for method, measures in methods.items():
        # If reports come every few steps only, single reports cover other steps than tracking.
        single = (
            measures.get(f"{Measure.SINGLE_ERROR} (high)", float("inf")) if measures["every"] == 1 else float("inf")
        )
        if measures.get(f"{Measure.TRACKED_ERROR} (low)", 0.0) > single:
            yield method, f"tracked, the error is {measures[Measure.TRACKED_ERROR]:.3g} km, and by one report less"


def _falls(results: pl.DataFrame) -> Iterator[Violation]:
    """Check that the least loss falls as ε grows."""
    wanted = results.filter(
        pl.col("method").is_in(_OPTIMAL)
        & pl.col("measure").is_in([Measure.DESIGN_LOSS, Measure.LOWER_BOUND])
        & (pl.col("zone") != ALL_ZONES)
    )
    columns = [name for name in SETTING_COLUMNS if name != "epsilon"]
    for keys, part in wanted.group_by(columns, maintain_order=True):
        named = dict(zip(columns, keys, strict=True))
        table = part.pivot("measure", index="epsilon", values="value", aggregate_function="first").sort("epsilon")
        for smaller, larger in pairwise(table.iter_rows(named=True)):
            if larger[Measure.LOWER_BOUND] > smaller[Measure.DESIGN_LOSS] * (1 + _TOLERANCE):
                where = _where({**named, "epsilon": larger["epsilon"]}, named["method"])
                yield Violation(_FALLS, where, f"it rose from ε = {smaller['epsilon']:g}")


CHECKS: dict[str, Callable[[Mapping[str, Measures]], _Problems]] = {
    "every mechanism is verified": _verified,
    "same domain and same walks for all": _same_domain,
    "no more than ε is spent": _within_budget,
    "no loss below that without privacy": _above_no_privacy,
    "context never costs more": _context_helps,
    "LP ≤ ConstOPT ≤ ExpMech, remapping never costs": _order,
    "not worse than LP on held-out walks": _held_out,
    "all reports tell no less than one": _tracked,
}
"""What is checked in every setting and zone."""
CHECK_NAMES = (*CHECKS, _FALLS)
"""All that is checked."""
