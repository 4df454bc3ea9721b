"""Cleaning: from recorded points to trips that a vehicle can have driven.

A wild GPS point makes two impossible steps, one away and one back. Dropping everything after an impossible step would
lose the rest of the trip, and dropping both ends would lose a good point. So a trip is divided into *runs*, stretches
without an impossible step, and a chain of runs is kept: each run can be reached from the one before it within the speed
limit, or the trip is cut between them. The chain with the most points wins; a cut costs five points. So a short
excursion is dropped, and a track that goes on elsewhere is cut in two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._display import options_repr
from geoblanket._geodesy import EARTH_RADIUS_M, haversine_m
from geoblanket.errors import ParameterError
from geoblanket.traces.summary import Tally

_Track: TypeAlias = tuple[Ints, Floats, Floats]

GPS_ERROR_M = 50.0
"""A step may be this much longer than the speed limit allows: over one second, GPS noise alone looks like speeding."""

CUT_COST = 5
"""Cost of cutting a trip in two, in dropped points."""

LOOK_BACK = 20
"""A run may follow, without a cut, one of this many runs before it."""

_DEGREE_M = np.radians(1.0) * EARTH_RADIUS_M


@checked
@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The cleaning rules. They apply in this order; each can be switched off.

    Attributes
    ----------
    drop_missing_data
        Drop trips that their source marks as incomplete (Porto's MISSING_DATA): the times after the hole are wrong.
    drop_impossible
        Drop points whose latitude or longitude is not a number or out of range, and points at exactly (0, 0).
    sort
        Sort points that are out of order; if False, drop them.
    drop_duplicates
        Keep only the first of several points of one vehicle (or trip) at the same time.
    max_speed_m_s
        Drop points that jump away faster than this; None keeps them.
    max_gap_s
        Cut trips where two points are further apart in time than this; None never cuts.
    trips
        "occupancy" also cuts trips where a passenger gets in or out, if the source says so (cabspotting).
    min_points, min_duration_s
        Drop trips with fewer points, or shorter than this.

    Examples
    --------
    >>> from geoblanket import Cleaning, import_traces
    >>> rules = Cleaning(max_speed_m_s=None, max_gap_s=120)
    >>> import_traces(["city/porto.csv"], "kept.parquet", format="porto", cleaning=rules).vehicles
    150
    """

    drop_missing_data: bool = True
    drop_impossible: bool = True
    sort: bool = True
    drop_duplicates: bool = True
    max_speed_m_s: float | None = 60.0
    max_gap_s: float | None = 300.0
    trips: Literal["gaps", "occupancy"] = "gaps"
    min_points: int = 2
    min_duration_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_speed_m_s", "max_gap_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ParameterError(f"{name} must be positive, or None to switch the rule off. Got {value} instead.")
        if self.min_points < 1:
            raise ParameterError(f"min_points must be at least 1. Got {self.min_points} instead.")
        if not self.min_duration_s >= 0:
            raise ParameterError(f"min_duration_s must not be negative. Got {self.min_duration_s} instead.")

    def __repr__(self) -> str:
        return options_repr(self)


class Points(NamedTuple):
    """Points in the order of their source, those of one stream (a trip, or all of a vehicle) together.

    Attributes
    ----------
    stream
        Number of the stream.
    row
        The `file_row` that holds the point.
    time_us
        Microseconds since 1970 UTC.
    lat, lon
        Degrees WGS84.
    occupied
        Whether a passenger is on board; None if the source does not say.
    """

    stream: Ints
    row: Ints
    time_us: Ints
    lat: Floats
    lon: Floats
    occupied: Bools | None = None

    def take(self, which: npt.NDArray[Any]) -> Points:
        """Return some of the points, by a mask or by positions."""
        return Points._make(None if column is None else column[which] for column in self)

    def keep(self, mask: Bools) -> Points:
        """Return the points where `mask` is true, without copying if that is all of them."""
        return self if mask.all() else self.take(mask)


def clean(points: Points, cleaning: Cleaning) -> tuple[Points, Ints, Tally]:
    """Clean points.

    Returns
    -------
    points
        The points that are kept, by stream, then time.
    trip
        The number of each point's trip, from 0.
    tally
        Counts for each rule.
    """
    tally = Tally()
    if cleaning.drop_impossible:
        points = _drop(points, _impossible(points), "impossible", tally)
    points = _order(points, cleaning, tally)
    if cleaning.drop_duplicates:
        points = _drop_duplicates(points, tally)
    points, cut = _drop_jumps(points, cleaning, tally)
    starts = _cut_at_gaps(points, cut, cleaning, tally)
    if cleaning.trips == "occupancy":
        starts = _cut_by_occupancy(points, starts, tally)
    points, starts = _drop_short_trips(points, starts, cleaning, tally)
    return points, np.cumsum(starts) - 1, tally


def _drop(points: Points, unwanted: Bools, rule: str, tally: Tally) -> Points:
    tally.count(rule, points.row[unwanted])
    return points.keep(~unwanted)


def _impossible(points: Points) -> Bools:
    lat, lon = points.lat, points.lon
    possible: Bools = (np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0) & ((lat != 0.0) | (lon != 0.0))
    return ~possible


def _same_stream(points: Points) -> Bools:
    """Return, for each point but the first, whether it is in the stream of the point before."""
    same: Bools = points.stream[1:] == points.stream[:-1]
    return same


def _order(points: Points, cleaning: Cleaning, tally: Tally) -> Points:
    if not np.any((np.diff(points.time_us) < 0) & _same_stream(points)):
        return points
    latest = pl.DataFrame({"stream": points.stream, "time": points.time_us}).select(
        pl.col("time").cum_max().over("stream")
    )
    late = points.time_us < latest.to_series().to_numpy()
    if not cleaning.sort:
        return _drop(points, late, "out_of_order", tally)
    tally.count("sorted", points.row[late])
    return points.take(np.lexsort((points.time_us, points.stream)))


def _drop_duplicates(points: Points, tally: Tally) -> Points:
    repeated = np.zeros(points.row.size, dtype=bool)
    repeated[1:] = (np.diff(points.time_us) == 0) & _same_stream(points)
    if not repeated.any():
        return points
    first = np.maximum.accumulate(np.where(repeated, 0, np.arange(points.row.size)))
    elsewhere = (points.lat != points.lat[first]) | (points.lon != points.lon[first])
    tally.count("duplicate", points.row[repeated & ~elsewhere])
    tally.count("same_time", points.row[repeated & elsewhere])
    return points.keep(~repeated)


def _gaps(points: Points, cleaning: Cleaning) -> Bools:
    """Return, for each point but the first, whether the time since the point before is a gap."""
    if cleaning.max_gap_s is None:
        return np.zeros(max(points.row.size - 1, 0), dtype=bool)
    gaps: Bools = np.diff(points.time_us) > cleaning.max_gap_s * 1e6
    return gaps


def _starts(points: Points) -> Bools:
    starts = np.ones(points.row.size, dtype=bool)
    starts[1:] = ~_same_stream(points)
    return starts


def _drop_jumps(points: Points, cleaning: Cleaning, tally: Tally) -> tuple[Points, Bools]:
    """Drop points that jump away; also return where trips are to be cut instead."""
    if cleaning.max_speed_m_s is None:
        return points, np.zeros(points.row.size, dtype=bool)
    starts = _starts(points)
    starts[1:] |= _gaps(points, cleaning)
    keep, cut = find_jumps(points.time_us, points.lat, points.lon, starts, max_speed_m_s=cleaning.max_speed_m_s)
    tally.count("cut_at_jump", points.row[cut])
    return _drop(points, ~keep, "jump", tally), cut[keep]


def _cut_at_gaps(points: Points, cut: Bools, cleaning: Cleaning, tally: Tally) -> Bools:
    """Return where trips begin."""
    starts = _starts(points) | cut
    gaps = np.zeros(points.row.size, dtype=bool)
    gaps[1:] = _gaps(points, cleaning)
    tally.count("cut_at_gap", points.row[gaps & ~starts])
    return starts | gaps


def _cut_by_occupancy(points: Points, starts: Bools, tally: Tally) -> Bools:
    if points.occupied is None:
        raise ParameterError("trips must be 'gaps': the files do not say when a passenger is on board.")
    changes = np.diff(points.occupied, prepend=points.occupied[:1])
    tally.count("cut_by_occupancy", points.row[changes & ~starts])
    return starts | changes


def _drop_short_trips(points: Points, starts: Bools, cleaning: Cleaning, tally: Tally) -> tuple[Points, Bools]:
    first = np.flatnonzero(starts)
    sizes = np.diff(first, append=starts.size)
    duration_us = points.time_us[first + sizes - 1] - points.time_us[first]
    short = (sizes < cleaning.min_points) | (duration_us < cleaning.min_duration_s * 1e6)
    unwanted = np.repeat(short, sizes)
    return _drop(points, unwanted, "too_short", tally), starts[~unwanted]


def find_jumps(time_us: Ints, lat: Floats, lon: Floats, starts: Bools, *, max_speed_m_s: float) -> tuple[Bools, Bools]:
    """Find the points to drop and where to cut trips, so that no impossible step remains.

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
    # Only trips with a jump are looked at. Their runs begin at `first` and end at `last`.
    trip = np.cumsum(starts) - 1
    affected = np.zeros(int(trip[-1]) + 1, dtype=bool)
    affected[trip[jumps]] = True
    inside = np.flatnonzero(affected[trip])
    first = inside[(starts | jumps)[inside]]
    last = np.append(inside[np.flatnonzero((starts | jumps)[inside])[1:] - 1], inside[-1])
    # Which runs may follow which, for all trips at once: one lag after the other.
    run_trip = trip[first]
    reachable = np.zeros((first.size, LOOK_BACK + 1), dtype=bool)
    for lag in range(2, min(LOOK_BACK, int(np.bincount(run_trip).max()) - 1) + 1):
        here, there = first[lag:], last[:-lag]
        reachable[lag:, lag] = (run_trip[lag:] == run_trip[:-lag]) & ~_too_far(
            (time_us, lat, lon), there, here, max_speed_m_s
        )
    # Keep the best chain of runs in each trip.
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

    `reachable[i, lag]` says whether run i may follow run i - lag without a cut.
    """
    # Dynamic programming: `best` is the value of the best chain that ends at each run, `top` the best run so far.
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
    """Return, for each point, whether the step to it is impossible."""
    jumps = np.zeros(time_us.size, dtype=bool)
    # The way along a parallel and a meridian is never shorter than the great circle, and much faster to compute.
    dlon = np.abs(np.diff(lon))
    upper_bound_m = (np.abs(np.diff(lat)) + np.minimum(dlon, 360.0 - dlon)) * _DEGREE_M
    suspects = np.flatnonzero(~(upper_bound_m <= np.diff(time_us) * (max_speed_m_s / 1e6) + GPS_ERROR_M)) + 1
    jumps[suspects] = _too_far((time_us, lat, lon), suspects - 1, suspects, max_speed_m_s)
    return jumps


def _too_far(track: _Track, here: Ints, there: Ints, max_speed_m_s: float) -> Bools:
    """Return, for each pair of positions, whether the step from here to there is impossible."""
    time_us, lat, lon = track
    seconds = (time_us[there] - time_us[here]) / 1e6
    distance_m = haversine_m(lat[here], lon[here], lat[there], lon[there])
    return distance_m > seconds * max_speed_m_s + GPS_ERROR_M
