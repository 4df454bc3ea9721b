"""Figures of a comparison: any measure along ε, what was varied, and utility against the attacker's error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from geoblanket._picture import new_figure
from geoblanket.evaluate.report.figure_style import (
    FAINT,
    INK,
    draw_series,
    epsilon_axis,
    label_lines,
    label_of,
    look_of,
    quiet,
    say_beside,
)
from geoblanket.evaluate.report.panels import Panel, saved

__all__ = ["along_epsilon", "gain_figure", "pareto_figure", "pareto_front", "trade_off"]

_PANEL_IN, _LABELS_IN, _ROW_IN = 3.3, 1.5, 2.6


def along_epsilon(
    panels: Sequence[Panel],
    rows: Sequence[tuple[str, str]],
    *,
    methods: Sequence[str],
    promise: Sequence[str] = (),
    without_report: bool = False,
) -> Figure:
    """Draw measures of some methods along ε: a column for each city, a row for each measure.

    Parameters
    ----------
    rows
        Each measure, and what it is called; its unit is added.
    methods
        Keys of the methods to draw.
    promise
        Measures beside which ε itself is drawn: what is promised.
    without_report
        Whether to draw what the same attacker achieves without reports, where it is known.
    """
    figure = new_figure(width_in=(_PANEL_IN + _LABELS_IN) * len(panels), height_in=0.5 + _ROW_IN * len(rows))
    grid = figure.subplots(len(rows), len(panels), sharex="col", sharey="row", squeeze=False)
    for row, (measure, name) in enumerate(rows):
        for axes, panel in zip(grid[row], panels, strict=True):
            _draw_along_epsilon(axes, panel, measure, methods, promise=measure in promise, prior=without_report)
            epsilon_axis(axes, [float(point) for point in panel.points], label=row == len(rows) - 1)
        unit = panels[0].unit(measure)
        grid[row, 0].set_ylabel(f"{name}, {unit}" if unit else name, fontsize=8.5, color=INK)
        grid[row, 0].set_ylim(0, 1.03 * grid[row, 0].get_ylim()[1])
        for axes, panel in zip(grid[row], panels, strict=True):
            series = {method: panel.series(method, measure) for method in methods}
            ends = [
                (label_of(one), values[-1][1].value, look_of(one).colour) for one, values in series.items() if values
            ]
            label_lines(axes, ends, height_in=_ROW_IN * 0.8)
    _name_cities(grid[0], panels)
    return figure


def gain_figure(panels: Sequence[Panel], *, over: str, methods: Sequence[str]) -> Figure:
    """Draw by which share held-out losses are below those of another method, with intervals, a column for each city."""
    figure = new_figure(width_in=(_PANEL_IN + _LABELS_IN) * len(panels), height_in=3.4)
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    ends_of: dict[Axes, list[tuple[str, float, str]]] = {}
    for axes, panel in zip(grid, panels, strict=True):
        quiet(axes)
        axes.axhline(0, color=look_of(over).colour, linewidth=1.2)
        ends = ends_of[axes] = [(label_of(over), 0.0, look_of(over).colour)]
        for number, method in enumerate(methods):
            found = [(float(point), value) for point in panel.points if (value := saved(panel, method, over, point))]
            if not found:
                continue
            look = look_of(method)
            # A little apart, so that intervals of methods that are alike do not cover each other.
            x = np.array([at for at, _ in found]) * 1.035 ** (number - (len(methods) - 1) / 2)
            y = np.array([value.value for _, value in found])
            axes.plot(
                x, y, color=look.colour, linestyle=look.dashes, linewidth=look.width, marker=look.marker, markersize=4.5
            )
            low, high = (
                np.array([math.nan if bound is None else bound for bound in bounds])
                for bounds in zip(*((value.low, value.high) for _, value in found), strict=True)
            )
            axes.vlines(x, low, high, color=look.colour, linewidth=1.0, alpha=0.6)
            ends.append((label_of(method), float(y[-1]), look.colour))
        epsilon_axis(axes, [float(point) for point in panel.points])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _name_cities(grid, panels)
    grid[0].set_ylabel(f"loss below that of {label_of(over)}\n(above the line is better)", fontsize=8.5, color=INK)
    for axes, ends in ends_of.items():
        label_lines(axes, ends, height_in=2.7)
    return figure


def pareto_figure(panels: Sequence[Panel], *, measure: str, name: str, methods: Sequence[str]) -> Figure:
    """Draw the loss against an attacker's error: each method a line along ε, the front of all of them shaded."""
    figure = new_figure(width_in=(_PANEL_IN + _LABELS_IN + 0.4) * len(panels), height_in=4.0)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        quiet(axes)
        _draw_front(axes, panel, measure, methods)
        for method in methods:
            points = trade_off(panel, method, measure)
            if not points:
                continue
            look = look_of(method)
            x, y = np.array([(error, loss) for error, loss, _ in points]).T
            axes.plot(
                x, y, color=look.colour, linestyle=look.dashes, linewidth=look.width, marker=look.marker,
                markersize=4.5, label=label_of(method), zorder=4 if method == "lp_cmdp" else 3,
            )  # fmt: skip
            if method == methods[0]:
                for error, loss, epsilon in points:
                    axes.annotate(
                        f"ε = {epsilon:g}",
                        (error, loss),
                        (5, -9),
                        textcoords="offset points",
                        fontsize=7,
                        color=look.colour,
                    )
        axes.set_xlabel(f"{name}, km (more: more private)", fontsize=8.5, color=INK)
        axes.set_ylabel(f"loss, {panel.unit('held_out_loss')} (less: more useful)", fontsize=8.5, color=INK)
    _name_cities(grid, panels)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
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
    for point in sorted(points, key=lambda one: (-one[0], one[1])):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front[::-1]


def _name_cities(top: Sequence[Axes], panels: Sequence[Panel]) -> None:
    for axes, panel in zip(top, panels, strict=True):
        axes.set_title(panel.city.title(), fontsize=10, color=INK, loc="left")


def trade_off(panel: Panel, method: str, measure: str) -> list[tuple[float, float, float]]:
    """Return the attacker's error, the loss and ε of a method at each point that has both."""
    return [
        (error, loss, float(epsilon))
        for epsilon in panel.points
        if (error := panel.number(method, measure, epsilon)) is not None
        and (loss := panel.number(method, "held_out_loss", epsilon)) is not None
    ]


def _draw_front(axes: Axes, panel: Panel, measure: str, methods: Sequence[str]) -> None:
    error, loss = (np.array([point[index] for point in pareto_front(panel, measure, methods)]) for index in (0, 1))
    axes.plot(
        error, loss, linestyle="", marker="o", markersize=11, markerfacecolor="none", markeredgecolor=FAINT,
        markeredgewidth=1.4, zorder=5, label="not beaten in both",
    )  # fmt: skip


def _draw_along_epsilon(
    axes: Axes, panel: Panel, measure: str, methods: Sequence[str], *, promise: bool, prior: bool
) -> None:
    quiet(axes)
    for method in methods:
        draw_series(axes, panel, method, measure)
    points = [float(point) for point in panel.points]
    if promise:
        axes.plot(points, points, color=INK, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
        say_beside(axes, "ε, the promise", (points[-1], points[-1]))
    guess = next((series for method in methods if (series := panel.series(method, f"{measure}_prior"))), [])
    if prior and guess:
        level = float(np.mean([value.value for _, value in guess]))
        axes.axhline(level, color=INK, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
        say_beside(axes, "without reports", (points[-1], level))
