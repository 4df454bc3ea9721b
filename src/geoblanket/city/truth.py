"""What is true about the city's trips, for tests: nodes at ticks, edges of points, orders, faults."""

from __future__ import annotations

import numpy as np
import polars as pl

from geoblanket._arrays import Octets
from geoblanket.city.fleet import FIRST_VEHICLE, Walks
from geoblanket.city.gps import RegularPoints
from geoblanket.city.model import City
from geoblanket.city.moves import BANDS, ORDERS, STRENGTH, speed_range_m_s
from geoblanket.city.plan import DISTRICTS
from geoblanket.city.routes import TICK_S

__all__ = ["districts_frame", "edges_frame", "orders_frame", "walks_frame"]


def walks_frame(city: City, walks: Walks) -> pl.DataFrame:
    """Return the true walks: a row a tick.

    Columns: vehicle, trip, step (0 at the start), time (UTC), node (id on the map), district (of the node), band and
    order of the step that ends here (null at the start). `order` is that by which this very step was drawn: 1 for
    steps that cross a border, whatever the order of the district they leave.
    """
    count = walks.ticks
    step = (np.arange(len(walks.node)) - np.repeat(walks.offsets[:-1], count)).astype(np.int32)
    seconds = np.repeat(walks.start_s, count) + step.astype(np.int64) * TICK_S
    moved = pl.col("step") > 0
    return pl.DataFrame(
        {
            "vehicle": pl.Series(FIRST_VEHICLE + np.repeat(walks.vehicle.astype(np.int64), count)).cast(pl.String),
            "trip": np.repeat(walks.trip, count),
            "step": step,
            "time": pl.Series(seconds * 1_000_000).cast(pl.Datetime("us", "UTC")),
            "node": city.graph.node_ids[walks.node],
            "district": _names(DISTRICTS, city.district[walks.node]),
            "band": _names(BANDS, walks.band),
            "order": walks.order,
        }
    ).with_columns(pl.when(moved).then("band"), pl.when(moved).then("order"))


def edges_frame(city: City, points: RegularPoints) -> pl.DataFrame:
    """Return the true edge of each point of the Porto file.

    Columns: trip (row of the file, from 0), point (position in its POLYLINE, from 0), time (UTC), is_fault (a wild
    jump), and node ids of the edge: u_in → v_in by which the vehicle came and u_out → v_out by which it goes on. The
    two differ only at a node; null where the vehicle has not moved yet or will not move again.
    """
    graph = city.graph
    count = np.diff(points.offsets)
    frame = pl.DataFrame(
        {
            "trip": points.trip,
            "point": (np.arange(len(points.lat)) - np.repeat(points.offsets[:-1], count)).astype(np.int32),
            "time": pl.Series(points.time_s * 1_000_000).cast(pl.Datetime("us", "UTC")),
            "is_fault": points.jump,
        }
    )
    ends = {}
    for name, edge in (("in", points.edge_in), ("out", points.edge_out)):
        there = pl.Series(edge >= 0)
        nothing = pl.Series([None], dtype=pl.Int64)
        ends[f"u_{name}"] = pl.Series(graph.node_ids[graph.sources[edge]]).zip_with(there, nothing)
        ends[f"v_{name}"] = pl.Series(graph.node_ids[graph.targets[edge]]).zip_with(there, nothing)
    return frame.with_columns(**ends)


def orders_frame() -> pl.DataFrame:
    """Return the Markov order by district of the node that is left and band of the straight-line speed.

    `lag_1` and `lag_2` are the strengths with which the last two directions pull the next one.
    """
    rows = [
        (district, band, *speed_range_m_s(band), order, *STRENGTH[order]) for (district, band), order in ORDERS.items()
    ]
    names = ["district", "band", "speed_above_m_s", "speed_to_m_s", "order", "lag_1", "lag_2"]
    return pl.DataFrame(rows, schema=names, orient="row")


def districts_frame(city: City) -> pl.DataFrame:
    """Return the district of each node, and whether vehicles are ever there at a tick."""
    return pl.DataFrame(
        {
            "node": city.graph.node_ids,
            "district": _names(DISTRICTS, city.district),
            "at_ticks": city.moves.usable,
        }
    )


def _names(names: tuple[str, ...], index: Octets) -> pl.Series:
    return pl.Series(names, dtype=pl.Enum(names)).gather(index.astype(np.uint32))
