"""Simplification of a road graph: contraction of bends, and the largest connected part.

A node is removed if a car that arrives there has exactly one way on: one road in and another out, or two roads, both
open in both directions, all of the same class. Between the nodes that stay, every road distance and free-flow time is
kept: lengths and times add up, and an edge's speed is its length over its time. A node where the class changes stays,
so that an edge has one class; a node where only the speed changes is removed.

A loop that leaves a junction and returns to it keeps the node at its far end, and becomes two edges. So no edge starts
and ends at the same node, and no road is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.roads.graph import Edges, Nodes, RoadGraph, reorder_ragged

_SAME_LENGTH_M = 1e-3
"""Both directions of a road have the same length, up to the rounding of sums."""


class _Chains(NamedTuple):
    """Edges in the order in which they follow each other, chain by chain."""

    order: Ints
    """Every edge, shape (E,)."""
    starts: Ints
    """Where in `order` each chain starts, shape (C,)."""
    ends: Ints
    """Where in `order` each chain ends: one past its last edge, shape (C,)."""


def contract(graph: RoadGraph) -> RoadGraph:
    """Return the graph without the nodes where a road only bends; they become part of the edges' shapes."""
    if not graph.edge_count:
        return graph
    # `passed`: nodes to remove. Rings need a node to start at, and loops a second node.
    successor = _successors(graph)
    passed = np.zeros(graph.node_count, bool)
    passed[graph.targets[successor >= 0]] = True
    passed[_ring_anchors(graph, passed)] = False
    chains = _chains(graph, successor, passed)
    passed[_far_ends_of_loops(graph, chains)] = False
    return _merge(graph, _chains(graph, successor, passed), passed)


def _successors(graph: RoadGraph) -> Ints:
    """Return for each edge the only edge that continues it without turning back, or -1 where there is a choice."""
    nodes = np.arange(graph.node_count)
    out_degree = np.diff(graph.offsets)
    in_degree = np.bincount(graph.targets, minlength=graph.node_count)
    incoming = np.lexsort((graph.sources, graph.targets))
    in_offsets = np.concatenate([[0], np.cumsum(in_degree)])
    successor = np.full(graph.edge_count, -1, np.int64)

    # One-way: one edge in, one edge out.
    single = nodes[(out_degree == 1) & (in_degree == 1)]
    before, after = incoming[in_offsets[single]], graph.offsets[single]
    goes_on = (graph.sources[before] != graph.targets[after]) & (graph.road_class[before] == graph.road_class[after])
    successor[before[goes_on]] = after[goes_on]

    double = nodes[(out_degree == 2) & (in_degree == 2)]
    # Two-way: two edges in, two edges out, both pairs sorted by their other end. They are the two directions of two
    # roads if ends and lengths agree pairwise. If only the ends agree, a one-way loop starts here: a junction.
    before_a, before_b = incoming[in_offsets[double]], incoming[in_offsets[double] + 1]
    after_a, after_b = graph.offsets[double], graph.offsets[double] + 1
    classes = graph.road_class[np.stack([before_a, before_b, after_a, after_b])]
    goes_on = (
        (graph.sources[before_a] == graph.targets[after_a])
        & (graph.sources[before_b] == graph.targets[after_b])
        & (graph.sources[before_a] != graph.sources[before_b])
        & (np.abs(graph.length_m[before_a] - graph.length_m[after_a]) < _SAME_LENGTH_M)
        & (np.abs(graph.length_m[before_b] - graph.length_m[after_b]) < _SAME_LENGTH_M)
        & (graph.sources[before_a] != double)
        & (graph.sources[before_b] != double)
        & (classes == classes[0]).all(axis=0)
    )
    successor[before_a[goes_on]] = after_b[goes_on]
    successor[before_b[goes_on]] = after_a[goes_on]
    return successor


def _ring_anchors(graph: RoadGraph, passed: Bools) -> Ints:
    """Return the first node of each closed ring that no other road touches, to start the ring at."""
    adjacency = coo_array((np.ones(graph.edge_count), (graph.sources, graph.targets)), shape=(graph.node_count,) * 2)
    count, part = connected_components(adjacency, directed=False)
    has_junction = np.bincount(part, weights=~passed, minlength=count) > 0
    _, first = np.unique(part, return_index=True)
    return first[~has_junction]


def _chains(graph: RoadGraph, successor: Ints, passed: Bools) -> _Chains:
    """Order the edges into chains that start and end at nodes that are not `passed`."""
    edges = np.arange(graph.edge_count)
    continued = edges[passed[graph.targets]]
    head = edges.copy()
    head[successor[continued]] = continued
    position = (head != edges).astype(np.int64)
    # Pointer doubling: each round looks twice as far back, so it takes log2(longest chain) rounds.
    while not np.array_equal(head, further := head[head]):
        position += position[head]
        head = further
    order = np.lexsort((position, head))
    starts = np.flatnonzero(position[order] == 0)
    return _Chains(order, starts, np.append(starts[1:], graph.edge_count))


def _far_ends_of_loops(graph: RoadGraph, chains: _Chains) -> Ints:
    """Return the inner node farthest from the start, for each chain that ends where it starts."""
    junction = graph.sources[chains.order[chains.starts]]
    is_loop = (junction == graph.targets[chains.order[chains.ends - 1]]) & (chains.ends - chains.starts > 1)
    sizes = np.where(is_loop, chains.ends - chains.starts, 0)
    inner = graph.sources[chains.order[np.repeat(is_loop, chains.ends - chains.starts)]]
    start = np.repeat(junction, sizes)
    far_m = haversine_m(graph.lat[inner], graph.lon[inner], graph.lat[start], graph.lon[start])
    # The node's number breaks ties, so that both directions of a loop choose the same node.
    far_m[inner == start] = -1.0
    best = np.lexsort((inner, -far_m, np.repeat(np.arange(len(sizes)), sizes)))
    first = np.concatenate([[0], np.cumsum(sizes[is_loop])])[:-1]
    far_ends: Ints = inner[best[first]].astype(np.int64)
    return far_ends


def _merge(graph: RoadGraph, chains: _Chains, passed: Bools) -> RoadGraph:
    """Make one edge of each chain."""
    order, starts = chains.order, chains.starts
    keep = ~passed
    new_index = np.cumsum(keep) - 1
    length_m = np.add.reduceat(graph.length_m[order], starts)
    return RoadGraph.from_edges(
        Nodes(ids=graph.node_ids[keep], lat=graph.lat[keep], lon=graph.lon[keep]),
        Edges(
            sources=new_index[graph.sources[order[starts]]],
            targets=new_index[graph.targets[order[chains.ends - 1]]],
            length_m=length_m,
            speed_m_s=_mean_speed(graph, chains, length_m),
            road_class=graph.road_class[order[starts]],
        ),
        length_model=graph.length_model,
        shapes=_merged_shapes(graph, chains),
        credit=graph.credit,
    )


def _mean_speed(graph: RoadGraph, chains: _Chains, length_m: Floats) -> Floats:
    """Return length over time of each chain, metres per second; where the speed does not change, exactly it."""
    speed = graph.speed_m_s[chains.order]
    slowest, fastest = np.minimum.reduceat(speed, chains.starts), np.maximum.reduceat(speed, chains.starts)
    time_s = np.add.reduceat(graph.time_s[chains.order], chains.starts)
    changes = (slowest != fastest) & (time_s > 0)
    mean: Floats = np.divide(length_m, time_s, out=slowest.copy(), where=changes)
    return mean


def _merged_shapes(graph: RoadGraph, chains: _Chains) -> tuple[Ints, Floats, Floats]:
    """Return the inner points of each chain: the shapes of its edges and the nodes between them."""
    offsets = graph.shape_offsets + np.arange(graph.edge_count + 1)
    is_node = np.zeros(offsets[-1], bool)
    is_node[offsets[:-1]] = True
    lat, lon = np.empty(len(is_node)), np.empty(len(is_node))
    lat[is_node], lon[is_node] = graph.lat[graph.sources], graph.lon[graph.sources]
    lat[~is_node], lon[~is_node] = graph.shape_lat, graph.shape_lon
    new_offsets, taken = reorder_ragged(offsets, chains.order)
    inner = np.ones(len(taken), bool)
    inner[new_offsets[chains.starts]] = False
    chain_offsets = np.append(new_offsets[chains.starts], new_offsets[-1]) - np.arange(len(chains.starts) + 1)
    return chain_offsets, lat[taken[inner]], lon[taken[inner]]


def in_largest_part(graph: RoadGraph) -> Bools:
    """Return which nodes lie in the largest strongly connected part, shape (N,).

    Of parts with equally many nodes it is the part with the first node.
    """
    adjacency = coo_array((np.ones(graph.edge_count), (graph.sources, graph.targets)), shape=(graph.node_count,) * 2)
    _, part = connected_components(adjacency, directed=True, connection="strong")
    sizes = np.bincount(part)
    inside: Bools = part == part[np.argmax(sizes[part])]
    return inside
