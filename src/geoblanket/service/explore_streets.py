"""Ways along streets: lines between points of a trip for the map, and a made-up drive over the roads."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse.csgraph import dijkstra

from geoblanket._arrays import Bools, Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.roads.distances import distances_within, weight_matrix
from geoblanket.roads.graph import RoadGraph

__all__ = ["Line", "Streets"]

Line = list[list[float]]
"""Longitude and latitude of each point."""

_DIGITS: Final = 6
_DETOUR: Final = 2.5
_DETOUR_M: Final = 600.0
"""A way along the roads is no longer than the straight line times the one, and the other added."""
_SLOWER: Final = 1.8
"""How much longer a made-up drive takes than without traffic and crossings."""
_SHORTEST_LEG_M: Final = 800.0
_MOST_LEGS: Final = 200


class Streets:
    """The roads of a city, for lines that follow them."""

    def __init__(self, graph: RoadGraph) -> None:
        self._graph = graph

    def lines(self, nodes: Indices) -> list[Line]:
        """Return the shortest way to each node of a trip from the one before; the first is a point.

        Where the roads have none of a sensible length, the line is straight.
        """
        graph = self._graph
        lat, lon = graph.lat[nodes], graph.lon[nodes]
        straight_m = haversine_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
        limit = _DETOUR * float(straight_m.max(initial=0.0)) + _DETOUR_M
        starts = np.unique(nodes[:-1])
        near = distances_within(graph, starts, limit=limit)
        row_of = {node: row for row, node in enumerate(starts.tolist())}
        lines = [_line(lat[:1], lon[:1])]
        for source, target in zip(nodes[:-1].tolist(), nodes[1:].tolist(), strict=True):
            path = near.path(row_of[source], target)
            lines.append(_line(*self._along(path if len(path) else np.array([source, target], np.int32))))
        return lines

    def drive(
        self, lat: float, lon: float, *, far_m: float, seconds: float, interval_s: float, inside: Bools
    ) -> tuple[Floats, Floats, list[Line]] | None:
        """Return a made-up drive, always the same one from a point, that stays near it: fastest ways between nodes.

        Parameters
        ----------
        lat, lon
            Where to start, degrees: at the nearest node.
        far_m
            How far from the start destinations are at most, metres.
        seconds, interval_s
            How long it takes, and from one point to the next.
        inside
            The nodes that may be destinations, shape (N,).

        Returns
        -------
        drive
            Latitude and longitude of each point, and the line that leads there; None: there are no roads near by.
        """
        graph, generator = self._graph, np.random.default_rng(5)
        away_m = haversine_m(lat, lon, graph.lat, graph.lon)
        near = (away_m <= far_m) & inside
        if not near.any():
            return None
        matrix = weight_matrix(graph, weight="time")
        node = int(np.where(near, away_m, np.inf).argmin())
        time_s, way_lat, way_lon = [0.0], [graph.lat[node]], [graph.lon[node]]
        for _ in range(_MOST_LEGS):
            if time_s[-1] >= seconds:
                break
            seconds_from, previous_from = dijkstra(matrix, indices=[node], return_predecessors=True)
            free_s, previous = seconds_from[0], previous_from[0]
            leg_m = haversine_m(graph.lat[node], graph.lon[node], graph.lat, graph.lon)
            ends = np.flatnonzero(near & np.isfinite(free_s) & (leg_m >= min(_SHORTEST_LEG_M, far_m / 2)))
            if not len(ends):
                return None
            path = [int(generator.choice(ends))]
            while path[-1] != node:
                path.append(int(previous[path[-1]]))
            for source, target in zip(path[:0:-1], path[-2::-1], strict=True):
                edge_lat, edge_lon = self._along(np.array([source, target], np.int32))
                apart = haversine_m(edge_lat[:-1], edge_lon[:-1], edge_lat[1:], edge_lon[1:])
                share = np.cumsum(apart) / max(float(apart.sum()), 1e-9)
                time_s.extend((time_s[-1] + _SLOWER * (free_s[target] - free_s[source]) * share).tolist())
                way_lat.extend(edge_lat[1:].tolist())
                way_lon.extend(edge_lon[1:].tolist())
            node = path[0]
        return _sampled(np.array(time_s), np.array(way_lat), np.array(way_lon), seconds, interval_s)

    def _along(self, path: Indices) -> tuple[Floats, Floats]:
        """Return latitudes and longitudes along roads over nodes; straight where no road leads to the next."""
        graph = self._graph
        lats, lons = [graph.lat[path[:1]]], [graph.lon[path[:1]]]
        for source, target in zip(path[:-1].tolist(), path[1:].tolist(), strict=True):
            edges = slice(graph.offsets[source], graph.offsets[source + 1])
            # Edges to one node are sorted by their length: the first is the shortest.
            edge = np.flatnonzero(graph.targets[edges] == target)
            if len(edge):
                lat, lon = graph.edge_line(int(graph.offsets[source] + edge[0]))
                lats.append(lat[1:])
                lons.append(lon[1:])
            else:
                lats.append(graph.lat[[target]])
                lons.append(graph.lon[[target]])
        return np.concatenate(lats), np.concatenate(lons)


def _sampled(
    time_s: Floats, lat: Floats, lon: Floats, seconds: float, interval_s: float
) -> tuple[Floats, Floats, list[Line]]:
    """Return where a drive is at equal intervals, and the part of its way since the interval before."""
    at_s = np.arange(max(int(seconds / interval_s), 2)) * interval_s
    at_lat, at_lon = np.interp(at_s, time_s, lat), np.interp(at_s, time_s, lon)
    lines = [_line(at_lat[:1], at_lon[:1])]
    for number in range(1, len(at_s)):
        between = (time_s > at_s[number - 1]) & (time_s < at_s[number])
        ends = [number - 1, number]
        lines.append(
            _line(
                np.concatenate([at_lat[ends[:1]], lat[between], at_lat[ends[1:]]]),
                np.concatenate([at_lon[ends[:1]], lon[between], at_lon[ends[1:]]]),
            )
        )
    return at_lat, at_lon, lines


def _line(lat: Floats, lon: Floats) -> Line:
    points: Line = np.column_stack([lon, lat]).round(_DIGITS).tolist()
    return points
