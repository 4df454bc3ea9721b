"""A small town whose bundle reports, all but certainly, a place that can be told from the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket._arrays import Indices
from geoblanket._tables import write_table
from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, save_bundle
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.metric import Metric
from geoblanket.mechanism.row_distances import row_distances
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.places import choose_places
from tests.roads.graphs import grid_graph

STEP_DEG = 0.012
GRAPH = grid_graph(4, 6, step_deg=STEP_DEG)
"""Places a kilometre or more apart."""
PLACES = choose_places(GRAPH)
ZONES: Mapping[str, Indices] = {
    "east": np.array([place for place in range(24) if place % 6 in (3, 4)], np.int32),
    "west": np.array([place for place in range(24) if place % 6 < 3], np.int32),
}
"""The places of the last column, 5, 11, 17 and 23, are in no zone."""
CLOCK = Clock(30_000, "Asia/Tokyo", (("day", tuple(range(6, 18))), ("night", (*range(6), *range(18, 24)))))
"""Tokyo is nine hours ahead of UTC, the whole year."""
FACTOR = {"start": 0, "day": 2, "night": 3}
EPSILON = 20.0
"""From one place to the next a factor of e^20: one report is all but certain, and any other all but impossible."""


def report(regime: str, now: int, before: int) -> int:
    """The place that is reported."""
    zone = ZONES["west" if now % 6 < 3 else "east"]
    return int(zone[(list(zone).index(now) + FACTOR[regime] * before) % len(zone)])


def certain(regime: str, zone: str, *, epsilon: float = EPSILON) -> BundledMechanism:
    """The mechanism of a zone and regime: a row for each present place, and but for the start each earlier one."""
    earlier: Sequence[int] = [0] if regime == "start" else range(len(PLACES))
    histories = np.array([(now, before) for now in ZONES[zone].tolist() for before in earlier], np.int32)
    past = 0 if regime == "start" else 1
    wanted = [list(ZONES[zone]).index(report(regime, now, before)) for now, before in histories.tolist()]
    rows = np.arange(len(histories), dtype=np.int32)
    table = HistoryTable(PLACES.coordinates_e7, histories[:, : past + 1], rows)
    mm = row_distances(table, [Metric.haversine(PLACES.coordinates_e7)] * (1 + past), [10**6] * past)
    loss = 1.0 - np.eye(len(ZONES[zone]))[wanted]
    problem = Problem(loss, np.full(len(loss), 1 / len(loss)), mm / 1e6, epsilon=epsilon)
    return BundledMechanism.of(
        Mechanism.from_probabilities(1.0 - loss, problem),
        zone=zone,
        regime=regime,
        history_weights=[1.0] * past,
        histories=histories[:, : past + 1],
        output_places=ZONES[zone],
    )


def save_certain(path: Path, *, clock: Clock | None = CLOCK, epsilon: float = EPSILON) -> Path:
    """The bundle of the town; with a small ε its reports are anything but certain."""
    parts = [certain(regime, zone, epsilon=epsilon) for regime in FACTOR for zone in ZONES]
    save_bundle(path, parts, version=1, places_e7=PLACES.coordinates_e7, clock=clock)
    return path


def save_walks(path: Path, walks: Sequence[Sequence[int]], **about: Any) -> Path:
    """Walks of places, each by a vehicle of its own, one after the other from midnight in UTC on."""
    start = datetime(2024, 7, 1, tzinfo=UTC)
    steps = [(walk, step, place) for walk, places in enumerate(walks) for step, place in enumerate(places)]
    frame = pl.DataFrame(
        {
            "walk": [walk for walk, _, _ in steps],
            "vehicle": [f"v{walk % 7}" for walk, _, _ in steps],
            "trip": [walk for walk, _, _ in steps],
            "step": [step for _, step, _ in steps],
            "time": [start + timedelta(hours=walk % 24, seconds=30 * step) for walk, step, _ in steps],
            "place": [place for _, _, place in steps],
            "speed_m_s": [None if step == 0 else 10.0 for _, step, _ in steps],
        },
        schema=WALKS_SCHEMA,
    )
    known = {"roads": GRAPH.identity, "spacing_m": 0.0, "interval_s": 30.0, "method": "hmm"}
    write_table(frame, path, kind="walks", about=known | about)
    return path
