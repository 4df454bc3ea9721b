"""A road graph in the forms that other tools read: NetworkX as OSMnx has it, GeoJSON, GeoParquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from geoblanket._arrays import Ints
from geoblanket._files import atomic_output
from geoblanket.errors import MissingExtraError
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Part", "to_geojson", "to_geoparquet", "to_networkx"]

Part = Literal["edges", "nodes"]
"""Which part of a graph a file of features holds."""


def to_networkx(graph: RoadGraph) -> nx.MultiDiGraph:
    """Return the graph as a NetworkX MultiDiGraph in the conventions of OSMnx (extra `networkx`).

    Nodes are named by their OpenStreetMap ids and have `x`, `y` (degrees) and `street_count`. Edges have `osmid`,
    `highway`, `length` (m), `speed_kph`, `travel_time` (s), `oneway`, `reversed`, and, where Shapely is installed
    and the road bends, `geometry`. The ids of ways are not kept, so `osmid` is the number of the edge in `graph`.
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingExtraError("to_networkx", "networkx") from error
    result = nx.MultiDiGraph(crs="epsg:4326", simplified=True)
    ids = graph.node_ids.tolist()
    nodes = zip(ids, graph.lon.tolist(), graph.lat.tolist(), _street_counts(graph).tolist(), strict=True)
    result.add_nodes_from((node, {"x": x, "y": y, "street_count": streets}) for node, x, y, streets in nodes)
    columns: dict[str, list[Any]] = {
        "osmid": list(range(graph.edge_count)),
        "highway": [ROAD_CLASSES[number] for number in graph.road_class],
        "length": graph.length_m.tolist(),
        "speed_kph": (graph.speed_m_s * 3.6).tolist(),
        "travel_time": graph.time_s.tolist(),
        "oneway": graph.is_one_way.tolist(),
        "reversed": (~graph.is_one_way & (graph.sources > graph.targets)).tolist(),
    }
    keys = _keys_of_parallel_edges(graph).tolist()
    for edge, values in enumerate(zip(*columns.values(), strict=True)):
        source, target = ids[graph.sources[edge]], ids[graph.targets[edge]]
        result.add_edge(source, target, key=keys[edge], **dict(zip(columns, values, strict=True)))
    _add_geometries(result, graph, keys)
    return result


def to_geojson(graph: RoadGraph, path: str | Path, *, part: Part = "edges") -> None:
    """Write the edges (as lines) or the nodes (as points) as GeoJSON, wholly or not at all."""
    features = _edge_features(graph) if part == "edges" else _node_features(graph)
    with atomic_output(path) as temporary, temporary.open("w", encoding="ascii") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        separator = "\n"
        for geometry, properties in features:
            file.write(separator)
            json.dump({"type": "Feature", "geometry": geometry, "properties": properties}, file, allow_nan=False)
            separator = ",\n"
        file.write("\n]}\n")


def to_geoparquet(graph: RoadGraph, path: str | Path, *, part: Part = "edges") -> None:
    """Write the edges (as lines) or the nodes (as points) as GeoParquet 1.1 (extra `geo`), wholly or not at all."""
    try:
        import shapely
    except ImportError as error:
        raise MissingExtraError("GeoParquet", "geo") from error
    if part == "edges":
        offsets, lat, lon = graph.lines()
        owner = np.repeat(np.arange(graph.edge_count), np.diff(offsets))
        geometry, kind = shapely.linestrings(np.column_stack([lon, lat]), indices=owner), "LineString"
        frame = _edge_frame(graph)
    else:
        lat, lon = graph.lat, graph.lon
        geometry, kind = shapely.points(lon, lat), "Point"
        frame = pl.DataFrame({"osmid": graph.node_ids})
    column = {
        "encoding": "WKB",
        "geometry_types": [kind],
        "bbox": [float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())],
    }
    about = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    frame = frame.with_columns(pl.Series("geometry", shapely.to_wkb(geometry).tolist(), dtype=pl.Binary))
    with atomic_output(path) as temporary:
        frame.write_parquet(temporary, metadata={"geo": json.dumps(about)})


def _edge_frame(graph: RoadGraph) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "source": graph.node_ids[graph.sources],
            "target": graph.node_ids[graph.targets],
            "highway": [ROAD_CLASSES[number] for number in graph.road_class],
            "length_m": graph.length_m,
            "speed_kmh": graph.speed_m_s * 3.6,
            "one_way": graph.is_one_way,
        }
    )


def _edge_features(graph: RoadGraph) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    offsets, lat, lon = graph.lines()
    points = np.round(np.column_stack([lon, lat]), 7)
    for edge, properties in enumerate(_edge_frame(graph).iter_rows(named=True)):
        line = points[offsets[edge] : offsets[edge + 1]].tolist()
        yield {"type": "LineString", "coordinates": line}, properties


def _node_features(graph: RoadGraph) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    points = np.round(np.column_stack([graph.lon, graph.lat]), 7).tolist()
    for point, node in zip(points, graph.node_ids.tolist(), strict=True):
        yield {"type": "Point", "coordinates": point}, {"osmid": node}


def _street_counts(graph: RoadGraph) -> Ints:
    """Return how many streets meet at each node: both directions of a road are one street."""
    roads = graph.one_of_each_road()
    return np.bincount(np.append(graph.sources[roads], graph.targets[roads]), minlength=graph.node_count)


def _keys_of_parallel_edges(graph: RoadGraph) -> Ints:
    """Count the edges between the same two nodes from 0; they are neighbours in the graph."""
    starts_pair = np.ones(graph.edge_count, bool)
    starts_pair[1:] = (np.diff(graph.sources) != 0) | (np.diff(graph.targets) != 0)
    edges = np.arange(graph.edge_count)
    keys: Ints = edges - edges[starts_pair][np.cumsum(starts_pair) - 1]
    return keys


def _add_geometries(result: nx.MultiDiGraph, graph: RoadGraph, keys: list[int]) -> None:
    try:
        import shapely
    except ImportError:
        return
    offsets, lat, lon = graph.lines()
    points, ids = np.column_stack([lon, lat]), graph.node_ids.tolist()
    for edge in np.flatnonzero(np.diff(offsets) > 2):
        data = result.edges[ids[graph.sources[edge]], ids[graph.targets[edge]], keys[edge]]
        data["geometry"] = shapely.LineString(points[offsets[edge] : offsets[edge + 1]])
