"""Figures of a comparison and their captions.

Each method has one colour in all figures. The colours are Okabe and Ito's, which colour-blind readers can tell apart;
markers and dashes distinguish methods in grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from geoblanket._display import city_name, number
from geoblanket._picture import FAINT, INK, new_figure, quiet, shared_legend
from geoblanket.lab.evaluate.experiment import Varied
from geoblanket.lab.evaluate.measures import CONTEXT_INFERENCE, INFERENCE, TRACKING, Measure, Value
from geoblanket.lab.evaluate.methods import is_own
from geoblanket.lab.evaluate.panels import IN_USE, PAPER_METHODS, Comparison, Panel, label_of, saved


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    marker: str = "o"
    dashes: str | tuple[int, tuple[int, int]] = "-"
    width: float = 1.6

    @property
    def line(self) -> dict[str, Any]:
        """Arguments for Matplotlib to draw a line with its points."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "linewidth": self.width,
            "marker": self.marker,
            "markersize": 4.5,
        }


_DOTTED, _DASHED = (0, (1, 2)), (0, (4, 2))
_LOOKS = {
    "lp_cmdp": Look("#0072b2", "o", width=2.6),
    "lp_true_mb": Look("#56b4e9", "s", _DASHED),
    "lp_markov1": Look("#009e73", "^"),
    "lp_order2": Look("#009e73", "^", _DOTTED),
    "lp_order3": Look("#009e73", "^", _DASHED),
    "lp": Look("#22262d", "D"),
    "constopt": Look("#e69f00", "v"),
    "constopt_peaks": Look("#e69f00", "v", _DOTTED),
    "expmech": Look("#d55e00", "X"),
    "expmech_published": Look("#d55e00", "X", _DOTTED),
    "expmech_remap": Look("#d55e00", "P", _DASHED),
    "tem": Look("#d55e00", "1", _DASHED),
    "planar_laplace": Look("#cc79a7", "p"),
    "planar_laplace_remap": Look("#cc79a7", "h", _DASHED),
    "tight": Look("#8a6d3b", "*"),
    "lattice": Look("#332288", "P"),
    "peaks": Look("#8a6d3b", "d", _DASHED),
}
_OWN = Look("#a21caf", "*", width=2.6)
"""Of users' own methods, which should stand out."""


def look_of(method: str) -> Look:
    """Return how a method is drawn in every figure."""
    return _OWN if is_own(method) else _LOOKS.get(method, Look(FAINT))


SWEEPS = {
    "history_weight": "w, weight of the place before (∞: it is known anyway)",
    "eta_km": "η, how far the promise reaches, km",
    "spacing_m": "spacing of places, m",
    "interval_s": "time between reports, s",
    "max_places": "places of a zone, at most",
    Varied.DELAY: "delay before the report is used, intervals",
    Varied.BLANKET: "lengths of blankets",
    Varied.ROWS: "rows of a zone, at most",
    Varied.REPORTS: "T, reports in a row that the attacker sees",
}
"""Names of the quantities that can vary besides ε."""
_ALONG_EPSILON = ("epsilon", Varied.EQUAL_COST)
_PANEL_IN, _ROW_IN = 4.8, 2.6


def measure_figure(
    panels: Sequence[Panel], measures: Sequence[Measure], *, methods: Sequence[str], blind: bool = False
) -> Figure:
    """Draw measures of some methods along ε or another quantity: a column for each city, a row for each measure.

    Parameters
    ----------
    methods
        Keys of the methods to draw.
    blind
        Whether to draw the same attacker without reports, where it is known.
    """
    figure = new_figure(width_in=_PANEL_IN * len(panels), height_in=1.0 + _ROW_IN * len(measures))
    grid = figure.subplots(len(measures), len(panels), sharex="col", sharey="row", squeeze=False)
    for row, measure in zip(grid, measures, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            _draw_measure(axes, panel, measure, methods, blind=blind)
        label = ", ".join(filter(None, (measure.label, panels[0].unit(measure))))
        row[0].set_ylabel(f"{label}\n({measure.better} is better)", fontsize=8.5, color=INK)
        if measure is Measure.SAVED:
            row[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            shares = [value.value for panel in panels for value in panel.values.values()] or [0.0]
            row[0].set_ylim(min(shares) - 0.1, max(shares) + 0.1)  # intervals of few vehicles may leave the frame
        else:
            row[0].set_ylim(0, 1.03 * row[0].get_ylim()[1])
    for axes, panel in zip(grid[-1], panels, strict=True):
        along = "ε per km (more: less private)" if panel.along in _ALONG_EPSILON else SWEEPS[panel.along]
        axes.set_xlabel(along, fontsize=8.5, color=INK)
    _add_titles(grid[0], panels)
    shared_legend(figure, grid.flat, ncols=4)
    return figure


def _draw_measure(axes: Axes, panel: Panel, measure: Measure, methods: Sequence[str], *, blind: bool) -> None:
    quiet(axes)
    along_epsilon = panel.along in _ALONG_EPSILON
    x = {point: float(point) if along_epsilon else float(at) for at, point in enumerate(panel.points)}
    if measure is Measure.SAVED:
        axes.axhline(0, color=INK, linewidth=1.2)
    for method in methods:
        series, look = panel.series(method, measure), look_of(method)
        if not series:
            continue
        at, values = [x[point] for point, _ in series], [value.value for _, value in series]
        axes.plot(at, values, zorder=4 if method == "lp_cmdp" else 3, label=label_of(method), **look.line)
        for point, value in series:
            if value.interval is not None:
                ends = value.interval.low, value.interval.high
                axes.vlines(x[point], *ends, color=look.colour, linewidth=1.0, alpha=0.6, zorder=2)
    if blind and (guesses := panel.first_series(methods, f"{measure}_prior")):
        at, level = [x[point] for point, _ in guesses], [value.value for _, value in guesses]
        axes.plot(at, level, color=INK, linewidth=1.0, linestyle=_DOTTED, zorder=1, label="without reports")
    if along_epsilon:
        _epsilon_axis(axes, list(x.values()))
    else:
        axes.set_xticks(list(x.values()), [number(point) for point in panel.points])


def _epsilon_axis(axes: Axes, points: Sequence[float]) -> None:
    """Draw ε on a logarithmic axis."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(points)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def _add_titles(top: Sequence[Axes], panels: Sequence[Panel]) -> None:
    for axes, panel in zip(top, panels, strict=True):
        at = f", ε = {panel.setting['epsilon']:g} per km" if "epsilon" in panel.setting else ""
        axes.set_title(f"{city_name(panel.city)}{at}", fontsize=10, color=INK, loc="left")


def _saved(panels: Sequence[Panel], over: str, methods: Sequence[str]) -> list[Panel]:
    """Return panels of the shares by which losses of some methods are below another's."""
    values = (
        {
            (method, point, str(Measure.SAVED)): value
            for method in methods
            for point in panel.points
            if (value := saved(panel, method, over, point)) is not None
        }
        for panel in panels
    )
    return [replace(panel, values=some) for panel, some in zip(panels, values, strict=True)]


def _pareto_figure(panels: Sequence[Panel], methods: Sequence[str]) -> Figure:
    """Draw the loss against the tracking attacker's error, each method a line along ε."""
    figure = new_figure(width_in=_PANEL_IN * len(panels), height_in=4.0)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        quiet(axes)
        for method in methods:
            points = [
                (panel.number(method, TRACKING.error, point), panel.number(method, Measure.HELD_OUT_LOSS, point))
                for point in panel.points
            ]
            known = [point for point in points if None not in point]
            if known:
                axes.plot(*zip(*known, strict=True), label=label_of(method), **look_of(method).line)
        axes.set_xlabel("the tracking attacker's error, km (more: more private)", fontsize=8.5, color=INK)
        axes.set_ylabel(f"loss, {panel.unit(Measure.HELD_OUT_LOSS)} (less: more useful)", fontsize=8.5, color=INK)
    _add_titles(grid, panels)
    shared_legend(figure, grid, ncols=4)
    return figure


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
    "sweep-reports": "How often an attacker is right from more reports in a row (above), and their cost by composition "
    "(below), for a trajectory that is shifted as a whole.",
    "sweep-history-weight": "The price of protecting the past: the loss on held-out walks (above), and how often the "
    "tracking attacker names the right place (below), along w, the weight of the place before in distances.",
    "pareto": "Utility against privacy: the loss and the tracking attacker's error. Lines run along ε; lower right is "
    "better.",
    "equal-cost": "The loss where all methods cost a location the same over time: methods that use the past get a "
    "smaller ε for each report, because a location counts in later reports, too.",
    "build-time": "Seconds to find the mechanisms of all zones.",
    "one-destination": "The loss of vehicles that are sent to one destination each.",
    "case-ii": "How often the service is mistaken about which vehicle is nearest.",
    "straight-line": "The loss in straight lines.",
    "population": "The loss of vehicles that are sent anywhere.",
}
"""Captions of the figures; `caption` writes those of varied quantities."""

_ATTACKS = {"inference": INFERENCE, "context-inference": CONTEXT_INFERENCE, "tracking": TRACKING}


def caption(name: str) -> str:
    """Return the caption of a figure."""
    if name in _CAPTIONS:
        return _CAPTIONS[name]
    along = next(along for along in SWEEPS if sweep_name(along) == name)
    return f"The loss on held-out walks, with 95 % intervals, along: {SWEEPS[along]}."


def sweep_name(along: str) -> str:
    """Return the name of the figure of a varied quantity."""
    return f"sweep-{along.removesuffix('_km').removesuffix('_m').removesuffix('_s').replace('_', '-')}"


def case_name(loss_case: str) -> str:
    """Return the name of the figure of another kind of loss."""
    return loss_case.lower().replace(" ", "-")


def make_figures(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    """Yield each figure for which there are results, with its name."""
    main = comparison.main
    if not main:
        return
    of_paper, in_use = _drawn(main, PAPER_METHODS), _drawn(main, IN_USE)
    yield "loss", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=of_paper)
    if any("lp" in panel.methods and len(panel.methods) > 1 for panel in main):
        others = [method for method in of_paper if method != "lp"]
        yield "gain", measure_figure(_saved(main, "lp", others), [Measure.SAVED], methods=others)
    if set(in_use) - set(of_paper):
        yield "loss-in-use", measure_figure(main, [Measure.HELD_OUT_LOSS], methods=in_use)
    yield from _privacy(main, of_paper)
    yield from _sweeps(comparison)
    for loss_case in dict.fromkeys(panel.loss_case for panel in comparison.other_losses):
        panels = [panel for panel in comparison.other_losses if panel.loss_case == loss_case]
        methods = _drawn(panels, PAPER_METHODS)
        yield case_name(loss_case), measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=methods)
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
        yield "pareto", _pareto_figure(main, methods)


def _sweeps(comparison: Comparison) -> Iterator[tuple[str, Figure]]:
    if panels := comparison.sweep(Varied.EQUAL_COST):
        yield "equal-cost", measure_figure(panels, [Measure.HELD_OUT_LOSS], methods=_drawn(panels, PAPER_METHODS))
    for along in SWEEPS:
        panels = comparison.sweep(along)
        if not panels:
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
