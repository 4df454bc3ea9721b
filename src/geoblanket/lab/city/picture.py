"""A picture of the city: districts tinted, the river, the streets, and some walks."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from geoblanket._arrays import Floats
from geoblanket.lab.city.fleet import make_schedule, walk_blocks
from geoblanket.lab.city.gps import positions_at
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import TICK_S
from geoblanket.lab.city.plan import DISTRICTS
from geoblanket.lab.city.streets import to_degrees
from geoblanket.roads.picture import map_figure, plot_map

_TINTS = ("#f3d9c9", "#f4ebd0", "#e4eddc")
_WATER = "#a9cfe6"
_WALKS = ("#4059ad", "#97396b", "#2a7f62", "#6b4e9b", "#b5651d", "#1f7a8c")


def draw_city(city: City, *, trips: int, seed: int) -> Figure:
    """Draw a city and the true routes of some of its trips, each in its own colour, with a dot at every tick."""
    figure, axes = map_figure(city.graph, long_side_in=9.0)
    _draw_districts(axes, city)
    for colour, (lat, lon, ticks) in zip(_WALKS, _some_walks(city, trips, seed, len(_WALKS)), strict=False):
        axes.add_collection(
            LineCollection([np.stack([lon, lat], 1)], colors=colour, linewidths=1.8, alpha=0.9, zorder=3), autolim=False
        )
        axes.scatter(lon[ticks], lat[ticks], s=7, color=colour, zorder=4)
        axes.scatter(lon[:1], lat[:1], s=40, color=colour, edgecolor="white", zorder=4)
    return figure


def plot_city(city: City, *, ax: Axes | None) -> Axes:
    """Draw a city for `City.plot`."""
    axes = plot_map(ax, city.graph.lat, city.graph.lon, roads=city.graph, colour=None)
    _draw_districts(axes, city)
    return axes


def _draw_districts(axes: Axes, city: City) -> None:
    """Draw the districts, which a legend names, and the river, below the roads."""
    around = np.linspace(0.0, 2 * np.pi, 361)
    for number in reversed(range(len(DISTRICTS))):
        reach = city.plan.borders_m[number] * city.plan.stretch(around)
        lat, lon = to_degrees(np.stack([reach * np.cos(around), reach * np.sin(around)], 1))
        axes.fill(lon, lat, color=_TINTS[number], linewidth=0, zorder=0)
    axes.fill(*_river_bank(city), color=_WATER, linewidth=0, zorder=0.5)
    axes.legend(
        handles=[Line2D([], [], color=tint, linewidth=8) for tint in _TINTS],
        labels=list(DISTRICTS),
        loc="upper left",
        frameon=False,
        fontsize=8,
    )


def _river_bank(city: City) -> tuple[Floats, Floats]:
    """Return longitudes and latitudes around the river's water."""
    line = city.plan.river
    along = np.gradient(line, axis=0)
    sideways = np.stack([-along[:, 1], along[:, 0]], 1) / np.hypot(*along.T)[:, None] * city.plan.size.river_m / 2
    lat, lon = to_degrees(np.concatenate([line + sideways, (line - sideways)[::-1]]))
    return lon, lat


def _some_walks(city: City, trips: int, seed: int, count: int) -> list[tuple[Floats, Floats, slice]]:
    """Return true routes of some long trips from different districts, and which of their points are at ticks."""
    walks = next(walk_blocks(city, make_schedule(trips, seed=seed)))
    start = city.district[walks.node[walks.offsets[:-1]]]
    long_enough = np.flatnonzero(walks.ticks >= min(20, int(walks.ticks.max())))
    step_s = 5
    result = []
    for number in range(len(DISTRICTS)):
        for trip in long_enough[start[long_enough] == number][: count // len(DISTRICTS)]:
            after_s = np.arange(0.0, (walks.ticks[trip] - 1) * TICK_S + 1, step_s)
            lat, lon = to_degrees(positions_at(city, walks, np.full(len(after_s), trip), after_s))
            result.append((lat, lon, slice(None, None, TICK_S // step_s)))
    return result
