"""How the fleet moves: a Markov chain on the nodes whose order is known exactly.

At a tick a vehicle at node x draws a speed band (or a stop), and whether it stays in its district or leaves it, with
probabilities that depend on x and the hour alone. Then it draws one of the candidates j that fit with probability

    p_j ∝ w_j exp(d_j · h),    h = κ₁ u₁ + κ₂ u₂,

where d_j is the candidate's displacement in strides, and u₁ and u₂ are the directions of the vehicle's last two
displacements (zero for a stop or before the trip). κ depends on the order of (district of x, speed band): order 1 has
κ = (0, 0), order 2 (κ₁, 0), order 3 (κ₁, κ₂); steps out of the district have h = 0. Hence the next node depends on the
last `order` nodes and on nothing else: no vehicle has a destination or habits.

The weights w make the mean displacement Σ w_j d_j a smooth field f(x), as far as the streets of a node allow it.
Otherwise the streets of each node would be a hidden cause of where vehicles come from and where they go, and a test
that knows positions only roughly would take that for memory.

In each district one band has memory and the other has none. So a group of similar mean speeds may mix steps with and
without memory, but never two kinds of memory.

What a vehicle can do in one tick of 30 s are routes: pairs of junctions, the road between them, and points along it. A
pair joins two junctions that are 10 to 45 mph × 30 s apart in a straight line, and about 30 s apart by road. Two
drivers may take different roads between the same two junctions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from geoblanket._arrays import ArrayTable, Bools, Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import EARTH_RADIUS_M, MPH_M_S, haversine_m, local_metres
from geoblanket.lab.city.plan import DISTRICTS, Plan
from geoblanket.lab.city.streets import CENTRE_LAT, CENTRE_LON, Streets
from geoblanket.roads.graph import RoadGraph

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
_PERCEPTION_NOISE = 0.12  # standard deviation of the logarithm of a road's perceived length
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
        preference = 1.0 + 0.06 * np.minimum(graph.road_class, 6)
        noise = np.exp(rng.normal(0.0, _PERCEPTION_NOISE, (_ALTERNATIVES, graph.edge_count)))
        self.perceived = [
            sparse.csr_array((weight, graph.targets, graph.offsets), (graph.node_count, graph.node_count))
            for weight in graph.length_m * preference * noise
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
    # A metre of margin keeps every displacement in its bin, whatever formula a reader uses for distances.
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


BANDS = ("stopped", "slow", "medium", "fast")
"""Bands of straight-line speed: 0, 10 to 20, 20 to 30, and 30 to 45 mph."""
BAND_BINS = ((0, 0), (0, 2), (2, 4), (4, 7))
"""First and last + 1 bin (between `BIN_EDGES_M`) of each band."""

ORDERS = {
    ("downtown", "slow"): 2,
    ("downtown", "medium"): 1,
    ("inner", "medium"): 2,
    ("inner", "fast"): 1,
    ("outskirts", "medium"): 1,
    ("outskirts", "fast"): 3,
}
"""The Markov order by district of the node that is left and speed band: the truth about the city."""

STRENGTH = {1: (0.0, 0.0), 2: (1.0, 0.0), 3: (0.9, 0.9)}
"""(κ₁, κ₂) by order."""

_BAND_CHANCES = {
    "downtown": {"stopped": 0.10, "slow": 0.72, "medium": 0.18},
    "inner": {"stopped": 0.07, "medium": 0.74, "fast": 0.19},
    "outskirts": {"stopped": 0.05, "medium": 0.17, "fast": 0.78},
}
_SLOWER = np.array([1.0, 1.15, 1.5])
"""Odds of stops and of the district's slower band by traffic: calm, busy, rush hour."""
_MOST_CROSSING = 0.5  # chance that a step leaves its district, where steps have memory
_LEAST_STAYING = 0.1
"""Where the candidates inside the district have less weight than this, beside its border, steps have no memory."""
_FEWEST_CANDIDATES = 3  # of a step that can be calibrated, or have memory
_LEAST_WEIGHT = 1e-9  # of a candidate: none is impossible
_ROWS_AT_ONCE = 2048  # calibrated together, to bound memory
_MOVING = len(BANDS) - 1


@dataclass(frozen=True, eq=False)
class Moves:
    """The Markov chain as tables. A row is (node, moving band) = node × 3 + band - 1; a slot is one candidate of it."""

    chances: npt.NDArray[np.float32]
    """Cumulative chances of the bands, by traffic and node, shape (3, N, 4); zero where no vehicle stops."""
    weight: npt.NDArray[np.float32]
    """w of each slot, shape (rows, K), zero where there is no candidate."""
    step: npt.NDArray[np.float32]
    """d of each slot, east and north, in strides, shape (2, rows, K)."""
    route: Indices
    """Index of each slot's route in `routes`, shape (rows, K), -1 where there is none."""
    stay_chance: npt.NDArray[np.float32]
    """Chance to stay in the district, shape (rows,)."""
    stay_slots: Octets
    """Number of slots that stay in the district; they come first, shape (rows,)."""
    slots: Octets
    """Number of candidates, shape (rows,)."""
    order: Octets
    """Order used at each row by steps inside the district, shape (rows,), 0 where the band is impossible."""
    routes: Routes

    @property
    def usable(self) -> Bools:
        """Nodes at which vehicles may be at a tick, shape (N,)."""
        result: Bools = self.chances[0, :, -1] > 0
        return result


def build_moves(plan: Plan, streets: Streets, routes: Routes) -> Moves:
    """Calibrate the chain; vehicles pass through nodes whose streets lead only one way, and never stop there."""
    points = streets.points
    district = plan.district(points)
    rows = _gather_rows(routes, district)
    weight = np.zeros(rows.slot.shape)
    stays = np.zeros(rows.slot.shape, np.bool_)
    stay_chance = np.zeros(len(rows.slot))
    order = np.zeros(len(rows.slot), np.uint8)
    main = np.array([_main_band(name) for name in DISTRICTS])[district]
    changed = np.ones(len(rows.slot), np.bool_)
    while changed.any():
        calibrated = _calibrate(plan, points, district, rows.where(changed))
        weight[changed], stays[changed], stay_chance[changed], order[changed] = calibrated
        alive = np.zeros(len(points), np.bool_)
        alive[rows.source[(order > 0) & (rows.band == main[rows.source])]] = True
        # A candidate at which no vehicle could go on is no candidate: rows that lose one are calibrated again.
        lost = rows.there & ~(alive[rows.target] & alive[rows.source][:, None])
        changed = np.asarray(lost.any(1))
        rows.there[lost] = False
    chain = _Chain(weight, stays, stay_chance, order)
    return _to_moves(district, rows, chain, routes)


@dataclass(frozen=True, eq=False)
class _Rows(ArrayTable):
    """The rows that have routes, with their candidates side by side."""

    source: Ints
    band: Ints
    slot: Ints
    """Route of each slot, shape (n, K), -1 for none."""
    there: Bools
    """Which slots are candidates still, shape (n, K)."""
    target: Ints
    step: Floats
    """Displacements over the band's middle, shape (n, K, 2)."""
    bin: Ints
    base: Floats
    """Preference for each candidate before calibration, shape (n, K)."""


def _gather_rows(routes: Routes, district: Octets) -> _Rows:
    band_of_bin = np.repeat(np.arange(len(BANDS)), [end - first for first, end in BAND_BINS])
    band = band_of_bin[routes.bin]
    possible = np.array([[(name, band) in ORDERS for band in BANDS] for name in DISTRICTS])
    key = routes.source.astype(np.int64) * _MOVING + band - 1
    number, first, count = np.unique(key, return_index=True, return_counts=True)
    position = np.arange(count.max())
    slot = np.where(position < count[:, None], first[:, None] + position, -1)
    source, band = number // _MOVING, number % _MOVING + 1
    edges = BIN_EDGES_M[np.array(BAND_BINS)[band]]
    there = (slot >= 0) & possible[district[source], band][:, None]
    return _Rows(
        source=source,
        band=band,
        slot=slot,
        there=there,
        target=routes.target[slot].astype(np.int64),
        step=routes.displacement[slot] / edges.mean(1)[:, None, None],
        bin=routes.bin[slot].astype(np.int64),
        base=np.exp(-2.0 * (routes.detour[slot] - 1.0)),
    )


def _main_band(district: str) -> int:
    """Return the moving band that is most frequent in a district."""
    chances = _BAND_CHANCES[district]
    return max(range(1, len(BANDS)), key=lambda band: chances.get(BANDS[band], 0.0))


class _Chain(NamedTuple):
    """What calibration finds for rows."""

    weight: Floats
    """Shape (n, K); staying and leaving candidates each sum to 1."""
    stays: Bools
    """Which slots stay in the district, shape (n, K)."""
    stay_chance: Floats
    order: Octets
    """0 where a row cannot be used."""


def _calibrate(plan: Plan, points: Floats, district: Octets, rows: _Rows) -> _Chain:
    here = district[rows.source]
    weight, fits = _tilt(rows, _drift(plan, points[rows.source]))
    inside = rows.there & (district[rows.target] == here[:, None])
    staying, leaving = weight * inside, weight * ~inside
    stay = staying.sum(1)
    remembers = (inside.sum(1) >= _FEWEST_CANDIDATES) & (stay >= _LEAST_STAYING)
    parts = sum(part / np.maximum(part.sum(1, keepdims=True), _LEAST_WEIGHT) for part in (staying, leaving))
    order_of = np.array([[ORDERS.get((name, band), 0) for band in BANDS] for name in DISTRICTS])
    order = np.where(remembers, order_of[here, rows.band], 1)
    return _Chain(
        weight=np.where(remembers[:, None], parts, weight),
        stays=np.where(remembers[:, None], inside, rows.there),
        stay_chance=np.where(remembers, np.maximum(stay, 1.0 - _MOST_CROSSING), 1.0),
        order=np.where(fits, order, 0).astype(np.uint8),
    )


def _drift(plan: Plan, points: Floats) -> Floats:
    """Return the mean displacement wanted at points, in strides: a slow circulation."""
    rng = np.random.default_rng([plan.seed, 5])
    drift = np.zeros_like(points)
    for _ in range(4):
        angle, phase = rng.uniform(0, 2 * np.pi, 2)
        wave = 2 * np.pi / (plan.borders_m[-1] * rng.uniform(0.8, 1.6))
        direction = np.array([np.cos(angle), np.sin(angle)])
        # The curl of a stream function: vehicles circulate and gather nowhere.
        drift += 0.13 * np.cos(wave * points @ direction + phase)[:, None] * np.array([-direction[1], direction[0]])
    return drift


def _tilt(rows: _Rows, mean: Floats) -> tuple[Floats, Bools]:
    """Return weights of candidates under which the mean step is `mean`, and where there are enough candidates.

    Weights of the form base × exp(λ · features), by Newton's method on the dual of a penalised problem: the mean is
    met in each 5 mph bin where the streets allow it, and nearly elsewhere. That there is as much north-south as
    east-west is a lesser wish.
    """
    weight = np.zeros(rows.slot.shape)
    enough = rows.there.sum(1) >= _FEWEST_CANDIDATES
    open_rows = np.flatnonzero(enough)
    for first in range(0, len(open_rows), _ROWS_AT_ONCE):
        part = open_rows[first : first + _ROWS_AT_ONCE]
        weight[part] = _tilt_part(rows.where(part), mean[part])
    return weight, enough


def _tilt_part(rows: _Rows, mean: Floats) -> Floats:
    off = rows.step - mean[:, None]
    east, north = rows.step[..., 0], rows.step[..., 1]
    wishes = np.stack([off[..., 0], off[..., 1], east**2 - north**2, 2 * east * north], -1)
    ends = np.array(BAND_BINS)
    bins = int(np.diff(ends).max())
    number = rows.bin - ends[rows.band, :1]
    features = np.concatenate([wishes * (number == bin_number)[..., None] for bin_number in range(bins)], -1)
    count = features.shape[-1]
    ridge = np.diag([0.001, 0.001, 0.02, 0.02] * bins)
    multiplier = np.zeros((len(off), count))
    log_base = np.where(rows.there, np.log(rows.base), -np.inf)
    weight = np.zeros(rows.there.shape)
    for _ in range(40):
        score = log_base + np.einsum("nkf,nf->nk", features, multiplier)
        weight = np.exp(score - score.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        expected = np.einsum("nk,nkf->nf", weight, features)
        slope = -expected - multiplier @ ridge
        if np.abs(slope).max(initial=0.0) < 1e-6:
            break
        centred = features - expected[:, None]
        curvature = np.swapaxes(weight[..., None] * centred, 1, 2) @ centred + ridge
        change = np.linalg.solve(curvature, slope[..., None])[..., 0]
        multiplier += change * np.minimum(1.0, 2.0 / np.maximum(np.abs(change).max(1, keepdims=True), 1e-9))
    return np.where(rows.there, np.maximum(weight, _LEAST_WEIGHT), 0.0)


def _to_moves(district: Octets, rows: _Rows, chain: _Chain, routes: Routes) -> Moves:
    """Arrange the usable rows by number, with staying candidates first, and drop unused routes."""
    good = chain.order > 0
    width = int(rows.there[good].sum(1).max(initial=1))
    first = np.argsort(2 * ~rows.there + ~chain.stays, axis=1, kind="stable")[good, :width]

    def arrange(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.take_along_axis(array[good], first, 1)

    there, slot = arrange(rows.there), arrange(rows.slot)
    kept = np.zeros(len(routes.source), np.bool_)
    kept[slot[there]] = True
    renumbered = np.cumsum(kept) - 1
    number = (rows.source * _MOVING + rows.band - 1)[good]

    def spread(values: npt.NDArray[Any], dtype: npt.DTypeLike, *, empty: int = 0) -> npt.NDArray[Any]:
        result = np.full((len(district) * _MOVING, *values.shape[1:]), empty, dtype)
        result[number] = values
        return result

    order = spread(chain.order[good], np.uint8)
    return Moves(
        chances=_band_chances(district, (order > 0).reshape(-1, _MOVING)),
        weight=spread(np.where(there, arrange(chain.weight), 0.0), np.float32),
        step=np.stack([spread(np.where(there, arrange(rows.step[..., axis]), 0.0), np.float32) for axis in (0, 1)]),
        route=spread(np.where(there, renumbered[slot], -1), np.int32, empty=-1),
        stay_chance=spread(chain.stay_chance[good], np.float32),
        stay_slots=spread((there & arrange(chain.stays)).sum(1), np.uint8),
        slots=spread(there.sum(1), np.uint8),
        order=order,
        routes=routes.where(kept),
    )


def _band_chances(district: Octets, possible: Bools) -> npt.NDArray[np.float32]:
    """Return the cumulative chances of the bands, by traffic and node."""
    table = np.array([[_BAND_CHANCES[name].get(band, 0.0) for band in BANDS] for name in DISTRICTS])
    slower = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]], np.bool_)
    usable = possible.any(1, keepdims=True)
    result = []
    for factor in _SLOWER:
        chance = np.where(slower, table * factor, table)[district] * np.concatenate([usable, possible], 1)
        result.append(np.cumsum(chance / np.where(usable, chance.sum(1, keepdims=True), 1.0), 1))
    return np.array(result, np.float32)


def speed_range_m_s(band: str) -> tuple[float, float]:
    """Return the straight-line speeds of a band in this city, metres per second: above the first, up to the second."""
    first, end = BAND_BINS[BANDS.index(band)]
    if first == end:
        return 0.0, 0.0
    return float(BIN_EDGES_M[first] / TICK_S), float(BIN_EDGES_M[end] / TICK_S)
