"""The lines of all edges as short straight pieces in local metres."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import local_degrees, local_metres
from geoblanket.roads.graph import RoadGraph

__all__ = ["EdgeLines"]


@dataclass(frozen=True, eq=False)
class EdgeLines:
    """Every edge's line cut into straight pieces, in the order of the edges and along each edge.

    Offsets along an edge are in the graph's own lengths: a line that is shorter or longer than its edge's length
    (a straight line for a winding road) is stretched evenly.
    """

    origin: tuple[float, float]
    """Latitude and longitude of the projection's origin, degrees."""
    edge: Indices
    """Edge of each piece, shape (S,)."""
    x: Floats
    """Where each piece starts, metres east of the origin, shape (S,)."""
    y: Floats
    """Where each piece starts, metres north of the origin, shape (S,)."""
    dx: Floats
    """Extent of each piece to the east, metres, shape (S,)."""
    dy: Floats
    """Extent of each piece to the north, metres, shape (S,)."""
    start_m: Floats
    """Offset along the edge at which each piece starts, shape (S,)."""
    length_m: Floats
    """Length of each piece along the edge, shape (S,)."""
    piece_offsets: Ints
    """Where each edge's pieces start, shape (E + 1,)."""

    @classmethod
    def of_graph(cls, graph: RoadGraph, *, longest_piece_m: float) -> EdgeLines:
        """Cut the lines of `graph` at their bends, and between bends into pieces of at most `longest_piece_m`."""
        origin = ((graph.lat.min() + graph.lat.max()) / 2, (graph.lon.min() + graph.lon.max()) / 2)
        point_offsets, lat, lon = graph.lines()
        x, y = local_metres(lat, lon, origin_lat=origin[0], origin_lon=origin[1])
        start = np.delete(np.arange(len(x)), point_offsets[1:] - 1)
        edge = np.repeat(np.arange(graph.edge_count, dtype=np.int32), np.diff(graph.shape_offsets) + 1)
        dx, dy = x[start + 1] - x[start], y[start + 1] - y[start]
        parts = np.maximum(np.ceil(np.hypot(dx, dy) / longest_piece_m), 1).astype(np.int64)
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        dx, dy, edge = np.repeat(dx / parts, parts), np.repeat(dy / parts, parts), np.repeat(edge, parts)
        flat = np.hypot(dx, dy)
        line = np.bincount(edge, weights=flat, minlength=graph.edge_count)
        stretch = np.divide(graph.length_m, line, out=np.zeros_like(line), where=line > 0)
        piece_offsets = np.concatenate([[0], np.cumsum(np.bincount(edge, minlength=graph.edge_count))])
        along = np.cumsum(flat) - flat
        along -= np.repeat(along[piece_offsets[:-1]], np.diff(piece_offsets))
        return cls(
            origin=(float(origin[0]), float(origin[1])),
            edge=edge,
            x=np.repeat(x[start], parts) + number * dx,
            y=np.repeat(y[start], parts) + number * dy,
            dx=dx,
            dy=dy,
            start_m=along * stretch[edge],
            length_m=flat * stretch[edge],
            piece_offsets=piece_offsets.astype(np.int64),
        )

    def project(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return the metres east and north of the origin of points in degrees."""
        return local_metres(lat, lon, origin_lat=self.origin[0], origin_lon=self.origin[1])

    def locate(self, edge: Indices, offset_m: Floats) -> tuple[Floats, Floats]:
        """Return the latitudes and longitudes, degrees, of positions given as offsets along edges."""
        first, last = self.piece_offsets[edge], self.piece_offsets[edge + 1] - 1
        # Bisection between each edge's first and last piece: all positions halve their range at once.
        while (unsure := first < last).any():
            middle = (first + last + 1) // 2
            right = self.start_m[middle] <= offset_m
            first = np.where(unsure & right, middle, first)
            last = np.where(unsure & ~right, middle - 1, last)
        length = self.length_m[first]
        part = np.divide(offset_m - self.start_m[first], length, out=np.zeros_like(offset_m), where=length > 0)
        part = np.clip(part, 0.0, 1.0)
        return local_degrees(
            self.x[first] + part * self.dx[first],
            self.y[first] + part * self.dy[first],
            origin_lat=self.origin[0],
            origin_lon=self.origin[1],
        )
