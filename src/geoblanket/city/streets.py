"""The streets of the city as a road graph: one-way streets, curves, speeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._geodesy import haversine_m, local_degrees
from geoblanket.city.pieces import (
    Pieces,
    add_roundabouts,
    join_junctions,
    largest_component,
    make_dead_ends,
    merge_pieces,
)
from geoblanket.city.plan import Plan, place_junctions
from geoblanket.roads.graph import ROAD_CLASSES, SYNTHETIC, RoadGraph, whole_lines

__all__ = ["CENTRE_LAT", "CENTRE_LON", "Streets", "build_streets", "to_degrees"]

CENTRE_LAT = 45.0
CENTRE_LON = -30.0
"""The city's centre, degrees WGS84: in the middle of the Atlantic, so that nobody takes it for a real one."""


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
    pieces = join_junctions(plan, junctions)
    pieces = make_dead_ends(plan, junctions, pieces, rng)
    pieces = pieces.where(largest_component(pieces.ends, len(junctions.points)))
    pieces, lines = merge_pieces(junctions.points, pieces)
    used, ends = np.unique(pieces.ends, return_inverse=True)
    pieces = replace(pieces, ends=ends.reshape(-1, 2))
    points, pieces, lines = add_roundabouts(junctions.points[used], pieces, lines, rng)
    directions = _choose_directions(plan, points, pieces, rng)
    may_bend = pieces.road_class >= ROAD_CLASSES.index("tertiary")
    lines = [
        _bow(points[ends], line, rng) if bends else line
        for ends, line, bends in zip(pieces.ends, lines, may_bend, strict=True)
    ]
    return _to_graph(plan, points, pieces, lines, directions)


def _choose_directions(plan: Plan, points: Floats, pieces: Pieces, rng: np.random.Generator) -> tuple[Bools, Bools]:
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
    plan: Plan, points: Floats, pieces: Pieces, lines: list[Floats], directions: tuple[Bools, Bools]
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
        node_ids=_FIRST_NODE_ID + np.arange(len(points)),
        lat=lat,
        lon=lon,
        sources=source,
        targets=target,
        length_m=length[piece_of],
        speed_m_s=speed[piece_of] / 3.6,
        road_class=pieces.road_class[piece_of],
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
