"""A small frame whose bundle opens in no time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.mechanism.bundle.storage import save_lattice
from tests.mechanism.lattice.frames import small_spec

LAT, LON = 41.1051, -8.5931
"""A location in the frame of 1.1 km."""
START = 1_719_792_000
"""The start of an hour, seconds since 1970."""


def save_small(
    path: Path,
    *,
    hold_m: float = 0.0,
    epsilon: float = 2.0,
    cells: int = 11,
    interval_s: float = 30.0,
    version: int = 1,
) -> Path:
    """Save a lattice of cells of 100 m, units of 10 m: a draw costs 2 per km."""
    spec = small_spec(cells, epsilon_micro=round(epsilon * 1e6))
    save_lattice(path, spec, hold_mm=round(1000 * hold_m), version=version, interval_s=interval_s)
    return path


def deviation(cells: object, probabilities: Floats) -> float:
    """Return by how many standard deviations χ² is above what is expected."""
    counts = np.bincount(np.asarray(cells), minlength=len(probabilities))
    expected = probabilities * counts.sum()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(probabilities) - 1
    return (chi2 - freedom) / float(np.sqrt(2 * freedom))
