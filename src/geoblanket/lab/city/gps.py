"""GPS points of the taxis: noisy positions, with every kind of fault of real traces.

Two kinds of receiver see the same trips. The regular one reports every 15 s, so every second point is at a tick, at a
node (Porto's format implies such a clock). The irregular one reports every 7 to 15 s with fractions of a second, and
its points can be lost, repeated and out of order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._geodesy import local_degrees
from geoblanket.lab.city.fleet import Walks
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import TICK_S, WAYPOINTS_S
from geoblanket.lab.city.streets import CENTRE_LAT, CENTRE_LON

INTERVAL_S = 15
"""Seconds between the points of the regular receiver."""
NOISE_M = 5.0
"""Standard deviation of the noise, metres, in each direction."""

_JUMP_CHANCE = 0.0006  # of each point
_JUMP_M = (600.0, 4000.0)  # from and to
_EMPTY_TRIPS, _SINGLE_POINT_TRIPS, _GAP_TRIPS = 0.002, 0.002, 0.004
_LOST_CHANCE, _REPEATED_CHANCE, _LATE_CHANCE = 0.01, 0.004, 0.003
_IRREGULAR_S, _IRREGULAR_JITTER_S = 11.0, 2.0
_LATE_S = 25.0  # delay of points that arrive out of order


@dataclass(frozen=True, eq=False)
class RegularPoints:
    """Points every 15 s; those of trip i are `offsets[i]:offsets[i + 1]`. Arrays have one value a point.

    At a tick the vehicle is at a node, which is on several edges: `edge_in` is the one by which it came and `edge_out`
    the one by which it goes on; elsewhere the two are the same. -1 where there is none (before the first move, ...).
    """

    walks: Walks
    offsets: Ints
    index: Indices
    """Number of the point on the trip's clock: the time is start + 15 s × index. Lost points leave holes."""
    lat: Floats
    lon: Floats
    true_lat: Floats
    true_lon: Floats
    edge_in: Indices
    edge_out: Indices
    jump: Bools
    """Whether the point is a wild jump."""
    missing_data: Bools
    """Trips that lost points in the middle, shape (trips,)."""
    faults: Counter[str]

    @property
    def trip(self) -> Ints:
        """Number of the trip of each point."""
        return np.repeat(self.walks.trip, np.diff(self.offsets))

    @property
    def time_s(self) -> Ints:
        """True time of each point, seconds since 1970."""
        return np.repeat(self.walks.start_s, np.diff(self.offsets)) + INTERVAL_S * self.index.astype(np.int64)


@dataclass(frozen=True, eq=False)
class IrregularPoints:
    """Points every 7 to 15 s in the order in which they arrive within their trip."""

    trip: Ints
    vehicle: Indices
    time_us: Ints
    """Microseconds since 1970."""
    lat: Floats
    lon: Floats
    faults: Counter[str]


def regular_points(city: City, walks: Walks, *, seed: int) -> RegularPoints:
    """Return the points of the regular receiver along walks."""
    rng = np.random.default_rng([seed, 20, int(walks.trip[0])])
    true = _every_half_tick(city, walks)
    edge_in, edge_out = _edges_every_half_tick(city, walks)
    count = 2 * walks.ticks - 1
    index = _ranges(count).astype(np.int32)
    trip = np.repeat(np.arange(len(count)), count)
    noisy, jump = _add_noise(true, rng)
    keep, gap, faults = _lose_points(count, trip, index, rng)
    jump &= keep
    faults["jumps"] = int(jump.sum())
    lat, lon = _to_degrees(noisy[keep])
    true_lat, true_lon = _to_degrees(true[keep])
    return RegularPoints(
        walks=walks,
        offsets=np.concatenate([[0], np.cumsum(np.bincount(trip[keep], minlength=len(count)))]),
        index=index[keep],
        # Porto's six decimals.
        lat=np.round(lat, 6),
        lon=np.round(lon, 6),
        true_lat=true_lat,
        true_lon=true_lon,
        edge_in=edge_in[keep],
        edge_out=edge_out[keep],
        jump=jump[keep],
        missing_data=gap,
        faults=faults,
    )


def irregular_points(city: City, walks: Walks, *, seed: int) -> IrregularPoints:
    """Return the points of the irregular receiver along walks, sorted by trip and arrival."""
    rng = np.random.default_rng([seed, 21, int(walks.trip[0])])
    duration = (walks.ticks - 1) * TICK_S
    count = (duration // _IRREGULAR_S).astype(np.int64) + 1
    trip = np.repeat(np.arange(len(count)), count)
    jitter = rng.uniform(-_IRREGULAR_JITTER_S, _IRREGULAR_JITTER_S, len(trip))
    # The first point comes a little after the start; whole microseconds, as the formats have.
    after_us = ((_ranges(count) * _IRREGULAR_S + jitter) * 1e6).astype(np.int64)
    after_us = np.clip(after_us, 0, duration[trip] * 1_000_000)
    noisy, jump = _add_noise(positions_at(city, walks, trip, after_us / 1e6), rng)
    keep = rng.random(len(trip)) >= _LOST_CHANCE
    late = keep & (rng.random(len(trip)) < _LATE_CHANCE)
    times = np.where(keep, 1 + (rng.random(len(trip)) < _REPEATED_CHANCE), 0)
    faults = Counter(jumps=int(np.sum(times * jump)), lost=int(np.sum(~keep)), duplicates=int(np.sum(times == 2)))
    arrival_us = after_us + np.where(late, int(_LATE_S * 1e6), 0)
    taken = np.repeat(np.arange(len(trip)), times)
    taken = taken[np.lexsort((arrival_us[taken], trip[taken]))]
    faults["out_of_order"] = _count_out_of_order(trip[taken], after_us[taken])
    lat, lon = _to_degrees(noisy[taken])
    start_us = walks.start_s[trip[taken]] * 1_000_000
    return IrregularPoints(
        trip=walks.trip[trip[taken]],
        vehicle=walks.vehicle[trip[taken]],
        time_us=start_us + after_us[taken],
        lat=lat,
        lon=lon,
        faults=faults,
    )


def _every_half_tick(city: City, walks: Walks) -> Floats:
    """Return true positions at ticks and half-way between, in metres, shape (Σ (2 ticks - 1), 2)."""
    at_tick = city.streets.points[walks.node]
    half = city.moves.routes.waypoints[walks.route, walks.alternative, len(WAYPOINTS_S) // 2].astype(np.float64)
    half[walks.route < 0] = at_tick[walks.route < 0]
    return _interleave(walks, half, at_tick)


def _edges_every_half_tick(city: City, walks: Walks) -> tuple[Indices, Indices]:
    """Return the edges by which a vehicle comes and goes at ticks and half-way between; -1 for none."""
    edges = city.moves.routes.edges[walks.route, walks.alternative]
    moved = walks.route >= 0
    trip = np.repeat(np.arange(len(walks.ticks)), walks.ticks)
    place = np.arange(len(trip))
    latest = np.maximum.accumulate(np.where(moved, place, -1))
    came = np.where((latest >= 0) & (trip[latest] == trip), edges[latest, -1], -1)
    after = np.append(place[1:], 0)
    moves_next = np.append(moved[1:], False)
    soonest = np.minimum.accumulate(np.where(moves_next, after, len(place))[::-1])[::-1]
    following = np.minimum(soonest, len(place) - 1)
    goes = np.where((soonest < len(place)) & (trip[following] == trip), edges[following, 0], -1)
    # Half-way through a stop the vehicle is where it was at the tick before.
    half = edges[:, 1 + len(WAYPOINTS_S) // 2]
    half_in = np.where(moved, half, came)
    half_out = np.where(moved, half, goes)
    return _interleave(walks, half_in, came), _interleave(walks, half_out, goes)


def _interleave(walks: Walks, half: npt.NDArray[Any], at_tick: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Merge values before each tick (but a trip's first) and at each tick."""
    merged = np.stack([half, at_tick], 1).reshape(-1, *at_tick.shape[1:])
    keep = np.ones(len(merged), np.bool_)
    keep[2 * walks.offsets[:-1]] = False
    return merged[keep]


def positions_at(city: City, walks: Walks, trip: Ints, after_s: Floats) -> Floats:
    """Return true positions some seconds after the start of trips (positions in `walks`), metres from the centre.

    Between the way-points, which are 5 s apart, vehicles go straight.
    """
    ticks = walks.ticks[trip]
    tick = np.minimum((after_s // TICK_S).astype(np.int64), np.maximum(ticks - 2, 0))
    start = walks.offsets[trip] + tick
    end = np.minimum(start + 1, walks.offsets[trip] + ticks - 1)
    piece_s = TICK_S / (len(WAYPOINTS_S) + 1)
    piece = (after_s - tick * TICK_S) / piece_s
    first = np.clip(piece.astype(np.int64), 0, len(WAYPOINTS_S))
    share = (piece - first)[:, None]
    ends = (_way_point(city, walks, start, end, first + extra) for extra in (0, 1))
    before, after = ends
    result: Floats = before + share * (after - before)
    return result


def _way_point(city: City, walks: Walks, start: Ints, end: Ints, number: Ints) -> Floats:
    inner = np.clip(number - 1, 0, len(WAYPOINTS_S) - 1)
    routes = city.moves.routes
    result = routes.waypoints[walks.route[end], walks.alternative[end], inner].astype(np.float64)
    points = city.streets.points
    at_start = (number == 0) | (walks.route[end] < 0)
    at_end = (number > len(WAYPOINTS_S)) & ~at_start
    result[at_start] = points[walks.node[start[at_start]]]
    result[at_end] = points[walks.node[end[at_end]]]
    return result


def _add_noise(true: Floats, rng: np.random.Generator) -> tuple[Floats, Bools]:
    noisy = true + rng.normal(0.0, NOISE_M, true.shape)
    jump = rng.random(len(true)) < _JUMP_CHANCE
    count = int(jump.sum())
    angle, reach = rng.uniform(0, 2 * np.pi, count), rng.uniform(*_JUMP_M, count)
    noisy[jump] += np.stack([reach * np.cos(angle), reach * np.sin(angle)], 1)
    return noisy, jump


def _lose_points(
    count: Ints, trip: Ints, index: Indices, rng: np.random.Generator
) -> tuple[Bools, Bools, Counter[str]]:
    """Return which points are kept, which trips have a gap, and what was lost."""
    draw = rng.random(len(count))
    empty = draw < _EMPTY_TRIPS
    single = ~empty & (draw < _EMPTY_TRIPS + _SINGLE_POINT_TRIPS)
    gap = ~empty & ~single & (draw < _EMPTY_TRIPS + _SINGLE_POINT_TRIPS + _GAP_TRIPS) & (count >= 12)
    first = 2 + (rng.random(len(count)) * (count - 10)).astype(np.int64)
    size = rng.integers(2, 7, len(count))
    in_gap = gap[trip] & (index >= first[trip]) & (index < (first + size)[trip])
    keep = ~(empty[trip] | (single[trip] & (index > 0)) | in_gap)
    faults = Counter(
        trips_empty=int(empty.sum()),
        trips_single_point=int(single.sum()),
        trips_missing_data=int(gap.sum()),
        points_missing=int(in_gap.sum()),
    )
    return keep, gap, faults


def _count_out_of_order(trip: Ints, time_us: Ints) -> int:
    """Return how many rows are earlier than a row of the same trip before them."""
    # Times of trips are shifted apart, so that one running maximum serves all trips.
    at = time_us + trip * (np.int64(time_us.max(initial=0)) + 1)
    return int(np.sum(at < np.maximum.accumulate(at))) if len(at) else 0


def _ranges(count: Ints) -> Ints:
    """Return the ranges 0, 1, …, count - 1 of all counts, concatenated."""
    result: Ints = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return result


def _to_degrees(points: Floats) -> tuple[Floats, Floats]:
    return local_degrees(*points.T, origin_lat=CENTRE_LAT, origin_lon=CENTRE_LON)
