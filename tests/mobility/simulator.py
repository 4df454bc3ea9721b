"""A town of bent and one-way streets, and drives through it of which every true position is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._geodesy import EARTH_RADIUS_M
from geoblanket._tables import write_table
from geoblanket.mobility.edge_index import EdgeLines
from geoblanket.roads.graph import Edges, Nodes, RoadGraph
from geoblanket.traces.table import TRACES_SCHEMA

METRE = 1 / (np.radians(1.0) * EARTH_RADIUS_M)
"""One metre to the north, in degrees."""
LAT, LON = 41.0, -8.6
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Drives:
    trip: Ints
    time_us: Ints
    lat: Floats
    lon: Floats
    edge: Indices
    """The true edge of each point."""
    offset_m: Floats
    """The true offset along it."""
    routes: list[list[int]]
    """All edges of each trip, in driving order."""

    def take(self, which: Positions | Bools | slice) -> Drives:
        return replace(
            self,
            trip=self.trip[which],
            time_us=self.time_us[which],
            lat=self.lat[which],
            lon=self.lon[which],
            edge=self.edge[which],
            offset_m=self.offset_m[which],
        )

    def points(self) -> tuple[Ints, Ints, Floats, Floats]:
        return self.trip, self.time_us, self.lat, self.lon


def degrees(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Latitude and longitude of points in metres east and north of the town's corner."""
    return LAT + np.asarray(y) * METRE, LON + np.asarray(x) * METRE / np.cos(np.radians(LAT))


def town(rows: int = 12, columns: int = 12, *, block_m: float = 200.0, seed: int = 1) -> RoadGraph:
    """Streets between jittered crossings, each with a bend; a fifth of them one-way, all connected."""
    rng = np.random.default_rng(seed)
    index = np.arange(rows * columns).reshape(rows, columns)
    x, y = np.meshgrid(np.arange(columns) * block_m, np.arange(rows) * block_m)
    x, y = (values.ravel() + rng.uniform(-0.15, 0.15, rows * columns) * block_m for values in (x, y))
    one = np.concatenate([index[:, :-1].ravel(), index[:-1].ravel()])
    other = np.concatenate([index[:, 1:].ravel(), index[1:].ravel()])
    bend = rng.normal(0.0, 0.05 * block_m, (2, len(one)))
    both = rng.random(len(one)) > 0.2
    sources, targets = np.concatenate([one, other[both]]), np.concatenate([other, one[both]])
    bend_x, bend_y = ((v[one] + v[other]) / 2 + b for v, b in zip((x, y), bend, strict=True))
    bend_x, bend_y = np.concatenate([bend_x, bend_x[both]]), np.concatenate([bend_y, bend_y[both]])
    length = np.hypot(bend_x - x[sources], bend_y - y[sources]) + np.hypot(bend_x - x[targets], bend_y - y[targets])
    lat, lon = degrees(x, y)
    graph = RoadGraph.from_edges(
        Nodes(ids=np.arange(rows * columns) + 1, lat=lat, lon=lon),
        Edges(
            sources=sources,
            targets=targets,
            length_m=length,
            speed_m_s=np.full(len(sources), 10.0),
            road_class=np.full(len(sources), 6),
        ),
        length_model="sphere",
        shapes=(np.arange(len(sources) + 1), *degrees(bend_x, bend_y)),
    )
    parts = nx.strongly_connected_components(nx.DiGraph(zip(sources.tolist(), targets.tolist(), strict=True)))
    keep = np.zeros(graph.node_count, dtype=bool)
    keep[max((list(part) for part in parts), key=len)] = True
    return graph.keep_nodes(keep)


def drive(
    graph: RoadGraph, trips: int, *, interval_s: float = 15.0, noise_m: float = 0.0, steady: bool = False, seed: int = 0
) -> Drives:
    """Drive random detours, at changing speeds or steady 10 m/s, and record noisy positions every `interval_s`."""
    rng = np.random.default_rng(seed)
    lines = EdgeLines.of_graph(graph, longest_piece_m=1e9)
    parts, routes = [], []
    for trip in range(trips):
        route = _random_route(graph, rng)
        length = graph.length_m[route]
        speed = np.full(len(route), 10.0) if steady else rng.uniform(5, 14) * rng.uniform(0.6, 1.3, len(route))
        leave = np.cumsum(length / speed)
        # Not at the very ends of the route: a point on a crossing has no one true edge.
        clock = np.arange(0.3 * leave[0], leave[-1], interval_s)
        at = np.searchsorted(leave, clock)
        edge = route[at]
        offset = length[at] - (leave[at] - clock) * speed[at]
        lat, lon = lines.locate(edge, offset)
        noise = rng.normal(0.0, noise_m, (2, len(clock))) * METRE
        time_us = START_US + trip * 3_600_000_000 + np.round(clock * 1e6).astype(np.int64)
        parts.append(
            (np.full(len(clock), trip), time_us, lat + noise[0], lon + noise[1] / np.cos(np.radians(LAT)), edge, offset)
        )
        routes.append(route.tolist())
    numbers, times, lats, lons, edges, offsets = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Drives(numbers, times, lats, lons, edges, offsets, routes)


def _random_route(graph: RoadGraph, rng: np.random.Generator) -> Indices:
    """The best way between far nodes for a driver who misjudges lengths."""
    weights = graph.length_m * rng.lognormal(0.0, 0.3, graph.edge_count)
    network = nx.DiGraph()
    for edge, ends in enumerate(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)):
        network.add_edge(*ends, weight=weights[edge], edge=edge)
    while True:
        source, target = rng.choice(graph.node_count, 2, replace=False).tolist()
        nodes = nx.shortest_path(network, source, target, weight="weight")
        if len(nodes) > 6:
            return np.array([network.edges[ends]["edge"] for ends in pairwise(nodes)], np.int32)


def write_traces(path: Path, drives: Drives | None = None, **columns: npt.ArrayLike) -> Path:
    """Write drives, or columns given one by one (trip, time_us, lat, lon), as a table of traces."""
    if drives is not None:
        columns = dict(zip(("trip", "time_us", "lat", "lon"), drives.points(), strict=True)) | columns
    trip = np.asarray(columns["trip"], np.int64)
    frame = pl.DataFrame(
        {
            "vehicle": [f"taxi {number % 3}" for number in trip.tolist()],
            "trip": trip,
            "time": pl.Series(np.asarray(columns["time_us"], np.int64)).cast(TRACES_SCHEMA["time"]),
            "lat": np.asarray(columns["lat"], np.float64),
            "lon": np.asarray(columns["lon"], np.float64),
        },
        schema=TRACES_SCHEMA,
    )
    write_table(frame, path, kind="traces", about={})
    return path
