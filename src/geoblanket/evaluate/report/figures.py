"""Figures of a comparison: how they look, which a report has, and what their captions say.

Each method has one colour, labels stand at the lines, and axes are quiet. Colours are those of Okabe and Ito, which
every kind of eye tells apart; markers and dashes do so in grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from geoblanket._arrays import Floats
from geoblanket._display import Interval, number
from geoblanket._picture import FAINT, INK, new_figure, quiet, shared_legend
from geoblanket.evaluate.measures.catalogue import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure, Value
from geoblanket.evaluate.methods import is_own
from geoblanket.evaluate.report.comparison import IN_USE, PAPER_METHODS, Comparison, label_of
from geoblanket.evaluate.report.panels import Panel, saved
from geoblanket.evaluate.settings import Varied

__all__ = [
    "PARTS",
    "SWEEPS",
    "Look",
    "apart",
    "caption",
    "draw_interval",
    "epsilon_axis",
    "gain_by_figure",
    "gain_figure",
    "label_lines",
    "look_of",
    "make_figures",
    "measure_figure",
    "pareto_figure",
    "pareto_front",
    "say_beside",
    "sweep_name",
    "trade_off",
]


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str = "o"
    dashes: str | tuple[int, tuple[int, int]] = "-"
    width: float = 1.6

    @property
    def line(self) -> dict[str, Any]:
        """How matplotlib is to draw a line with its points."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "linewidth": self.width,
            "marker": self.marker,
            "markersize": 4.5,
        }


_LOOKS = {
    "lp_cmdp": Look("#0072b2", "o", width=2.6),
    "lp_true_mb": Look("#56b4e9", "s", (0, (4, 2))),
    "lp_markov1": Look("#009e73", "^"),
    "lp_cmdp_refined": Look("#0072b2", "o", (0, (1, 2))),
    "lp_cmdp_split": Look("#0072b2", "o", (0, (4, 2))),
    "lp_markov1_refined": Look("#009e73", "^", (0, (1, 2))),
    "lp_markov1_split": Look("#009e73", "^", (0, (4, 2))),
    "lp": Look("#22262d", "D"),
    "constopt": Look("#e69f00", "v"),
    "expmech": Look("#d55e00", "X"),
    "expmech_published": Look("#d55e00", "X", (0, (1, 2))),
    "expmech_remap": Look("#d55e00", "P", (0, (4, 2))),
    "planar_laplace": Look("#cc79a7", "p"),
    "planar_laplace_remap": Look("#cc79a7", "h", (0, (4, 2))),
    "tight": Look("#8a6d3b", "*"),
    "lattice": Look("#332288", "P"),
    "peaks": Look("#8a6d3b", "d", (0, (4, 2))),
}


_OWN = Look("#a21caf", "*", width=2.6)
"""Of users' own methods: they want to see them first."""


def look_of(method: str) -> Look:
    """Return how a method is drawn in every figure."""
    return _OWN if is_own(method) else _LOOKS.get(method, Look(FAINT))


def epsilon_axis(axes: Axes, points: Sequence[float], *, label: bool = True) -> None:
    """Let x be ε, each value as far from its double as from its half."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(points)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    if label:
        axes.set_xlabel("ε per km (more: less private)", fontsize=8.5, color=INK)


def draw_interval(axes: Axes, x: float, interval: Interval | None, colour: str, *, width: float = 1.0) -> None:
    """Draw an interval, where it is known, behind its estimate."""
    if interval is not None:
        axes.vlines(x, interval.low, interval.high, color=colour, linewidth=width, alpha=0.6, zorder=2)


def label_lines(axes: Axes, ends: Sequence[tuple[str, float, str]], *, height_in: float, font: float = 8.0) -> None:
    """Write names at the right of lines, moved apart where they would cover each other.

    Parameters
    ----------
    ends
        Name, last value and colour of each line; call this after the limits of the axes are what they will be.
    height_in
        About how high the axes will be, inches: they are laid out later.
    """
    if not ends:
        return
    transform = axes.transData + axes.transAxes.inverted()
    edge = axes.get_xlim()[1]
    heights = np.array([transform.transform((edge, value))[1] for _, value, _ in ends])
    spread = apart(heights, 1.25 * font / 72 / height_in)
    for (name, _, colour), height, at in zip(ends, heights, spread, strict=True):
        # A line and a text are drawn several times faster than an annotation with an arrow.
        leader = Line2D(
            (1.005, 1.04), (height, at), transform=axes.transAxes, color=colour, linewidth=0.6, clip_on=False
        )  # fmt: skip
        leader.set_in_layout(False)
        axes.add_artist(leader)
        axes.text(1.05, at, name, transform=axes.transAxes, fontsize=font, color=colour, va="center")


def say_beside(axes: Axes, text: str, at: tuple[float, float], *, above: bool = True) -> None:
    """Write what a reference line is, at the right end of it."""
    axes.annotate(
        text, at, (0, 2 if above else -2), textcoords="offset points", fontsize=7.5, color=INK, ha="right",
        va="bottom" if above else "top", zorder=5,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
    )  # fmt: skip


def apart(heights: Floats, least: float) -> Floats:
    """Move heights apart to at least a distance, in their order, each as little as the others allow."""
    order = np.argsort(heights, kind="stable")
    placed = heights[order].astype(np.float64)
    groups = [[height, 1] for height in placed]  # centre and number of neighbours that stand shoulder to shoulder
    merged: list[list[float]] = []
    for centre, count in groups:
        merged.append([centre, count])
        while len(merged) > 1 and merged[-1][0] - merged[-2][0] < least * (merged[-1][1] + merged[-2][1]) / 2:
            (above, more), (below, fewer) = merged.pop(), merged.pop()
            merged.append([(above * more + below * fewer) / (more + fewer), more + fewer])
    result = np.empty(len(heights))
    position = 0
    for centre, count in merged:
        for step in range(int(count)):
            result[order[position]] = centre + least * (step - (count - 1) / 2)
            position += 1
    return result


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


_CAPTIONS = {
    "loss": "The loss on held-out walks against ε, the paper's six methods, with 95 % intervals. Lower is better.",
    "gain": "By how much losses are below that of LP, with 95 % intervals of the difference on the same vehicles.",
    "loss-in-use": "The same for other mechanisms in use today, beside LP and methods with context.",
    "leakage": "Posterior leakage as a share of ε: the worst of any report and pair of places (above), and the mean "
    "(below). At 1 all of the promise is used.",
    "inference": "The best attacker on a single report who knows how probable each place is: how often it names the "
    "right place, and how far off its best guess is.",
    "context-inference": "The same attacker, who also knows the place before.",
    "tracking": "The attacker who follows reports in a row and knows how vehicles move, on held-out walks.",
    "sweep-reports": "What an attacker makes of more reports in a row (above), and the bound that composition gives "
    "for them (below): the cost for a way that is moved all along.",
    "sweep-history-weight": "The price of protecting the past: the loss on held-out walks (above), and how often the "
    "tracking attacker names the right place (below), along w, what the place before counts in distances.",
    "pareto": "Utility against privacy: the loss and the tracking attacker's error. Lines run along ε. Lower right is "
    "better; nothing beats the ringed points in both.",
    "equal-cost": "The loss where all methods cost a location the same over time: methods that use the past get a "
    "smaller ε for each report, because a location counts in later reports, too.",
    "build-time": "Seconds to find the mechanisms of all zones.",
    "one-destination": "The loss of vehicles that are sent to one destination each.",
    "case-ii": "How often the service is mistaken about which vehicle is nearest.",
}
"""What each figure shows; those of what was varied say so themselves."""

_ATTACKS = {"inference": INFERENCE, "context-inference": CONTEXT_INFERENCE, "tracking": TRACKING}
_CASES = {"one destination": "one-destination", "case II": "case-ii"}


def caption(name: str) -> str:
    """Return what a figure shows."""
    if name in _CAPTIONS:
        return _CAPTIONS[name]
    along = next(along for along in SWEEPS if sweep_name(along) == name)
    if along in PARTS:
        return (
            f"What is saved by {SWEEPS[along]}, with 95 % intervals, which may leave the frame. A hollow point is of "
            "one vehicle only, so it has no interval."
        )
    return f"The loss on held-out walks, with 95 % intervals, along: {SWEEPS[along]}."


def sweep_name(along: str) -> str:
    """Return the name of the figure of something that was varied."""
    return f"sweep-{along.removesuffix('_km').removesuffix('_m').removesuffix('_s').replace('_', '-')}"


def make_figures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Yield every figure that results have the numbers for, with its name."""
    main = comparison.main
    if not main:
        return
    of_paper, in_use = _drawn(main, PAPER_METHODS), _drawn(main, IN_USE)
    yield "loss", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=of_paper)
    if any("lp" in panel.methods and len(panel.methods) > 1 for panel in main):
        yield "gain", gain_figure(main, over="lp", methods=[method for method in of_paper if method != "lp"])
    if set(in_use) - set(of_paper):
        yield "loss-in-use", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=in_use)
    yield from _privacy(main, of_paper)
    yield from _sweeps(comparison)
    for loss_case, name in _CASES.items():
        panels = [panel for panel in comparison.other_losses if panel.loss_case == loss_case]
        if panels:
            yield name, measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=_drawn(panels, PAPER_METHODS))
    if any(panel.has(Measure.BUILD_SECONDS) for panel in main):
        yield "build-time", measure_figure(main, [Measure.BUILD_SECONDS], methods=of_paper)


def _privacy(main: Sequence[Panel], methods: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    if any(panel.has(Measure.LEAKAGE_MAX) for panel in main):
        leakages = (Measure.LEAKAGE_MAX, Measure.LEAKAGE_EXPECTED)
        shares = [_share_of_epsilon(panel, leakages) for panel in main]
        yield "leakage", measure_figure(shares, leakages, methods=methods)
    for name, attack in _ATTACKS.items():
        if any(panel.has(attack.success) for panel in main):
            yield name, measure_figure(main, (attack.success, attack.error), methods=methods, blind=True)
    if any(panel.has(TRACKING.error) for panel in main):
        name = "the tracking attacker's error"
        yield "pareto", pareto_figure(main, measure=TRACKING.error, name=name, methods=methods)


def _sweeps(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    if panels := comparison.sweep(Varied.EQUAL_COST):
        yield "equal-cost", measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=_drawn(panels, PAPER_METHODS))
    for along in SWEEPS:
        panels = comparison.sweep(along)
        if not panels:
            continue
        if along in PARTS:
            if (pair := comparison.pair(panels[0])) is not None:
                yield sweep_name(along), gain_by_figure(panels, method=pair[0], over=pair[1])
            continue
        measures = [Measure.HELD_OUT_LOSS]
        if along == Varied.REPORTS:
            measures = [TRACKING.success, Measure.COMPOSED_EPSILON]
        elif along == "history_weight" and panels[0].has(TRACKING.success):
            measures = [Measure.HELD_OUT_LOSS, TRACKING.success]
        varied = [key for key in PAPER_METHODS if any(len(panel.series(key, measures[0])) > 1 for panel in panels)]
        yield sweep_name(along), measure_figure(panels, measures, methods=varied, blind=True)


def _drawn(panels: Sequence[Panel], methods: Sequence[str]) -> list[str]:
    """Return those of the methods that have losses, and the users' own."""
    own = dict.fromkeys(method for panel in panels for method in panel.methods if is_own(method))
    return [
        method for method in (*methods, *own) if any(panel.series(method, Measure.HELD_OUT_LOSS) for panel in panels)
    ]


def _share_of_epsilon(panel: Panel, measures: Sequence[str]) -> Panel:
    values = {
        key: Value(value.measure, value.value / float(key[1]), "")
        for key, value in panel.values.items()
        if key[2] in measures
    }
    return replace(panel, values=values)
