"""Small cities whose beliefs can be computed by hand: pairs of neighbouring places, and what was released there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket._arrays import Floats
from geoblanket._tables import write_table
from geoblanket.mechanism.bundle.storage import ZoneBundle
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.tracking.motion_model import MotionModel
from tests.release.worlds import GRAPH, PLACES, ZONES

COLUMNS, ROWS = 6, 4
NEIGHBOURS: list[list[int]] = [
    [
        row * COLUMNS + column
        for row in range(max(place // COLUMNS - 1, 0), min(place // COLUMNS + 2, ROWS))
        for column in range(max(place % COLUMNS - 1, 0), min(place % COLUMNS + 2, COLUMNS))
    ]
    for place in range(24)
]
"""Places of `tests.release.worlds` that one can reach within a step, the place itself among them."""


def pair_model(seed: int = 0, *, interval_s: float = 30.0) -> MotionModel:
    """A model whose states are all pairs of neighbours, with random moves."""
    rng = np.random.default_rng(seed)
    states = np.array([(now, before) for before in range(24) for now in NEIGHBOURS[before]], np.int32)
    number = {(now, before): state for state, (now, before) in enumerate(states.tolist())}
    offsets, targets, chances = [0], [], []
    for now, _ in states.tolist():
        later = NEIGHBOURS[now]
        targets += [number[after, now] for after in later]
        chances += rng.dirichlet(np.ones(len(later))).tolist()
        offsets.append(len(targets))
    return MotionModel(
        places_e7=PLACES.coordinates_e7,
        places_identity=PLACES.identity,
        interval_s=interval_s,
        states=states,
        start=rng.dirichlet(np.ones(len(states))).astype(np.float32),
        offsets=np.array(offsets, np.int64),
        targets=np.array(targets, np.int32),
        chances=np.array(chances, np.float32),
    )


def dense(model: MotionModel) -> Floats:
    """How probable the move from each state to each other is, as the model's arrays say, shape (N, N)."""
    result = np.zeros((len(model), len(model)))
    for state in range(len(model)):
        for move in range(int(model.offsets[state]), int(model.offsets[state + 1])):
            result[state, model.targets[move]] += model.chances[move]
    return result


def chance(bundle: ZoneBundle, regime: str, now: int, before: int, output: int) -> float:
    """How probable a report is by the weights of a bundle of `save_certain`, read without the release's own code."""
    now = now - 1 if now % COLUMNS == 5 else now  # the last column is in no zone; its neighbour is nearest
    zone = "west" if now % COLUMNS < 3 else "east"
    bundled = bundle.get(zone, regime)
    history = [now] if regime == "start" else [now, before]
    (entry,) = np.flatnonzero((bundled.histories == history).all(axis=1))
    if output not in ZONES[zone]:
        return 0.0
    weights = np.asarray(bundled.mechanism.weights[bundled.history_rows[entry]], np.float64)
    columns = np.flatnonzero(bundled.output_places == output)
    return float(weights[columns].sum() / weights.sum())


def wander(rng: np.random.Generator, steps: int, *, start: int = 8, columns: int = COLUMNS) -> list[int]:
    """A walk from neighbour to neighbour, within so many columns."""
    places = [start]
    while len(places) < steps:
        places.append(int(rng.choice([place for place in NEIGHBOURS[places[-1]] if place % COLUMNS < columns])))
    return places


def save_timed_walks(
    path: Path, walks: Sequence[tuple[str, datetime, Sequence[int]]], *, interval_s: float = 30.0
) -> Path:
    """Walks of a vehicle each, from a time on."""
    steps = [
        (walk, vehicle, step, start + timedelta(seconds=interval_s * step), place)
        for walk, (vehicle, start, places) in enumerate(walks)
        for step, place in enumerate(places)
    ]
    frame = pl.DataFrame(
        {
            "walk": [walk for walk, *_ in steps],
            "vehicle": [vehicle for _, vehicle, *_ in steps],
            "trip": [walk for walk, *_ in steps],
            "step": [step for _, _, step, _, _ in steps],
            "time": [time for *_, time, _ in steps],
            "place": [place for *_, place in steps],
            "speed_m_s": [None if step == 0 else 10.0 for _, _, step, _, _ in steps],
        },
        schema=WALKS_SCHEMA,
    )
    about = {"roads": GRAPH.identity, "spacing_m": 0.0, "interval_s": interval_s, "method": "hmm"}
    write_table(frame, path, kind="walks", about=about)
    return path


MIDNIGHT = datetime(2024, 7, 1, tzinfo=UTC)
