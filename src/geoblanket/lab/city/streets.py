"""The streets of the city as a road graph.

Street pieces join junctions, with dead ends and roundabouts. Then streets get directions, curves and speeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import Delaunay, cKDTree

from geoblanket._arrays import ArrayTable, Bools, Floats, Ints
from geoblanket._geodesy import haversine_m, local_degrees
from geoblanket.lab.city.plan import Junctions, Plan, place_junctions
from geoblanket.roads.graph import ROAD_CLASSES, SYNTHETIC, Edges, Nodes, RoadGraph, whole_lines

_DEAD_END_SHARE = (0.03, 0.08, 0.10)  # of junctions of residential streets alone, by district
_REMOVED_SHARE = 0.05  # of residential streets

_ROUNDABOUT_RADIUS_M = 22.0
_ROUNDABOUT_SHARE = 0.02  # of junctions that are wanted as roundabouts; some do not fit
_LEAST_LENGTH_M = 75.0  # of the streets that meet
_LEAST_ANGLE = np.radians(40.0)  # between them


@dataclass(frozen=True, eq=False)
class _Pieces(ArrayTable):
    """Undirected street pieces between junctions."""

    ends: Ints
    """Junctions at the two ends, shape (n, 2)."""
    road_class: Ints
    street: Ints
    """Pieces with the same number are the same street."""
    axis: Floats
    """Direction of the piece's street if it is one-way, shape (n, 2)."""
    bridge: Bools
    roundabout: Bools
    """Pieces of a roundabout are driven from their first end to their second."""


def _join_junctions(plan: Plan, junctions: Junctions) -> _Pieces:
    """Join the junctions along arterials and with their near neighbours."""
    points = junctions.points
    main = _arterial_pieces(plan, junctions)
    ends = _neighbours(points)
    length = np.hypot(*(points[ends[:, 0]] - points[ends[:, 1]]).T)
    keep = length < 1.8 * plan.spacing_m(points[ends].mean(1))
    keep &= ~_closed_motorway_junctions(plan, junctions)[ends].any(1)
    keep &= ~_crosses_river(plan, points[ends])
    keep &= ~np.isin(_pair_key(ends), _pair_key(main.ends))
    ends = ends[keep]
    open_roads = main.where(main.road_class != ROAD_CLASSES.index("motorway"))
    ends = ends[~_crosses_any(points[ends], points[open_roads.ends])]
    small = _small_pieces(junctions, ends, first_street=int(main.street.max()) + 1)
    return _Pieces.joined([main, small])


def _arterial_pieces(plan: Plan, junctions: Junctions) -> _Pieces:
    ends = np.concatenate([np.stack([chain[:-1], chain[1:]], 1) for chain in junctions.chains])
    sizes = [len(chain) - 1 for chain in junctions.chains]
    road_class = np.repeat([ROAD_CLASSES.index(arterial.road_class) for arterial in plan.arterials], sizes)
    street = np.repeat(np.arange(len(sizes)), sizes)
    _, first = np.unique(_pair_key(ends), return_index=True)
    first = np.sort(first[ends[first, 0] != ends[first, 1]])
    bridge = _crosses_river(plan, junctions.points[ends[first]])
    return _Pieces(
        ends[first], road_class[first], street[first], np.zeros((len(first), 2)), bridge, np.zeros_like(bridge)
    )


def _neighbours(points: Floats) -> Ints:
    """Return pairs of neighbours: a Delaunay edge stays unless a third point lies in (about) the circle over it.

    The circle is a little wider than Gabriel's, so that the cells of a grid get no diagonals.
    """
    triangles = Delaunay(points).simplices.astype(np.int64)
    pairs = np.concatenate([triangles[:, [1, 2]], triangles[:, [2, 0]], triangles[:, [0, 1]]])
    opposite = triangles.T.ravel()
    to_ends = points[pairs] - points[opposite][:, None]
    cosine = (to_ends[:, 0] * to_ends[:, 1]).sum(1) / np.hypot(to_ends[..., 0], to_ends[..., 1]).prod(1)
    pairs = np.sort(pairs, axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    blocked = np.bincount(inverse.ravel(), cosine < 0.25) > 0
    # The shortest spanning tree keeps everything connected, whatever the angles.
    length = np.hypot(*(points[unique[:, 0]] - points[unique[:, 1]]).T)
    matrix = sparse.csr_array((length, (unique[:, 0], unique[:, 1])), (len(points), len(points)))
    tree = csgraph.minimum_spanning_tree(matrix).tocoo()
    in_tree = np.isin(_pair_key(unique), _pair_key(np.sort(np.stack([tree.row, tree.col], 1).astype(np.int64), axis=1)))
    return unique[~blocked | in_tree]


def _closed_motorway_junctions(plan: Plan, junctions: Junctions) -> Bools:
    """Return which junctions are on the motorway but have no exit."""
    closed = np.zeros(len(junctions.points), np.bool_)
    for arterial, chain in zip(plan.arterials, junctions.chains, strict=True):
        if arterial.road_class == "motorway":
            closed[chain] = np.arange(len(chain)) % 4 != 0
    return closed


def _pair_key(ends: Ints) -> Ints:
    """Return one number for each unordered pair."""
    key: Ints = (ends.min(1) << 32) | ends.max(1)
    return key


def _crosses_river(plan: Plan, segments: Floats) -> Bools:
    """Return which segments (n, 2, 2) cross the river's middle line."""
    return _crosses_any(segments, np.stack([plan.river[:-1], plan.river[1:]], 1))


def _crosses_any(segments: Floats, others: Floats) -> Bools:
    """Return which segments (n, 2, 2) cross one of the nearest `others` (m, 2, 2); a shared end is no crossing."""
    nearest = np.asarray(cKDTree(others.mean(1)).query(segments.mean(1), k=min(12, len(others)))[1])
    crosses = np.zeros(len(segments), np.bool_)
    for neighbour in nearest.T:
        crosses |= _segments_cross(segments, others[neighbour])
    return crosses


def _segments_cross(first: Floats, second: Floats) -> Bools:
    """Return which pairs of segments (n, 2, 2) cross."""

    def side(segment: Floats, point: Floats) -> Floats:
        along, to = segment[:, 1] - segment[:, 0], point - segment[:, 0]
        result: Floats = along[:, 0] * to[:, 1] - along[:, 1] * to[:, 0]
        return result

    apart = side(first, second[:, 0]) * side(first, second[:, 1]) < 0
    result: Bools = apart & (side(second, first[:, 0]) * side(second, first[:, 1]) < 0)
    return result


def _small_pieces(junctions: Junctions, ends: Ints, *, first_street: int) -> _Pieces:
    """Make the small streets: a row or column of a neighbourhood's grid is one street, anything else its own."""
    patch, row, column = junctions.patch[ends], junctions.row[ends], junctions.column[ends]
    inside = (patch[:, 0] == patch[:, 1]) & (patch[:, 0] >= 0)
    along_row = inside & (row[:, 0] == row[:, 1])
    along_column = inside & (column[:, 0] == column[:, 1]) & ~along_row
    line = np.select([along_row, along_column], [row[:, 0], column[:, 0]], np.arange(len(ends)))
    kind = np.select([along_row, along_column], [0, 1], 2)
    key = np.stack([np.where(kind == 2, -1, patch[:, 0]), kind, line], 1)
    street = np.unique(key, axis=0, return_inverse=True)[1].ravel() + first_street
    # Parallel one-way streets point in turn this way and that way, as they do in real cities.
    ahead = np.where(along_row, column[:, 1] > column[:, 0], row[:, 1] > row[:, 0]) == (line % 2 == 0)
    along = junctions.points[ends[:, 1]] - junctions.points[ends[:, 0]]
    # Every fifth line of a grid collects the traffic of the others.
    collects = (kind < 2) & ((line + patch[:, 0]) % 5 == 0)
    return _Pieces(
        ends=ends,
        road_class=np.where(collects, ROAD_CLASSES.index("tertiary"), ROAD_CLASSES.index("residential")),
        street=street,
        axis=np.where(ahead, 1.0, -1.0)[:, None] * along,
        bridge=np.zeros(len(ends), np.bool_),
        roundabout=np.zeros(len(ends), np.bool_),
    )


def _make_dead_ends(plan: Plan, junctions: Junctions, pieces: _Pieces, rng: np.random.Generator) -> _Pieces:
    """Close some residential junctions to all but one street, and leave out a few streets."""
    count = len(junctions.points)
    residential = pieces.road_class == ROAD_CLASSES.index("residential")
    share = np.array(_DEAD_END_SHARE)[plan.district(junctions.points)]
    only_small = np.bincount(pieces.ends[~residential].ravel(), minlength=count) == 0
    closed = only_small & (rng.random(count) < share)
    # Two closed neighbours would cut each other off.
    closed[pieces.ends[closed[pieces.ends].all(1), 1]] = False
    keep = ~residential | (rng.random(len(residential)) > _REMOVED_SHARE)
    rank = rng.random(len(residential)) + ~keep
    lowest = np.full(count, np.inf)
    np.minimum.at(lowest, pieces.ends.ravel(), np.repeat(rank, 2))
    ends_here = closed[pieces.ends]
    stays = (ends_here & (rank[:, None] == lowest[pieces.ends])).any(1)
    return pieces.where(np.where(ends_here.any(1), stays, keep))


def _largest_component(ends: Ints, count: int) -> Bools:
    """Return which pieces belong to the largest connected part of `count` junctions."""
    matrix = sparse.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (count, count))
    label = csgraph.connected_components(matrix, directed=False)[1]
    return np.asarray(label[ends[:, 0]] == np.bincount(label[ends[:, 0]]).argmax())


def _merge_pieces(points: Floats, pieces: _Pieces) -> tuple[_Pieces, list[Floats]]:
    """Join the two streets of every junction that has only two; return the pieces and their inner points.

    Where that would make a loop or a second piece between the same ends, the junction becomes a dead end instead.
    """
    ends = [tuple(pair) for pair in pieces.ends.tolist()]
    inner: list[list[int]] = [[] for _ in ends]
    alive = np.ones(len(ends), np.bool_)
    road_class, bridge = pieces.road_class.copy(), pieces.bridge.copy()
    at: dict[int, set[int]] = {}
    for piece, pair in enumerate(ends):
        for node in pair:
            at.setdefault(node, set()).add(piece)
    waiting = sorted(node for node, touching in at.items() if len(touching) == 2)
    while waiting:
        node = waiting.pop()
        if len(at[node]) != 2:
            continue
        kept_piece, joined_piece = sorted(at[node])
        start = sum(ends[kept_piece]) - node
        end = sum(ends[joined_piece]) - node
        joined_before = any(end in ends[piece] for piece in at[start])
        alive[joined_piece] = False
        at[node].discard(joined_piece)
        at[end].discard(joined_piece)
        if start == end or joined_before:
            if len(at[end]) == 2:
                waiting.append(end)
            continue
        before = inner[kept_piece] if ends[kept_piece][1] == node else inner[kept_piece][::-1]
        after = inner[joined_piece] if ends[joined_piece][0] == node else inner[joined_piece][::-1]
        ends[kept_piece], inner[kept_piece] = (start, end), [*before, node, *after]
        at[node].clear()
        at[end].add(kept_piece)
        road_class[kept_piece] = max(road_class[kept_piece], road_class[joined_piece])
        bridge[kept_piece] |= bridge[joined_piece]
    kept = np.flatnonzero(alive)
    joined = replace(pieces.where(kept), ends=np.array([ends[piece] for piece in kept]))
    joined = replace(joined, road_class=road_class[kept], bridge=bridge[kept])
    return joined, [points[inner[piece]] for piece in kept]


def _add_roundabouts(
    points: Floats, pieces: _Pieces, lines: list[Floats], rng: np.random.Generator
) -> tuple[Floats, _Pieces, list[Floats]]:
    """Make roundabouts of some junctions of four or more streets, driven counter-clockwise.

    Returns the points, pieces and inner points of pieces with those of the circles at the end.
    """
    at = _pieces_at(pieces, len(points))
    ends, lines, all_points = pieces.ends.copy(), list(lines), list(points)
    circles = []
    wanted = rng.random(len(points)) < _ROUNDABOUT_SHARE
    length = np.hypot(*(points[ends[:, 0]] - points[ends[:, 1]]).T)
    small = pieces.road_class > ROAD_CLASSES.index("trunk")
    taken = np.zeros(len(points), np.bool_)
    for node in np.flatnonzero(wanted).tolist():
        here = at[node]
        around = pieces.ends[here]
        if len(here) < 4 or taken[around].any() or (length[here] < _LEAST_LENGTH_M).any() or not small[here].all():
            continue
        towards = np.array([_next_point(points, pieces.ends[piece], lines[piece], node) for piece in here])
        angle = np.arctan2(*(towards - points[node]).T[::-1])
        order = np.argsort(angle)
        if np.diff(angle[order], append=angle[order[0]] + 2 * np.pi).min() < _LEAST_ANGLE:
            continue
        taken[around] = True
        circle = [node, *range(len(all_points), len(all_points) + len(here) - 1)]
        on_circle = points[node] + _ROUNDABOUT_RADIUS_M * np.stack([np.cos(angle[order]), np.sin(angle[order])], 1)
        all_points[node] = on_circle[0]
        all_points.extend(on_circle[1:])
        for new, piece in zip(circle, here[order].tolist(), strict=True):
            ends[piece] = np.where(ends[piece] == node, new, ends[piece])
            lines[piece] = lines[piece][np.hypot(*(lines[piece] - points[node]).T) > 1.5 * _ROUNDABOUT_RADIUS_M]
        circles.append(_circle(circle, int(pieces.road_class[here].min())))
        lines += [inner[None] for inner in _arc_middles(points[node], angle[order])]
    return np.array(all_points), _append(replace(pieces, ends=ends), circles), lines


def _pieces_at(pieces: _Pieces, nodes: int) -> list[Ints]:
    """Return the pieces at each node."""
    order = np.argsort(pieces.ends.ravel(), kind="stable")
    cuts = np.searchsorted(pieces.ends.ravel()[order], np.arange(1, nodes))
    return np.split(order // 2, cuts)


def _next_point(points: Floats, ends: Ints, line: Floats, node: int) -> Floats:
    """Return the point that follows `node` along a piece, beyond the circle."""
    outside = line[np.hypot(*(line - points[node]).T) > 1.5 * _ROUNDABOUT_RADIUS_M]
    whole = np.concatenate([outside, points[ends[1:]]]) if ends[0] == node else [points[ends[0]], *outside][::-1]
    return np.asarray(whole[0], np.float64)


def _circle(nodes: list[int], road_class: int) -> _Pieces:
    count = len(nodes)
    return _Pieces(
        ends=np.stack([nodes, np.roll(nodes, -1)], 1),
        road_class=np.full(count, road_class),
        street=np.zeros(count, np.int64),
        axis=np.zeros((count, 2)),
        bridge=np.zeros(count, np.bool_),
        roundabout=np.ones(count, np.bool_),
    )


def _arc_middles(centre: Floats, angle: Floats) -> Floats:
    """Return the point half-way along each arc of a circle."""
    middle = angle + np.diff(angle, append=angle[0] + 2 * np.pi) / 2
    result: Floats = centre + _ROUNDABOUT_RADIUS_M * np.stack([np.cos(middle), np.sin(middle)], 1)
    return result


def _append(pieces: _Pieces, circles: list[_Pieces]) -> _Pieces:
    """Return all pieces together; each circle is a street of its own."""
    street = int(pieces.street.max())
    for number, circle in enumerate(circles, 1):
        circle.street[:] = street + number
    return _Pieces.joined([pieces, *circles])


CENTRE_LAT = 45.0
CENTRE_LON = -30.0
"""The city's centre, degrees WGS84: in the middle of the Atlantic, where there is no real city."""


_SPEEDS_KM_H = {
    "motorway": (110, 110, 110),
    "trunk": (90, 90, 90),
    "primary": (50, 70, 80),
    "secondary": (50, 60, 80),
    "tertiary": (50, 60, 70),
    "residential": (40, 50, 70),
}
_ROUNDABOUT_KM_H = 30
_ONE_WAY_SHARE = {"residential": (0.8, 0.6, 0.25), "tertiary": (0.6, 0.3, 0.1)}  # by district
_FIRST_NODE_ID = 1_000_000_001


@dataclass(frozen=True, eq=False)
class Streets:
    """The road graph, and what a map knows about its edges besides."""

    graph: RoadGraph
    points: Floats
    """Nodes of the graph in metres from the centre, shape (N, 2)."""
    street: Ints
    """Street of each edge, shape (E,)."""
    bridge: Bools
    """Whether each edge is a bridge, shape (E,)."""
    roundabout: Bools
    """Whether each edge is part of a roundabout, shape (E,)."""
    one_way: Bools
    """Whether each edge has no partner in the other direction, shape (E,)."""
    speed_km_h: Ints
    """Speed limit of each edge, shape (E,)."""


def to_degrees(points: Floats) -> tuple[Floats, Floats]:
    """Return latitudes and longitudes of points in metres from the centre, rounded as OpenStreetMap rounds."""
    lat, lon = local_degrees(*points.T, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON)
    return np.round(lat, 7), np.round(lon, 7)


def build_streets(plan: Plan) -> Streets:
    """Build the streets of a plan: strongly connected, and every node a junction or a dead end."""
    rng = np.random.default_rng([plan.seed, 3])
    junctions = place_junctions(plan)
    pieces = _join_junctions(plan, junctions)
    pieces = _make_dead_ends(plan, junctions, pieces, rng)
    pieces = pieces.where(_largest_component(pieces.ends, len(junctions.points)))
    pieces, lines = _merge_pieces(junctions.points, pieces)
    used, ends = np.unique(pieces.ends, return_inverse=True)
    pieces = replace(pieces, ends=ends.reshape(-1, 2))
    points, pieces, lines = _add_roundabouts(junctions.points[used], pieces, lines, rng)
    directions = _choose_directions(plan, points, pieces, rng)
    may_bend = pieces.road_class >= ROAD_CLASSES.index("tertiary")
    lines = [
        _bow(points[ends], line, rng) if bends else line
        for ends, line, bends in zip(pieces.ends, lines, may_bend, strict=True)
    ]
    return _to_graph(plan, points, pieces, lines, directions)


def _choose_directions(plan: Plan, points: Floats, pieces: _Pieces, rng: np.random.Generator) -> tuple[Bools, Bools]:
    """Return which pieces may be driven forward and backward, such that one can get from anywhere to anywhere."""
    count = int(pieces.street.max()) + 1
    middle = points[pieces.ends].mean(1)
    share = np.zeros(len(middle))
    for name, by_district in _ONE_WAY_SHARE.items():
        chosen = pieces.road_class == ROAD_CLASSES.index(name)
        share[chosen] = np.array(by_district)[plan.district(middle[chosen])]
    one_way = ((rng.random(count)[pieces.street] < share) & ~pieces.bridge) | pieces.roundabout
    along = points[pieces.ends[:, 1]] - points[pieces.ends[:, 0]]
    ahead = ((along * pieces.axis).sum(1) > 0) | pieces.roundabout
    while True:
        forward, backward = ~one_way | ahead, ~one_way | ~ahead
        source = np.concatenate([pieces.ends[forward, 0], pieces.ends[backward, 1]])
        target = np.concatenate([pieces.ends[forward, 1], pieces.ends[backward, 0]])
        matrix = sparse.csr_array((np.ones(len(source)), (source, target)), (len(points), len(points)))
        label = csgraph.connected_components(matrix, directed=True, connection="strong")[1]
        # A one-way street between two parts without a way back is opened in both directions.
        apart = one_way & (label[pieces.ends[:, 0]] != label[pieces.ends[:, 1]])
        if not apart.any():
            return forward, backward
        one_way &= ~apart


def _bow(ends: Floats, inner: Floats, rng: np.random.Generator) -> Floats:
    """Return the inner points of a piece, with a gentle curve for some of the straight ones."""
    along = ends[1] - ends[0]
    length = np.hypot(*along)
    bow, at = rng.normal(0.0, 0.05), rng.random()
    if len(inner) or length < 60.0 or at > 0.45:
        return inner
    share = np.linspace(0.0, 1.0, 2 + int(np.clip(length // 60, 1, 4)))[1:-1, None]
    sideways = np.array([-along[1], along[0]]) * bow
    curve: Floats = ends[0] + share * along + np.sin(np.pi * share) * sideways
    return curve


def _lengths_m(lat: Floats, lon: Floats, ends: Ints, inner: tuple[Ints, Floats, Floats]) -> Floats:
    """Return the lengths of pieces along their whole lines, metres."""
    offsets, line_lat, line_lon = whole_lines(lat, lon, ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32), inner)
    along = np.append(0.0, np.cumsum(haversine_m(line_lat[:-1], line_lon[:-1], line_lat[1:], line_lon[1:])))
    length: Floats = along[offsets[1:] - 1] - along[offsets[:-1]]
    return length


def _to_graph(
    plan: Plan, points: Floats, pieces: _Pieces, lines: list[Floats], directions: tuple[Bools, Bools]
) -> Streets:
    forward, backward = directions
    lat, lon = to_degrees(points)
    inner_count = np.array([len(line) for line in lines])
    inner_lat, inner_lon = to_degrees(np.concatenate([np.zeros((0, 2)), *lines]))
    starts = np.concatenate([[0], np.cumsum(inner_count)])
    length = _lengths_m(lat, lon, pieces.ends, (starts, inner_lat, inner_lon))
    district = plan.district(points[pieces.ends].mean(1))
    speed = np.zeros(len(lines), np.int64)
    for name, by_district in _SPEEDS_KM_H.items():
        chosen = pieces.road_class == ROAD_CLASSES.index(name)
        speed[chosen] = np.array(by_district)[district[chosen]]
    speed[pieces.roundabout] = _ROUNDABOUT_KM_H
    ahead, back = np.flatnonzero(forward), np.flatnonzero(backward)
    piece_of = np.concatenate([ahead, back])
    source = np.concatenate([pieces.ends[ahead, 0], pieces.ends[back, 1]])
    target = np.concatenate([pieces.ends[ahead, 1], pieces.ends[back, 0]])
    order = [np.arange(starts[piece], starts[piece + 1]) for piece in ahead]
    order += [np.arange(starts[piece], starts[piece + 1])[::-1] for piece in back]
    inner = np.concatenate(order).astype(np.int64)
    graph = RoadGraph.from_edges(
        Nodes(ids=_FIRST_NODE_ID + np.arange(len(points)), lat=lat, lon=lon),
        Edges(
            sources=source,
            targets=target,
            length_m=length[piece_of],
            speed_m_s=speed[piece_of] / 3.6,
            road_class=pieces.road_class[piece_of],
        ),
        length_model="sphere",
        shapes=(np.concatenate([[0], np.cumsum(inner_count[piece_of])]), inner_lat[inner], inner_lon[inner]),
        credit=SYNTHETIC,
    )
    # No two pieces join the same ends, so (source, target) orders the edges just as the graph does.
    piece_of = piece_of[np.lexsort((target, source))]
    return Streets(
        graph=graph,
        points=points,
        street=pieces.street[piece_of],
        bridge=pieces.bridge[piece_of],
        roundabout=pieces.roundabout[piece_of],
        one_way=~(forward & backward)[piece_of],
        speed_km_h=speed[piece_of],
    )
