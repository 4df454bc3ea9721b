"""Pictures of roads (by class, also as a background), places, and zones (bands of colour along the roads)."""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import counted
from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket._picture import axes_or_new, new_figure
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.roads.places import Places

if TYPE_CHECKING:
    from geoblanket.roads.zones import Zones

_PALETTE = ("#8ecae6", "#f4b183", "#a3c78b", "#e5a3a6", "#bda9dc", "#f7d98b", "#7fbfb2", "#d9b08c")
_ROAD_COLOUR = "#4a505c"
_BAND_PT = 11.0
"""Width of the coloured band beneath a road."""


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
_QUIET = "#d5d7db"
"""Colour of roads beneath something else."""
_DOT = "#2f4b9b"
_LONG_SIDE_IN = 7.0


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
    frame_map(axes, graph.lat, graph.lon)


def _style(name: str) -> _Style:
    main = name.removesuffix("_link")
    style = _STYLES.get(main, _OTHER)
    return style if name == main else style._replace(width_pt=style.width_pt * 0.55)


def frame_map(axes: Axes, lat: Floats, lon: Floats) -> None:
    """Set the limits of `axes` around points, degrees; a metre is as long northwards as eastwards."""
    margin = 0.02
    south, north, west, east = lat.min(), lat.max(), lon.min(), lon.max()
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
    width_in, height_in = _size_in(graph.lat, graph.lon, long_side_in)
    figure = new_figure(width_in=width_in, height_in=height_in)
    figure.set_facecolor(_BACKGROUND)
    axes = figure.add_subplot()
    draw_map(axes, graph, caption=caption, colour=colour, width=width)
    return figure, axes


def _size_in(lat: Floats, lon: Floats, long_side_in: float) -> tuple[float, float]:
    """Return width and height of a figure in the proportions of a map, inches."""
    height = lat.max() - lat.min() + 1e-4
    breadth = (lon.max() - lon.min()) * np.cos(np.radians(lat.mean())) + 1e-4
    scale = long_side_in / max(height, breadth)
    return max(breadth * scale, 3.0), max(height * scale, 3.0)


def draw_map(
    axes: Axes, graph: RoadGraph, *, caption: str | None = None, colour: str | None = None, width: float = 1.0
) -> None:
    """Draw roads, a scale bar and the credit; the parameters are those of `map_figure`."""
    draw_roads(axes, graph, colour=colour, width=width)
    draw_scale_bar(axes)
    draw_credit(axes, graph, caption=caption)


def plot_map(
    ax: Axes | None, lat: Floats, lon: Floats, *, roads: RoadGraph | None = None, colour: str | None = _QUIET
) -> Axes:
    """Return axes, given or new, framed as a map of some points, with the roads beneath them if there are any."""
    around = (lat, lon) if roads is None else (roads.lat, roads.lon)
    width_in, height_in = _size_in(*around, _LONG_SIDE_IN)
    axes = axes_or_new(ax, width_in=width_in, height_in=height_in)
    if roads is not None:
        draw_map(axes, roads, colour=colour, width=1.0 if colour is None else 0.6)
    else:
        frame_map(axes, lat, lon)
        draw_scale_bar(axes)
    return axes


def plot_roads(graph: RoadGraph, *, ax: Axes | None) -> Axes:
    """Draw roads for `RoadGraph.plot`, by class."""
    axes = plot_map(ax, graph.lat, graph.lon, roads=graph, colour=None)
    classes = [name for name in _STYLES if np.isin(graph.road_class, ROAD_CLASSES.index(name)).any()]
    handles = [Line2D([], [], color=_STYLES[name].colour, linewidth=2) for name in classes]
    axes.legend(
        [*handles, Line2D([], [], color=_OTHER.colour, linewidth=2)], [*classes, "smaller"], loc="upper left",
        fontsize=7, framealpha=0.8, edgecolor="none",
    )  # fmt: skip
    return axes


def plot_places(places: Places, *, ax: Axes | None, roads: RoadGraph | None) -> Axes:
    """Draw places for `Places.plot`."""
    axes = plot_map(ax, places.lat, places.lon, roads=roads)
    axes.scatter(places.lon, places.lat, s=dot_size(len(places)), color=_DOT, linewidths=0, zorder=3)
    axes.set_title(f"{len(places):,} places", loc="left", fontsize=9, color=_INK)
    return axes


def dot_size(count: int) -> float:
    """Return the area of a place's dot in square points; smaller for many places, so that the map stays visible."""
    return float(np.clip(3000 / max(count, 1), 1.5, 10))


def draw_heat(
    axes: Axes, lat: Floats, lon: Floats, value: npt.NDArray[np.number[Any]], *, label: str, limits: tuple[float, float]
) -> None:
    """Draw a dot for each place, darker and larger for larger values, with a colour bar.

    Parameters
    ----------
    lat, lon, value
        Places in ascending order of their values, which are positive, shape (n,).
    limits
        The values at both ends of the colour bar.
    """
    share = np.clip(np.log(value / limits[0]) / np.log(limits[1] / limits[0]), 0, 1)
    dots = axes.scatter(
        lon, lat, s=(2.0 + 22.0 * share**2) * min(1.0, 1500 / len(value)), c=value, norm=LogNorm(*limits),
        cmap="YlOrRd", linewidths=0, zorder=2,
    )  # fmt: skip
    figure = axes.get_figure(root=True)
    if figure is not None:
        bar = figure.colorbar(dots, ax=axes, shrink=0.4, pad=0.01, aspect=25)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)


def draw_credit(axes: Axes, graph: RoadGraph, *, caption: str | None = None) -> None:
    """Write the credit of a graph in the lower right corner, after a caption if there is one."""
    words = " · ".join(filter(None, (caption, graph.credit)))
    # A dollar sign would start a formula.
    axes.text(
        0.995, 0.005, words.replace("$", r"\$"), transform=axes.transAxes, ha="right", va="bottom", fontsize=7,
        color=_INK, zorder=5,
    )  # fmt: skip


def zones_figure(graph: RoadGraph, places: Places, zones: Zones, *, caption: str | None = None) -> Figure:
    """Return a map of the zones with the roads, in the proportions of the network.

    Parameters
    ----------
    caption
        Words in the lower right corner, before the credit.
    """
    figure, axes = map_figure(graph, caption=caption, colour=_ROAD_COLOUR, width=0.45)
    draw_zones(axes, graph, places, zones)
    return figure


def plot_zones(zones: Zones, graph: RoadGraph, places: Places, *, ax: Axes | None) -> Axes:
    """Draw zones for `Zones.plot`."""
    axes = plot_map(ax, graph.lat, graph.lon, roads=graph, colour=_ROAD_COLOUR)
    draw_zones(axes, graph, places, zones)
    axes.set_title(f"{counted(len(zones), 'zone')}, {counted(len(places), 'place')}", loc="left", fontsize=9)
    return axes


def draw_zones(axes: Axes, graph: RoadGraph, places: Places, zones: Zones) -> None:
    """Draw a broad band in the colour of the zone beneath each road (z-order 0).

    Parameters
    ----------
    axes
        Axes in longitude and latitude whose limits are set, as `draw_roads` leaves them.
    """
    offsets, lat, lon = graph.lines()
    points = np.column_stack([lon, lat])
    start = np.delete(np.arange(len(points)), offsets[1:] - 1)
    # Roads cross from zone to zone, so each straight piece is cut in quarters that have the zone of their middle.
    cuts = np.linspace(points[start], points[start + 1], 5)
    bands = np.stack([cuts[:-1], cuts[1:]], axis=2).reshape(-1, 2, 2)
    middle_lon, middle_lat = bands.mean(axis=1).T
    zone = zones.zone[places.nearest(middle_lat, middle_lon)[0]]
    colours = np.array([_colour(number) for number in colour_numbers(len(zones), zones.neighbours)])
    inside = zone >= 0
    axes.add_collection(
        LineCollection(
            list(bands[inside]), colors=colours[zone[inside]], linewidths=_BAND_PT, capstyle="round", zorder=0
        ),
        autolim=False,
    )


def colour_numbers(count: int, neighbours: Indices) -> Ints:
    """Give each of `count` zones a number from 0 that differs from its neighbours', using the first few evenly.

    Zones with many neighbours choose first, each the number least used so far that is free.

    Parameters
    ----------
    neighbours
        Pairs of zones, shape (pairs, 2); a pair may come more than once.
    """
    touching: list[set[int]] = [set() for _ in range(count)]
    for zone_a, zone_b in neighbours.tolist():
        touching[zone_a].add(zone_b)
        touching[zone_b].add(zone_a)
    used = [0] * len(_PALETTE)
    numbers = np.full(count, -1)
    for zone in sorted(range(count), key=lambda zone: (-len(touching[zone]), zone)):
        taken = {int(numbers[zone_b]) for zone_b in touching[zone]}
        free = [number for number in range(len(used)) if number not in taken]
        if not free:
            free = [len(used)]
            used.append(0)
        numbers[zone] = min(free, key=lambda number: (used[number], number))
        used[numbers[zone]] += 1
    return numbers


def _colour(number: int) -> tuple[float, float, float]:
    if number < len(_PALETTE):
        return to_rgb(_PALETTE[number])
    return colorsys.hls_to_rgb(number * 0.618 % 1, 0.72, 0.5)
