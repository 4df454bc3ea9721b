"""Reports of a small lattice for tests, made up or drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket._tables import write_table
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle
from geoblanket.release.bulk import RELEASED_CELLS_SCHEMA
from geoblanket.tracking.motion_model import MotionModel

SLOT = int(datetime(2024, 7, 1, tzinfo=UTC).timestamp()) // 30
HERE = (41.15, -8.6)


def near_model(*, interval_s: float = 30.0, across: int = 7, at: tuple[float, float] = HERE) -> MotionModel:
    """Places 300 m apart around a point, and moves by distance."""
    steps = np.arange(across) - across // 2
    lat, lon = np.meshgrid(at[0] + steps * 0.0027, at[1] + steps * 0.0036, indexing="ij")
    places_e7 = np.rint(np.column_stack([lat.ravel(), lon.ravel()]) * 1e7).astype(np.int32)
    return MotionModel.by_distance(places_e7, interval_s=interval_s)


def cells_near(bundle: Bundle, model: MotionModel, places: Sequence[int]) -> list[int]:
    """Drawn reports from places of a model."""
    assert isinstance(bundle, LatticeBundle)
    lattice = bundle.lattice
    x, y = lattice.spec.plane.units(model.lat[list(places)], model.lon[list(places)])
    return [int(cell) for cell in lattice.draw_many_at(x, y)]


def save_cells(
    path: Path,
    bundle: Bundle,
    reports: Sequence[tuple[str | None, int, int | None]],
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Reports of vehicles, each with a slot and a cell, as `geoblanket perturb` writes them."""
    slots = [slot for _, slot, _ in reports]
    frame = pl.DataFrame(
        {
            "vehicle": [vehicle for vehicle, _, _ in reports],
            "trip": [0] * len(reports),
            "slot": slots,
            "time": [slot * 30_000_000 for slot in slots],
            "cell": [cell for *_, cell in reports],
            "lat": [float(index) for index in range(len(reports))],
            "lon": [-float(index) for index in range(len(reports))],
        },
        schema={**RELEASED_CELLS_SCHEMA, "time": pl.Int64()},
    ).with_columns(pl.col("time").cast(pl.Datetime("us", "UTC")))
    known = {"bundle": bundle.sha256, "interval_s": 30.0} if about is None else about
    write_table(frame, path, kind="released cells", about=known, private=False)
    return path
