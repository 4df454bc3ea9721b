"""A picture of zones: areas of colour, neighbours in different ones, with the roads upon them."""

from __future__ import annotations

import colorsys

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy.ndimage import distance_transform_edt

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._display import counted
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.picture import map_figure, plot_map
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones

__all__ = ["colour_numbers", "draw_zones", "plot_zones", "zones_figure"]

_PALETTE = ("#8ecae6", "#f4b183", "#a3c78b", "#e5a3a6", "#bda9dc", "#f7d98b", "#7fbfb2", "#d9b08c")
_ROAD_COLOUR = "#4a505c"
_PIXELS = 1200
"""Pixels of the coloured areas along the longer side."""
_REACH_PIXELS = 14
"""How far beside a road the colour goes."""


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
    """Colour what lies beside the roads by the zone of its nearest place, below the roads (z-order 0).

    Parameters
    ----------
    axes
        Axes in longitude and latitude whose limits are set, as `draw_roads` leaves them.
    """
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    shrink = np.cos(np.radians((south + north) / 2))
    long_side = max(north - south, (east - west) * shrink)
    rows = round(_PIXELS * (north - south) / long_side)
    columns = round(_PIXELS * (east - west) * shrink / long_side)
    lat = np.clip(_middles(south, north, rows), -90, 90)
    lon = (_middles(west, east, columns) + 180) % 360 - 180
    pixel = (north - south) / rows, (east - west) / columns
    road = _road_pixels(graph, south=south, west=west, pixel=pixel, shape=(rows, columns))
    row, column = np.nonzero(distance_transform_edt(~road) <= _REACH_PIXELS)
    zone = np.full((rows, columns), -1)
    zone[row, column] = zones.zone[places.nearest(lat[row], lon[column])[0]]
    meeting, border = _borders(zone)
    numbers = colour_numbers(len(zones), np.concatenate([zones.neighbours, meeting]))
    image = np.zeros((rows, columns, 4))
    image[..., :3] = np.array([_colour(number) for number in numbers])[zone]
    image[..., 3] = zone >= 0
    image[border] = 1.0
    axes.imshow(image, extent=(west, east, south, north), origin="lower", aspect=axes.get_aspect(), zorder=0)


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


def _middles(start: float, stop: float, count: int) -> Floats:
    """Return the middles of `count` equal intervals."""
    return start + (np.arange(count) + 0.5) * (stop - start) / count


def _road_pixels(
    graph: RoadGraph, *, south: float, west: float, pixel: tuple[float, float], shape: tuple[int, int]
) -> Bools:
    """Return which pixels of an image a road passes; a pixel is so many degrees of latitude and longitude."""
    offsets, lat, lon = graph.lines()
    row, column = (lat - south) / pixel[0], (lon - west) / pixel[1]
    start = np.delete(np.arange(len(lat)), offsets[1:] - 1)
    down, right = row[start + 1] - row[start], column[start + 1] - column[start]
    steps = np.ceil(np.maximum(np.abs(down), np.abs(right))).astype(np.int64) + 1
    segment = np.repeat(np.arange(len(start)), steps)
    share = (np.arange(len(segment)) - np.repeat(np.cumsum(steps) - steps, steps)) / np.repeat(steps, steps)
    road = np.zeros(shape, dtype=bool)
    at_row = (row[start][segment] + share * down[segment]).astype(np.int64)
    at_column = (column[start][segment] + share * right[segment]).astype(np.int64)
    inside = (at_row >= 0) & (at_row < shape[0]) & (at_column >= 0) & (at_column < shape[1])
    road[at_row[inside], at_column[inside]] = True
    return road


def _borders(zone: Ints) -> tuple[Indices, Bools]:
    """Return the pairs of zones that meet in the image, and the pixels on one side of where they do."""
    border = np.zeros(zone.shape, dtype=bool)
    pairs = []
    for here, there in (
        ((slice(None), slice(-1)), (slice(None), slice(1, None))),
        ((slice(-1), slice(None)), (slice(1, None), slice(None))),
    ):
        zone_here, zone_there = zone[here], zone[there]
        meet = (zone_here != zone_there) & (zone_here >= 0) & (zone_there >= 0)
        border[here] |= meet
        pairs.append(np.column_stack([zone_here[meet], zone_there[meet]]))
    return np.unique(np.concatenate(pairs), axis=0).astype(np.int32), border
