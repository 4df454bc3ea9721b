"""Figures of what was varied besides ε, and of when and how fast vehicles drive."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from geoblanket._picture import new_figure
from geoblanket.evaluate.measures.values import Value
from geoblanket.evaluate.report.figure_style import INK, draw_series, label_lines, label_of, look_of, quiet, say_beside
from geoblanket.evaluate.report.panels import Panel, saved
from geoblanket.evaluate.report.wording import number

__all__ = ["LOSS", "LOSS_AND_TRACKING", "PARTS", "SWEEPS", "TRACKING", "gain_by_figure", "sweep_figure"]

SWEEPS = {
    "history_weight": "w, what the place before counts (∞: it is known anyway)",
    "eta_km": "η, how far the promise reaches, km",
    "spacing_m": "spacing of places, m",
    "interval_s": "time between reports, s",
    "max_places": "places of a zone, at most",
    "delay": "delay before the report is used, intervals",
    "blanket": "lengths of blankets",
    "rows": "rows of a zone, at most",
    "reports": "T, reports in a row that the attacker sees",
    "hour": "hour of day",
    "speed": "speed",
}
"""What each quantity that can be varied is called."""
PARTS = ("hour", "speed")
"""Those that are parts of the held-out walks, not settings."""


LOSS = (("held_out_loss", "loss"),)
LOSS_AND_TRACKING = (*LOSS, ("tracking_success", "the tracker's share of right guesses"))
TRACKING = (("tracking_success", "share of right guesses"), ("composed_epsilon", "bound by composition"))
"""Measures to draw one below the other, and what they are called."""

_ROW_IN = 2.6


def sweep_figure(panels: Sequence[Panel], *, methods: Sequence[str], rows: Sequence[tuple[str, str]] = LOSS) -> Figure:
    """Draw measures of some methods along what was varied: a column for each city, a row for each measure."""
    figure = new_figure(width_in=4.8 * len(panels), height_in=0.5 + _ROW_IN * len(rows))
    grid = figure.subplots(len(rows), len(panels), sharex="col", sharey="row", squeeze=False)
    for axes_of, (measure, name) in zip(grid, rows, strict=True):
        for axes, panel in zip(axes_of, panels, strict=True):
            quiet(axes)
            positions = range(len(panel.points))
            for method in methods:
                draw_series(axes, panel, method, measure, positions=positions)
            if measure == "tracking_success":
                _draw_blind(axes, panel, methods)
            axes.set_xticks(list(positions), [number(point) for point in panel.points])
            axes.margins(x=0.06)
        unit = panels[0].unit(measure)
        axes_of[0].set_ylabel(f"{name}, {unit}" if unit else name, fontsize=8.5, color=INK)
        axes_of[0].set_ylim(0, 1.03 * axes_of[0].get_ylim()[1])
        for axes, panel in zip(axes_of, panels, strict=True):
            _label_ends(axes, panel, methods, measure)
    for above, below, panel in zip(grid[0], grid[-1], panels, strict=True):
        above.set_title(_title(panel), fontsize=10, color=INK, loc="left")
        below.set_xlabel(SWEEPS[panel.along], fontsize=8.5, color=INK)
    return figure


def _draw_blind(axes: Axes, panel: Panel, methods: Sequence[str]) -> None:
    """Draw what the tracking attacker achieves without reports."""
    series = next((found for one in methods if (found := panel.series(one, "tracking_success_prior"))), [])
    if series:
        x = [panel.points.index(point) for point, _ in series]
        y = [value.value for _, value in series]
        axes.plot(x, y, color=INK, linewidth=1.0, linestyle=(0, (2, 2)))
        say_beside(axes, "without reports", (x[-1], y[-1]), above=False)


def _label_ends(axes: Axes, panel: Panel, methods: Sequence[str], measure: str) -> None:
    series = {method: panel.series(method, measure) for method in methods}
    ends = [(label_of(one), values[-1][1].value, look_of(one).colour) for one, values in series.items() if values]
    label_lines(axes, ends, height_in=2.2)


def _title(panel: Panel) -> str:
    return f"{panel.city.title()}, ε = {panel.setting['epsilon']:g} per km"


def gain_by_figure(panels: Sequence[Panel], *, method: str, over: str) -> Figure:
    """Draw by which share a method's loss is below another's for each hour or speed, with intervals.

    Where one vehicle only was there, there is no interval, and the point is hollow.
    """
    figure = new_figure(width_in=4.6 * len(panels), height_in=2.9)
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    estimates: list[float] = []
    for axes, panel in zip(grid, panels, strict=True):
        quiet(axes)
        axes.axhline(0, color=look_of(over).colour, linewidth=1.2)
        positions = [at if isinstance(point, str) else float(point) for at, point in enumerate(panel.points)]
        for at, point in zip(positions, panel.points, strict=True):
            if (difference := saved(panel, method, over, point)) is not None:
                _draw_difference(axes, at, difference, look_of(method).colour)
                estimates.append(difference.value)
        if isinstance(panel.points[0], str):
            axes.set_xticks(positions, [number(point).removesuffix(" mph") for point in panel.points])
        else:
            axes.set_xticks(range(0, 24, 3))
            axes.set_xlim(-0.7, 23.7)
        axes.set_xlabel(SWEEPS[panel.along] + (", mph" if panel.along == "speed" else ""), fontsize=8.5, color=INK)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_title(_title(panel), fontsize=10, color=INK, loc="left")
    if estimates:  # wide intervals of few vehicles would leave no room for the others
        grid[0].set_ylim(min(-0.1, min(estimates) - 0.1), max(estimates) + 0.1)
    grid[0].set_ylabel(f"loss of {label_of(method)}\nbelow that of {label_of(over)}", fontsize=8.5, color=INK)
    return figure


def _draw_difference(axes: Axes, at: float, difference: Value, colour: str) -> None:
    known = difference.low is not None and difference.high is not None
    if known:
        axes.vlines(at, difference.low, difference.high, color=colour, linewidth=2.2, alpha=0.45)  # type: ignore[arg-type]  # both are known
    axes.plot(at, difference.value, "o", color=colour, markersize=5, markerfacecolor=colour if known else "white")
