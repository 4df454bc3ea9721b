"""The fleet: which taxi starts where and when, and the nodes at which it is at every tick.

Trips are made in blocks of a fixed number, each from its own random stream, so that the same city, number of trips
and seed give the same trips however they are consumed, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import Floats
from geoblanket.city.model import City
from geoblanket.city.moves import STRENGTH
from geoblanket.city.plan import DISTRICTS
from geoblanket.city.routes import TICK_S
from geoblanket.errors import ParameterError

__all__ = ["BLOCK", "CALL_TYPES", "FIRST_VEHICLE", "VEHICLES", "Schedule", "Walks", "make_schedule", "walk_blocks"]

VEHICLES = 440
FIRST_VEHICLE = 20_000_001
"""Number of the first taxi; they are numbered as Porto's are."""
BLOCK = 8192
"""Trips made at a time."""
START_S = 1_719_792_000
"""When the first day begins: Monday, 1 July 2024, 0:00 UTC, in seconds since 1970. The city lives on UTC."""
CALL_TYPES = ("A", "B", "C")
"""How a taxi was called: by telephone, at a stand, on the street."""

END_OF_TIME_S = 1 << 40

_TRIPS_A_DAY = 10 * VEHICLES
_MOST_STEPS = 90
_CALL_SHARES = (0.22, 0.48, 0.30)
_TRIPS_BY_HOUR = np.array(
    [2.6, 2.2, 1.9, 1.6, 1.7, 2.4, 3.4, 4.6, 5.8, 5.6, 5.0, 4.7, 4.6, 4.8, 5.0, 5.0, 5.2, 5.6, 5.8, 5.2, 4.4, 3.9, 3.6, 3.2]
)  # fmt: skip
_TRAFFIC_BY_HOUR = np.array([0] * 7 + [2] * 3 + [1] * 7 + [2] * 3 + [1] * 1 + [0] * 3)
"""Calm, busy or rush hour: an index into the chances of `Moves`."""
# Shifts of ten hours; more taxis are out when more people call.
_SHIFT_STARTS = np.array([0, 4, 6, 8, 12, 15, 18])
_SHIFT_SHARES = np.array([0.10, 0.14, 0.18, 0.18, 0.14, 0.16, 0.10])
_SHIFT_HOURS = 10
_PERIODS = ("night", "morning", "midday", "evening")
_PERIOD_BY_HOUR = np.array([0] * 6 + [1] * 4 + [2] * 6 + [3] * 5 + [0] * 3)
# Where trips start: out of town into it in the morning, and back in the evening.
_START_DISTRICT = np.array([[0.42, 0.33, 0.25], [0.26, 0.38, 0.36], [0.36, 0.36, 0.28], [0.42, 0.34, 0.24]])
_END_DISTRICT = np.array([[0.9, 1.0, 1.2], [1.4, 0.9, 0.8], [1.1, 1.0, 0.9], [0.8, 1.1, 1.3]])
_ATTRACTORS = 6
# A Weibull hazard: trips of 24 ticks (12 minutes) on average, half of them under 10 minutes or so.
_HAZARD_SHAPE, _HAZARD_SCALE = 1.6, 27.0

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Trips in the order in which they start, shape (trips,) each."""

    start_s: Ints
    """Seconds since 1970, a multiple of 30: all taxis tick together."""
    vehicle: npt.NDArray[np.int32]
    """Index of the taxi."""
    most_steps: npt.NDArray[np.int32]
    """Ticks that the trip may last at most: it ends before the taxi's next one."""
    seed: int

    def __len__(self) -> int:
        return len(self.start_s)


@dataclass(frozen=True, eq=False)
class Walks:
    """Trips as nodes at ticks: trip i holds the ticks `offsets[i]:offsets[i + 1]`.

    The arrays about steps tell of the step that ends at the tick; the first tick of a trip has none (-1 or 0).
    """

    trip: Ints
    """Number of each trip, shape (trips,)."""
    start_s: Ints
    vehicle: npt.NDArray[np.int32]
    call_type: npt.NDArray[np.uint8]
    """Index into `CALL_TYPES`."""
    stand: npt.NDArray[np.int32]
    """Index of the stand at which the trip began, -1 for none."""
    offsets: Ints
    node: npt.NDArray[np.int32]
    route: npt.NDArray[np.int32]
    """Route taken, -1 for a stop."""
    alternative: npt.NDArray[np.uint8]
    """Which of the route's two roads."""
    band: npt.NDArray[np.uint8]
    """Speed band, an index into `moves.BANDS`."""
    order: npt.NDArray[np.uint8]
    """Markov order by which this step was drawn."""

    @property
    def ticks(self) -> Ints:
        """Number of ticks of each trip."""
        return np.diff(self.offsets)


def make_schedule(trips: int, *, seed: int = 0) -> Schedule:
    """Plan when each trip starts and which taxi makes it; no taxi makes two trips at once."""
    if trips < 1:
        raise ParameterError(f"trips must be at least 1. Got {trips} instead.")
    rng = np.random.default_rng([seed, 10])
    days = -(-trips // _TRIPS_A_DAY)
    by_hour = np.tile(_TRIPS_BY_HOUR, days)
    cumulative = np.append(0.0, np.cumsum(by_hour)) / by_hour.sum()
    even = (np.arange(trips) + rng.random(trips)) / trips
    start = np.interp(even, cumulative, np.arange(len(cumulative)) * 3600.0)
    start_s = START_S + (start.astype(np.int64) // TICK_S) * TICK_S
    vehicle = _assign_vehicles(start_s, rng)
    order = np.lexsort((start_s, vehicle))
    gap = np.full(trips, _MOST_STEPS * TICK_S)
    same = vehicle[order[1:]] == vehicle[order[:-1]]
    gap[order[:-1][same]] = np.diff(start_s[order])[same]
    # Two ticks between trips: one to pay, one to leave.
    most = np.clip(gap // TICK_S - 2, 1, _MOST_STEPS).astype(np.int32)
    return Schedule(start_s, vehicle, most, seed)


def _assign_vehicles(start_s: Ints, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Give each trip a taxi that is on duty: those of a shift take turns."""
    bounds = np.round(np.cumsum(np.append(0.0, _SHIFT_SHARES)) * VEHICLES).astype(np.int64)
    taxis = rng.permutation(VEHICLES)
    hour = (start_s // 3600) % 24
    on_duty = (hour[:, None] - _SHIFT_STARTS) % 24 < _SHIFT_HOURS
    share = np.cumsum(on_duty * _SHIFT_SHARES, 1)
    shift = (share <= rng.random(len(hour))[:, None] * share[:, -1:]).sum(1)
    vehicle = np.empty(len(hour), np.int32)
    for number in range(len(_SHIFT_STARTS)):
        members = taxis[bounds[number] : bounds[number + 1]]
        mine = np.flatnonzero(shift == number)
        vehicle[mine] = members[np.arange(len(mine)) % len(members)]
    return vehicle


def walk_blocks(city: City, schedule: Schedule) -> Iterator[Walks]:
    """Make the trips of a schedule, a block at a time."""
    ending = _ending(city)
    taste = np.random.default_rng([schedule.seed, 11]).uniform(0.1, 0.9, VEHICLES)
    for number, first in enumerate(range(0, len(schedule), BLOCK)):
        trips = np.arange(first, min(first + BLOCK, len(schedule)))
        yield _walk(city, schedule, trips, ending, taste, np.random.default_rng([schedule.seed, 12, number]))


def _ending(city: City) -> npt.NDArray[np.float32]:
    """Return how much likelier than usual a trip ends at each node, by period of the day, shape (4, N)."""
    rng = np.random.default_rng([city.seed, 7])
    points, usable = city.streets.points, np.flatnonzero(city.moves.usable)
    reach = 0.35 * city.plan.borders_m[0]
    result = []
    for by_district in _END_DISTRICT:
        centres = points[rng.choice(usable, _ATTRACTORS, replace=False)]
        away = np.hypot(*(points[:, None] - centres).transpose(2, 0, 1))
        near = np.exp(-np.square(away / reach)).max(1)
        result.append(by_district[city.district] * (0.9 + 0.9 * near))
    return np.array(result, np.float32)


def _walk(
    city: City,
    schedule: Schedule,
    trips: Ints,
    ending: npt.NDArray[np.float32],
    taste: Floats,
    rng: np.random.Generator,
) -> Walks:
    moves, routes = city.moves, city.moves.routes
    start_s, vehicle = schedule.start_s[trips], schedule.vehicle[trips]
    node, call_type, stand = _origins(city, start_s, rng)
    count = len(trips)
    strength = np.array([(0.0, 0.0), *(STRENGTH[order] for order in (1, 2, 3))], np.float32)
    unit = (routes.displacement / np.hypot(*routes.displacement.T)[:, None]).astype(np.float32)
    last, before_last = np.zeros((2, count, 2), np.float32)
    active = np.arange(count)
    columns: list[tuple[Ints, ...]] = []
    here = node.copy()
    for step in range(1, _MOST_STEPS + 1):
        hour = (start_s[active] + step * TICK_S) // 3600 % 24
        draw = rng.random((4, count), np.float32)[:, active]
        x = here[active]
        band = (draw[0][:, None] >= moves.chances[_TRAFFIC_BY_HOUR[hour], x]).sum(1)
        # float32 rounding may leave the last chance a hair below 1
        band = np.where(band > 3, 0, band)
        row = x * 3 + np.maximum(band, 1) - 1
        pull = strength[moves.order[row]]
        heading = pull[:, :1] * last[active] + pull[:, 1:] * before_last[active]
        chance = moves.heading[0, row] * heading[:, :1] + moves.heading[1, row] * heading[:, 1:]
        chance = np.cumsum(np.maximum(moves.weight[row] * (1.0 + chance), 0.0), 1)
        slot = (chance <= (draw[1] * chance[:, -1])[:, None]).sum(1)
        route = np.where(band > 0, moves.route[row, np.minimum(slot, moves.last_slot[row])], -1)
        moved = route >= 0
        target = np.where(moved, routes.target[route], x)
        inside = city.district[target] == city.district[x]
        order = np.where(moved & inside, moves.order[row], 1)
        before_last[active] = last[active]
        last[active] = np.where(moved[:, None], unit[route], np.float32(0.0))
        here[active] = target
        alternative = draw[2] < taste[vehicle[active]]
        columns.append((active, target, route, alternative, band, order))
        hazard = _HAZARD_SHAPE / _HAZARD_SCALE * ((step - 0.5) / _HAZARD_SCALE) ** (_HAZARD_SHAPE - 1)
        stops = draw[3] < -np.expm1(-hazard * ending[_PERIOD_BY_HOUR[hour], target])
        active = active[~stops & (schedule.most_steps[trips[active]] > step)]
        if not len(active):
            break
    return _lay_out(trips, start_s, vehicle, call_type, stand, node, columns)


def _origins(
    city: City, start_s: Ints, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return where trips start, how they were called, and at which stand."""
    count = len(start_s)
    period = _PERIOD_BY_HOUR[start_s // 3600 % 24]
    draw = rng.random((4, count))
    district = (draw[0][:, None] >= np.cumsum(_START_DISTRICT, 1)[period]).sum(1)
    district = np.minimum(district, len(DISTRICTS) - 1)
    call_type = np.minimum((draw[1][:, None] >= np.cumsum(_CALL_SHARES)).sum(1), len(CALL_TYPES) - 1)
    stand = np.full(count, -1, np.int32)
    node = np.empty(count, np.int32)
    for number in range(len(DISTRICTS)):
        mine = district == number
        usable = np.flatnonzero(city.moves.usable & (city.district == number))
        node[mine] = usable[(draw[2][mine] * len(usable)).astype(np.int64)]
        at_stand = mine & (call_type == CALL_TYPES.index("B"))
        stands = np.flatnonzero(city.district[city.stands] == number)
        stand[at_stand] = stands[(draw[3][at_stand] * len(stands)).astype(np.int64)]
    node = np.where(stand >= 0, city.stands[stand], node).astype(np.int32)
    return node, call_type.astype(np.uint8), stand


def _lay_out(
    trips: Ints,
    start_s: Ints,
    vehicle: npt.NDArray[np.int32],
    call_type: npt.NDArray[np.uint8],
    stand: npt.NDArray[np.int32],
    node: npt.NDArray[np.int32],
    columns: list[tuple[Ints, ...]],
) -> Walks:
    """Turn columns by tick into rows by trip."""
    count = len(trips)
    steps = np.zeros(count, np.int64)
    for active, *_ in columns:
        steps[active] += 1
    offsets = np.concatenate([[0], np.cumsum(steps + 1)])
    total = int(offsets[-1])
    nodes, routes = np.empty(total, np.int32), np.full(total, -1, np.int32)
    alternative, band, order = (np.zeros(total, np.uint8) for _ in range(3))
    nodes[offsets[:-1]] = node
    for step, (active, *values) in enumerate(columns, 1):
        at = offsets[active] + step
        for array, value in zip((nodes, routes, alternative, band, order), values, strict=True):
            array[at] = value
    return Walks(trips, start_s, vehicle, call_type, stand, offsets, nodes, routes, alternative, band, order)
