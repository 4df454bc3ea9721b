"""Export a road graph as GeoJSON or GeoParquet, and describe it in figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from geoblanket._files import atomic_output
from geoblanket._tables import geo_metadata, wkb_lines, wkb_points
from geoblanket.roads.graph import ROAD_CLASSES, LengthModel, RoadGraph

Part = Literal["edges", "nodes"]
"""Which part of a graph a file of features holds."""


def to_geojson(graph: RoadGraph, path: str | Path, *, part: Part = "edges") -> None:
    """Write the edges (as lines) or the nodes (as points) as GeoJSON, completely or not at all."""
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
    """Write the edges (as lines) or the nodes (as points) as GeoParquet 1.1, completely or not at all."""
    kind: Literal["LineString", "Point"]
    if part == "edges":
        offsets, lat, lon = graph.lines()
        frame, kind = _edge_frame(graph).with_columns(wkb_lines(offsets, lon, lat)), "LineString"
    else:
        lat, lon = graph.lat, graph.lon
        frame, kind = pl.DataFrame({"osmid": graph.node_ids}).with_columns(wkb_points(lon, lat)), "Point"
    bbox = [float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max())]
    with atomic_output(path) as temporary:
        frame.write_parquet(temporary, metadata=geo_metadata(kind, bbox))


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


@dataclass(frozen=True)
class RoadsDescription:
    """Figures of a road graph, as `geoblanket roads info` prints them."""

    nodes: int
    edges: int
    length_km: float
    """Length of all directed edges together."""
    length_model: LengthModel
    km_by_class: dict[str, float]
    """Length of the directed edges of each class that occurs."""
    one_way_share: float
    """Share of the edges that have no edge back."""
    dead_ends: int
    """Nodes with one neighbour."""
    parallel_edges: int
    """Edges beyond the first between the same two nodes in the same direction."""
    speed_kmh: dict[str, float]
    """Slowest, median (by length) and fastest free-flow speed."""
    bounding_box: dict[str, float]
    """South, west, north, east, rounded outwards to 0.1°."""
    identity: str
    """SHA-256 of the whole content."""
    credit: str
    """Whose data it is; empty if unknown."""

    def as_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        return asdict(self)


def describe_roads(graph: RoadGraph) -> RoadsDescription:
    """Describe a road graph that has at least one edge."""
    pairs = np.unique(np.stack([graph.sources, graph.targets]), axis=1)
    both_ways = np.unique(np.sort(pairs, axis=0), axis=1)
    neighbours = np.bincount(both_ways[:, both_ways[0] != both_ways[1]].ravel(), minlength=graph.node_count)
    km_by_class = np.bincount(graph.road_class, weights=graph.length_m / 1000, minlength=len(ROAD_CLASSES))
    return RoadsDescription(
        nodes=graph.node_count,
        edges=graph.edge_count,
        length_km=round(float(graph.length_m.sum()) / 1000, 3),
        length_model=graph.length_model,
        km_by_class={name: round(float(km), 3) for name, km in zip(ROAD_CLASSES, km_by_class, strict=True) if km > 0},
        one_way_share=round(float(graph.is_one_way.mean()), 4),
        dead_ends=int((neighbours == 1).sum()),
        parallel_edges=graph.edge_count - pairs.shape[1],
        speed_kmh=_speeds(graph),
        bounding_box={
            "south": _outwards(graph.lat.min(), np.floor),
            "west": _outwards(graph.lon.min(), np.floor),
            "north": _outwards(graph.lat.max(), np.ceil),
            "east": _outwards(graph.lon.max(), np.ceil),
        },
        identity=graph.identity,
        credit=graph.credit,
    )


def _speeds(graph: RoadGraph) -> dict[str, float]:
    order = np.argsort(graph.speed_m_s)
    travelled = np.cumsum(graph.length_m[order])
    median = graph.speed_m_s[order[np.searchsorted(travelled, travelled[-1] / 2)]]
    speeds = {"slowest": graph.speed_m_s.min(), "median": median, "fastest": graph.speed_m_s.max()}
    return {name: round(float(speed) * 3.6, 1) for name, speed in speeds.items()}


def _outwards(degrees: float, towards: np.ufunc) -> float:
    return round(float(towards(degrees * 10)) / 10, 1)
