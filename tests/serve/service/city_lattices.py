"""Bundles with a lattice for tests: small frames, made in a second."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from geoblanket.mechanism.bundle.storage import save_lattice
from geoblanket.mechanism.lattice.making import Area, spec_over

_spec_over = cache(spec_over)


def save_city(
    path: Path,
    *,
    epsilon: float = 4.0,
    hold_m: float = 0.0,
    at: tuple[float, float] = (41.15, -8.6),
    radius_km: float = 2.0,
    version: int = 1,
) -> Path:
    """Write a lattice of cells of 100 m around a point, over 9 km at ε = 4."""
    spec = _spec_over(Area.around(*at, radius_km), epsilon=epsilon, cell_m=100)
    save_lattice(path, spec, hold_mm=round(1000 * hold_m), version=version, interval_s=30)
    return path
