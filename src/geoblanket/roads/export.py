"""A road graph in the forms that other tools read: GeoJSON and GeoParquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from geoblanket._files import atomic_output
from geoblanket._tables import geo_metadata, wkb_lines, wkb_points
from geoblanket.roads.graph import ROAD_CLASSES, RoadGraph

__all__ = ["Part", "to_geojson", "to_geoparquet"]

Part = Literal["edges", "nodes"]
"""Which part of a graph a file of features holds."""


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
    """Write the edges (as lines) or the nodes (as points) as GeoParquet 1.1, wholly or not at all."""
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
