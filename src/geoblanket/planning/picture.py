"""A picture of a plan: the error on the road by the cost of an hour, and how often a recipient is near."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geoblanket._picture import DASHED, FAINT, INK, new_figure, quiet, shown_figure
from geoblanket.planning.on_the_road import RADII_M
from geoblanket.planning.schedules import every
from geoblanket.planning.search import Plan, radius_in_words

__all__ = ["plan_figure", "plot_plan"]

_SIZE_IN: Final = (10.5, 4.2)
_BY_INTERVAL: Final = ("#1b3a6b", "#2f7dbd", "#43a9a3", "#9ac46a")
_CHOSEN: Final = "#c8442d"
_BARS: Final = ("#c8442d", "#d3d7dc")


def plan_figure(plan: Plan) -> Figure:
    """Return a figure of a plan."""
    figure = new_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1])
    _draw_both(figure, plan)
    return figure


def plot_plan(plan: Plan, *, ax: Axes | None) -> Axes:
    """Draw a plan for `Plan.plot`."""
    if ax is None:
        return _draw_both(shown_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1]), plan)
    _draw_budgets(ax, plan)
    return ax


def _draw_both(figure: Figure, plan: Plan) -> Axes:
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_budgets(left, plan)
    _draw_shares(right, plan)
    axes: Axes = left
    return axes


def _draw_budgets(axes: Axes, plan: Plan) -> None:
    """Draw the error on the road over the cost of an hour."""
    quiet(axes)
    intervals = sorted({rated.schedule.interval_s for rated in plan.grid})
    for colour, interval_s in zip(_BY_INTERVAL, intervals, strict=False):
        line = [rated for rated in plan.grid if rated.schedule.interval_s == interval_s]
        hour, error = [rated.schedule.hour for rated in line], [rated.road.error_m / 1000 for rated in line]
        axes.plot(hour, error, "o-", color=colour, markersize=4, linewidth=1.4, label=every(interval_s))
    blind = plan.no_report_road.error_m / 1000
    axes.axhline(blind, color=FAINT, linestyle=DASHED, linewidth=1)
    axes.annotate(
        "without any report", (0.99, blind), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right", fontsize=7.5, color=INK,
    )  # fmt: skip
    schedule, error_m = plan.recommended.schedule, plan.recommended.road.error_m / 1000
    axes.plot(
        [schedule.hour], [error_m], "*", color=_CHOSEN, markersize=15, markeredgecolor="white", zorder=5,
        label=f"the plan: {every(schedule.interval_s)}, ε = {schedule.epsilon:g}", linestyle="none",
    )  # fmt: skip
    axes.set_xscale("log")
    ticks = np.array([10, 30, 100, 300, 1000])
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.12 * blind)
    axes.set_xlabel("an hour on the road costs, ε per km", fontsize=8.5, color=INK)
    axes.set_ylabel("mean error on the road, km", fontsize=8.5, color=INK)
    axes.set_title("What an hour buys, by the time between reports", loc="left", fontsize=9.5, color=INK)
    axes.legend(
        frameon=False, fontsize=7.5, loc="upper right", bbox_to_anchor=(1, 0.88),
        title=f"a report every …, ε = {_listed(plan)} from left to right", title_fontsize=7.5, alignment="left",
    )  # fmt: skip


def _listed(plan: Plan) -> str:
    return ", ".join(f"{epsilon:g}" for epsilon in sorted({rated.schedule.epsilon for rated in plan.grid}))


def _draw_shares(axes: Axes, plan: Plan) -> None:
    """Draw how often a recipient is within some distances."""
    quiet(axes)
    axes.grid(visible=False, axis="x")
    groups = (("with the plan", plan.recommended.road.within), ("without any report", plan.no_report_road.within))
    width = 0.8 / len(groups)
    for number, ((name, within), colour) in enumerate(zip(groups, _BARS, strict=True)):
        place = np.arange(len(RADII_M)) + (number - (len(groups) - 1) / 2) * width
        shares = [100 * within[radius] for radius in RADII_M]
        axes.bar(place, shares, 0.92 * width, color=colour, label=name)
        for x, share in zip(place, shares, strict=True):
            axes.text(x, share + 1, f"{share:.0f}", ha="center", fontsize=6.5, color=INK)
    axes.set_xticks(range(len(RADII_M)), [radius_in_words(radius).replace(" (", "\n(") for radius in RADII_M])
    axes.set_ylim(0, 112)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel("% of the time", fontsize=8.5, color=INK)
    axes.set_title("How often a recipient is within, on the road", loc="left", fontsize=9.5, color=INK)
    axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
