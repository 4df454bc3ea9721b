"""The panels of a comparison by what they are for, and the methods that its answers are about.

Of two losses one is called lower only where the interval of their difference says so; else it cannot be decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.methods import METHODS, is_own
from geoblanket.evaluate.report.panels import (
    REFERENCE_EPSILON,
    HourPanel,
    Panel,
    Relation,
    decide,
    hour_panels,
    main_panels,
    saved,
    sweep_panels,
    whole_city_panels,
)
from geoblanket.evaluate.settings import Varied

__all__ = [
    "IN_USE",
    "PAPER_METHODS",
    "Comparison",
    "best_plain",
    "deciding_measure",
    "label_of",
    "primary",
    "recommended",
    "reference_epsilon",
    "worth_left",
]

_CONTEXT = ("lp_cmdp", "lp_markov1", "lp_true_mb")
"""Methods that use the past, in the order in which a user would want to know about them."""


def label_of(method: str) -> str:
    """Return the name of a method."""
    return METHODS[method].label if method in METHODS or is_own(method) else method


def primary(panel: Panel) -> str | None:
    """Return the method with context that the report is about: with the predicted blanket, if it was compared."""
    return next((method for method in _CONTEXT if panel.series(method, Measure.HELD_OUT_LOSS)), None)


def best_plain(panel: Panel) -> str | None:
    """Return the best method without context: LP, unless others are surely lower; then the one with the most wins."""
    plain = [
        method
        for method in panel.methods
        if not (method in METHODS and METHODS[method].uses_past) and panel.series(method, Measure.HELD_OUT_LOSS)
    ]
    lower = [method for method in plain if method != "lp" and _overall(panel, method, "lp") is Relation.LOWER]
    if "lp" in plain and not lower:
        return "lp"
    wins = _least_loss_at(panel, lower or plain)
    return max(wins, key=lambda method: len(wins[method])) if wins else None


def _overall(panel: Panel, method: str, other: str) -> Relation:
    """Say how losses compare over all points."""
    relations = {decide(saved(panel, method, other, point)) for point in panel.points}
    if {Relation.LOWER, Relation.HIGHER} <= relations:
        return Relation.MIXED
    if decided := relations & {Relation.LOWER, Relation.HIGHER}:
        return decided.pop()
    return Relation.ALIKE if relations == {Relation.ALIKE} else Relation.UNDECIDED


def recommended(panel: Panel) -> str | None:
    """Return the method with context where it is surely lower at the ε of `reference_epsilon`, else the best without.

    Tracked losses decide where they are known, since no recipient forgets earlier reports.
    """
    context, plain = primary(panel), best_plain(panel)
    if context is None or plain is None:
        return context or plain
    difference = saved(panel, context, plain, reference_epsilon(panel), deciding_measure(panel))
    return context if decide(difference) is Relation.LOWER else plain


def deciding_measure(panel: Panel) -> Measure:
    """Return the loss by which methods are recommended: of tracked vehicles if it was measured."""
    return Measure.TRACKED_LOSS if panel.has(Measure.TRACKED_LOSS) else Measure.HELD_OUT_LOSS


def _least_loss_at(panel: Panel, methods: Sequence[str]) -> dict[str, list[float | str]]:
    """Return at which points each method has the least loss, of those that have it anywhere."""
    wins: dict[str, list[float | str]] = {}
    for point in panel.points:
        losses = {key: loss for key in methods if (loss := panel.number(key, Measure.HELD_OUT_LOSS, point)) is not None}
        if losses:
            wins.setdefault(min(losses, key=lambda key: losses[key]), []).append(point)
    return wins


def reference_epsilon(panel: Panel) -> float | str:
    """Return the ε that tables and answers of one ε are for: 2 per km, or else the one in the middle."""
    return REFERENCE_EPSILON if REFERENCE_EPSILON in panel.points else panel.points[len(panel.points) // 2]


def worth_left(panel: Panel, method: str, point: float | str) -> float | None:
    """Return which share of what exact reports are worth is left in design: 1 for exact ones, 0 for a constant."""
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
"""Mechanisms in use today, beside methods with context and the best without."""
_MAIN_LOSS = "population"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Panels of results, sorted by what they are for."""

    main: tuple[Panel, ...]
    """One for each city, with the main kind of loss."""
    other_losses: tuple[Panel, ...]
    sweeps: tuple[Panel, ...]
    """Of the main kind of loss."""
    whole_city: tuple[Panel, ...]
    """Comparisons without zones, whose promise is another."""
    hours: tuple[HourPanel, ...]
    """Where the budget of an hour is spent in several ways."""
    reports: int | None
    """How many reports in a row the tracking attacker sees, if that is the same in all experiments."""

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
            hours=tuple(hour_panels(results)),
            reports=usual,
        )

    def sweep(self, along: str) -> list[Panel]:
        """Return what was varied along something, one panel for each city: the one with the most points."""
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
        """Return the method with context and the best without that a panel is about; None if it lacks one of them."""
        context, plain = primary(panel), best_plain(self._main_of(panel))
        if plain not in panel.methods:
            plain = best_plain(panel)
        return None if context is None or plain is None else (context, plain)

    def _main_of(self, panel: Panel) -> Panel:
        """Return the main comparison of the same city, from which what is best is known for all of its parts."""
        return next((main for main in self.main if main.city == panel.city), panel)


def _first(value: Any) -> Any:
    """Return the usual number of reports, which comes first, if there is one."""
    return next(iter(value), None) if isinstance(value, list) else value
