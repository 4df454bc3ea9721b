"""A small frame whose bundle opens in no time, with an anchor or without."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.mechanism.bundle.storage import save_lattice
from geoblanket.mechanism.lattice.anchor import AnchorSpec, make_anchor
from geoblanket.mechanism.lattice.lattice import Lattice
from tests.mechanism.lattice.frames import small_spec

LAT, LON = 41.1051, -8.5931
"""A location in the frame of 1.1 km."""
START = 1_719_792_000
"""The start of an hour, seconds since 1970."""


def save_small(
    path: Path,
    *,
    anchor_epsilon: float | None = 3.0,
    period_s: int = 3600,
    epsilon: float = 2.0,
    cells: int = 11,
    interval_s: float = 30.0,
    version: int = 1,
) -> Path:
    """Save a lattice of cells of 100 m: a report costs 2 per km, and an hour at one place 3."""
    spec = small_spec(cells, epsilon_micro=round(epsilon * 1e6))
    anchor = None
    if anchor_epsilon is not None:
        anchor = make_anchor(spec.plane, epsilon_micro=round(anchor_epsilon * 1e6), period_s=period_s)
    save_lattice(path, spec, anchor, version=version, interval_s=interval_s)
    return path


_mixtures: dict[object, Floats] = {}


def mixture(lattice: Lattice, lat: float, lon: float) -> Floats:
    """Return how probable each cell is where nobody knows the anchor: the mean over all of them."""
    anchor, side = lattice.anchor, lattice.spec.plane.side
    assert isinstance(anchor, AnchorSpec)
    key = (lattice.spec.plane, lattice.spec.rate, anchor.rate, anchor.floor, lat, lon)
    if key not in _mixtures:
        x, y = (int(unit) for unit in lattice.spec.plane.units(lat, lon))
        shifts = [(east, north) for east in range(side) for north in range(side)]
        weights = np.array([anchor.weight(*shift, side) for shift in shifts], np.float64)
        total = np.zeros(lattice.cells)
        for (east, north), weight in zip(shifts, weights / weights.sum(), strict=True):
            total += weight * lattice.weights_at((x + east) % side, (y + north) % side)
        _mixtures[key] = total / 2**62
    return _mixtures[key]


def deviation(cells: object, probabilities: Floats) -> float:
    """Return by how many standard deviations χ² is above what is expected."""
    counts = np.bincount(np.asarray(cells), minlength=len(probabilities))
    expected = probabilities * counts.sum()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    freedom = len(probabilities) - 1
    return (chi2 - freedom) / float(np.sqrt(2 * freedom))
