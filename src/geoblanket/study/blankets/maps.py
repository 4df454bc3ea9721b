"""Heat maps: the p-value of each region on the map, a panel for each order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from geoblanket._arrays import Indices
from geoblanket._picture import INK, new_figure
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import draw_credit, draw_roads, draw_scale_bar
from geoblanket.roads.places import Places
from geoblanket.roads.regions import RegionGrid

__all__ = ["heat_maps"]

_EDGES = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
_COLOURS = ListedColormap(["#12395f", "#2f75b5", "#9cc3e4", "#fbe6c4", "#f2b45c", "#cf7a14"])
"""Blues are rejected at 0.05, oranges not."""
_UNKNOWN = "#eceded"
_FEW_SAMPLES = {"facecolor": _UNKNOWN, "alpha": 0.5, "hatch": "////"}


def heat_maps(
    rows: pl.DataFrame, graph: RoadGraph, places: Places, region: Indices, *, regions: Mapping[str, Any]
) -> Figure:
    """Draw the p-values of regions on the road network.

    Parameters
    ----------
    rows
        All findings by region.
    graph, places
        The roads, and the places on them.
    region
        The region of each place, -1 for none.
    regions
        What the regions are, as in the findings' `about`; a grid is drawn as cells, other regions by their places.
    """
    grid = RegionGrid(**{k: v for k, v in regions.items() if k != "kind"}) if regions["kind"] == "grid" else None
    orders = rows["m"].unique().sort().to_list()
    box = _box(graph, grid)
    aspect = (box[1] - box[0]) / ((box[3] - box[2]) * np.cos(np.radians((box[0] + box[1]) / 2)))
    across = min(len(orders), 3)
    down = -(-(len(orders) + 1) // across)
    figure = new_figure(width_in=3.5 * across, height_in=3.5 * down * float(np.clip(aspect, 0.5, 1.6)) + 0.3 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, m in zip(panels, orders, strict=False):
        _draw_map(axes, graph, box)
        part = rows.filter(pl.col("m") == m)
        if grid is not None:
            _draw_cells(axes, part, grid)
        else:
            _draw_places(axes, part, places, region)
        axes.set_title(f"|B| = {m}", fontsize=10)
    for axes in panels[len(orders) :]:
        axes.set_axis_off()
    _draw_key(panels[len(orders)], grid is not None)
    draw_scale_bar(panels[0])
    draw_credit(panels[0], graph)
    return figure


def _box(graph: RoadGraph, grid: RegionGrid | None) -> tuple[float, float, float, float]:
    if grid is not None:
        return grid.south, grid.north, grid.west, grid.east
    return float(graph.lat.min()), float(graph.lat.max()), float(graph.lon.min()), float(graph.lon.max())


def _draw_map(axes: Axes, graph: RoadGraph, box: tuple[float, float, float, float]) -> None:
    draw_roads(axes, graph, colour="#b4b8bf", width=0.35)
    axes.set_rasterization_zorder(1.5)
    south, north, west, east = box
    margin = 0.02 * max(north - south, east - west)
    axes.set_xlim(west - margin, east + margin)
    axes.set_ylim(south - margin, north + margin)


def _shade(p_value: float) -> str:
    return to_hex(_COLOURS(BoundaryNorm(_EDGES, _COLOURS.N)(min(max(p_value, 0.0), 1 - 1e-9))))


def _draw_cells(axes: Axes, part: pl.DataFrame, grid: RegionGrid) -> None:
    for region, p_value, n in part.select("region", "p_value", "n").iter_rows():
        south, north, west, east = grid.bounds(region)
        known = p_value is not None
        look: dict[str, Any] = {"facecolor": _shade(p_value), "alpha": 0.78} if known else _FEW_SAMPLES
        axes.add_patch(
            Rectangle((west, south), east - west, north - south, edgecolor="white", linewidth=1.0, zorder=2, **look)
        )
        if known:  # else a count of a few samples would tell about single vehicles
            axes.text(
                (west + east) / 2, (south + north) / 2, f"p {_short(p_value)}\nn {n:,}", ha="center", va="center",
                fontsize=6.5, color=INK, zorder=4,
                bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "boxstyle": "round,pad=0.2"},
            )  # fmt: skip


def _draw_places(axes: Axes, part: pl.DataFrame, places: Places, region: Indices) -> None:
    known = {number: p_value for number, p_value in part.select("region", "p_value").iter_rows() if p_value is not None}
    colours = [_shade(known[number]) if number in known else _UNKNOWN for number in region.tolist()]
    axes.scatter(places.lon, places.lat, s=5, c=colours, linewidths=0, zorder=2)


def _draw_key(axes: Axes, cells: bool) -> None:
    names = [f"{low:g} < p ≤ {high:g}" for low, high in pairwise(_EDGES)]
    names[0] = f"p ≤ {_EDGES[1]:g}"
    patches = [Patch(facecolor=to_hex(_COLOURS(number)), label=name) for number, name in enumerate(names)]
    patches.append(
        Patch(facecolor=_UNKNOWN, hatch="////" if cells else None, edgecolor="#ffffff", label="too few samples")
    )
    title = "p-value of the hypothesis\n(blue: rejected at 0.05)"
    axes.legend(handles=patches, title=title, loc="center", frameon=False, fontsize=8, title_fontsize=8)


def _short(p_value: float) -> str:
    return f"{p_value:.2f}" if p_value >= 0.01 else ("< 0.001" if p_value < 0.001 else f"{p_value:.3f}")
