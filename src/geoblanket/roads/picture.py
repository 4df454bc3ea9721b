"""A picture of a road network: classes by width and colour, to draw other things upon."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket._picture import new_figure
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

__all__ = ["draw_credit", "draw_roads", "draw_scale_bar", "map_figure"]


class _Style(NamedTuple):
    width_pt: float
    colour: str


_STYLES = {
    "motorway": _Style(2.2, "#c8553d"),
    "trunk": _Style(1.9, "#d9793b"),
    "primary": _Style(1.6, "#e0a33a"),
    "secondary": _Style(1.2, "#8a8f98"),
    "tertiary": _Style(0.9, "#a3a8b0"),
}
_OTHER = _Style(0.5, "#c3c7cd")
"""Residential streets and everything below."""

_BACKGROUND = "#fbfaf7"
_INK = "#3c4048"


def draw_roads(axes: Axes, graph: RoadGraph, *, colour: str | None = None, width: float = 1.0) -> None:
    """Draw all roads on `axes` in longitude and latitude, small streets below large ones.

    Draw on top in the same coordinates (x = longitude, y = latitude, degrees); roads have z-order 1.

    Parameters
    ----------
    colour
        One colour for all roads, for a quiet background; by default each class has its own.
    width
        A factor on all line widths.
    """
    offsets, lat, lon = graph.lines()
    points = np.column_stack([lon, lat])
    drawn = graph.one_of_each_road()
    for number in reversed(range(len(ROAD_CLASSES))):
        edges = drawn[graph.road_class[drawn] == number]
        if len(edges):
            style = _style(ROAD_CLASSES[number])
            axes.add_collection(
                LineCollection(
                    [points[offsets[edge] : offsets[edge + 1]] for edge in edges],
                    colors=colour or style.colour,
                    linewidths=style.width_pt * width,
                    capstyle="round",
                    zorder=1,
                ),
                autolim=False,
            )
    _frame(axes, graph)


def _style(name: str) -> _Style:
    main = name.removesuffix("_link")
    style = _STYLES.get(main, _OTHER)
    return style if name == main else style._replace(width_pt=style.width_pt * 0.55)


def _frame(axes: Axes, graph: RoadGraph) -> None:
    margin = 0.02
    south, north, west, east = graph.lat.min(), graph.lat.max(), graph.lon.min(), graph.lon.max()
    pad = margin * max(north - south, (east - west) * np.cos(np.radians((south + north) / 2)), 1e-4)
    axes.set_xlim(west - pad, east + pad)
    axes.set_ylim(south - pad, north + pad)
    axes.set_aspect(1 / np.cos(np.radians((south + north) / 2)))
    axes.set_axis_off()


def draw_scale_bar(axes: Axes) -> None:
    """Draw a bar of a round length, about a fifth of the width, in the lower left corner."""
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    metres_per_degree = np.radians(1.0) * EARTH_RADIUS_M * np.cos(np.radians((south + north) / 2))
    length_m = _round_number((east - west) * metres_per_degree / 5)
    start, height = west + 0.03 * (east - west), south + 0.03 * (north - south)
    end = start + length_m / metres_per_degree
    axes.plot([start, end], [height, height], color=_INK, linewidth=2.5, solid_capstyle="butt", zorder=5)
    axes.annotate(
        f"{length_m / 1000:g} km" if length_m >= 1000 else f"{length_m:g} m",
        ((start + end) / 2, height),
        xytext=(0, 4),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color=_INK,
        zorder=5,
    )


def _round_number(value: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, ... that is not above `value`."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(max(step * power for step in (1, 2, 5) if step * power <= value))


def map_figure(
    graph: RoadGraph,
    *,
    caption: str | None = None,
    colour: str | None = None,
    width: float = 1.0,
    long_side_in: float = 8.0,
) -> tuple[Figure, Axes]:
    """Return a figure in the proportions of the network, with its roads drawn, a scale bar and the credit.

    Parameters
    ----------
    caption
        Words in the lower right corner, before the credit.
    colour, width
        As in `draw_roads`.
    long_side_in
        The longer side of the figure, inches.
    """
    height = graph.lat.max() - graph.lat.min() + 1e-4
    breadth = (graph.lon.max() - graph.lon.min()) * np.cos(np.radians(graph.lat.mean())) + 1e-4
    scale = long_side_in / max(height, breadth)
    figure = new_figure(width_in=max(breadth * scale, 3.0), height_in=max(height * scale, 3.0))
    figure.set_facecolor(_BACKGROUND)
    axes = figure.add_subplot()
    draw_roads(axes, graph, colour=colour, width=width)
    draw_scale_bar(axes)
    draw_credit(axes, graph, caption=caption)
    return figure, axes


def draw_credit(axes: Axes, graph: RoadGraph, *, caption: str | None = None) -> None:
    """Write whose data a graph is in the lower right corner, after a caption if there is one."""
    words = " · ".join(filter(None, (caption, graph.credit)))
    # A dollar sign would start a formula.
    axes.text(
        0.995, 0.005, words.replace("$", r"\$"), transform=axes.transAxes, ha="right", va="bottom", fontsize=7,
        color=_INK, zorder=5,
    )  # fmt: skip
