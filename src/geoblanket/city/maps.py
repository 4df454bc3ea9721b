"""The city's map in the formats of real ones: OpenStreetMap PBF, and tables of nodes and edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import osmium
import polars as pl
from osmium.osm import mutable

from geoblanket._arrays import Ints
from geoblanket._files import atomic_output
from geoblanket.city.model import City
from geoblanket.city.streets import to_degrees
from geoblanket.roads.graph import ROAD_CLASSES, SYNTHETIC_PROGRAM

__all__ = ["write_edges", "write_nodes", "write_osm"]

_FIRST_INNER_ID = 2_000_000_001
_FIRST_RIVER_ID = 3_000_000_001
_FIRST_WAY_ID = 100_000_001
_WORDS = (
    "Alder", "Amber", "Aspen", "Barley", "Beacon", "Birch", "Bramble", "Canal", "Cedar", "Chapel", "Clover", "Copper",
    "Crescent", "Dove", "Elm", "Falcon", "Fern", "Garden", "Hazel", "Heron", "Ivy", "Juniper", "Kestrel", "Lark",
    "Linden", "Maple", "Market", "Meadow", "Mill", "Oak", "Orchard", "Pearl", "Pine", "Quarry", "Rowan", "Saddle",
    "Station", "Thistle", "Tower", "Willow",
)  # fmt: skip
_KINDS = {"motorway": "Motorway", "trunk": "Ring", "primary": "Avenue", "secondary": "Road", "tertiary": "Road"}


def write_osm(city: City, path: str | Path) -> None:
    """Write the streets and the river as OpenStreetMap data, PBF or XML by the ending of `path`.

    Junctions keep the node ids of the graph. Ways run along streets across junctions, as in real maps.
    """
    graph = city.graph
    ways = list(_ways(city))
    inner_ids = _inner_node_ids(city)
    with atomic_output(path) as temporary:
        header = osmium.io.Header()
        header.set("generator", SYNTHETIC_PROGRAM)
        writer = osmium.SimpleWriter(str(temporary), header=header)
        try:
            for number, lat, lon in zip(graph.node_ids.tolist(), graph.lat.tolist(), graph.lon.tolist(), strict=True):
                writer.add_node(mutable.Node(id=number, location=(lon, lat)))
            for number, at in sorted({number: at for at, number in enumerate(inner_ids.tolist())}.items()):
                writer.add_node(mutable.Node(id=number, location=(graph.shape_lon[at], graph.shape_lat[at])))
            lat_river, lon_river = to_degrees(city.plan.river)
            for at, (lat, lon) in enumerate(zip(lat_river.tolist(), lon_river.tolist(), strict=True)):
                writer.add_node(mutable.Node(id=_FIRST_RIVER_ID + at, location=(lon, lat)))
            for number, way in enumerate(ways, _FIRST_WAY_ID):
                writer.add_way(mutable.Way(id=number, nodes=_way_nodes(city, way, inner_ids), tags=_tags(city, way[0])))
            river = [_FIRST_RIVER_ID + at for at in range(len(lat_river))]
            tags = {"waterway": "river", "name": "The Blanket", "width": f"{city.plan.size.river_m:.0f}"}
            writer.add_way(mutable.Way(id=_FIRST_WAY_ID + len(ways), nodes=river, tags=tags))
        finally:
            writer.close()


def write_nodes(city: City, path: str | Path) -> None:
    """Write the nodes as a table in OSMnx's style: osmid, y (latitude), x (longitude), street_count, ..."""
    graph = city.graph
    ends = np.unique(np.sort(np.stack([graph.sources, graph.targets], 1), axis=1), axis=0)
    frame = pl.DataFrame(
        {
            "osmid": graph.node_ids,
            "y": graph.lat,
            "x": graph.lon,
            "street_count": np.bincount(ends.ravel(), minlength=graph.node_count),
        }
    ).with_columns(
        pl.lit(None, pl.String).alias("highway"),
        pl.lit(None, pl.String).alias("ref"),
        pl.format("POINT ({} {})", "x", "y").alias("geometry"),
    )
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def write_edges(city: City, path: str | Path) -> None:
    """Write the edges as a table: u, v, highway, length (metres), speed_limit (km/h)."""
    graph = city.graph
    frame = pl.DataFrame(
        {
            "u": graph.node_ids[graph.sources],
            "v": graph.node_ids[graph.targets],
            "highway": pl.Series(ROAD_CLASSES).gather(graph.road_class.astype(np.uint32)),
            "length": graph.length_m.round(3),
            "speed_limit": city.streets.speed_km_h,
        }
    )
    with atomic_output(path) as temporary:
        frame.write_csv(temporary)


def _ways(city: City) -> Iterator[list[int]]:
    """Join the edges of each street, one direction only, in driving order into chains as long as their tags allow."""
    graph, streets = city.graph, city.streets
    drawn = np.flatnonzero(streets.one_way | (graph.sources < graph.targets))
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    tags = (streets.street, graph.road_class, streets.speed_km_h, streets.one_way, streets.bridge)
    for edge, key in zip(drawn.tolist(), np.stack([tag[drawn] for tag in tags], 1).tolist(), strict=True):
        groups[tuple(key)].append(edge)
    back = _opposite_edges(city)
    for key in sorted(groups):
        yield from _chain(city, groups[key], back)


def _opposite_edges(city: City) -> Ints:
    """Return for each edge the one in the other direction, -1 for one-way streets."""
    graph = city.graph
    key = graph.sources.astype(np.int64) * graph.node_count + graph.targets
    wanted = graph.targets.astype(np.int64) * graph.node_count + graph.sources
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, at, -1)


def _chain(city: City, edges: list[int], back: Ints) -> Iterator[list[int]]:
    sources, targets = city.graph.sources, city.graph.targets
    leaving: defaultdict[int, list[int]] = defaultdict(list)
    for edge in edges:
        leaving[int(sources[edge])].append(edge)
        if back[edge] >= 0:
            leaving[int(targets[edge])].append(int(back[edge]))
    entered = {int(targets[edge]) for edge in edges}
    done: set[int] = set()
    # Start where a chain begins, so that chains are long; what is left are circles.
    starts = sorted(leaving, key=lambda node: (len(leaving[node]) != 1, node in entered, node))
    for node in starts:
        for first in leaving[node]:
            chain: list[int] = []
            onwards = [] if first in done else [first]
            while onwards:
                chain.append(onwards[0])
                done.update((chain[-1], int(back[chain[-1]])))
                onwards = [edge for edge in leaving[int(targets[chain[-1]])] if edge not in done]
            if chain:
                yield chain


def _inner_node_ids(city: City) -> Ints:
    """Return a node id for each inner geometry point; the two directions of a street share theirs."""
    graph = city.graph
    back = _opposite_edges(city)
    count = np.diff(graph.shape_offsets)
    edge = np.repeat(np.arange(graph.edge_count), count)
    position = np.arange(len(edge)) - graph.shape_offsets[edge]
    mirrored = (back[edge] >= 0) & (back[edge] < edge)
    mirror_image = graph.shape_offsets[back[edge]] + count[edge] - 1 - position
    ids = _FIRST_INNER_ID + np.arange(len(edge))
    return np.where(mirrored, _FIRST_INNER_ID + mirror_image, ids)


def _way_nodes(city: City, way: list[int], inner_ids: Ints) -> list[int]:
    graph = city.graph
    nodes = [int(graph.node_ids[graph.sources[way[0]]])]
    for edge in way:
        nodes += inner_ids[graph.shape_offsets[edge] : graph.shape_offsets[edge + 1]].tolist()
        nodes.append(int(graph.node_ids[graph.targets[edge]]))
    return nodes


def _tags(city: City, edge: int) -> dict[str, str]:
    streets = city.streets
    road_class, street = ROAD_CLASSES[city.graph.road_class[edge]], int(streets.street[edge])
    turn, word = divmod(street, len(_WORDS))
    number = f" {turn + 1}" if turn else ""
    tags = {
        "highway": road_class,
        "name": f"{_WORDS[word]} {_KINDS.get(road_class, 'Street')}{number}",
        "maxspeed": str(streets.speed_km_h[edge]),
    }
    if streets.roundabout[edge]:
        # That a roundabout is one-way goes without saying.
        return tags | {"junction": "roundabout"}
    tags["oneway"] = "yes" if streets.one_way[edge] else "no"
    return tags | ({"bridge": "yes"} if streets.bridge[edge] else {})
