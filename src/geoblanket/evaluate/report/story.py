"""What a report says: the main comparison of each city, other losses, and what was varied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.report.panels import (
    HourPanel,
    Panel,
    hour_panels,
    main_panels,
    sweep_panels,
    whole_city_panels,
)
from geoblanket.evaluate.report.wording import best_plain, primary
from geoblanket.evaluate.settings import Varied

__all__ = ["IN_USE", "PAPER_METHODS", "Story"]

PAPER_METHODS = ("lp_cmdp", "lp_true_mb", "lp_markov1", "lp", "constopt", "expmech")
"""The six methods of the paper."""
IN_USE = ("lp_cmdp", "lp_markov1", "lp", "planar_laplace", "planar_laplace_remap", "expmech_remap", "tight")
"""Mechanisms in use today, beside methods with context and the best without."""
_MAIN_LOSS = "population"


@dataclass(frozen=True, eq=False)
class Story:
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
    def of(cls, results: pl.DataFrame, about: Mapping[str, Any]) -> Story:
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

    def tracked_beside(self, city: str) -> Panel | None:
        """Return the comparison without zones in which vehicles of a city are tracked, of the main kind of loss."""
        loss = self.main[0].loss_case if self.main else _MAIN_LOSS
        panels = [panel for panel in self.whole_city if panel.city == city and panel.has(Measure.TRACKED_ERROR)]
        return next((panel for panel in panels if panel.loss_case == loss), next(iter(panels), None))

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
