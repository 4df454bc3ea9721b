"""On the move and at rest: what an attacker makes of reports with an anchor, without, and of what others do.

Run `python -m benchmarks.parked ROADS WALKS` with a road graph and walks between places 250 m apart, a step every 30 s
(`geoblanket match --spacing 250`); `--quick` takes a tenth of everything; `--compare` only compares an anchor with none
on the move, over more trips and with several draws for each hour. Reports come from real lattices and anchors,
drawn as a device draws them, so that figures differ a little from run to run; errors are followed by their standard
error.

A fifth of the vehicles is held out. The attacker knows the others' moves and where their trips start, the mechanism and
the anchor's distribution. *On the move* it keeps a joint belief over place and shift, and guesses the place of least
expected distance after each report; each trip has an anchor of its own. *A taxi's hour* has one anchor for all trips
between two full hours. *Parked*, a vehicle reports 60 times an hour from where a held-out trip starts. There the
attacker does without a grid of shifts: reports tell where the vehicle plus its shift is, nearly exactly, and the
shift's distribution tells the rest. `by places` knows how often trips start at each place, and that the truth is a
place; `anywhere` knows no places.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_array
from scipy.stats import norm

from benchmarks._measure import machine, show
from geoblanket import RoadGraph, choose_places
from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.mechanism.baselines.peaks import peaks
from geoblanket.mechanism.baselines.samplers import CoarseLocation, FloatLaplace, Reporter, Sampler, TableSampler
from geoblanket.mechanism.lattice.anchor import make_anchor
from geoblanket.mechanism.lattice.kernel import slope
from geoblanket.mechanism.lattice.lattice import NO_SHIFT, Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.problem import Problem

HELD_OUT = 0.2
EVERY_TRIP = 8
EVERY_TRIP_COMPARED = 3
PARKED = 1500
PARKED_LONG = 200
PERIODS = 8
REPORTS_AT_REST = 60
LEAST_OF_AN_HOUR = 45
MOST_HOURS = 60
PART_OF_AN_HOUR = 15
DRAWS_OF_AN_HOUR = 3
SHIFT_STEP_KM = 0.2
LONGEST_SHIFT_KM = 3.0
RARE_MOVE = 2e-4
PATHS = 1000
"""Of the drifting offset of a phone, drawn to see how probable its reports of several hours are."""

NO_ANCHOR, ANCHOR = (None, 2.0), (4.0, 4.0)
"""What is compared: an anchor, at the error that independent noise at ε = 2 has on the move."""

Places = Floats
"""Points in a plane of the city, kilometres east and north, shape (..., 2)."""


@dataclass(frozen=True, eq=False)
class World:
    """Places, how vehicles move between them, and trips that nobody learned from."""

    lat: Floats
    lon: Floats
    prior: Floats
    """How probable each place is at any time."""
    starts: Floats
    """How probable it is that a trip starts there."""
    moves: Floats
    trips: list[Ints]
    hours: list[list[Ints]]
    """Trips of one vehicle between two full hours."""

    @cached_property
    def xy_km(self) -> Places:
        """The places in the plane."""
        return self.plane(self.lat, self.lon)

    @cached_property
    def distance_km(self) -> Floats:
        """Between places."""
        return haversine_m(self.lat[:, None], self.lon[:, None], self.lat, self.lon) / 1000

    def plane(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Places:
        """Return coordinates in the plane."""
        x, y = local_metres(lat, lon, origin_lat=float(self.lat.mean()), origin_lon=float(self.lon.mean()))
        return np.stack([x, y], axis=-1) / 1000

    def guess(self, belief: Floats) -> int:
        """Return the place of least expected distance."""
        return int(np.argmin(belief @ self.distance_km))

    def point(self, belief: Floats) -> Places:
        """Return the point of least expected distance, which need not be a place (Weiszfeld's iteration)."""
        place = self.xy_km[self.guess(belief)]
        point = belief @ self.xy_km / belief.sum()
        for _ in range(60):
            pull = belief / np.maximum(away_km(self.xy_km, point), 1e-4)
            point = pull @ self.xy_km / pull.sum()
        return min((place, point), key=lambda guess: float(belief @ away_km(self.xy_km, guess)))


def load(roads: str, walks: str) -> World:
    """Return the world of a city."""
    places = choose_places(RoadGraph.load(roads), spacing_m=250)
    count = len(places)
    table = pl.read_parquet(walks)
    vehicles = table["vehicle"].unique().sort().to_numpy()
    held = list(np.random.default_rng(1).choice(vehicles, round(len(vehicles) * HELD_OUT), replace=False))
    train, unseen = table.filter(~pl.col("vehicle").is_in(held)), table.filter(pl.col("vehicle").is_in(held))
    place, walk, step = (train[name].to_numpy() for name in ("place", "walk", "step"))
    follows = (walk[1:] == walk[:-1]) & (step[1:] == step[:-1] + 1)
    prior = np.bincount(place, minlength=count) + 0.5
    starts = np.bincount(place[np.concatenate([[True], walk[1:] != walk[:-1]])], minlength=count) + 0.05
    moves = np.zeros((count, count))
    np.add.at(moves, (place[:-1][follows], place[1:][follows]), 1)
    distance = haversine_m(places.lat[:, None], places.lon[:, None], places.lat, places.lon) / 1000
    near = np.exp(-distance / 0.25) * prior**0.5
    moves += 2 * near / near.sum(axis=1, keepdims=True)
    return World(
        places.lat,
        places.lon,
        prior / prior.sum(),
        starts / starts.sum(),
        moves / moves.sum(axis=1, keepdims=True),
        [trip["place"].to_numpy() for _, trip in unseen.group_by("walk", maintain_order=True)],
        list(_hours(unseen)),
    )


def _hours(walks: pl.DataFrame) -> Iterator[list[Ints]]:
    """Yield the trips of each vehicle and hour with enough reports."""
    in_hours = walks.with_columns(pl.col("time").dt.truncate("1h").alias("hour"))
    for _, part in in_hours.group_by("vehicle", "hour", maintain_order=True):
        if part.height >= LEAST_OF_AN_HOUR:
            yield [trip["place"].to_numpy() for _, trip in part.group_by("walk", maintain_order=True)]


@dataclass(frozen=True, eq=False)
class Way:
    """A way to report, and what an attacker knows of it."""

    name: str
    cost_at_rest: str
    sampler: Sampler
    epsilon: float
    """Of a report: how sharp the attacker's picture of place plus shift becomes."""
    log_density: Callable[[Places, Places], Floats]
    """How probable a report is from points, the logarithm, up to a constant."""
    shift_log_density: Callable[[Places], Floats] | None = None

    def shifts(self) -> tuple[Places, Floats]:
        """Return the shifts that a tracker thinks of, and their probabilities."""
        if self.shift_log_density is None:
            return np.zeros((1, 2)), np.ones(1)
        axis = np.arange(-LONGEST_SHIFT_KM, LONGEST_SHIFT_KM + 1e-9, SHIFT_STEP_KM)
        shifts = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        weights = np.exp(self.shift_log_density(shifts))
        order = np.argsort(-weights)
        order = order[: np.searchsorted(np.cumsum(weights[order]) / weights.sum(), 0.999) + 1]
        return shifts[order], weights[order] / weights[order].sum()


@dataclass(frozen=True, eq=False)
class LatticeSampler:
    """The product's own: a lattice, with a new anchor each hour if it has one."""

    lattice: Lattice

    @property
    def promise(self) -> str:
        """What it promises, in words."""
        return self.lattice.guarantee

    def begin(self, rng: np.random.Generator) -> Reporter:  # noqa: ARG002
        """Begin with a vehicle; the randomness is the operating system's."""
        return _LatticeReporter(self.lattice)


class _LatticeReporter:
    def __init__(self, lattice: Lattice) -> None:
        self._lattice = lattice
        self.next_hour()

    def report(self, lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
        return self._lattice.centers(self._lattice.draw_many(lat, lon, shift=self._shift))

    def next_hour(self) -> None:
        anchor = self._lattice.anchor
        self._shift = NO_SHIFT if anchor is None else anchor.draw(self._lattice.spec.plane.side, secrets.randbelow)


def away_km(points: Places, point: Places) -> Floats:
    """Return distances in the plane."""
    apart = points - point
    return np.hypot(apart[..., 0], apart[..., 1])


def on_lattice(world: World, anchor: float | None, epsilon: float) -> Way:
    """Return reports of a lattice, with or without an anchor."""
    area = Area(world.lat.min(), world.lon.min(), world.lat.max(), world.lon.max())
    spec = spec_over(area, epsilon=epsilon)
    chosen = None if anchor is None else make_anchor(spec.plane, epsilon_micro=round(anchor * 1e6), period_s=3600)
    lattice = Lattice.verified(spec, chosen)
    rate = float(slope(spec.rate)) * 10**6 / spec.plane.unit_mm
    floor = np.log(spec.floor / int(spec.window.weights(0, 0).max()))
    return Way(
        name=f"lattice, ε = {epsilon:g}, " + ("no anchor" if anchor is None else f"anchor ε₀ = {anchor:g}"),
        cost_at_rest=f"{epsilon * REPORTS_AT_REST if anchor is None else anchor:g}",
        sampler=LatticeSampler(lattice),
        epsilon=epsilon,
        log_density=lambda report, points: np.maximum(-rate * away_km(points, report), floor),
        shift_log_density=None if anchor is None else lambda shifts: -anchor * away_km(shifts, np.zeros(2)),
    )


def by_laplace(epsilon: float) -> Way:
    """Return planar Laplace noise in floating point."""
    return Way(
        f"planar Laplace in floating point, ε = {epsilon:g}",
        f"{epsilon * REPORTS_AT_REST:g}, if floats were numbers",
        FloatLaplace(epsilon),
        epsilon,
        lambda report, points: -epsilon * away_km(points, report),
    )


def by_peaks(world: World, epsilon: float) -> Way:
    """Return peaks over all places."""
    distance_mm = np.floor(world.distance_km * 1e6).astype(np.int64)
    count = len(distance_mm)
    problem = Problem.in_millimetres(
        loss=np.zeros((count, count)), prior=np.full(count, 1 / count), distance_mm=distance_mm, epsilon=epsilon
    )
    made = peaks(problem)
    # As a function of the true place, a column falls like e^(−ε·d).
    return Way(
        f"peaks between places, ε = {epsilon:g}",
        f"{epsilon * REPORTS_AT_REST:g}, between places",
        TableSampler(world.lat, world.lon, made.mechanism.probabilities, made.promise),
        epsilon,
        lambda report, points: -epsilon * away_km(points, report),
    )


def by_phone() -> Way:
    """Return Android's coarse location."""
    phone = CoarseLocation()
    half, deviation = phone.accuracy_m / 2000, phone.deviation_m / 1000

    def log_density(report: Places, points: Places) -> Floats:
        # A shift of the attacker's grid stands for all within half a step.
        inside = np.clip((half + SHIFT_STEP_KM / 2 - np.abs(points - report)) / SHIFT_STEP_KM, 0.0, 1.0)
        density: Floats = np.log(inside.prod(axis=-1) + 1e-9)
        return density

    return Way(
        "a phone's coarse location (Android)",
        "no promise",
        phone,
        1 / deviation,
        log_density,
        lambda shifts: -(shifts**2).sum(axis=-1) / (2 * deviation**2),
    )


class Tracker:
    """A joint belief over place and shift, of order 1."""

    def __init__(self, world: World, way: Way) -> None:
        self._world, self._way = world, way
        shifts, self._weights = way.shifts()
        # Single precision: beliefs are normalised after each report, and it takes half the time.
        self._at = world.xy_km[:, None] + shifts
        moves = np.where(world.moves > RARE_MOVE, world.moves, 0.0)
        self._moves = csr_array((moves / moves.sum(axis=1, keepdims=True)).T.astype(np.float32))

    def begin(self) -> None:
        """Forget everything: a new vehicle, or a new anchor."""
        self._belief = np.outer(self._world.starts, self._weights).astype(np.float32)

    def new_trip(self) -> None:
        """Forget the place, and keep what is known of the shift."""
        self._belief = np.outer(self._world.starts, self._belief.sum(axis=0)).astype(np.float32)

    def move(self) -> None:
        """Let a step pass."""
        self._belief = self._moves @ self._belief

    def see(self, report: Places) -> int:
        """Take a report into account; return the best guess."""
        logs = self._way.log_density(report, self._at)
        self._belief *= np.exp(logs - logs.max()).astype(np.float32)
        self._belief /= self._belief.sum()
        return self._world.guess(self._belief.sum(axis=1, dtype=np.float64))


def moving(world: World, way: Way, every: int) -> Floats:
    """Return the mean tracked error and the number of reports of each of some trips, shape (trips, 2)."""
    rng, tracker = np.random.default_rng(0), Tracker(world, way)
    rows = []
    for trip in [trip for trip in world.trips if len(trip) >= 5][::every]:
        tracker.begin()
        rows.append((np.mean(_followed(world, way.sampler.begin(rng), tracker, trip)), len(trip)))
    return np.array(rows)


def taxi_hours(world: World, way: Way, count: int) -> list[Floats]:
    """Return the errors of all reports of some whole hours of taxis, in the order of time."""
    rng, tracker = np.random.default_rng(0), Tracker(world, way)
    chosen = np.random.default_rng(5).permutation(len(world.hours))[:count]
    errors = []
    for trips in (world.hours[hour] for hour in chosen):
        reporter = way.sampler.begin(rng)
        tracker.begin()
        found: list[float] = []
        for number, trip in enumerate(trips):
            if number:
                tracker.new_trip()
            found += _followed(world, reporter, tracker, trip)
        errors.append(np.array(found))
    return errors


def _followed(world: World, reporter: Reporter, tracker: Tracker, trip: Ints) -> list[float]:
    reports = world.plane(*reporter.report(world.lat[trip], world.lon[trip]))
    errors = []
    for step, (place, report) in enumerate(zip(trip, reports, strict=True)):
        if step:
            tracker.move()
        errors.append(float(world.distance_km[place, tracker.see(report)]))
    return errors


@dataclass(frozen=True)
class Found:
    """How far off the attacker is, kilometres, of each parked vehicle."""

    by_place: Floats
    anywhere: Floats

    @property
    def best(self) -> str:
        """The error of the better of both attackers, with its standard error."""
        return min((mean_and_error(self.by_place), mean_and_error(self.anywhere)))


def parked(world: World, way: Way, *, count: int, periods: int) -> Found:
    """Let vehicles park for some periods; return how far off the attacker is at the end."""
    rng = np.random.default_rng(2)
    starts = rng.permutation(np.array([trip[0] for trip in world.trips]))[:count]
    by_place, anywhere = [], []
    for place in starts:
        lat, lon = np.full(REPORTS_AT_REST, world.lat[place]), np.full(REPORTS_AT_REST, world.lon[place])
        reporter = way.sampler.begin(rng)
        reports = []
        for period in range(periods):
            if period:
                reporter.next_hour()
            reports.append(world.plane(*reporter.report(lat, lon)))
        logs, point = _located(world, way, reports)
        logs = logs + np.log(world.starts)
        by_place.append(float(away_km(world.xy_km[place], world.point(np.exp(logs - logs.max())))))
        anywhere.append(float(away_km(world.xy_km[place], point)))
    return Found(np.array(by_place), np.array(anywhere))


def _located(world: World, way: Way, reports: Sequence[Places]) -> tuple[Floats, Places]:
    """Return how probable reports of parked periods are from each place, logarithms, and the best point anywhere."""
    if isinstance(way.sampler, CoarseLocation):
        return _located_phone(world, way.sampler, reports)
    if way.shift_log_density is None:
        together = [np.concatenate(reports)]
        _, middle = _pictured(way, together[0])
        logs = np.sum([way.log_density(report, world.xy_km) for report in together[0]], axis=0)
        return logs, middle
    pictures = [_pictured(way, part) for part in reports]
    logs = np.sum([_from_points(way, picture, world.xy_km) for picture, _ in pictures], axis=0)
    middle = np.mean([middle for _, middle in pictures], axis=0)
    if len(pictures) > 1:
        axis = np.linspace(-0.75, 0.75, 31)
        grid = middle + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        found = np.sum([_from_points(way, picture, grid) for picture, _ in pictures], axis=0)
        belief = np.exp(found - found.max())
        middle = belief @ grid / belief.sum()
    return logs, middle


def _pictured(way: Way, reports: Places) -> tuple[tuple[Places, Floats], Places]:
    """Return points where the vehicle plus its shift may be, with their probabilities, and the mean of them."""
    deviation = np.sqrt(2) / (way.epsilon * np.sqrt(len(reports)))
    axis = np.arange(-8, 9) * (0.8 * deviation)
    points = np.median(reports, axis=0) + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logs = way.log_density(reports[:, None], points).sum(axis=0)
    belief = np.exp(logs - logs.max())
    belief /= belief.sum()
    likely = belief > 1e-5
    return (points[likely], belief[likely]), belief @ points


def _from_points(way: Way, picture: tuple[Places, Floats], places: Places) -> Floats:
    """Return how probable a picture is from each of some places, logarithms: all shifts that lead there."""
    assert way.shift_log_density is not None
    points, belief = picture
    return np.log(np.exp(way.shift_log_density(points - places[:, None])) @ belief + 1e-300)


def _located_phone(world: World, phone: CoarseLocation, reports: Sequence[Places]) -> tuple[Floats, Places]:
    """Return the same for a phone: the grid is known, and the offset is normal and drifts a little every hour."""
    cells = np.array([part[0] for part in reports])
    deviation, half = phone.deviation_m / 1000, phone.accuracy_m / 2000
    if len(cells) == 1:
        edges = cells[0] + np.array([[-half], [half]]) - world.xy_km[:, None, None, :].squeeze(1)
        below, above = (norm.cdf(edges[:, side] / deviation) for side in (0, 1))
        return np.log((above - below).prod(axis=-1) + 1e-12), cells[0]
    rng = np.random.default_rng(4)
    offsets = np.empty((len(cells), PATHS))
    logs = np.zeros(len(world.xy_km))
    for axis in (0, 1):
        offsets[0] = rng.normal(0, deviation, PATHS)
        for hour in range(1, len(cells)):
            offsets[hour] = np.sqrt(1 - 0.03**2) * offsets[hour - 1] + 0.03 * rng.normal(0, deviation, PATHS)
        # Whether place + offset stayed within the cells that were reported, all hours.
        highest, lowest = (
            (cells[:, axis, None] + half - offsets).min(axis=0),
            (cells[:, axis, None] - half - offsets).max(axis=0),
        )
        where = world.xy_km[:, axis, None]
        logs += np.log(((where <= highest) & (where >= lowest)).mean(axis=1) + 1e-6)
    return logs, cells.mean(axis=0)


def mean_and_error(values: Floats, weights: Floats | None = None) -> str:
    """Return a mean and its standard error, from trips or vehicles that are independent."""
    weights = np.ones(len(values)) if weights is None else weights
    mean = float(np.average(values, weights=weights))
    error = float(np.sqrt(((weights * (values - mean)) ** 2).sum()) / weights.sum())
    return f"{mean:.3f} ± {error:.3f}"


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if len(paths) != 2:
        print(
            "Usage: python -m benchmarks.parked ROADS WALKS [--quick | --compare] (places 250 m apart, steps of 30 s)"
        )
        return
    share = 10 if "--quick" in arguments else 1
    started = time.perf_counter()
    world = load(*paths)
    if "--compare" in arguments:
        _compare(world)
        return
    settings = [NO_ANCHOR, (None, 4.0), (8.0, 4.0), ANCHOR, (4.0, 8.0), (2.0, 4.0), (2.0, 2.0)]
    lattices = {setting: on_lattice(world, *setting) for setting in settings}
    ways = [*lattices.values(), by_peaks(world, 2.0), by_laplace(2.0), by_phone()]
    print(f"{machine()}; {len(world.lat)} places; lattices and peaks made in {time.perf_counter() - started:.0f} s")
    blind = world.distance_km[[trip[0] for trip in world.trips], world.guess(world.starts)].mean()
    print(f"Without any report the attacker is {blind:.3f} km off a parked vehicle.")
    rows, on_the_move, at_rest = [], {}, {}
    for way in ways:
        hour = parked(world, way, count=PARKED // share, periods=1)
        night = parked(world, way, count=PARKED_LONG // share, periods=PERIODS)
        errors, reports = moving(world, way, EVERY_TRIP * share).T
        on_the_move[way.name], at_rest[way.name] = errors, hour
        rows.append(
            (
                way.name,
                mean_and_error(errors, reports),
                mean_and_error(hour.by_place),
                mean_and_error(hour.anywhere),
                night.best,
                way.cost_at_rest,
            )
        )
    show(
        f"The attacker's error, km ({len(hour.by_place):,} and {len(night.by_place):,} parked vehicles, "
        f"{len(reports):,} trips of {reports.sum():,.0f} reports)",
        (
            "how it reports",
            "on the move",
            "parked 1 h, by places",
            "anywhere",
            f"{PERIODS} h, best",
            "cost of 1 h, per km",
        ),
        rows,
    )
    independent, anchored = lattices[NO_ANCHOR].name, lattices[ANCHOR].name
    more = mean_and_error(on_the_move[anchored] - on_the_move[independent], reports)
    print(f"On the move, by the same trips: {anchored}, minus {independent}: {more} km.")
    print(f"Parked for an hour: {anchored}: the better attacker is {at_rest[anchored].best} km off.")
    _show_hours(world, [lattices[setting] for setting in (NO_ANCHOR, ANCHOR, (4.0, 8.0))], MOST_HOURS // share)
    print(f"{time.perf_counter() - started:.0f} s in all")


def _compare(world: World) -> None:
    """Print by how much the tracked error is larger with an anchor than without."""
    independent, anchored = on_lattice(world, *NO_ANCHOR), on_lattice(world, *ANCHOR)
    print(f"{anchored.name}, minus {independent.name}, tracked error, km:")
    by_hour = np.zeros(len(world.hours))
    for _ in range(DRAWS_OF_AN_HOUR):
        for sign, way in ((1, anchored), (-1, independent)):
            means = [hour.mean() for hour in taxi_hours(world, way, len(world.hours))]
            by_hour += sign * np.array(means) / DRAWS_OF_AN_HOUR
    print(f"{len(by_hour)} hours of taxis, an anchor each, {DRAWS_OF_AN_HOUR} draws of all: {mean_and_error(by_hour)}")
    without, reports = moving(world, independent, EVERY_TRIP_COMPARED).T
    difference = moving(world, anchored, EVERY_TRIP_COMPARED)[:, 0] - without
    print(
        f"{len(reports):,} trips of {reports.sum():,.0f} reports, an anchor each: {mean_and_error(difference, reports)}"
    )


def _show_hours(world: World, ways: Sequence[Way], count: int) -> None:
    rows = []
    for way in ways:
        hours = taxi_hours(world, way, count)
        parts = [
            np.array([part.mean() for hour in hours if len(part := hour[first : first + PART_OF_AN_HOUR])])
            for first in range(0, 4 * PART_OF_AN_HOUR, PART_OF_AN_HOUR)
        ]
        rows.append((way.name, *map(mean_and_error, parts)))
    show(
        f"A taxi's hour, one anchor ({len(hours)} hours): the tracked error, km, by reports so far",
        ("how it reports", "1–15", "16–30", "31–45", "46–60"),
        rows,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
