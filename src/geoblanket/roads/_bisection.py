"""Cut a graph with positions into connected parts of at most so many nodes, by repeated halving.

Each cut tries straight lines in several directions and takes the one that severs the fewest links among those that
leave both sides about as large as wanted. What a line leaves dangling on the wrong side of it joins the other side,
so both sides are connected. The result depends on nothing but the graph, in the order of its nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from geoblanket._arrays import Bools, Floats, Ints

__all__ = ["Links", "connected_parts"]

_DIRECTIONS = 32  # in which a part is tried to be cut
_TRIED = 4
"""Of the lines in all directions, how many of the best are looked at closely."""
_FILL = 0.85
"""How full parts should be: room for cuts that follow rivers and railways rather than exact sizes."""
_UNEVEN = 0.12
"""How much more than planned one side of a cut may hold, as a share, and still count as even."""

_REPAIRS = 4
"""How often to go over parts that came out small."""


@dataclass(frozen=True)
class Links:
    """The links of an undirected graph, each once: the nodes at their ends, and their weights (positive integers)."""

    start: Ints
    end: Ints
    weight: Ints

    def inside(self, nodes: Ints, total: int) -> Links:
        """Return the links between `nodes`, as positions in `nodes`."""
        position = np.full(total, -1)
        position[nodes] = np.arange(len(nodes))
        start, end = position[self.start], position[self.end]
        kept = (start >= 0) & (end >= 0)
        return Links(start[kept], end[kept], self.weight[kept])

    def components(self, total: int, kept: Bools | None = None) -> Ints:
        """Return the connected component of each node, by the links where `kept` is true (all if None)."""
        start, end = (self.start, self.end) if kept is None else (self.start[kept], self.end[kept])
        matrix = coo_array((np.ones(len(start), np.int8), (start, end)), shape=(total, total))
        labels: Ints = connected_components(matrix, directed=False)[1].astype(np.int64)
        return labels


def connected_parts(links: Links, x: Floats, y: Floats, *, max_size: int) -> Ints:
    """Return the part of each node: connected, at most `max_size` nodes, and rarely fewer than half as many.

    Parameters
    ----------
    links
        The graph.
    x, y
        Positions of the nodes, metres.
    max_size
        The largest part.
    """
    # Whole centimetres: the last bits of a sine, which differ between platforms, decide nothing.
    positions: Floats = np.column_stack([x, y]).round(2)
    part = _halve_all(links, positions, max_size)
    return _grow_small_parts(links, positions, part, max_size)


def _halve_all(links: Links, positions: Floats, max_size: int) -> Ints:
    total = len(positions)
    component = links.components(total)
    order = np.argsort(component, kind="stable")
    waiting = [
        (nodes, links.inside(nodes, total)) for nodes in np.split(order, np.flatnonzero(np.diff(component[order])) + 1)
    ]
    part = np.empty(total, np.int64)
    count = 0
    while waiting:
        nodes, inner = waiting.pop()
        if len(nodes) <= max_size:
            part[nodes] = count
            count += 1
            continue
        wanted = math.ceil(len(nodes) / (_FILL * max_size))
        side = _cut(inner, positions[nodes], share=(wanted // 2) / wanted)
        halves = (np.flatnonzero(side), np.flatnonzero(~side))
        waiting.extend((nodes[half], inner.inside(half, len(nodes))) for half in halves)
    return part


def _cut(links: Links, positions: Floats, *, share: float) -> Bools:
    """Cut a connected graph into two connected sides; return which nodes are on the one that should hold `share`."""
    total = len(positions)
    wanted = min(max(1, round(share * total)), total - 1)
    sides = _straight_sides(positions, wanted)
    # Connecting a side severs fewer links, never more, so the straight lines that sever few come first.
    severed = (sides[:, links.start] != sides[:, links.end]) @ links.weight
    best: tuple[tuple[float, int], Bools] | None = None
    for number, candidate in enumerate(np.argsort(severed, kind="stable")):
        side = _connect_sides(links, sides[candidate])
        held = int(side.sum())
        uneven = max(held / wanted, (total - held) / (total - wanted)) - 1
        score = (
            uneven if uneven > _UNEVEN else 0.0,
            int(links.weight[side[links.start] != side[links.end]].sum()),
        )
        if best is None or score < best[0]:
            best = (score, side)
        if number + 1 >= _TRIED and best[0][0] == 0.0:
            break
    if best is None:
        raise RuntimeError("no line was tried")
    return best[1]


def _straight_sides(positions: Floats, wanted: int) -> Bools:
    """Return, for each direction, which nodes are the first `wanted` in that direction; shape (directions, nodes)."""
    angles = 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    along = np.round(np.stack([np.cos(angles), np.sin(angles)], axis=1) @ positions.T, 2)
    first = np.argsort(along, axis=1, kind="stable")[:, :wanted]
    sides = np.zeros(along.shape, dtype=bool)
    np.put_along_axis(sides, first, values=True, axis=1)
    return sides


def _connect_sides(links: Links, side: Bools) -> Bools:
    """Return the side nearest to `side` that is connected and leaves a connected rest."""
    component = links.components(len(side), side[links.start] == side[links.end])
    if component.max() == 1:
        return side
    # The largest piece of the side stays; of the rest, the largest piece is the other side. All other pieces touch
    # the first, because the graph is connected.
    sizes = np.bincount(component[side], minlength=component.max() + 1)
    core = component == np.argmax(sizes)
    rest = links.components(len(side), ~core[links.start] & ~core[links.end])
    sizes = np.bincount(rest[~core], minlength=rest.max() + 1)
    connected: Bools = rest != np.argmax(sizes)
    return connected


def _grow_small_parts(links: Links, positions: Floats, part: Ints, max_size: int) -> Ints:
    """Join parts below half of `max_size` with a neighbour, or share its nodes evenly, where that makes them larger."""
    for _ in range(_REPAIRS):
        sizes = np.bincount(part)
        small = np.flatnonzero((sizes > 0) & (2 * sizes < max_size))
        grown = part
        for number in small[np.argsort(sizes[small], kind="stable")].tolist():
            grown = _grow(links, positions, grown, number, max_size)
        if grown is part:
            break
        part = grown
    return part


def _grow(links: Links, positions: Floats, part: Ints, number: int, max_size: int) -> Ints:
    """Return the parts with part `number` made larger, or as they are if that is not possible."""
    sizes = np.bincount(part)
    if not 0 < 2 * sizes[number] < max_size:
        return part
    near, far = part[links.start], part[links.end]
    touching = (near == number) != (far == number)
    neighbour = np.where(near == number, far, near)[touching]
    shared = np.bincount(neighbour, links.weight[touching], minlength=len(sizes))
    neighbours = np.flatnonzero(shared)
    fits = neighbours[sizes[neighbours] + sizes[number] <= max_size]
    if len(fits):
        return np.where(part == number, fits[np.argmax(shared[fits])], part)
    for neighbour_part in neighbours[np.argsort(-shared[neighbours], kind="stable")].tolist():
        nodes = np.flatnonzero((part == number) | (part == neighbour_part))
        side = _cut(links.inside(nodes, len(part)), positions[nodes], share=0.5)
        smaller = min(int(side.sum()), int((~side).sum()))
        if smaller > sizes[number] and len(nodes) - smaller <= max_size:
            shared_out = part.copy()
            shared_out[nodes] = np.where(side, number, neighbour_part)
            return shared_out
    return part
