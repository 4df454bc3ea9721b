"""Small worlds with walks on them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._tables import write_table
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.graph import RoadGraph
from tests.roads.graphs import grid_graph

MIDNIGHT = datetime(2024, 7, 1, tzinfo=UTC)
INTERVAL_S = 30


@dataclass(frozen=True)
class Walk:
    """One walk: a vehicle, when it starts (seconds after midnight), and its places."""

    vehicle: str
    start_s: float
    places: list[int]


def frame_of(walks: Iterable[Walk]) -> pl.DataFrame:
    """Return walks as a table."""
    rows = [
        (
            number,
            walk.vehicle,
            number,
            step,
            MIDNIGHT + timedelta(seconds=walk.start_s + INTERVAL_S * step),
            place,
            None,
        )
        for number, walk in enumerate(walks)
        for step, place in enumerate(walk.places)
    ]
    return pl.DataFrame(rows, schema=WALKS_SCHEMA, orient="row")


def write_world(folder: Path, graph: RoadGraph, walks: Iterable[Walk] | pl.DataFrame) -> tuple[Path, Path]:
    """Write a table of walks and the roads; return their paths."""
    roads, path = folder / "roads", folder / "walks.parquet"
    graph.save(roads)
    frame = walks if isinstance(walks, pl.DataFrame) else frame_of(walks)
    about = {"roads": graph.identity, "spacing_m": 0.0, "interval_s": float(INTERVAL_S), "method": "hmm"}
    write_table(frame, path, kind="walks", about=about)
    return path, roads


def wandering(graph: RoadGraph, *, side: int, walks: int, steps: int, seed: int, vehicles: int = 9) -> list[Walk]:
    """Return random walks on a square grid: a taste of standing still, slow and fast steps, at all times of a day."""
    rng = np.random.default_rng(seed)
    result = []
    for number in range(walks):
        here = rng.integers(0, side, 2)
        places = []
        for _ in range(rng.integers(1, steps + 1)):
            places.append(int(here[0] * side + here[1]))
            reach = rng.choice([0, 2, 5])
            here = np.clip(here + rng.integers(-reach, reach + 1, 2), 0, side - 1)
        result.append(Walk(f"taxi {number % vehicles}", float(rng.integers(0, 86_400)), places))
    assert graph.node_count == side * side
    return result


def square(side: int = 12) -> RoadGraph:
    """A square grid of nodes, about 100 m apart."""
    return grid_graph(side, side)


def drifting(*, walks: int, steps: int = 3, seed: int = 0) -> tuple[RoadGraph, list[Walk]]:
    """Return a long strip of nodes 10 m apart and vehicles on it whose steps are independent of one another.

    So the true order is 1 whatever group a sample is in, as long as the group is told from {X_t, B}.
    """
    rng = np.random.default_rng(seed)
    graph = grid_graph(2, 600, step_deg=1e-4)
    moved = rng.integers(15, 45, (walks, steps)).cumsum(axis=1)
    start = rng.integers(0, 600 - 45 * steps, walks)
    row = rng.integers(0, 2, (walks, steps + 1)) * 600
    places = np.column_stack([start, start[:, None] + moved]) + row
    return graph, [Walk(f"taxi {number}", 30.0 * number, line) for number, line in enumerate(places.tolist())]
