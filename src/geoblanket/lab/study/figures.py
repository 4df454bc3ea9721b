"""Figures and maps of the study: p-values and effects by region, speed and hour, sizes, correlations, density.

Blue means rejected and orange not rejected, which colour-blind readers can tell apart. Figures show numbers of samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from geoblanket._arrays import Indices
from geoblanket._display import counted
from geoblanket._picture import DASHED, INK, new_figure, quiet, shared_legend
from geoblanket.lab.study.group_statistics import FEATURES, OUTCOMES, rank_interval
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import draw_credit, draw_roads, draw_scale_bar
from geoblanket.roads.places import Places
from geoblanket.roads.regions import RegionGrid

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
        The regions, as in the findings' `about`; a grid is drawn as cells, other regions by their places.
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
        if known:  # a count of few samples would disclose single vehicles
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
        Patch(
            facecolor=_UNKNOWN,
            hatch="////" if cells else None,
            edgecolor="#ffffff",
            label="too few samples, or unresolved",
        )
    )
    title = "p-value of the hypothesis\n(blue: rejected at 0.05)"
    axes.legend(handles=patches, title=title, loc="center", frameon=False, fontsize=8, title_fontsize=8)


def _short(p_value: float) -> str:
    return f"{p_value:.2f}" if p_value >= 0.01 else ("< 0.001" if p_value < 0.001 else f"{p_value:.3f}")


REJECTED = "#1f5f9e"
KEPT = "#e08a1e"
_FLOOR = 1e-4
"""Smaller p-values are drawn here, as a triangle."""

_SERIES = ("#1f5f9e", "#e08a1e", "#5a5f69", "#7fb2dd", "#8a4f08")
_MARKERS = ("o", "s", "^", "D", "v")
_DRAWN_GROUPINGS = ("hour", "speed", "region", "hour+region", "hour+speed+region")


def profile_figure(rows: pl.DataFrame, *, x: str, label: str, width: float, alpha: float) -> Figure:
    """Draw p-values (above) and effects (below) of the groups of one feature, a column for each order.

    Parameters
    ----------
    rows
        Tested findings of one grouping.
    x
        The column of the feature.
    label
        Name of the feature, with its unit.
    width
        Of a bin of it; points are drawn in the middle.
    alpha
        The level, drawn as a line.
    """
    orders = rows["m"].unique().sort().to_list()
    figure = new_figure(width_in=2.3 * len(orders) + 0.9, height_in=4.9)
    axes = figure.subplots(2, len(orders), sharex=True, sharey="row", squeeze=False)
    for column, m in enumerate(orders):
        part = rows.filter(pl.col("m") == m).sort(x)
        where = part[x].to_numpy() + width / 2
        top, bottom = axes[:, column]
        _draw_p(top, where, part, alpha)
        top.set_title(f"|B| = {m}", fontsize=10)
        _draw_effect(bottom, where, part)
        bottom.set_xlabel(label, fontsize=8)
    axes[0, 0].set_ylabel("p-value", fontsize=9)
    axes[1, 0].set_ylabel("effect: partial R²", fontsize=9)
    _legend(figure, rows["n"], alpha)
    return figure


def _draw_p(axes: Axes, where: np.ndarray, part: pl.DataFrame, alpha: float) -> None:
    p_value = part["p_value"].to_numpy()
    colour = np.where(p_value <= alpha, REJECTED, KEPT)
    size = _areas(part["n"])
    tiny = p_value < _FLOOR
    for marker, some in (("o", ~tiny), ("v", tiny)):
        axes.scatter(
            where[some], np.maximum(p_value[some], _FLOOR), s=size[some], c=colour[some], marker=marker,
            linewidths=0.4, edgecolors="white", alpha=0.85, zorder=3,
        )  # fmt: skip
    axes.axhline(alpha, color=INK, linewidth=0.8, linestyle=DASHED, zorder=2)
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR / 1.6, 1.6)
    quiet(axes, font=7)


def _draw_effect(axes: Axes, where: np.ndarray, part: pl.DataFrame) -> None:
    effect, colour = part["effect_size"].to_numpy(), np.where(part["rejected"].to_numpy(), REJECTED, KEPT)
    axes.vlines(where, 0, effect, color=colour, linewidth=1.2)
    axes.scatter(where, effect, s=_areas(part["n"]), c=colour, linewidths=0.4, edgecolors="white", zorder=3)
    axes.axhline(0, color=INK, linewidth=0.8)
    quiet(axes, font=7)


def _areas(n: pl.Series) -> np.ndarray:
    """Return marker areas, points², that grow with the number of samples."""
    return np.asarray(8 + 52 * np.clip(n.to_numpy() / 2000, 0, 1))


def _legend(figure: Figure, n: pl.Series, alpha: float) -> None:
    def dot(colour: str, area: float, marker: str = "o") -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, markersize=np.sqrt(area))

    sizes = sorted({int(size) for size in np.quantile(n.to_numpy(), [0, 1])})
    handles = [dot(REJECTED, 36), dot(KEPT, 36), dot(REJECTED, 36, "v")]
    labels = [f"rejected (p ≤ {alpha:g})", "not rejected", f"p < {_FLOOR:g}"]
    for size in sizes:
        handles.append(dot("#9aa0a8", float(_areas(pl.Series([size]))[0])))
        labels.append(f"n = {size:,} samples")
    columns = 5 if figure.get_figwidth() > 8 else 3
    figure.legend(handles=handles, labels=labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=8)


def rejection_figure(tables: Mapping[str, pl.DataFrame], *, alpha: float) -> Figure:
    """Draw the share of rejected hypotheses by order, with 95 % intervals, a panel for each of `tables`.

    Parameters
    ----------
    tables
        By title, tables of `rejection_table`.
    """
    figure = new_figure(width_in=4.4 * len(tables) + 0.4, height_in=3.8)
    axes = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for panel, (title, table) in zip(axes, tables.items(), strict=True):
        for number, by in enumerate(_DRAWN_GROUPINGS):
            part = table.filter(pl.col("by") == by).sort("m")
            at = part["m"].to_numpy() + 0.08 * (number - (len(_DRAWN_GROUPINGS) - 1) / 2)
            share = part["share"].to_numpy()
            reach = np.abs(np.stack([part["low"].to_numpy(), part["high"].to_numpy()]) - share)
            groups = max(part["tested"].to_list(), default=0)
            panel.errorbar(
                at, share, yerr=reach, color=_SERIES[number], linewidth=1.2, elinewidth=0.9, marker=_MARKERS[number],
                markersize=5, label=f"{by}: up to {groups} groups",
            )  # fmt: skip
        panel.axhline(alpha, color=INK, linewidth=0.8, linestyle=DASHED)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("|B|: past locations given", fontsize=9)
        panel.set_xticks(table["m"].unique().sort().to_list())
        panel.set_ylim(-0.03, 1.03)
        quiet(panel, font=7)
    axes[0].set_ylabel("share of hypotheses rejected", fontsize=9)
    shared_legend(figure, axes[:1], ncols=3)
    return figure


def sizes_figure(sizes: pl.DataFrame) -> Figure:
    """Draw which share of the groups of each grouping has a blanket of each size (table of `size_table`)."""
    groupings = sorted(sizes["by"].unique(maintain_order=True), key=lambda by: (by != "all", by.count("+")))
    orders = sizes["order"].unique().sort().to_list()
    figure = new_figure(width_in=7.2, height_in=0.42 * len(groupings) + 1.4)
    axes = figure.add_subplot()
    shades = ("#e8eef4", "#b5d0e8", "#74a9d6", "#2f75b5", "#12395f", "#0a2038")
    for row, by in enumerate(groupings):
        part = sizes.filter(pl.col("by") == by)
        start = 0.0
        for order, groups, share in part.select("order", "groups", "share").iter_rows():
            shade = orders.index(order)
            axes.barh(row, share, left=start, color=shades[shade % len(shades)], edgecolor="white", height=0.75)
            if share > 0.03:
                colour = "white" if shade >= 3 else INK
                axes.text(start + share / 2, row, f"{groups}", ha="center", va="center", fontsize=8, color=colour)
            start += share
    groups_by = {by: int(sizes.filter(pl.col("by") == by)["groups"].sum()) for by in groupings}
    axes.set_yticks(range(len(groupings)), [f"{by} ({counted(groups, 'group')})" for by, groups in groups_by.items()])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of tested groups (numbers: groups)", fontsize=9)
    largest = max(orders)
    handles = [Patch(facecolor=shades[at % len(shades)], edgecolor=INK, linewidth=0.4) for at in range(len(orders))]
    labels = [f"{order}{' or more' if order == largest and largest > 1 else ''}" for order in orders]
    figure.legend(
        handles, labels, title="size of the blanket", title_fontsize=8, fontsize=8, ncols=len(orders),
        loc="outside upper center", frameon=False,
    )  # fmt: skip
    quiet(axes, font=7)
    return figure


def correlation_figure(table: pl.DataFrame, *, paper: Mapping[str, float]) -> Figure:
    """Draw Spearman's correlations of p and of the effect with each feature by order, with 95 % intervals.

    Parameters
    ----------
    table
        Rows of `correlation_table`, one grouping for each feature.
    paper
        The paper's coefficient with p by feature; empty to compare with none.
    """
    some = table.filter(pl.col("measure") == "spearman")
    features = [feature for feature in FEATURES if feature in some["feature"].unique()]
    names = [None, *some["m"].drop_nulls().unique().sort().to_list()]
    figure = new_figure(width_in=2.6 * max(len(features), 2) + 0.8, height_in=5.6)
    axes = figure.subplots(2, len(features), sharex=True, sharey=True, squeeze=False)
    for column, feature in enumerate(features):
        for panel, outcome in zip(axes[:, column], OUTCOMES, strict=True):
            part = some.filter((pl.col("feature") == feature) & (pl.col("outcome") == outcome))
            _draw_correlations(panel, part, names)
            if outcome == "p_value" and feature in paper:
                panel.axvline(paper[feature], color=INK, linestyle=DASHED, linewidth=1.0, label="the paper")
        part = some.filter(pl.col("feature") == feature)
        axes[0, column].set_title(f"{feature}\n{max(part['groups'].to_list())} groups by {part['by'][0]}", fontsize=8.5)
        axes[1, column].set_xlabel("Spearman's correlation", fontsize=8)
    axes[0, 0].set_yticks(range(len(names)), ["mean" if m is None else str(m) for m in names])
    axes[0, 0].invert_yaxis()
    axes[0, 0].set_ylabel("with p;  |B|", fontsize=9)
    axes[1, 0].set_ylabel("with the effect;  |B|", fontsize=9)
    shared_legend(figure, axes.flat, ncols=3)
    return figure


def _draw_correlations(axes: Axes, part: pl.DataFrame, names: list[int | None]) -> None:
    at = np.array([names.index(m) for m in part["m"]])
    for column, shift, colour, filled, label in (
        ("coefficient", -0.14, REJECTED, True, "raw"),
        ("given_n", 0.14, KEPT, False, "given the number of samples"),
    ):
        value = part[column].cast(pl.Float64).to_numpy()
        reach = np.abs(rank_interval(value, part["groups"].to_numpy()) - value)
        axes.errorbar(
            value, at + shift, xerr=reach, linestyle="", color=colour, marker="o",
            markersize=5, markerfacecolor=colour if filled else "white", elinewidth=1.0, label=label,
        )  # fmt: skip
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    quiet(axes, font=7)
