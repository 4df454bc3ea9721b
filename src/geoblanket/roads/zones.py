"""Zones: a public, fixed partition of the places; each zone shares one mechanism.

A zone is connected through the roads, regardless of one-way streets. Every node belongs to the place that is nearest
along the roads. Two places are neighbours if a road leads from a node of one to a node of the other.

Zones come from repeated halving. Each cut tries straight lines in several directions, and takes the line that severs
the fewest links among those that give both sides about the wanted size. Pieces that a line cuts off from their side
join the other side, so both sides are connected.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

from geoblanket._arguments import checked
from geoblanket._arrayfile import content_hash
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import between, card, counted, short_repr
from geoblanket._geodesy import EARTH_RADIUS_M, unit_vectors
from geoblanket._lazy import companion
from geoblanket._tables import reading_parquet, scan_table, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.distances import best_edges
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ZONES_SCHEMA: dict[str, pl.DataType] = {
    "place": pl.Int32(),
    "node": pl.Int64(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
    "zone": pl.Int32(),
    "zone_id": pl.String(),
}
"""The table of zones: one row for each place, in order; `node` is the source's own node number."""

_DIRECTIONS = 32
"""Number of directions in which a cut is tried."""
_TRIED = 4
"""Number of the best lines that are examined closely."""
_FILL = 0.85
"""Planned size of parts, as a share of the largest: leaves room for cuts along rivers and railways."""
_UNEVEN = 0.12
"""By which share one side of a cut may exceed its planned size and still count as even."""

_REPAIRS = 4
"""Number of passes that enlarge small parts."""


@checked
@dataclass(frozen=True, eq=False)
class Zones:
    """A partition of places into zones. Made by `partition_zones`.

    Zones are numbered from 0 by the lowest node number among their places, so the numbers do not depend on the order of
    the nodes.

    Examples
    --------
    With the `graph` and the `places` in the examples of `import_roads` and `make_rows`:

    >>> from geoblanket import partition_zones
    >>> zones = partition_zones(graph, places, max_places=12)
    >>> len(zones.members(0))
    7
    """

    zone: Indices
    """The zone of each place, shape (P,)."""
    ids: tuple[str, ...]
    """A name of each zone, 16 hexadecimal digits. It depends only on the node numbers and coordinates of the zone's
    places: an unchanged zone keeps its name when the roads are imported again, whatever its number."""
    neighbours: Indices
    """The pairs of zones that a road connects, the lower number first, ascending, shape (pairs, 2)."""
    max_places: int
    """The largest number of places that was allowed in a zone."""
    places_identity: str
    """The identity of the places."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the places' identity and the partition."""
        return content_hash({"places": self.places_identity}, {"zone": self.zone})

    @cached_property
    def sizes(self) -> Ints:
        """Number of places in each zone, shape (Z,)."""
        return np.bincount(self.zone, minlength=len(self)).astype(np.int64)

    def members(self, zone: int) -> Indices:
        """Return the places of a zone, ascending."""
        if not 0 <= zone < len(self):
            raise ParameterError(f"The zone must be from 0 to {len(self) - 1}. Got {zone} instead.")
        order, ends = self._by_zone
        return order[ends[zone] : ends[zone + 1]]

    @cached_property
    def _by_zone(self) -> tuple[Indices, Ints]:
        order = np.argsort(self.zone, kind="stable").astype(np.int32)
        return order, np.concatenate([[0], np.cumsum(self.sizes)])

    def plot(self, roads: RoadGraph, places: Places, *, ax: Axes | None = None) -> Axes:
        """Draw the zones as bands of colour along the roads, neighbours in different colours (extra `city`).

        Parameters
        ----------
        roads, places
            The roads and the places of the zones.
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        """
        axes: Axes = companion("geoblanket.roads.picture", "Zones.plot").plot_zones(self, roads, places, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        sizes = between(self.sizes.min(), self.sizes.max()) if len(self) else "none"
        rows = [
            ("zones", f"{len(self):,}"),
            ("places in a zone", sizes),
            ("places in all", f"{len(self.zone):,}"),
            ("pairs of neighbours", f"{len(self.neighbours):,}"),
        ]
        return card(self, rows)

    def __repr__(self) -> str:
        sizes = f"of {between(self.sizes.min(), self.sizes.max())} places" if len(self) else ""
        return short_repr(self, f"{counted(len(self), 'zone')} {sizes}", f"{counted(len(self.zone), 'place')} in all")


@checked
def partition_zones(graph: RoadGraph, places: Places, *, max_places: int) -> Zones:
    """Partition the places into connected, compact zones of similar size, each with at most `max_places`.

    The result depends only on the roads, the places and `max_places`, not on the order of the nodes. It uses no vehicle
    data, so it is public. A zone has at least half of `max_places` wherever the roads allow it. An unconnected part of
    the network has its own zones.

    Parameters
    ----------
    graph, places
        The roads, and places chosen on them.
    max_places
        The largest zone.

    Examples
    --------
    With the `graph` and the `places` in the examples of `import_roads` and `make_rows`:

    >>> from geoblanket import partition_zones
    >>> partition_zones(graph, places, max_places=12).sizes.tolist()
    [7, 7, 7]
    """
    if max_places < 1:
        raise ParameterError(f"A zone must be allowed at least 1 place. Got max_places={max_places} instead.")
    if graph.identity != places.roads_identity:
        raise MismatchError("The places belong to another road graph. Choose them on this one.")
    place_order, links = _ordered_links(graph, places)
    x, y = _flat(places.lat[place_order], places.lon[place_order])
    part = connected_parts(links, x, y, max_size=max_places)
    # Number the zones by their first place in this order, which is the place with the lowest node number.
    _, first, renumbered = np.unique(part, return_index=True, return_inverse=True)
    part = np.argsort(np.argsort(first))[renumbered]
    zone = np.empty(len(places), np.int32)
    zone[place_order] = part
    pairs = np.sort(np.column_stack([part[links.start], part[links.end]]), axis=1)
    return Zones(
        zone=zone,
        ids=_zone_ids(graph, places, zone),
        neighbours=np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).astype(np.int32),
        max_places=max_places,
        places_identity=places.identity,
    )


def is_connected(graph: RoadGraph, places: Places, zones: Zones) -> bool:
    """Return whether each zone is connected through the roads; checked from the roads alone."""
    place_order, links = _ordered_links(graph, places)
    zone = zones.zone[place_order]
    pieces = links.components(len(zone), zone[links.start] == zone[links.end])
    return int(pieces.max()) + 1 == len(zones)


def _ordered_links(graph: RoadGraph, places: Places) -> tuple[Positions, Links]:
    """Return the order of the places by the source's node numbers, and the links between neighbours in that order.

    Decisions in this order do not depend on the order in which the graph lists its nodes.
    """
    # Everything below numbers nodes by their rank and places by their position in `place_order`.
    node_rank = np.argsort(np.lexsort((graph.lon, graph.lat, graph.node_ids)))
    place_order = np.argsort(node_rank[places.nodes])
    place_nodes = node_rank[places.nodes[place_order]]
    tails, heads = node_rank[graph.sources].astype(np.int32), node_rank[graph.targets].astype(np.int32)
    both_ways = best_edges(
        np.concatenate([tails, heads]),
        np.concatenate([heads, tails]),
        np.tile(graph.length_m, 2),
        graph.node_count,
    )
    # One search from all places at once finds the nearest place of each node.
    _, _, nearest = dijkstra(both_ways, indices=place_nodes, min_only=True, return_predecessors=True)
    place_of_node = np.full(graph.node_count, -1)
    place_of_node[place_nodes] = np.arange(len(place_nodes))
    # An unconnected part may have no place, because a place of another part is near enough.
    cell = np.where(nearest >= 0, place_of_node[np.maximum(nearest, 0)], -1)
    # Neighbours: places with a road between their nodes. The weight of a link is the number of such roads.
    rows, columns = both_ways.tocoo().coords
    start, end = cell[rows], cell[columns]
    pairs, weight = np.unique(np.stack([start, end])[:, (start >= 0) & (start < end)], axis=1, return_counts=True)
    return place_order, Links(pairs[0], pairs[1], weight)


def _flat(lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
    """Project degrees to metres on the plane that touches the Earth in the middle of the points."""
    points = unit_vectors(lat, lon)
    middle = points.mean(axis=0)
    middle /= max(float(np.linalg.norm(middle)), 1e-9)
    east = np.array([-middle[1], middle[0], 0.0])
    east /= max(float(np.linalg.norm(east)), 1e-9)
    north = np.cross(middle, east)
    return EARTH_RADIUS_M * (points @ east), EARTH_RADIUS_M * (points @ north)


def _zone_ids(graph: RoadGraph, places: Places, zone: Indices) -> tuple[str, ...]:
    table = np.rec.fromarrays([graph.node_ids[places.nodes], places.lat, places.lon])
    order = np.lexsort((places.lon, places.lat, graph.node_ids[places.nodes], zone))
    groups = np.split(order, np.flatnonzero(np.diff(zone[order])) + 1)
    return tuple(hashlib.sha256(table[group].tobytes()).hexdigest()[:16] for group in groups)


def write_zones(path: str | Path, graph: RoadGraph, places: Places, zones: Zones) -> None:
    """Write zones as a Parquet table (`ZONES_SCHEMA`), completely or not at all."""
    frame = pl.DataFrame(
        {
            "place": np.arange(len(places), dtype=np.int32),
            "node": graph.node_ids[places.nodes],
            "lat": places.lat,
            "lon": places.lon,
            "zone": zones.zone,
            "zone_id": [zones.ids[number] for number in zones.zone],
        },
        schema=ZONES_SCHEMA,
    )
    about = {
        "roads": places.roads_identity,
        "places": places.identity,
        "spacing_m": places.spacing_m,
        "max_places": zones.max_places,
        "identity": zones.identity,
        "neighbours": zones.neighbours.tolist(),
    }
    write_table(frame, path, kind="zones", about=about, private=False)


def read_zones(path: str | Path, places: Places) -> Zones:
    """Read zones written by `write_zones`.

    Raises
    ------
    MismatchError
        If the zones belong to other places.
    """
    needs = ("places", "spacing_m", "max_places", "identity", "neighbours")
    rows, about = scan_table(path, kind="zones", schema=ZONES_SCHEMA, needs=needs)
    if about["places"] != places.identity:
        raise MismatchError(
            f"{path}: these zones belong to other places or other roads. Choose the places with a spacing of "
            f"{about['spacing_m']} m on the roads they were made for, or make the zones again."
        )
    with reading_parquet(path):
        frame = rows.select("zone", "zone_id").collect()
    damaged = InputError("its zones were changed or damaged", path=path, hint="Make the zones again")
    try:
        neighbours = np.array(about["neighbours"], np.int32).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError):
        raise damaged from None
    zones = Zones(
        zone=frame["zone"].fill_null(-1).to_numpy().astype(np.int32),
        ids=tuple(frame.unique().sort("zone")["zone_id"].to_list()),
        neighbours=neighbours,
        max_places=about["max_places"],
        places_identity=places.identity,
    )
    if zones.identity != about["identity"]:
        raise damaged
    return zones


@dataclass(frozen=True)
class Links:
    """The links of an undirected graph, each once: their end nodes, and their weights (positive integers)."""

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
        """Return the connected component of each node, over the links where `kept` is true (None: all links)."""
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
    # Rounded to centimetres: the last bits of a sine differ between platforms, and must not decide anything.
    positions: Floats = np.column_stack([x, y]).round(2)
    part = _halve_all(links, positions, max_size)
    return _grow_small_parts(links, positions, part, max_size)


def _halve_all(links: Links, positions: Floats, max_size: int) -> Ints:
    """Halve each component, then each half, until every part has at most `max_size` nodes."""
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
        # Divide the planned number of parts as evenly as possible between both sides.
        wanted = math.ceil(len(nodes) / (_FILL * max_size))
        side = _cut(inner, positions[nodes], share=(wanted // 2) / wanted)
        halves = (np.flatnonzero(side), np.flatnonzero(~side))
        waiting.extend((nodes[half], inner.inside(half, len(nodes))) for half in halves)
    return part


def _cut(links: Links, positions: Floats, *, share: float) -> Bools:
    """Cut a connected graph into two connected sides; return the nodes of the side that should hold `share`."""
    total = len(positions)
    wanted = min(max(1, round(share * total)), total - 1)
    sides = _straight_sides(positions, wanted)
    # Connecting a side never severs more links. So lines that sever few links are tried first, and after some of them
    # the search stops at the first even cut.
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
    """Return, for each direction, the first `wanted` nodes along it, as a mask of shape (directions, nodes)."""
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
    # The largest piece of the side stays, and the largest piece of the rest becomes the other side. All other pieces
    # touch the first piece, because the graph is connected, and join it.
    sizes = np.bincount(component[side], minlength=component.max() + 1)
    core = component == np.argmax(sizes)
    rest = links.components(len(side), ~core[links.start] & ~core[links.end])
    sizes = np.bincount(rest[~core], minlength=rest.max() + 1)
    connected: Bools = rest != np.argmax(sizes)
    return connected


def _grow_small_parts(links: Links, positions: Floats, part: Ints, max_size: int) -> Ints:
    """Enlarge parts below half of `max_size`: join them with a neighbour, or share the nodes of both evenly."""
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
    # The links to each neighbouring part, by weight.
    near, far = part[links.start], part[links.end]
    touching = (near == number) != (far == number)
    neighbour = np.where(near == number, far, near)[touching]
    shared = np.bincount(neighbour, links.weight[touching], minlength=len(sizes))
    neighbours = np.flatnonzero(shared)
    # Join the neighbour with the most links if both fit into one part; otherwise cut both together anew.
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
