"""Walks that are written down, as tables, and a town for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from geoblanket._tables import write_table
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.places import Places, choose_places
from tests.mobility.simulator import town

NOON = datetime(2024, 3, 5, 12, tzinfo=UTC)
PLACES = choose_places(town(6, 6, block_m=300.0))


@dataclass(frozen=True)
class Walk:
    places: Sequence[int]
    vehicle: str = "a"
    start: datetime = NOON


def write_walks(path: Path, walks: Sequence[Walk], *, places: Places = PLACES, interval_s: float = 30.0) -> Path:
    rows = [
        (number, walk.vehicle, number, step, walk.start + timedelta(seconds=interval_s * step), place, None)
        for number, walk in enumerate(walks)
        for step, place in enumerate(walk.places)
    ]
    frame = pl.DataFrame(rows, schema=WALKS_SCHEMA, orient="row")
    about = {"roads": places.roads_identity, "spacing_m": places.spacing_m, "interval_s": interval_s, "method": "hmm"}
    write_table(frame, path, kind="walks", about=about)
    return path
