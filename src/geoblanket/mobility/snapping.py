"""Nearest-place snapping: each point belongs to the nearest place, whatever the roads between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import Floats
from geoblanket.mobility.stretches import begins_by_gap
from geoblanket.roads.graph import Ints
from geoblanket.roads.places import Places

__all__ = ["SnappedPoints", "snap_points"]


@dataclass(frozen=True, eq=False)
class SnappedPoints:
    """The place of each point, in the order of the points given."""

    place: Ints
    """Nearest place of each point, even of an unmatched one."""
    distance_m: Floats
    """Metres from the point to its place."""
    matched: npt.NDArray[np.bool_]
    """Whether the place is near enough."""
    begins: npt.NDArray[np.bool_]
    """Whether a stretch begins at the point: a run of matched points of one trip without a long gap in time."""


def snap_points(
    places: Places,
    trip: npt.NDArray[np.int64],
    time_us: npt.NDArray[np.int64],
    lat: Floats,
    lon: Floats,
    *,
    snap_m: float,
    max_gap_s: float,
) -> SnappedPoints:
    """Snap the points of one or many trips to places.

    Parameters
    ----------
    trip, time_us, lat, lon
        As in `MapMatcher.match`.
    snap_m
        A point farther than this from every place is unmatched, metres.
    max_gap_s
        A longer time without a matched point ends a stretch, seconds.
    """
    place, distance_m = places.nearest(lat, lon)
    matched = distance_m <= snap_m
    begins = np.zeros(len(trip), dtype=bool)
    begins[matched] = begins_by_gap(trip[matched], time_us[matched], max_gap_s=max_gap_s)
    return SnappedPoints(place, distance_m, matched, begins)
