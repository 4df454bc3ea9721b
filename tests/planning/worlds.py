"""Cities whose best plan is known."""

from __future__ import annotations

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.planning.on_the_road import JudgedTrips, Judges
from geoblanket.tracking.motion_model import MotionModel

SPACING_E7 = 22_458  # 250 m of latitude
LAT_E7, LON_E7 = 1_000_000, 100_000_000  # near the equator, where degrees are square


def model_of(moves: Floats, side: int) -> MotionModel:
    """Return a chain over a square of places 250 m apart."""
    row, column = np.divmod(np.arange(side * side), side)
    source, target = np.nonzero(moves)
    return MotionModel(
        places_e7=np.stack([LAT_E7 + row * SPACING_E7, LON_E7 + column * SPACING_E7], axis=1).astype(np.int32),
        places_identity="",
        interval_s=30.0,
        states=np.arange(side * side, dtype=np.int32)[:, None],
        start=np.full(side * side, 1 / side**2, np.float32),
        offsets=np.searchsorted(source, np.arange(side * side + 1)).astype(np.int64),
        targets=target.astype(np.int32),
        chances=moves[source, target].astype(np.float32),
    )


def sampled(model: MotionModel, *, trips: int, steps: int, seed: int = 3) -> Judges:
    """Return trips of a chain of order 1."""
    rng = np.random.default_rng(seed)
    cumulated = model.moves.toarray().cumsum(axis=1)
    place = rng.choice(len(model), trips, p=model.start.astype(float) / model.start.sum(dtype=float))
    visited = [place]
    for _ in range(steps - 1):
        place = (cumulated[place] < rng.random((trips, 1))).sum(axis=1).clip(max=len(model) - 1)
        visited.append(place)
    flat = np.stack(visited, axis=1).astype(np.int32).ravel()
    return Judges(model, JudgedTrips.of(flat, np.arange(len(flat)) % steps == 0), "Sampled trips.")


def still(side: int = 8, *, trips: int = 150, steps: int = 60) -> Judges:
    """Return a city in which nobody moves: what counts is how much all reports tell together."""
    return sampled(model_of(np.eye(side * side), side), trips=trips, steps=steps)


def jumping(side: int = 8, *, trips: int = 150, steps: int = 60) -> Judges:
    """Return a city in which everybody is anywhere after each step: no report tells anything later."""
    return sampled(model_of(np.full((side**2, side**2), 1 / side**2), side), trips=trips, steps=steps)


def walking(side: int = 12, *, trips: int = 150, steps: int = 60) -> Judges:
    """Return a city in which vehicles go to a neighbour or stay."""
    row, column = np.divmod(np.arange(side * side), side)
    near = np.abs(row[:, None] - row) + np.abs(column[:, None] - column) <= 1
    return sampled(model_of(near / near.sum(axis=1, keepdims=True), side), trips=trips, steps=steps)
