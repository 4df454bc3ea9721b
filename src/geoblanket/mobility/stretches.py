"""Stretches: runs of matched points of one trip, and why they end."""

from __future__ import annotations

import numpy as np

from geoblanket._arrays import Bools, Ints

__all__ = ["begins_by_gap", "count_breaks"]


def begins_by_gap(trip: Ints, time_us: Ints, *, max_gap_s: float) -> Bools:
    """Return which points are the first of their trip or come after a long gap in time."""
    begins = np.ones(len(trip), dtype=bool)
    begins[1:] = (np.diff(trip) != 0) | (np.diff(time_us) > 1e6 * max_gap_s)
    return begins


def count_breaks(
    trip: Ints,
    time_us: Ints,
    matched: Bools,
    begins: Bools,
    *,
    max_gap_s: float,
) -> dict[str, int]:
    """Count the breaks within trips by reason."""
    point = np.flatnonzero(matched)
    broken = begins[point][1:] & (np.diff(trip[point]) == 0)
    late = np.diff(time_us[point]) > 1e6 * max_gap_s
    skipped = np.diff(point) > 1
    return {
        "gap": int((broken & late & ~skipped).sum()),
        "off_road": int((broken & late & skipped).sum()),
        "no_route": int((broken & ~late).sum()),
    }
