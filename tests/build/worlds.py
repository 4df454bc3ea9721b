"""Small worlds: places on a map, and steps of vehicles that tend to go straight on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import haversine_m, local_degrees
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.roads.places import Places

LAT, LON = 41.15, -8.62


def places_at(x_m: npt.ArrayLike, y_m: npt.ArrayLike) -> Places:
    """Places at metres east and north of a point."""
    lat, lon = local_degrees(x_m, y_m, origin_lat=LAT, origin_lon=LON)
    return Places(np.arange(len(lat), dtype=np.int32), lat, lon, spacing_m=0.0, roads_identity="made")


def grid(columns: int, rows: int, *, pitch_m: float = 300.0, seed: int = 0) -> Places:
    """Places on a grid, each moved a little; the place in column c and row r is c + columns · r."""
    x, y = (values.ravel() * pitch_m for values in np.meshgrid(np.arange(columns), np.arange(rows)))
    moved = np.random.default_rng(seed).uniform(-0.1, 0.1, (2, len(x))) * pitch_m
    return places_at(x + moved[0], y + moved[1])


def straight_on(places: Places, count: int, *, past: int = 2, seed: int = 0) -> Steps:
    """Steps of vehicles that mostly repeat their last move, else stand or go to a near place."""
    rng = np.random.default_rng(seed)
    lat, lon = places.lat, places.lon
    distance = haversine_m(lat[:, None], lon[:, None], lat, lon)
    near = np.argsort(distance, axis=1)[:, :5]
    walks = np.empty((count, past + 2), np.int32)
    walks[:, 0] = rng.integers(0, len(places), count)
    walks[:, 1] = near[walks[:, 0], rng.integers(0, 5, count)]
    for step in range(2, past + 2):
        one, two = walks[:, step - 2], walks[:, step - 1]
        ahead = places.nearest(2 * lat[two] - lat[one], 2 * lon[two] - lon[one])[0]
        walks[:, step] = np.where(rng.random(count) < 0.8, ahead, near[two, rng.integers(0, 5, count)])
    return Steps(
        histories=walks[:, -2::-1],
        depth=np.full(count, past, np.uint8),
        regime=np.zeros(count, np.uint8),
        next_place=walks[:, -1],
        vehicle=rng.integers(0, 20, count).astype(np.int32),
    )


def counted(steps: Steps) -> HistoryCounts:
    """The counts of some steps."""
    table = np.column_stack([steps.histories, steps.depth, steps.regime, steps.next_place])
    rows, count = np.unique(table, axis=0, return_counts=True)
    return HistoryCounts(
        histories=rows[:, :-3].astype(np.int32),
        depth=rows[:, -3].astype(np.uint8),
        regime=rows[:, -2].astype(np.uint8),
        next_place=rows[:, -1].astype(np.int32),
        count=count.astype(np.int64),
    )


def no_steps(past: int = 2) -> HistoryCounts:
    """The counts of no steps at all."""
    none = np.empty(0, np.uint8)
    return HistoryCounts(np.empty((0, past + 1), np.int32), none, none, none.astype(np.int32), none.astype(np.int64))
