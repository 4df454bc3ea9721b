"""The fleet: where and when each taxi starts, and its node at every tick.

Trips are made in blocks of a fixed number, each from its own random stream, so that the same city, number of trips
and seed give the same trips, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Indices, Ints, Octets
from geoblanket.errors import ParameterError
from geoblanket.lab.city.model import City
from geoblanket.lab.city.moves import BANDS, STRENGTH, TICK_S
from geoblanket.lab.city.plan import DISTRICTS

VEHICLES = 440
FIRST_VEHICLE = 20_000_001
"""Number of the first taxi; they are numbered as Porto's are."""
BLOCK = 8192
"""Trips made at a time."""
START_S = 1_719_792_000
"""When the first day begins: Monday, 1 July 2024, 0:00 UTC, in seconds since 1970. The city lives on UTC."""
CALL_TYPES = ("A", "B", "C")
"""How a taxi was called: by telephone, at a stand, on the street."""

_TRIPS_A_DAY = 10 * VEHICLES
_MOST_STEPS = 90  # ticks of a trip (45 minutes)
_CALL_SHARES = (0.22, 0.48, 0.30)  # by call type
_TRIPS_BY_HOUR = np.array(
    [2.6, 2.2, 1.9, 1.6, 1.7, 2.4, 3.4, 4.6, 5.8, 5.6, 5.0, 4.7, 4.6, 4.8,
     5.0, 5.0, 5.2, 5.6, 5.8, 5.2, 4.4, 3.9, 3.6, 3.2]
)  # fmt: skip
_TRAFFIC_BY_HOUR = np.array([0] * 7 + [2] * 3 + [1] * 7 + [2] * 3 + [1] * 1 + [0] * 3)
"""Calm, busy or rush hour: an index into the chances of `Moves`."""
# Shifts of ten hours; more taxis are out when more people call.
_SHIFT_STARTS = np.array([0, 4, 6, 8, 12, 15, 18])
_SHIFT_SHARES = np.array([0.10, 0.14, 0.18, 0.18, 0.14, 0.16, 0.10])
_SHIFT_HOURS = 10
_PERIOD_BY_HOUR = np.array([0] * 6 + [1] * 4 + [2] * 6 + [3] * 5 + [0] * 3)
"""Night, morning, midday or evening: an index into the rows of the next two."""
# Where trips start: out of town into it in the morning, and back in the evening.
_START_DISTRICT = np.array([[0.42, 0.33, 0.25], [0.26, 0.38, 0.36], [0.36, 0.36, 0.28], [0.42, 0.34, 0.24]])
_END_DISTRICT = np.array([[0.9, 1.0, 1.2], [1.4, 0.9, 0.8], [1.1, 1.0, 0.9], [0.8, 1.1, 1.3]])
_ATTRACTORS = 6  # places that trips lead to, by period
# A Weibull hazard: trips of 24 ticks (12 minutes) on average, half of them under 10 minutes or so.
_HAZARD_SHAPE, _HAZARD_SCALE = 1.6, 27.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """Trips in the order in which they start, shape (trips,) each."""

    start_s: Ints
    """Seconds since 1970, a multiple of 30: all taxis tick together."""
    vehicle: Indices
    """Index of the taxi."""
    most_steps: Indices
    """Ticks that the trip may last at most: it ends before the taxi's next one."""
    seed: int

    def __len__(self) -> int:
        return len(self.start_s)


@dataclass(frozen=True, eq=False)
class Walks:
    """Trips as nodes at ticks: trip i holds the ticks `offsets[i]:offsets[i + 1]`.

    Arrays of steps describe the step that ends at the tick; the first tick of a trip has none (-1 or 0).
    """

    trip: Ints
    """Number of each trip, shape (trips,)."""
    start_s: Ints
    vehicle: Indices
    call_type: Octets
    """Index into `CALL_TYPES`."""
    stand: Indices
    """Index of the stand at which the trip began, -1 for none."""
    offsets: Ints
    node: Indices
    route: Indices
    """Route taken, -1 for a stop."""
    alternative: Octets
    """Which of the route's two roads."""
    band: Octets
    """Speed band, an index into `moves.BANDS`."""
    order: Octets
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


def _assign_vehicles(start_s: Ints, rng: np.random.Generator) -> Indices:
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
        trips = np.flatnonzero(shift == number)
        vehicle[trips] = members[np.arange(len(trips)) % len(members)]
    return vehicle


def walk_blocks(city: City, schedule: Schedule) -> Iterator[Walks]:
    """Make the trips of a schedule, a block at a time."""
    driver = _Driver(city, schedule.seed)
    for number, first in enumerate(range(0, len(schedule), BLOCK)):
        trips = np.arange(first, min(first + BLOCK, len(schedule)))
        yield _walk(driver, schedule, trips, np.random.default_rng([schedule.seed, 12, number]))


class _Driver:
    """Tables for drawing steps, prepared once."""

    def __init__(self, city: City, seed: int) -> None:
        self.city, self.moves, self.routes = city, city.moves, city.moves.routes
        self.ending = _ending(city)
        # How often each taxi takes the second of two roads. It changes nothing at the ticks.
        self.taste = np.random.default_rng([seed, 11]).uniform(0.1, 0.9, VEHICLES)
        self.direction = (self.routes.displacement / np.hypot(*self.routes.displacement.T)[:, None]).astype(np.float32)
        self._strength = np.array([(0.0, 0.0), *(STRENGTH[order] for order in (1, 2, 3))], np.float32)
        self._slots = np.arange(self.moves.weight.shape[1])

    def step(self, node: Ints, hour: Ints, past: npt.NDArray[np.float32], draw: npt.NDArray[np.float32]) -> _Step:
        """Draw a step of vehicles at `node`.

        Parameters
        ----------
        hour
            Hour of the day (UTC) at the end of the step.
        past
            Directions of the last two displacements, shape (n, 2, 2): the last one first.
        draw
            Uniform random numbers, shape (3, n).
        """
        moves = self.moves
        band = (draw[0][:, None] >= moves.chances[_TRAFFIC_BY_HOUR[hour], node]).sum(1)
        # float32 rounding may leave the last chance a hair below 1
        band = np.where(band >= len(BANDS), 0, band)
        row = node * (len(BANDS) - 1) + np.maximum(band, 1) - 1
        stays = draw[1] < moves.stay_chance[row]
        pull = self._strength[moves.order[row]] * stays[:, None]
        heading = np.einsum("nl,nld->nd", pull, past)
        chance = np.exp(moves.step[0, row] * heading[:, :1] + moves.step[1, row] * heading[:, 1:])
        chance *= moves.weight[row] * ((self._slots < moves.stay_slots[row][:, None]) == stays[:, None])
        chance = np.cumsum(chance, 1)
        slot = (chance <= (draw[2] * chance[:, -1])[:, None]).sum(1)
        end = np.where(stays, moves.stay_slots[row], moves.slots[row]).astype(np.int64)
        route = np.where(band > 0, moves.route[row, np.minimum(slot, end - 1)], -1)
        target = np.where(route >= 0, self.routes.target[route], node)
        inside = self.city.district[target] == self.city.district[node]
        return _Step(target, route, band, np.where((route >= 0) & inside, moves.order[row], 1))


class _Step(NamedTuple):
    node: Ints
    route: Ints
    band: Ints
    order: Ints


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


def _walk(driver: _Driver, schedule: Schedule, trips: Ints, rng: np.random.Generator) -> Walks:
    start_s, vehicle = schedule.start_s[trips], schedule.vehicle[trips]
    node, call_type, stand = _origins(driver.city, start_s, rng)
    here = node.astype(np.int64)
    past = np.zeros((len(trips), 2, 2), np.float32)
    active = np.arange(len(trips))
    record: list[tuple[Ints, _Step, Bools]] = []
    for number in range(1, _MOST_STEPS + 1):
        # Numbers are drawn for all trips, so that one trip does not depend on when others end.
        draw = rng.random((5, len(trips)), np.float32)[:, active]
        hour = (start_s[active] + number * TICK_S) // 3600 % 24
        step = driver.step(here[active], hour, past[active], draw[:3])
        record.append((active, step, draw[3] < driver.taste[vehicle[active]]))
        here[active] = step.node
        past[active, 1] = past[active, 0]
        past[active, 0] = np.where(step.route[:, None] >= 0, driver.direction[step.route], np.float32(0.0))
        hazard = _HAZARD_SHAPE / _HAZARD_SCALE * ((number - 0.5) / _HAZARD_SCALE) ** (_HAZARD_SHAPE - 1)
        ends = draw[4] < -np.expm1(-hazard * driver.ending[_PERIOD_BY_HOUR[hour], step.node])
        active = active[~ends & (schedule.most_steps[trips[active]] > number)]
        if not len(active):
            break
    steps = np.zeros(len(trips), np.int64)
    for taken, _, _ in record:
        steps[taken] += 1
    offsets = np.concatenate([[0], np.cumsum(steps + 1)])
    walks = Walks(
        trip=trips,
        start_s=start_s,
        vehicle=vehicle,
        call_type=call_type,
        stand=stand,
        offsets=offsets,
        node=np.empty(offsets[-1], np.int32),
        route=np.full(offsets[-1], -1, np.int32),
        alternative=np.zeros(offsets[-1], np.uint8),
        band=np.zeros(offsets[-1], np.uint8),
        order=np.zeros(offsets[-1], np.uint8),
    )
    walks.node[offsets[:-1]] = node
    for number, (taken, step, alternative) in enumerate(record, 1):
        at = offsets[taken] + number
        walks.node[at], walks.route[at], walks.alternative[at] = step.node, step.route, alternative
        walks.band[at], walks.order[at] = step.band, step.order
    return walks


def _origins(city: City, start_s: Ints, rng: np.random.Generator) -> tuple[Indices, Octets, Indices]:
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
        inside = district == number
        usable = np.flatnonzero(city.moves.usable & (city.district == number))
        node[inside] = usable[(draw[2][inside] * len(usable)).astype(np.int64)]
        at_stand = inside & (call_type == CALL_TYPES.index("B"))
        stands = np.flatnonzero(city.district[city.stands] == number)
        stand[at_stand] = stands[(draw[3][at_stand] * len(stands)).astype(np.int64)]
    node = np.where(stand >= 0, city.stands[stand], node).astype(np.int32)
    return node, call_type.astype(np.uint8), stand
