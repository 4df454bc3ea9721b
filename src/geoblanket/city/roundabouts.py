"""Roundabouts: some junctions become small one-way circles."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket.city.pieces import Pieces
from geoblanket.roads.graph import ROAD_CLASSES

__all__ = ["add_roundabouts"]

_RADIUS_M = 22.0
_SHARE = 0.02  # of junctions that are wanted as roundabouts; some do not fit
_LEAST_LENGTH_M = 75.0  # of the streets that meet
_LEAST_ANGLE = np.radians(40.0)  # between them


def add_roundabouts(
    points: Floats, pieces: Pieces, lines: list[Floats], rng: np.random.Generator
) -> tuple[Floats, Pieces, list[Floats]]:
    """Make roundabouts of some junctions of four or more streets, driven counter-clockwise.

    Returns the points, pieces and inner points of pieces with those of the circles at the end.
    """
    at = _pieces_at(pieces, len(points))
    ends, lines, all_points = pieces.ends.copy(), list(lines), list(points)
    circles = []
    wanted = rng.random(len(points)) < _SHARE
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
        on_circle = points[node] + _RADIUS_M * np.stack([np.cos(angle[order]), np.sin(angle[order])], 1)
        all_points[node] = on_circle[0]
        all_points.extend(on_circle[1:])
        for new, piece in zip(circle, here[order].tolist(), strict=True):
            ends[piece] = np.where(ends[piece] == node, new, ends[piece])
            lines[piece] = lines[piece][np.hypot(*(lines[piece] - points[node]).T) > 1.5 * _RADIUS_M]
        circles.append(_circle(circle, int(pieces.road_class[here].min())))
        lines += [inner[None] for inner in _arc_middles(points[node], angle[order])]
    return np.array(all_points), _append(replace(pieces, ends=ends), circles), lines


def _pieces_at(pieces: Pieces, nodes: int) -> list[Ints]:
    """Return the pieces at each node."""
    order = np.argsort(pieces.ends.ravel(), kind="stable")
    cuts = np.searchsorted(pieces.ends.ravel()[order], np.arange(1, nodes))
    return np.split(order // 2, cuts)


def _next_point(points: Floats, ends: Ints, line: Floats, node: int) -> Floats:
    """Return the point that follows `node` along a piece, beyond the circle."""
    outside = line[np.hypot(*(line - points[node]).T) > 1.5 * _RADIUS_M]
    whole = np.concatenate([outside, points[ends[1:]]]) if ends[0] == node else [points[ends[0]], *outside][::-1]
    return np.asarray(whole[0], np.float64)


def _circle(nodes: list[int], road_class: int) -> Pieces:
    count = len(nodes)
    return Pieces(
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
    result: Floats = centre + _RADIUS_M * np.stack([np.cos(middle), np.sin(middle)], 1)
    return result


def _append(pieces: Pieces, circles: list[Pieces]) -> Pieces:
    """Return all pieces together; each circle is a street of its own."""
    street = int(pieces.street.max())
    for number, circle in enumerate(circles, 1):
        circle.street[:] = street + number
    return Pieces(
        *(np.concatenate([getattr(part, field.name) for part in (pieces, *circles)]) for field in fields(pieces))
    )
