"""Facts about a road graph for people: length by class, share of one-way roads, bounding box."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from geoblanket.roads.graph import ROAD_CLASSES, LengthModel, RoadGraph

__all__ = ["RoadsDescription", "describe_roads"]


@dataclass(frozen=True)
class RoadsDescription:
    """What `geoblanket roads info` prints."""

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
    """Whose data it is; empty where nobody said."""

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
