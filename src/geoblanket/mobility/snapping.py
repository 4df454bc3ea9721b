"""Nearest-place snapping: each point belongs to the nearest place, regardless of roads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket.mobility.stretches import begins_by_gap
from geoblanket.roads.places import Places

__all__ = ["SnappedPoints", "snap_points"]


@dataclass(frozen=True, eq=False)
class SnappedPoints:
    """The place of each point, in the order of the points given."""

    place: Indices
    """Nearest place of each point, even of an unmatched one."""
    distance_m: Floats
    """Metres from the point to its place."""
    matched: Bools
    """Whether the place is near enough."""
    begins: Bools
    """Whether a stretch begins at the point: a run of matched points of one trip without a long gap in time."""


def snap_points(
    places: Places,
    trip: Ints,
    time_us: Ints,
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
