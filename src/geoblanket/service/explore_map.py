"""The map of the web page: roads, cells of places and borders of zones as GeoJSON, and ways along streets.

All of it is public, except where a trip goes: lines are drawn between its points, and a made-up drive over the roads.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import KDTree, Voronoi

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._geodesy import haversine_m, local_degrees, local_metres
from geoblanket.roads.distances import distances_within, weight_matrix
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.service.store import encoded, feature

__all__ = ["Line", "PlaceCells", "Streets", "points", "roads_geojson"]

_DIGITS = 5
"""Of degrees: about a metre, less than a pixel of any city on a screen."""
_MOST_GRID_LINES = 300
_RANKS = (("motorway", "trunk"), ("primary", "secondary"), ("tertiary",))
Line = list[list[float]]
"""Longitude and latitude of each point."""
_LINE_DIGITS: Final = 6
_DETOUR: Final = 2.5
_DETOUR_M: Final = 600.0
"""A way along the roads is no longer than the straight line times the one, and the other added."""
_SLOWER: Final = 1.8
"""How much longer a made-up drive takes than without traffic and crossings."""
_SHORTEST_LEG_M: Final = 800.0
_MOST_LEGS: Final = 200


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


class PlaceCells:
    """The map cell of each place: what is nearer to it than to any other, and not far away.

    Extra sites on a grid around and between the places bound the cells.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, places_e7: Indices) -> None:
        lat, lon = (places_e7 * 1e-7).T
        self._origin = {"origin_lat": float(lat.mean()), "origin_lon": float(lon.mean())}
        places = np.column_stack(local_metres(lat, lon, **self._origin))
        self._count = len(places)
        self._diagram = Voronoi(np.concatenate([places, _empty_sites(places)]))

    def geojson(self) -> bytes:
        """Return the cell of each place as a polygon, with the place's number as its id."""
        corners = self._corners()
        regions = (self._diagram.regions[region] for region in self._diagram.point_region[: self._count])
        features = (
            feature("Polygon", [corners[[*region, region[0]]].tolist()], number=place)
            for place, region in enumerate(regions)
            if region and -1 not in region
        )
        return encoded(features)

    def borders(self, zone: Indices) -> bytes:
        """Return where zones end, as lines.

        Parameters
        ----------
        zone
            The zone of each place, −1 for none, shape (P,).
        """
        of_site = np.full(len(self._diagram.points), -1, np.int64)
        of_site[: self._count] = zone
        sides = of_site[self._diagram.ridge_points]
        corners = self._corners()
        lines = [
            corners[ridge].tolist()
            for ridge, (zone_of_left, zone_of_right) in zip(self._diagram.ridge_vertices, sides.tolist(), strict=True)
            if zone_of_left != zone_of_right and -1 not in ridge
        ]
        return encoded([feature("MultiLineString", lines)])

    def _corners(self) -> Floats:
        lat, lon = local_degrees(*self._diagram.vertices.T, **self._origin)
        return np.asarray(np.column_stack([lon, lat]), np.float64).round(_DIGITS + 1)


def _empty_sites(places: Floats) -> Floats:
    """Return points on a grid that are well away from every place, all around them too; metres."""
    tree = KDTree(places)
    apart = float(np.median(np.asarray(tree.query(places, k=2)[0])[:, 1])) if len(places) > 1 else 0.0
    low, high = places.min(axis=0), places.max(axis=0)
    pitch = max(apart, 10.0, float((high - low).max()) / _MOST_GRID_LINES)
    x, y = (np.arange(start - 4 * pitch, end + 4 * pitch, pitch) for start, end in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    return grid[np.asarray(tree.query(grid)[0]) > 1.4 * pitch]


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
        lines = [points(lat[:1], lon[:1])]
        for source, target in zip(nodes[:-1].tolist(), nodes[1:].tolist(), strict=True):
            path = near.path(row_of[source], target)
            lines.append(points(*self._along(path if len(path) else np.array([source, target], np.int32))))
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
    lines = [points(at_lat[:1], at_lon[:1])]
    for number in range(1, len(at_s)):
        between = (time_s > at_s[number - 1]) & (time_s < at_s[number])
        ends = [number - 1, number]
        lines.append(
            points(
                np.concatenate([at_lat[ends[:1]], lat[between], at_lat[ends[1:]]]),
                np.concatenate([at_lon[ends[:1]], lon[between], at_lon[ends[1:]]]),
            )
        )
    return at_lat, at_lon, lines


def points(lat: Floats, lon: Floats) -> Line:
    """Return coordinates as a page takes them: longitude and latitude, to a decimetre."""
    rounded: Line = np.column_stack([lon, lat]).round(_LINE_DIGITS).tolist()
    return rounded
