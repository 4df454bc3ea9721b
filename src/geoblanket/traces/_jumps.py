"""Jumps: steps that no vehicle makes, and which points to drop for them.

A wild GPS point makes two impossible steps, one away and one back. To drop whatever comes after an impossible
step would lose the rest of the trip, and to drop both ends would lose a good point. So a trip is seen as *runs*,
stretches without an impossible step, of which a chain is kept: each run of the chain can be reached from the one
before it within the speed limit, or the trip is cut between them. The chain with the most points wins, where a
cut counts as five lost points: a short excursion is dropped, and a track that goes on elsewhere is cut in two.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m

__all__ = ["find_jumps"]

_Track: TypeAlias = tuple[Ints, Floats, Floats]

GPS_ERROR_M = 50.0
"""A step may be this much longer than the speed limit allows: between two points in one second, GPS noise alone
looks like a race."""

CUT_COST = 5
"""How many dropped points are as bad as cutting a trip in two."""

LOOK_BACK = 20
"""How many runs before it a run may follow on, without a cut."""

_DEGREE_M = np.radians(1.0) * EARTH_RADIUS_M


def find_jumps(time_us: Ints, lat: Floats, lon: Floats, starts: Bools, *, max_speed_m_s: float) -> tuple[Bools, Bools]:
    """Find the points to drop and the places to cut so that no impossible step remains.

    Parameters
    ----------
    time_us, lat, lon
        Points in the order of time within each trip: microseconds, degrees.
    starts
        True at the first point of each trip.
    max_speed_m_s
        A step is impossible if it is longer than this speed allows, plus 50 m of GPS error.

    Returns
    -------
    keep, cut
        True at the points to keep, and at those kept points before which the trip is to be cut.
    """
    keep = np.ones(time_us.size, dtype=bool)
    cut = np.zeros(time_us.size, dtype=bool)
    jumps = _impossible_next_steps(time_us, lat, lon, max_speed_m_s) & ~starts
    if not jumps.any():
        return keep, cut
    trip = np.cumsum(starts) - 1
    affected = np.zeros(int(trip[-1]) + 1, dtype=bool)
    affected[trip[jumps]] = True
    inside = np.flatnonzero(affected[trip])
    first = inside[(starts | jumps)[inside]]
    last = np.append(inside[np.flatnonzero((starts | jumps)[inside])[1:] - 1], inside[-1])
    run_trip = trip[first]
    reachable = np.zeros((first.size, LOOK_BACK + 1), dtype=bool)
    for lag in range(2, min(LOOK_BACK, int(np.bincount(run_trip).max()) - 1) + 1):
        here, there = first[lag:], last[:-lag]
        reachable[lag:, lag] = (run_trip[lag:] == run_trip[:-lag]) & ~_impossible(
            (time_us, lat, lon), there, here, max_speed_m_s
        )
    keep[inside] = False
    run_starts = np.flatnonzero(np.diff(run_trip, prepend=-1))
    sizes = (last - first + 1).tolist()
    for begin, end in zip(run_starts.tolist(), [*run_starts[1:].tolist(), first.size], strict=True):
        for run, is_cut in _best_chain(sizes[begin:end], reachable[begin:end]):
            keep[first[begin + run] : last[begin + run] + 1] = True
            cut[first[begin + run]] = is_cut
    return keep, cut


def _best_chain(sizes: list[int], reachable: Bools) -> list[tuple[int, bool]]:
    """Return the runs of one trip to keep, each with whether the trip is cut before it.

    `reachable[i, lag]` tells whether run i may follow run i - lag without a cut.
    """
    best: list[int] = []
    before: list[tuple[int, bool]] = []
    top = -1
    for run, size in enumerate(sizes):
        value, link = 0, (-1, False)
        if top >= 0 and best[top] - CUT_COST > value:
            value, link = best[top] - CUT_COST, (top, True)
        for lag in np.flatnonzero(reachable[run]).tolist():
            if best[run - lag] > value:
                value, link = best[run - lag], (run - lag, False)
        best.append(size + value)
        before.append(link)
        if top < 0 or best[run] > best[top]:
            top = run
    chain = []
    while top >= 0:
        previous, is_cut = before[top]
        chain.append((top, is_cut))
        top = previous
    return chain


def _impossible_next_steps(time_us: Ints, lat: Floats, lon: Floats, max_speed_m_s: float) -> Bools:
    """Tell for each point whether the step that leads to it is impossible."""
    jumps = np.zeros(time_us.size, dtype=bool)
    # Along a parallel and a meridian is never shorter than the great circle, and much quicker to compute.
    dlon = np.abs(np.diff(lon))
    upper_bound_m = (np.abs(np.diff(lat)) + np.minimum(dlon, 360.0 - dlon)) * _DEGREE_M
    suspects = np.flatnonzero(~(upper_bound_m <= np.diff(time_us) * (max_speed_m_s / 1e6) + GPS_ERROR_M)) + 1
    jumps[suspects] = _impossible((time_us, lat, lon), suspects - 1, suspects, max_speed_m_s)
    return jumps


def _impossible(track: _Track, here: Ints, there: Ints, max_speed_m_s: float) -> Bools:
    """Tell for each pair of positions whether the way from here to there is impossible."""
    time_us, lat, lon = track
    seconds = (time_us[there] - time_us[here]) / 1e6
    distance_m = haversine_m(lat[here], lon[here], lat[there], lon[there])
    return distance_m > seconds * max_speed_m_s + GPS_ERROR_M
