"""The roads of a city for the web page: as GeoJSON, and as drives and lines that follow them."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse.csgraph import dijkstra

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.roads.distances import distances_within, weight_matrix
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.serve.service.bundles import encoded, feature

Line = list[list[float]]
"""Longitude and latitude of each point."""
_DIGITS: Final = 5
"""Of degrees: about a metre, less than a pixel of any city on a screen."""
_LINE_DIGITS: Final = 6
_RANKS: Final = (("motorway", "trunk"), ("primary", "secondary"), ("tertiary",))
_DETOUR: Final = 2.5
_DETOUR_M: Final = 600.0
"""A way along the roads is no longer than the straight line times the one, and the other added."""
_SLOWER: Final = 1.8
"""How much longer a made-up drive takes than without traffic and crossings."""


def roads_geojson(graph: RoadGraph) -> bytes:
    """Return each road once, as a line with its rank: 0 for motorways to 3 for small streets."""
    offsets, lat, lon = graph.lines()
    points = np.round(np.column_stack([lon, lat]), _DIGITS)
    rank = _rank_of_class()[graph.road_class]
    features = (
        feature("LineString", points[offsets[edge] : offsets[edge + 1]].tolist(), rank=int(rank[edge]))
        for edge in graph.one_of_each_road().tolist()
    )
    return encoded(features)


def _rank_of_class() -> Ints:
    main = [name.removesuffix("_link") for name in ROAD_CLASSES]
    return np.array([next((rank for rank, names in enumerate(_RANKS) if name in names), len(_RANKS)) for name in main])


def points(lat: Floats, lon: Floats) -> Line:
    """Return coordinates as a page takes them: longitude and latitude, to a decimetre."""
    rounded: Line = np.column_stack([lon, lat]).round(_LINE_DIGITS).tolist()
    return rounded


def street_lines(graph: RoadGraph, nodes: Indices) -> list[Line]:
    """Return the shortest way to each node of a trip from the one before; the first is a point.

    Where the roads have none of a sensible length, the line is straight.
    """
    lat, lon = graph.lat[nodes], graph.lon[nodes]
    straight_m = haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
    starts = np.unique(nodes[:-1])
    near = distances_within(graph, starts, limit=_DETOUR * float(straight_m.max(initial=0.0)) + _DETOUR_M)
    row_of = {node: row for row, node in enumerate(starts.tolist())}
    lines = [points(lat[:1], lon[:1])]
    for source, target in zip(nodes[:-1].tolist(), nodes[1:].tolist(), strict=True):
        path = near.path(row_of[source], target)
        lines.append(_along(graph, path if len(path) else np.array([source, target], np.int32)))
    return lines


def _along(graph: RoadGraph, path: Indices) -> Line:
    """Return the line along roads over nodes; straight where no road leads to the next."""
    lats, lons = [graph.lat[path[:1]]], [graph.lon[path[:1]]]
    for source, target in zip(path[:-1].tolist(), path[1:].tolist(), strict=True):
        edges = slice(graph.offsets[source], graph.offsets[source + 1])
        # Edges to one node are sorted by their length: the first is the shortest.
        edge = np.flatnonzero(graph.targets[edges] == target)
        lat, lon = graph.lat[[target]], graph.lon[[target]]
        if len(edge):
            lat, lon = (part[1:] for part in graph.edge_line(int(graph.offsets[source] + edge[0])))
        lats.append(lat)
        lons.append(lon)
    return points(np.concatenate(lats), np.concatenate(lons))


def way_home(graph: RoadGraph, lat: float, lon: float, *, seconds: float) -> tuple[Indices, Floats]:
    """Return the nodes of the fastest way to a node from one that takes about some time, and when it is at each.

    It is always the same for one destination.

    Parameters
    ----------
    lat, lon
        Where it ends, degrees: at the nearest node.
    seconds
        How long it takes, if the city is large enough.

    Returns
    -------
    nodes, time_s
        The time in seconds since the start, increasing.
    """
    home = int(haversine_m(lat, lon, graph.lat, graph.lon).argmin())
    backwards = weight_matrix(graph, weight="time", reverse=True)
    free_s, next_on = (row[0] for row in dijkstra(backwards, indices=[home], return_predecessors=True))
    left_s = _SLOWER * free_s
    path = [int(np.where(np.isfinite(left_s), np.abs(left_s - seconds), np.inf).argmin())]
    while path[-1] != home:
        path.append(int(next_on[path[-1]]))
    nodes = np.array(path, np.int32)
    return nodes, left_s[nodes[0]] - left_s[nodes]
