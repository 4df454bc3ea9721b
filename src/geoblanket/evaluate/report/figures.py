"""Figures of a comparison: measures along ε or what else was varied, what is saved, and utility against privacy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from geoblanket._numbers import number
from geoblanket._picture import FAINT, INK, new_figure, quiet, shared_legend
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.report.figure_style import draw_interval, epsilon_axis, label_lines, look_of, say_beside
from geoblanket.evaluate.report.panels import Panel, saved
from geoblanket.evaluate.report.wording import label_of
from geoblanket.evaluate.settings import Varied

__all__ = [
    "PARTS",
    "SWEEPS",
    "gain_by_figure",
    "gain_figure",
    "measure_figure",
    "pareto_figure",
    "pareto_front",
    "trade_off",
]

SWEEPS = {
    "history_weight": "w, what the place before counts (∞: it is known anyway)",
    "eta_km": "η, how far the promise reaches, km",
    "spacing_m": "spacing of places, m",
    "interval_s": "time between reports, s",
    "max_places": "places of a zone, at most",
    Varied.DELAY: "delay before the report is used, intervals",
    Varied.BLANKET: "lengths of blankets",
    Varied.ROWS: "rows of a zone, at most",
    Varied.REPORTS: "T, reports in a row that the attacker sees",
    Varied.HOUR: "hour of day",
    Varied.SPEED: "speed",
}
"""What each quantity that can be varied besides ε is called."""
PARTS = (Varied.HOUR, Varied.SPEED)
"""Those that are parts of the held-out walks, not settings."""

_ALONG_EPSILON = ("epsilon", Varied.EQUAL_COST)
_PANEL_IN, _ROW_IN = 4.8, 2.6
_DOTTED = (0, (2, 2))


def measure_figure(
    panels: Sequence[Panel], measures: Sequence[Measure], *, methods: Sequence[str], blind: bool = False
) -> Figure:
    """Draw measures of some methods along ε, or what else was varied: a column for each city, a row for each measure.

    Parameters
    ----------
    methods
        Keys of the methods to draw.
    blind
        Whether to draw what the same attacker achieves without reports, where it is known.
    """
    figure = new_figure(width_in=_PANEL_IN * len(panels), height_in=0.5 + _ROW_IN * len(measures))
    grid = figure.subplots(len(measures), len(panels), sharex="col", sharey="row", squeeze=False)
    for row, measure in zip(grid, measures, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            _draw_measure(axes, panel, measure, methods, blind=blind)
        label = ", ".join(filter(None, (measure.label, panels[0].unit(measure))))
        row[0].set_ylabel(f"{label}\n({measure.better} is better)", fontsize=8.5, color=INK)
        row[0].set_ylim(0, 1.03 * row[0].get_ylim()[1])
        for axes, panel in zip(row, panels, strict=True):
            series = {method: panel.series(method, measure) for method in methods}
            ends = {method: values[-1][1].value for method, values in series.items() if values}
            _label_ends(axes, ends, height_in=_ROW_IN * 0.8)
    for axes, panel in zip(grid[-1], panels, strict=True):
        if panel.along in _ALONG_EPSILON:
            epsilon_axis(axes, [float(point) for point in panel.points])
        else:
            axes.set_xlabel(SWEEPS[panel.along], fontsize=8.5, color=INK)
    _add_titles(grid[0], panels)
    return figure


def _draw_measure(axes: Axes, panel: Panel, measure: str, methods: Sequence[str], *, blind: bool) -> None:
    quiet(axes)
    along_epsilon = panel.along in _ALONG_EPSILON
    x = {point: float(point) if along_epsilon else float(at) for at, point in enumerate(panel.points)}
    for method in methods:
        series, look = panel.series(method, measure), look_of(method)
        axes.plot(
            [x[point] for point, _ in series], [value.value for _, value in series],
            zorder=4 if method == "lp_cmdp" else 3, **look.line,
        )  # fmt: skip
        for point, value in series:
            draw_interval(axes, x[point], value.interval, look.colour)
    if blind and (guesses := panel.first_series(methods, f"{measure}_prior")):
        at, level = [x[point] for point, _ in guesses], [value.value for _, value in guesses]
        axes.plot(at, level, color=INK, linewidth=1.0, linestyle=_DOTTED, zorder=1)
        say_beside(axes, "without reports", (at[-1], level[-1]), above=along_epsilon)
    if along_epsilon:
        epsilon_axis(axes, list(x.values()), label=False)
    else:
        axes.set_xticks(list(x.values()), [number(point) for point in panel.points])
        axes.margins(x=0.06)


def _label_ends(axes: Axes, ends: dict[str, float], *, height_in: float) -> None:
    """Write the names of methods at the right ends of their lines, given the last values."""
    labels = [(label_of(method), value, look_of(method).colour) for method, value in ends.items()]
    label_lines(axes, labels, height_in=height_in)


def _add_titles(top: Sequence[Axes], panels: Sequence[Panel]) -> None:
    for axes, panel in zip(top, panels, strict=True):
        at = f", ε = {panel.setting['epsilon']:g} per km" if "epsilon" in panel.setting else ""
        axes.set_title(f"{panel.city.title()}{at}", fontsize=10, color=INK, loc="left")


def gain_figure(panels: Sequence[Panel], *, over: str, methods: Sequence[str]) -> Figure:
    """Draw by which share held-out losses are below those of another method, with intervals, a column for each city."""
    figure = new_figure(width_in=_PANEL_IN * len(panels), height_in=3.4)
    grid = _gain_axes(figure, panels, over)
    ends_of: dict[Axes, dict[str, float]] = {}
    for axes, panel in zip(grid, panels, strict=True):
        ends = ends_of[axes] = {over: 0.0}
        for place, method in enumerate(methods):
            gains = [(float(point), value) for point in panel.points if (value := saved(panel, method, over, point))]
            if not gains:
                continue
            # A little apart, so that intervals of methods that are alike do not cover each other.
            aside = 1.035 ** (place - (len(methods) - 1) / 2)
            look = look_of(method)
            axes.plot([at * aside for at, _ in gains], [value.value for _, value in gains], **look.line)
            for at, value in gains:
                draw_interval(axes, at * aside, value.interval, look.colour)
            ends[method] = gains[-1][1].value
        epsilon_axis(axes, [float(point) for point in panel.points])
    grid[0].set_ylabel(f"loss below that of {label_of(over)}\n(above the line is better)", fontsize=8.5, color=INK)
    for axes, ends in ends_of.items():
        _label_ends(axes, ends, height_in=2.7)
    return figure


def gain_by_figure(panels: Sequence[Panel], *, method: str, over: str) -> Figure:
    """Draw by which share a method's loss is below another's for each hour or speed, with intervals.

    Where one vehicle only was there, there is no interval, and the point is hollow.
    """
    figure = new_figure(width_in=4.6 * len(panels), height_in=2.9)
    grid = _gain_axes(figure, panels, over)
    colour = look_of(method).colour
    estimates: list[float] = []
    for axes, panel in zip(grid, panels, strict=True):
        positions = [at if isinstance(point, str) else float(point) for at, point in enumerate(panel.points)]
        for at, point in zip(positions, panel.points, strict=True):
            if (gain := saved(panel, method, over, point)) is not None:
                draw_interval(axes, at, gain.interval, colour, width=2.2)
                face = "white" if gain.interval is None else colour
                axes.plot(at, gain.value, "o", color=colour, markersize=5, markerfacecolor=face)
                estimates.append(gain.value)
        if isinstance(panel.points[0], str):
            axes.set_xticks(positions, [number(point).removesuffix(" mph") for point in panel.points])
        else:
            axes.set_xticks(range(0, 24, 3))
            axes.set_xlim(-0.7, 23.7)
        unit = ", mph" if panel.along == Varied.SPEED else ""
        axes.set_xlabel(f"{SWEEPS[panel.along]}{unit}", fontsize=8.5, color=INK)
    if estimates:  # wide intervals of few vehicles would leave no room for the others
        grid[0].set_ylim(min(-0.1, min(estimates) - 0.1), max(estimates) + 0.1)
    grid[0].set_ylabel(f"loss of {label_of(method)}\nbelow that of {label_of(over)}", fontsize=8.5, color=INK)
    return figure


def _gain_axes(figure: Figure, panels: Sequence[Panel], over: str) -> Sequence[Axes]:
    """Return axes for shares saved, one for each panel, with a line at 0: the other method."""
    grid: Sequence[Axes] = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes in grid:
        quiet(axes)
        axes.axhline(0, color=look_of(over).colour, linewidth=1.2)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _add_titles(grid, panels)
    return grid


def pareto_figure(panels: Sequence[Panel], *, measure: str, name: str, methods: Sequence[str]) -> Figure:
    """Draw the loss against an attacker's error: each method a line along ε, the front of all of them ringed."""
    figure = new_figure(width_in=(_PANEL_IN + 0.4) * len(panels), height_in=4.0)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        quiet(axes)
        error, loss = zip(*(point[:2] for point in pareto_front(panel, measure, methods)), strict=True)
        axes.plot(
            error, loss, linestyle="", marker="o", markersize=11, markerfacecolor="none", markeredgecolor=FAINT,
            markeredgewidth=1.4, zorder=5, label="not beaten in both",
        )  # fmt: skip
        for method in methods:
            points, look = trade_off(panel, method, measure), look_of(method)
            if not points:
                continue
            error, loss, epsilons = zip(*points, strict=True)
            axes.plot(error, loss, label=label_of(method), zorder=4 if method == "lp_cmdp" else 3, **look.line)
            for at, epsilon in zip(zip(error, loss, strict=True), epsilons, strict=True):
                if method == methods[0]:
                    axes.annotate(
                        f"ε = {epsilon:g}", at, (5, -9), textcoords="offset points", fontsize=7, color=look.colour
                    )
        axes.set_xlabel(f"{name}, km (more: more private)", fontsize=8.5, color=INK)
        axes.set_ylabel(f"loss, {panel.unit(Measure.HELD_OUT_LOSS)} (less: more useful)", fontsize=8.5, color=INK)
    _add_titles(grid, panels)
    shared_legend(figure, grid, loc="outside right center")
    return figure


def pareto_front(panel: Panel, measure: str, methods: Sequence[str]) -> list[tuple[float, float, str, float]]:
    """Return what no other method and ε beats both in loss and in the attacker's error.

    Returns
    -------
    front
        Error, loss, method and ε, by ascending error.
    """
    points = [
        (error, loss, method, epsilon)
        for method in methods
        for error, loss, epsilon in trade_off(panel, method, measure)
    ]
    front: list[tuple[float, float, str, float]] = []
    for point in sorted(points, key=lambda point: (-point[0], point[1])):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front[::-1]


def trade_off(panel: Panel, method: str, measure: str) -> list[tuple[float, float, float]]:
    """Return the attacker's error, the loss and ε of a method at each point that has both."""
    return [
        (error, loss, float(epsilon))
        for epsilon in panel.points
        if (error := panel.number(method, measure, epsilon)) is not None
        and (loss := panel.number(method, Measure.HELD_OUT_LOSS, epsilon)) is not None
    ]
