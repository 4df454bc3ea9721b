"""Reports are learned from in parts: who counts them makes no difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geoblanket.learning import from_released
from geoblanket.learning.from_released import learn_from_released
from geoblanket.mechanism import load_bundle
from geoblanket.tracking.filtering import Sequences
from tests.serve.service.city_lattices import save_city
from tests.tracking.lattice_reports import SLOT, cells_near, near_model, save_cells


def test_the_number_of_processes_makes_no_difference(tmp_path: Path) -> None:
    city = load_bundle(save_city(tmp_path / "city.bundle"))
    model, rng = near_model(), np.random.default_rng(0)
    reports: list[tuple[str | None, int, int | None]] = []
    for vehicle in range(20):
        cells = cells_near(city, model, rng.integers(model.place_count, size=int(rng.integers(1, 12))).tolist())
        reports += [(f"v{vehicle}", SLOT + slot, cell) for slot, cell in enumerate(cells)]
    path = save_cells(tmp_path / "released.parquet", city, reports)
    alone, together = (learn_from_released(path, city, model, rounds=2, workers=workers) for workers in (1, 2))
    assert alone.identity == together.identity
    assert not np.array_equal(alone.chances, model.chances)


def test_parts_have_every_trip_once() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 3, 50):
        lengths = rng.integers(1, 9, size=count)
        starts = np.cumsum(lengths) - lengths
        slot = np.arange(lengths.sum()) - np.repeat(starts, lengths)
        trips = Sequences(slot, np.repeat(np.arange(count), lengths), starts)
        parts = from_released._divided(trips)
        assert len(parts) <= from_released._PARTS
        told = [output for part in parts for output in part.output[part.starts].tolist()]
        assert sorted(told) == list(range(count))
        assert sum(len(part.slot) for part in parts) == lengths.sum()
