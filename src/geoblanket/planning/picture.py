"""A picture of a plan: the error on the road by how often a guess is right, and how often a recipient is near."""

from __future__ import annotations

from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geoblanket._picture import DASHED, FAINT, INK, new_figure, quiet, shown_figure
from geoblanket.errors import ParameterError
from geoblanket.planning.on_the_road import RADII_M
from geoblanket.planning.plan import Plan, radius_in_words
from geoblanket.planning.schedules import Schedule, every

_SIZE_IN: Final = (10.5, 4.2)
_BY_INTERVAL: Final = ("#1b3a6b", "#2f7dbd", "#43a9a3", "#9ac46a")
_CHOSEN: Final = "#c8442d"
_BARS: Final = ("#c8442d", "#d3d7dc")
_WISHED: Final = "#e9f3e4"


def plan_figure(plan: Plan) -> Figure:
    """Return a figure of a plan."""
    figure = new_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1])
    _draw_both(figure, plan)
    return figure


def plot_plan(plan: Plan, *, ax: Axes | None) -> Axes:
    """Draw a plan for `Plan.plot`."""
    if ax is None:
        return _draw_both(shown_figure(width_in=_SIZE_IN[0], height_in=_SIZE_IN[1]), plan)
    _draw_choice(ax, plan)
    return ax


def _draw_both(figure: Figure, plan: Plan) -> Axes:
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _draw_choice(left, plan)
    _draw_shares(right, plan)
    axes: Axes = left
    return axes


def _draw_choice(axes: Axes, plan: Plan) -> None:
    """Draw the error on the road over how often the best guess is right, and the wishes for both."""
    if plan.road is None or plan.no_report_road is None:
        raise ParameterError("Nothing was simulated, so there is nothing to draw. Plan with roads or a motion model.")
    quiet(axes)
    wishes, schedule = plan.wishes, plan.schedule

    def drawn(schedule: Schedule) -> float:
        return 100 * plan.right_with(schedule)

    blind = plan.no_report_road.error_m / 1000
    if wishes.sure is not None or wishes.road_m is not None:
        axes.fill_between(
            [50, 100 * (wishes.sure or 1)], (wishes.road_m or 2000 * blind) / 1000, color=_WISHED, zorder=0,
            label="what is wished for",
        )  # fmt: skip
    intervals = sorted({rated.schedule.interval_s for rated in plan.grid})
    for colour, interval_s in zip(_BY_INTERVAL, intervals, strict=False):
        line = [rated for rated in plan.grid if rated.schedule.interval_s == interval_s]
        guess, error = [drawn(rated.schedule) for rated in line], [rated.road.error_m / 1000 for rated in line]
        axes.plot(guess, error, "o-", color=colour, markersize=4, linewidth=1.4, label=every(interval_s))
    axes.axhline(blind, color=FAINT, linestyle=DASHED, linewidth=1)
    axes.annotate(
        "without any report", (0.99, blind), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right", fontsize=7.5, color=INK,
    )  # fmt: skip
    axes.plot(
        [drawn(schedule)], [plan.road.error_m / 1000], "*", color=_CHOSEN, markersize=15, markeredgecolor="white",
        zorder=5, label=f"the plan: {every(schedule.interval_s)}, ε = {schedule.epsilon:g}", linestyle="none",
    )  # fmt: skip
    axes.set_xlim(50, 101)
    axes.set_ylim(0, 1.12 * blind)
    apart = f"{wishes.apart_m:,g} m apart, {wishes.for_s / 3600:.3g} h on the road"
    axes.set_xlabel(f"the best guess is right, times in 100 ({apart}; 50: chance)", fontsize=8.5, color=INK)
    axes.set_ylabel("mean error on the road, km", fontsize=8.5, color=INK)
    axes.set_title("What a recipient and what an attacker knows", loc="left", fontsize=9.5, color=INK)
    axes.legend(
        frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3,
        title=f"a report every …, ε = {_listed(plan)} from left to right", title_fontsize=7.5, alignment="left",
    )  # fmt: skip


def _listed(plan: Plan) -> str:
    return ", ".join(f"{epsilon:g}" for epsilon in sorted({rated.schedule.epsilon for rated in plan.grid}))


def _draw_shares(axes: Axes, plan: Plan) -> None:
    """Draw how often a recipient is within some distances."""
    quiet(axes)
    axes.grid(visible=False, axis="x")
    errors = {"with the plan": plan.road, "without any report": plan.no_report_road}
    groups = [(name, each.within) for name, each in errors.items() if each is not None]
    width = 0.8 / len(groups)
    for number, ((name, within), colour) in enumerate(zip(groups, _BARS, strict=False)):
        place = np.arange(len(RADII_M)) + (number - (len(groups) - 1) / 2) * width
        shares = [100 * within[radius] for radius in RADII_M]
        axes.bar(place, shares, 0.92 * width, color=colour, label=name)
        for x, share in zip(place, shares, strict=True):
            axes.text(x, share + 1, f"{share:.0f}", ha="center", fontsize=6.5, color=INK)
    axes.set_xticks(range(len(RADII_M)), [radius_in_words(radius).replace(" (", "\n(") for radius in RADII_M])
    axes.set_ylim(0, 112)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel("% of the time", fontsize=8.5, color=INK)
    axes.set_title("How often a recipient is this near, on the road", loc="left", fontsize=9.5, color=INK)
    axes.legend(frameon=False, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
