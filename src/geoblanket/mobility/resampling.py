"""Positions on a fixed clock: where a vehicle was at t0, t0 + Δ, t0 + 2 Δ, ..."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.mobility.map_matcher import MapMatcher, MatchedPoints

__all__ = ["Ticks", "clock_ticks", "positions_between", "positions_on_roads"]


@dataclass(frozen=True, eq=False)
class Ticks:
    """The clock times within the stretches of trips, and the points around each; stretch after stretch."""

    stretch: Ints
    """Stretch of each tick, numbered from 0 in order, shape (T,)."""
    time_us: Ints
    """Time of each tick, microseconds, shape (T,)."""
    before: Ints
    """The last point at or before each tick, shape (T,)."""
    after: Ints
    """The next point of the stretch, or `before` itself if the tick is on that point, shape (T,)."""
    part: Floats
    """How far in time each tick lies from `before` to `after`, 0 up to 1, shape (T,)."""

    @property
    def begins(self) -> Bools:
        """Whether each tick is the first of its stretch."""
        return np.append(True, self.stretch[1:] != self.stretch[:-1])[: len(self.stretch)]


def clock_ticks(
    trip: Ints,
    time_us: Ints,
    *,
    matched: Bools,
    begins: Bools,
    interval_us: int,
) -> Ticks:
    """Lay a clock over each trip that starts at its first matched point, and keep the ticks within stretches.

    Parameters
    ----------
    trip, time_us
        Trip and time of each point.
    matched
        Which points count.
    begins
        Which of the matched points begin a stretch.
    """
    point = np.flatnonzero(matched)
    trip, time_us = trip[point], time_us[point]
    new_trip = np.diff(trip, prepend=trip[:1] - 1) != 0
    zero = time_us[new_trip][np.cumsum(new_trip) - 1]
    first = np.flatnonzero(begins[point])
    last = np.append(first, len(point))[1:] - 1
    start, end, zero = time_us[first], time_us[last], zero[first]
    first_tick, last_tick = -((zero - start) // interval_us), (end - zero) // interval_us
    count = np.maximum(last_tick - first_tick + 1, 0)
    stretch = np.repeat(np.arange(len(first)), count)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + first_tick[stretch]
    tick_us = zero[stretch] + number * interval_us
    # All stretches laid end to end give one growing axis, on which one search finds every tick.
    shift = np.cumsum(end - start + 1) - end - 1
    axis = time_us + np.repeat(shift, last - first + 1)
    before = np.searchsorted(axis, tick_us + shift[stretch], side="right") - 1
    after = np.where(time_us[before] == tick_us, before, before + 1)
    waited = np.maximum(time_us[after] - time_us[before], 1)
    return Ticks(stretch, tick_us, point[before], point[after], (tick_us - time_us[before]) / waited)


def positions_between(ticks: Ticks, lat: Floats, lon: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each tick's position on the straight line between points, and the metres since the tick before.

    Returns
    -------
    lat, lon, moved_m
        Degrees, and straight metres from the previous tick; NaN at the first tick of a stretch.
    """
    at_lat = lat[ticks.before] + ticks.part * (lat[ticks.after] - lat[ticks.before])
    at_lon = lon[ticks.before] + ticks.part * (lon[ticks.after] - lon[ticks.before])
    moved = np.full(len(at_lat), np.nan)
    moved[1:] = haversine_m(at_lat[:-1], at_lon[:-1], at_lat[1:], at_lon[1:])
    moved[ticks.begins] = np.nan
    return at_lat, at_lon, moved


def positions_on_roads(ticks: Ticks, points: MatchedPoints, matcher: MapMatcher) -> tuple[Floats, Floats, Floats]:
    """Return each tick's position on the matched route, and the metres along it since the tick before.

    Returns
    -------
    lat, lon, moved_m
        Degrees, and metres along the route from the previous tick; NaN at the first tick of a stretch.
    """
    before, after = ticks.before, ticks.after
    on_point = before == after
    step = np.where(on_point, 0.0, ticks.part * points.route_m[after])
    edge, offset = points.edge[before].copy(), points.offset_m[before].copy()
    moving = np.flatnonzero(~on_point)
    edge[moving], offset[moving] = matcher.positions_on_route(
        points, before[moving], after[moving], travelled_m=step[moving]
    )
    travelled = np.cumsum(np.nan_to_num(points.route_m))
    moved = np.diff(travelled[before] + step, prepend=np.nan)
    moved[ticks.begins] = np.nan
    return *matcher.index.lines.locate(edge, offset), moved
