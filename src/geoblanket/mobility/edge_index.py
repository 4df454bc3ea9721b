"""Find the edges near a point: a grid of square cells, each of which lists the pieces of road within reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints, Positions
from geoblanket._geodesy import local_degrees, local_metres
from geoblanket.errors import InputError
from geoblanket.roads.graph import RoadGraph

_BLOCK_POINTS = 4096
"""Points searched at once, so that their data stays within the processor's cache."""
_ROW = 1 << 31
"""Cells are numbered row * _ROW + column; no map has as many columns."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The nearest edges of each point, nearest first; unused entries have edge -1 and an infinite distance."""

    edge: Indices
    """Edge, shape (P, K)."""
    offset_m: Floats
    """Metres from the edge's source, along the road, to its point nearest to the GPS point, shape (P, K)."""
    distance_m: Floats
    """Distance from the point to the edge, metres, shape (P, K)."""


class EdgeIndex:
    """Finds the edges near points.

    Parameters
    ----------
    graph
        The roads. Edges whose line has no extent (self-loops without geometry) are never found.
    radius_m
        How far from a point an edge may be, metres.
    """

    def __init__(self, graph: RoadGraph, *, radius_m: float) -> None:
        if graph.edge_count == 0:
            raise InputError("the road graph has no edges, so nothing can be matched to it")
        self.radius_m = radius_m
        self._cell_m = radius_m
        self.lines = EdgeLines.of_graph(graph, longest_piece_m=2 * radius_m)
        self._squared = self.lines.dx**2 + self.lines.dy**2
        cell, piece = self._reached_cells()
        order = np.lexsort((piece, cell))
        self._pieces = piece[order]
        self._cells, starts = np.unique(cell[order], return_index=True)
        self._starts = np.append(starts, len(order))

    def nearest(self, lat: Floats, lon: Floats, *, count: int) -> Candidates:
        """Return the `count` nearest edges within the radius of each point (degrees), each edge once."""
        x, y = self.lines.project(lat, lon)
        shape = (len(x), count)
        candidates = Candidates(np.full(shape, -1, np.int32), np.zeros(shape), np.full(shape, np.inf))
        for start in range(0, len(x), _BLOCK_POINTS):
            rows = np.arange(start, min(start + _BLOCK_POINTS, len(x)))
            self._search(x[rows], y[rows], rows, candidates)
        return candidates

    def _reached_cells(self) -> tuple[Ints, Indices]:
        """Return pairs (cell, piece) such that the piece lies within the radius of some point of the cell."""
        lines, reach, cell_m = self.lines, self.radius_m, self._cell_m
        solid = np.flatnonzero(self._squared > 0)
        # All cells of each piece's bounding box, widened by the radius, one row of the arrays for each.
        x, y, dx, dy = lines.x[solid], lines.y[solid], lines.dx[solid], lines.dy[solid]
        left = np.floor((np.minimum(x, x + dx) - reach) / cell_m).astype(np.int64)
        right = np.floor((np.maximum(x, x + dx) + reach) / cell_m).astype(np.int64)
        low = np.floor((np.minimum(y, y + dy) - reach) / cell_m).astype(np.int64)
        high = np.floor((np.maximum(y, y + dy) + reach) / cell_m).astype(np.int64)
        width, height = right - left + 1, high - low + 1
        boxes = width * height
        which = np.repeat(np.arange(len(solid)), boxes)
        number = np.arange(boxes.sum()) - np.repeat(np.cumsum(boxes) - boxes, boxes)
        column, row = left[which] + number % width[which], low[which] + number // width[which]
        # Drop the corners of the boxes: a cell is out of reach if its middle is beyond the radius plus half a diagonal.
        piece = solid[which]
        distance, _ = self._to_pieces((column + 0.5) * cell_m, (row + 0.5) * cell_m, piece)
        near = distance <= (reach + cell_m * np.sqrt(0.5)) ** 2
        return row[near] * _ROW + column[near], piece[near].astype(np.int32)

    def _to_pieces(self, x: Floats, y: Floats, piece: npt.NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return each point's squared distance to its piece, and the share of the piece up to its nearest point."""
        lines = self.lines
        x, y = x - lines.x[piece], y - lines.y[piece]
        dx, dy = lines.dx[piece], lines.dy[piece]
        along = np.clip((x * dx + y * dy) / self._squared[piece], 0.0, 1.0)
        return (x - along * dx) ** 2 + (y - along * dy) ** 2, along

    def _search(self, x: Floats, y: Floats, rows: Positions, candidates: Candidates) -> None:
        """Fill the given rows of `candidates` for points in local metres."""
        # Pair each point with every piece that its cell lists.
        finite = np.isfinite(x) & np.isfinite(y) & (np.abs(x) < 1e9) & (np.abs(y) < 1e9)
        x, y, rows = x[finite], y[finite], rows[finite]
        key = np.floor(y / self._cell_m).astype(np.int64) * _ROW + np.floor(x / self._cell_m).astype(np.int64)
        cell = np.minimum(np.searchsorted(self._cells, key), len(self._cells) - 1)
        listed = np.where(self._cells[cell] == key, self._starts[cell + 1] - self._starts[cell], 0)
        point = np.repeat(np.arange(len(x)), listed)
        entry = np.arange(len(point)) + np.repeat(self._starts[cell] - (np.cumsum(listed) - listed), listed)
        piece = self._pieces[entry]
        squared, along = self._to_pieces(x[point], y[point], piece)
        near = np.flatnonzero(squared <= self.radius_m**2)
        if not len(near):
            return
        # Keep the nearest piece of each edge, so that every edge is a candidate once.
        near = near[_nearest_of_runs(point[near], self.lines.edge[piece[near]], squared[near])]
        point, piece, squared, along = point[near], piece[near], squared[near], along[near]
        # Sort each point's edges by distance: one row a point, padded with infinity.
        per_point = np.bincount(point, minlength=len(x))
        position = np.arange(len(point)) - np.repeat(np.cumsum(per_point) - per_point, per_point)
        padded = np.full((len(x), per_point.max()), np.inf)
        padded[point, position] = squared
        best = np.argsort(padded, axis=1, kind="stable")[:, : candidates.edge.shape[1]]
        chosen = (np.cumsum(per_point) - per_point)[:, None] + best
        used = best < per_point[:, None]
        at, slot = np.nonzero(used)
        chosen = chosen[at, slot]
        lines, piece = self.lines, piece[chosen]
        candidates.edge[rows[at], slot] = lines.edge[piece]
        candidates.offset_m[rows[at], slot] = lines.start_m[piece] + along[chosen] * lines.length_m[piece]
        candidates.distance_m[rows[at], slot] = np.sqrt(squared[chosen])


def _nearest_of_runs(point: Positions, edge: Indices, squared: Floats) -> Positions:
    """Return the index of the smallest distance in each run of equal (point, edge)."""
    new = np.append(True, (point[1:] != point[:-1]) | (edge[1:] != edge[:-1]))
    run = np.cumsum(new) - 1
    smallest = np.flatnonzero(squared == np.minimum.reduceat(squared, np.flatnonzero(new))[run])
    first: Positions = smallest[np.append(True, run[smallest][1:] != run[smallest][:-1])]
    return first


@dataclass(frozen=True, eq=False)
class EdgeLines:
    """Every edge's line cut into straight pieces, in the order of the edges and along each edge.

    Offsets along an edge are in the graph's own lengths. A line whose length differs from its edge's (a straight line
    for a winding road) is stretched evenly.
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
        # Straight lines between neighbouring points of an edge, each cut into equal parts.
        start = np.delete(np.arange(len(x)), point_offsets[1:] - 1)
        edge = np.repeat(np.arange(graph.edge_count, dtype=np.int32), np.diff(graph.shape_offsets) + 1)
        dx, dy = x[start + 1] - x[start], y[start + 1] - y[start]
        parts = np.maximum(np.ceil(np.hypot(dx, dy) / longest_piece_m), 1).astype(np.int64)
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        dx, dy, edge = np.repeat(dx / parts, parts), np.repeat(dy / parts, parts), np.repeat(edge, parts)
        # Lengths along the edge: those in the plane, stretched to the edge's own length.
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
