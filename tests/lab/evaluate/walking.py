"""A small world for attacks: vehicles that wander on a grid, a zone in it, and rows of it."""

from __future__ import annotations

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.build.rows import ZoneRows, make_rows
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.roads.places import Places
from tests.build.worlds import counted, grid

TOWN = grid(5, 4)
ZONE = np.array([6, 7, 8, 11, 12, 13], np.int32)


def wandering(places: Places, *, vehicles: int, length: int, past: int = 2, seed: int = 0) -> Steps:
    """Steps of walks, one for each vehicle, in the order and form of `collect_steps`: mostly straight on, or near."""
    rng = np.random.default_rng(seed)
    lat, lon = places.lat, places.lon
    near = np.argsort((lat[:, None] - lat) ** 2 + (0.75 * (lon[:, None] - lon)) ** 2, axis=1)[:, :5]
    walks = np.empty((vehicles, length + 1), np.int64)
    walks[:, 0] = rng.integers(0, len(places), vehicles)
    walks[:, 1] = near[walks[:, 0], rng.integers(0, 5, vehicles)]
    for step in range(2, length + 1):
        one, two = walks[:, step - 2], walks[:, step - 1]
        ahead = places.nearest(2 * lat[two] - lat[one], 2 * lon[two] - lon[one])[0]
        walks[:, step] = np.where(rng.random(vehicles) < 0.6, ahead, near[two, rng.integers(0, 5, vehicles)])
    number = np.arange(length)
    lag = np.minimum(np.arange(past + 1), number[:, None])
    return Steps(
        histories=walks[:, number[:, None] - lag].reshape(-1, past + 1).astype(np.int32),
        depth=np.tile(np.minimum(number, past), vehicles).astype(np.uint8),
        regime=np.zeros(vehicles * length, np.uint8),
        next_place=walks[:, 1:].ravel().astype(np.int32),
        vehicle=np.repeat(np.arange(vehicles), length).astype(np.int32),
    )


TRAINING = wandering(TOWN, vehicles=300, length=30)
COUNTS: HistoryCounts = counted(TRAINING)


def rows_of(context: str, *, places: Places = TOWN, zone: Indices = ZONE, max_rows: int = 60) -> ZoneRows:
    """Rows of the zone."""
    return make_rows(places, zone, COUNTS, reach_m=700.0, context=context, max_rows=max_rows)


def random_channel(rows: int, outputs: int, *, seed: int, sharpness: float = 1.0) -> Floats:
    """Any table of probabilities."""
    return np.random.default_rng(seed).dirichlet(np.full(outputs, 1 / sharpness), rows)


def present(rows: ZoneRows) -> Ints:
    """The position in the zone of each row's present place."""
    return np.searchsorted(rows.zone, rows.histories[:, 0]).astype(np.int64)
