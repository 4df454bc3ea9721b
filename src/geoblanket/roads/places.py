"""Places: the public road nodes between which the privacy guarantee is stated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from geoblanket._arguments import checked
from geoblanket._arrayfile import content_hash
from geoblanket._arrays import Floats, Indices, Positions
from geoblanket._display import card, counted, short_repr
from geoblanket._geodesy import EARTH_RADIUS_M, unit_vectors
from geoblanket._lazy import companion
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAME_DISTANCE = 1e-6 / EARTH_RADIUS_M
"""Distances that differ by less (a micrometre) count as equal. Sines differ between platforms by less than a thousandth
of it, so a point has the same nearest place on every platform."""
_POINTS_AT_A_TIME = 1 << 16
_RADIUS_PRECISION_M = 0.1


@checked
@dataclass(frozen=True, eq=False)
class Places:
    """Some nodes of a road graph, with a search for the nearest place. Made by `choose_places`.

    Examples
    --------
    With the `places` in the example of `make_rows`:

    >>> place, distance_m = places.nearest([45.001], [-30.002])
    >>> place.tolist(), distance_m.round().tolist()
    ([0], [193.0])
    """

    nodes: Indices
    """The graph's node index of each place, ascending, shape (P,)."""
    lat: Floats
    """Latitude of each place, degrees WGS84, shape (P,)."""
    lon: Floats
    """Longitude of each place, degrees WGS84, shape (P,)."""
    spacing_m: float
    """The least distance between two places, metres; 0: every node is a place."""
    roads_identity: str
    """The identity of the road graph."""

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the road graph's identity and the choice of places."""
        return content_hash({"roads": self.roads_identity, "spacing_m": self.spacing_m}, {"nodes": self.nodes})

    @cached_property
    def coordinates_e7(self) -> Indices:
        """Latitude and longitude of each place in 1e-7 degrees, as in bundles, shape (P, 2)."""
        return np.rint(np.column_stack([self.lat, self.lon]) * 1e7).astype(np.int32)

    def nearest(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> tuple[Indices, Floats]:
        """Return the nearest place of each point by great-circle distance; the first of equally near places.

        Parameters
        ----------
        lat, lon
            Points, degrees WGS84, of one shape.

        Returns
        -------
        place, distance_m
            Index of the place, and its distance in metres (exact to a micrometre), in the shape of the points.

        Raises
        ------
        InputError
            If a point is not on Earth: not finite, or beyond ±90° or ±180°.
        """
        lat, lon = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
        _check_points(lat, lon)
        place, chord = np.empty(lat.size, np.int32), np.empty(lat.size)
        for start in range(0, lat.size, _POINTS_AT_A_TIME):
            some = slice(start, start + _POINTS_AT_A_TIME)
            place[some], chord[some] = self._nearest(unit_vectors(lat.ravel()[some], lon.ravel()[some]))
        return place.reshape(lat.shape), _chord_to_metres(chord).reshape(lat.shape)

    def snapping_radius_m(self, graph: RoadGraph) -> float:
        """Return a radius within which every point of every road has its nearest place, metres.

        The farthest point is searched along the roads' lines, not only at nodes and bends: the middle of a long
        straight road may be far from both ends. The radius exceeds the largest distance by at most 0.1 m.
        """
        self._check_graph(graph)
        offsets, lat, lon = graph.lines()
        points = unit_vectors(lat, lon)
        starts = np.delete(np.arange(len(points)), offsets[1:] - 1)
        one, other = points[starts], points[starts + 1]
        near_one, near_other = self._distance_m(one), self._distance_m(other)
        farthest = float(self._distance_m(unit_vectors(graph.lat, graph.lon)).max())
        while True:
            farthest = max(farthest, float(near_one.max(initial=0.0)), float(near_other.max(initial=0.0)))
            # Branch and bound. Along a metre of road the distance to the nearest place changes by at most a metre, so
            # a segment is done once it cannot hold a point beyond the farthest one so far; others are halved.
            length = _chord_to_metres(np.linalg.norm(one - other, axis=1))
            open_ = (near_one + near_other + length) / 2 > farthest + _RADIUS_PRECISION_M
            if not open_.any():
                return farthest + _RADIUS_PRECISION_M
            one, other, near_one, near_other = one[open_], other[open_], near_one[open_], near_other[open_]
            middle = one + other
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            near_middle = self._distance_m(middle)
            one, other = np.concatenate([one, middle]), np.concatenate([middle, other])
            near_one = np.concatenate([near_one, near_middle])
            near_other = np.concatenate([near_middle, near_other])

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(unit_vectors(self.lat, self.lon))

    def _nearest(self, points: Floats) -> tuple[Indices, Floats]:
        """Return the nearest place of each unit vector, and the chord to it on the unit sphere."""
        chords, found = (np.asarray(part) for part in self._tree.query(points, k=2))
        place, chord = found[:, 0].astype(np.int32), chords[:, 0]
        tied = np.flatnonzero(chords[:, 1] - chord <= _SAME_DISTANCE)
        if len(tied):
            equals = self._tree.query_ball_point(points[tied], chord[tied] + _SAME_DISTANCE)
            place[tied] = [min(indices) for indices in equals]
        return place, chord

    def _distance_m(self, points: Floats) -> Floats:
        return _chord_to_metres(np.asarray(self._tree.query(points)[0]))

    def _check_graph(self, graph: RoadGraph) -> None:
        if graph.identity != self.roads_identity:
            raise MismatchError("The places belong to another road graph. Choose them on this one.")

    def plot(self, *, ax: Axes | None = None, roads: RoadGraph | None = None) -> Axes:
        """Draw the places on a map (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        roads
            Drawn beneath the places.
        """
        axes: Axes = companion("geoblanket.roads.picture", "Places.plot").plot_places(self, ax=ax, roads=roads)
        return axes

    def _repr_html_(self) -> str:
        apart = f"{self.spacing_m:g} m or more" if self.spacing_m else "every node of the roads"
        return card(self, [("places", f"{len(self):,}"), ("apart", apart)], draw=lambda ax: self.plot(ax=ax))

    def __repr__(self) -> str:
        apart = f"{self.spacing_m:g} m apart or more" if self.spacing_m else "every node of the roads"
        return short_repr(self, counted(len(self), "place"), apart)


@checked
def choose_places(graph: RoadGraph, *, spacing_m: float = 0.0) -> Places:
    """Choose the places of a road graph.

    Thinning goes through the nodes, and keeps each node that is not too near to a node already kept. Nodes on more
    important roads come first (a link counts as its road), then nodes where more roads meet, then lower node numbers.
    So the choice does not depend on the order of the nodes. No two places are nearer than the spacing (to a
    micrometre), and every node is nearer than the spacing to a place.

    Parameters
    ----------
    graph
        The roads.
    spacing_m
        The least great-circle distance between two places, metres; 0 takes every node.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places
    >>> len(choose_places(RoadGraph.load("city.roads"), spacing_m=500))
    21
    """
    if not 0 <= spacing_m < math.inf:
        raise ParameterError(f"The spacing of places must be zero or more metres. Got {spacing_m} instead.")
    if not graph.node_count:
        raise InputError("the road graph has no nodes, so it has no places", hint="Import the roads again")
    nodes = np.arange(graph.node_count, dtype=np.int32) if spacing_m == 0 else _thin(graph, spacing_m)
    return Places(
        nodes=nodes,
        lat=graph.lat[nodes],
        lon=graph.lon[nodes],
        spacing_m=float(spacing_m),
        roads_identity=graph.identity,
    )


def _thin(graph: RoadGraph, spacing_m: float) -> Indices:
    points = unit_vectors(graph.lat, graph.lon)
    tree = KDTree(points)
    reach = 2 * math.sin(min(spacing_m / (2 * EARTH_RADIUS_M), math.pi / 2)) - _SAME_DISTANCE
    taken = np.zeros(graph.node_count, dtype=bool)
    covered = np.zeros(graph.node_count, dtype=bool)
    for node in _by_importance(graph).tolist():
        if not covered[node]:
            taken[node] = True
            covered[tree.query_ball_point(points[node], reach)] = True
    return np.flatnonzero(taken).astype(np.int32)


def _by_importance(graph: RoadGraph) -> Positions:
    """Return all nodes, those on important roads first."""
    main = [name.removesuffix("_link") for name in ROAD_CLASSES]
    rank = np.array([ROAD_CLASSES.index(name) for name in main])[graph.road_class]
    best = np.full(graph.node_count, len(ROAD_CLASSES))
    np.minimum.at(best, graph.sources, rank)
    np.minimum.at(best, graph.targets, rank)
    ends = np.stack([np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)])
    roads = np.bincount(np.unique(ends, axis=1).ravel(), minlength=graph.node_count)
    return np.lexsort((graph.lon, graph.lat, graph.node_ids, -roads, best))


def _check_points(lat: Floats, lon: Floats) -> None:
    if lat.shape != lon.shape:
        raise ParameterError(f"Latitudes and longitudes must have one shape. Got {lat.shape} and {lon.shape} instead.")
    wrong = np.flatnonzero(~((np.abs(lat) <= 90) & (np.abs(lon) <= 180)))
    if len(wrong):
        raise InputError(
            f"{len(wrong)} of {lat.size} points are not on Earth, the first at position {wrong[0]}",
            hint="Give latitudes from -90 to 90 and longitudes from -180 to 180 degrees, or clean the traces first",
        )


def _chord_to_metres(chord: Floats) -> Floats:
    """Return great-circle distances, metres, for chords on the unit sphere."""
    metres: Floats = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(chord / 2, 1.0))
    return metres
