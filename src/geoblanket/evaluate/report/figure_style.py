"""How the figures of a comparison look: one colour for each method, labels at the lines, quiet axes.

Colours are those of Okabe and Ito, which every kind of eye tells apart; markers and dashes do so in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from geoblanket._arrays import Floats
from geoblanket._numbers import Interval
from geoblanket._picture import FAINT, INK
from geoblanket.evaluate.methods import is_own

__all__ = ["Look", "apart", "draw_interval", "epsilon_axis", "label_lines", "look_of", "say_beside"]


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
        for number in range(int(count)):
            result[order[position]] = centre + least * (number - (count - 1) / 2)
            position += 1
    return result
