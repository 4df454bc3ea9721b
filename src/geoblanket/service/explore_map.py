"""The map of the web page as GeoJSON: roads, the cells of places, and the borders of zones; all of it is public."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree, Voronoi

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import local_degrees, local_metres
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph
from geoblanket.service.geojson import encoded, feature

__all__ = ["PlaceCells", "roads_geojson"]

_DIGITS = 5
"""Of degrees: about a metre, less than a pixel of any city on a screen."""
_MOST_GRID_LINES = 300
_RANKS = (("motorway", "trunk"), ("primary", "secondary"), ("tertiary",))


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
