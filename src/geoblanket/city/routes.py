"""The ways a vehicle can go in one tick of the clock: pairs of junctions, the road between them, and points along it.

A tick is 30 s. A pair joins a junction with one that lies a straight line of 10 to 45 mph × 30 s away and is reachable
by road in about that time. Two drivers may take different roads between the same two junctions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from geoblanket._arrays import ArrayTable, Bools, Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import EARTH_RADIUS_M, MPH_M_S, haversine_m, local_metres
from geoblanket.city.plan import Plan
from geoblanket.city.streets import CENTRE_LAT, CENTRE_LON, Streets
from geoblanket.roads.graph import RoadGraph

__all__ = ["BIN_EDGES_M", "TICK_S", "WAYPOINTS_S", "Lines", "Routes", "find_routes"]

TICK_S = 30
"""The clock of the fleet, seconds: at every tick each vehicle is exactly at a node."""
BIN_EDGES_M = np.arange(10, 50, 5) * MPH_M_S * TICK_S
"""Borders of the bins of straight-line displacement in one tick, metres: multiples of 5 mph."""
WAYPOINTS_S = np.arange(5, TICK_S, 5)
"""Seconds after a tick at which a route's positions are kept."""

_BINS_OF_DISTRICT = ((0, 4), (2, 7), (2, 7))
"""First and last + 1 bin that is used from a district: downtown up to 30 mph, elsewhere from 20 mph."""
_LARGEST_DETOUR = 1.8  # road over straight line
_ALWAYS_NEAR_M = 400.0  # a road shorter than this is no detour
_LARGEST_TIME_S = 1.6 * TICK_S  # at free flow
_SECTORS = 8  # directions
_TILE_M = 1500.0  # side of the squares that are searched one after the other
_PERCEPTION_NOISE = 0.12  # standard deviation of the logarithm of what a driver takes a road to be long
_ALTERNATIVES = 2  # drivers' views, and so routes, of each pair


class Lines:
    """All edges of a graph as one long line, to find the position at a distance along an edge."""

    def __init__(self, graph: RoadGraph) -> None:
        offsets, lat, lon = graph.lines()
        x, y = local_metres(lat, lon, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON)
        step = np.append(0.0, np.hypot(np.diff(x), np.diff(y)))
        # From one edge's end to the next one's start is a gap of a metre, so that no position is ambiguous.
        step[offsets[1:-1]] = 1.0
        self._x, self._y = x, y
        self._at = np.cumsum(step)
        self._start = self._at[offsets[:-1]]
        self._length = self._at[offsets[1:] - 1] - self._start

    def position(self, edge: npt.NDArray[np.integer], share: Floats) -> Floats:
        """Return points, shape (..., 2), at a share of the way along edges, metres from the centre."""
        at = self._start[edge] + np.clip(share, 0.0, 1.0) * self._length[edge]
        return np.stack([np.interp(at, self._at, self._x), np.interp(at, self._at, self._y)], -1)


@dataclass(frozen=True, eq=False)
class Routes(ArrayTable):
    """Ways to go in one tick, sorted by source, then bin."""

    source: Indices
    target: Indices
    bin: Octets
    """Bin of the straight-line displacement, an index into `BIN_EDGES_M`."""
    displacement: Floats
    """Metres east and north, shape (P, 2)."""
    detour: Floats
    """Length of the road over the straight line."""
    waypoints: npt.NDArray[np.float32]
    """Positions at `WAYPOINTS_S` for each alternative road, metres from the centre, shape (P, 2, 5, 2)."""
    edges: Indices
    """Edge just after the tick, at each of `WAYPOINTS_S`, and just before the next tick, shape (P, 2, 7)."""


def find_routes(plan: Plan, streets: Streets, lines: Lines, usable: Bools, *, progress: Progress = silent) -> Routes:
    """Find the routes between usable nodes: in each bin at most one for each of eight directions."""
    net = _Net(streets.graph, lines, np.random.default_rng([plan.seed, 4]))
    pairs = _near_pairs(plan, streets, usable)
    parts = []
    tiles = list(_tiles(streets.points, pairs.source))
    for done, (inside, around) in enumerate(tiles, 1):
        parts.append(_routes_of_tile(net, pairs.where(inside), around))
        progress("roads between ticks", done, len(tiles))
    routes = Routes.joined(parts)
    return routes.where(np.lexsort((routes.target, routes.bin, routes.source)))


class _Net:
    """The road network as drivers see it: lengths, each driver's own view of them, and edges by their ends."""

    def __init__(self, graph: RoadGraph, lines: Lines, rng: np.random.Generator) -> None:
        self.graph, self.lines = graph, lines
        # Main roads look shorter to every driver; the rest is personal.
        liking = 1.0 + 0.06 * np.minimum(graph.road_class, 6)
        noise = np.exp(rng.normal(0.0, _PERCEPTION_NOISE, (_ALTERNATIVES, graph.edge_count)))
        self.perceived = [
            sparse.csr_array((weight, graph.targets, graph.offsets), (graph.node_count, graph.node_count))
            for weight in graph.length_m * liking * noise
        ]
        self._key = graph.sources.astype(np.int64) * graph.node_count + graph.targets

    def edge(self, source: Ints, target: Ints) -> Ints:
        """Return the edges between nodes that are neighbours."""
        return np.searchsorted(self._key, source * self.graph.node_count + target)


@dataclass(frozen=True, eq=False)
class _Pairs(ArrayTable):
    source: Ints
    target: Ints
    bin: Ints
    displacement: Floats
    straight_m: Floats


def _near_pairs(plan: Plan, streets: Streets, usable: Bools) -> _Pairs:
    """Return the ordered pairs of usable nodes whose straight line falls into a bin of the source's district."""
    graph, nodes = streets.graph, np.flatnonzero(usable)
    near = cKDTree(streets.points[nodes]).query_pairs(1.01 * BIN_EDGES_M[-1], output_type="ndarray")
    near = nodes[np.concatenate([near, near[:, ::-1]])]
    source, target = near.T
    straight = haversine_m(graph.lat[source], graph.lon[source], graph.lat[target], graph.lon[target])
    number = np.searchsorted(BIN_EDGES_M, straight, side="right") - 1
    first, end = np.array(_BINS_OF_DISTRICT)[plan.district(streets.points)[source]].T
    # A metre of margin keeps every displacement in its bin whatever formula a reader uses.
    inside = (number >= first) & (number < end) & (np.abs(straight[:, None] - BIN_EDGES_M).min(1) > 1.0)
    scale = np.radians(1.0) * EARTH_RADIUS_M
    middle = np.cos(np.radians((graph.lat[source] + graph.lat[target]) / 2))
    displacement = np.stack(
        [(graph.lon[target] - graph.lon[source]) * scale * middle, (graph.lat[target] - graph.lat[source]) * scale], 1
    )
    return _Pairs(source, target, number, displacement, straight).where(inside)


def _tiles(points: Floats, source: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield for each square tile the pairs that start in it, and the nodes that their roads may use."""
    tile = np.floor(points / _TILE_M).astype(np.int64)
    tree = cKDTree(points)
    key = (tile[source, 0] << 20) + tile[source, 1]
    order = np.argsort(key, kind="stable")
    starts = np.append(np.flatnonzero(np.append(True, np.diff(key[order]) != 0)), len(order))
    reach = _TILE_M / np.sqrt(2) + _LARGEST_DETOUR * BIN_EDGES_M[-1]
    for low, high in pairwise(starts.tolist()):
        inside = order[low:high]
        centre = (tile[source[inside[0]]] + 0.5) * _TILE_M
        yield inside, np.sort(np.array(tree.query_ball_point(centre, reach), np.int64))


def _routes_of_tile(net: _Net, pairs: _Pairs, around: Ints) -> Routes:
    """Return the routes of pairs whose roads use only the nodes `around`."""
    graph = net.graph
    sources, row = np.unique(pairs.source, return_inverse=True)
    local = np.full(graph.node_count, -1)
    local[around] = np.arange(len(around))
    paths = []
    for matrix in net.perceived:
        limit = _LARGEST_DETOUR * 1.6 * BIN_EDGES_M[-1]
        before = csgraph.dijkstra(
            matrix[around][:, around], indices=local[sources], limit=limit, return_predecessors=True
        )[1]
        nodes = _walk_back(before, row, local[pairs.target])
        there = nodes[:, 1:] >= 0
        edge = net.edge(around[nodes[:, :-1]], around[nodes[:, 1:]])
        paths.append(np.where(there, edge, -1).astype(np.int32))
    length = [_sum_along(path, graph.length_m) for path in paths]
    detour = length[0] / pairs.straight_m
    fits = length[0] < np.maximum(_LARGEST_DETOUR * pairs.straight_m, _ALWAYS_NEAR_M)
    fits &= (_sum_along(paths[0], graph.time_s) < _LARGEST_TIME_S) & (length[0] > 0)
    chosen = np.flatnonzero(fits)
    chosen = chosen[_best_of_each_direction(pairs.where(chosen), detour[chosen])]
    # A second road that is too long is not taken: that driver goes the first way too.
    other_fits = (length[1] < 1.15 * length[0]) & (length[1] > 0)
    width = max(path.shape[1] for path in paths)
    wide = [np.pad(path, ((0, 0), (0, width - path.shape[1])), constant_values=-1) for path in paths]
    both = np.stack([wide[0], np.where(other_fits[:, None], wide[1], wide[0])], 1)[chosen]
    waypoints, edges = _place_waypoints(graph, net.lines, both.reshape(-1, width))
    kept = pairs.where(chosen)
    return Routes(
        source=kept.source.astype(np.int32),
        target=kept.target.astype(np.int32),
        bin=kept.bin.astype(np.uint8),
        displacement=kept.displacement,
        detour=detour[chosen],
        waypoints=waypoints.reshape(-1, _ALTERNATIVES, len(WAYPOINTS_S), 2),
        edges=edges.reshape(-1, _ALTERNATIVES, len(WAYPOINTS_S) + 2),
    )


def _walk_back(before: Indices, row: Ints, target: Ints) -> Ints:
    """Return the nodes of each path in driving order, padded with -1 at the end, at least two columns wide."""
    columns = [target]
    while True:
        previous = before[row, columns[-1]].astype(np.int64)
        moving = (previous >= 0) & (columns[-1] >= 0)
        if not moving.any():
            break
        columns.append(np.where(moving, previous, -1))
    backwards = np.stack([*columns, np.full(len(target), -1)], 1)
    position = (backwards >= 0).sum(1)[:, None] - 1 - np.arange(backwards.shape[1])
    return np.where(position >= 0, np.take_along_axis(backwards, np.maximum(position, 0), 1), -1)


def _sum_along(path: Indices, values: Floats) -> Floats:
    total: Floats = np.where(path >= 0, values[path], 0.0).sum(1)
    return total


def _best_of_each_direction(pairs: _Pairs, detour: Floats) -> Ints:
    """Return the pairs with the straightest road among those of the same source, bin and direction."""
    angle = np.arctan2(pairs.displacement[:, 1], pairs.displacement[:, 0])
    sector = np.floor((angle + np.pi) / (2 * np.pi) * _SECTORS).astype(np.int64) % _SECTORS
    group = (pairs.source * len(BIN_EDGES_M) + pairs.bin) * _SECTORS + sector
    order = np.lexsort((detour, group))
    return order[np.append(True, np.diff(group[order]) != 0)] if len(order) else order


def _place_waypoints(graph: RoadGraph, lines: Lines, path: Indices) -> tuple[npt.NDArray[np.float32], Indices]:
    """Return where a vehicle is, and on which edge, if it needs exactly a tick for each path."""
    time = np.where(path >= 0, graph.time_s[path], 0.0)
    arrival = np.cumsum(time, 1)
    # The speeds along the road keep their proportions; only the whole is fitted to the tick.
    at = arrival[:, -1:] * (WAYPOINTS_S / TICK_S)
    step = (arrival[:, None, :] < at[:, :, None]).sum(2)
    edge = np.take_along_axis(path, step, 1)
    left = np.take_along_axis(arrival, step, 1) - at
    share = 1.0 - left / graph.time_s[edge]
    last = np.take_along_axis(path, (path >= 0).sum(1, keepdims=True) - 1, 1)
    return lines.position(edge, share).astype(np.float32), np.concatenate([path[:, :1], edge, last], 1)
