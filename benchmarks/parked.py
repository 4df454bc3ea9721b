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
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import norm

from benchmarks._measure import machine, show
from geoblanket import RoadGraph, choose_places
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.baselines.peaks import peaks
from geoblanket.mechanism.baselines.samplers import CoarseLocation, FloatLaplace, Reporter, Sampler, TableSampler
from geoblanket.mechanism.lattice.anchor import make_anchor
from geoblanket.mechanism.lattice.kernel import slope
from geoblanket.mechanism.lattice.lattice import NO_SHIFT, Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.problem import Problem
from geoblanket.mobility.splitting import Split, split_walks
from geoblanket.mobility.walks import scan_walks
from geoblanket.tracking.belief import BeliefFilter, Shifts, shifts_of
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.following import Sequences, follow
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import LaplaceSight, LatticeSight, Reports, Sight

SPLIT = Split(held_out=0.2, seed=1)
INTERVAL_S = 30
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
SHIFT_STEP_M = 200.0
PATHS = 1000
"""Of the drifting offset of a phone, drawn to see how probable its reports of several hours are."""

NO_ANCHOR, ANCHOR = (None, 2.0), (4.0, 4.0)
"""What is compared: an anchor, at the error that independent noise at ε = 2 has on the move."""

Places = Floats
"""Points in a plane of the city, kilometres east and north, shape (..., 2)."""


@dataclass(frozen=True, eq=False)
class World:
    """Places, how vehicles move between them, and trips that nobody learned from."""

    model: MotionModel
    """Of order 1, from the vehicles that are not held out."""
    trips: list[Ints]
    """Places of held-out trips, a step every 30 s."""
    hours: list[tuple[Ints, Ints]]
    """Slots of 30 s and places of the held-out vehicles, each between two full hours."""

    @cached_property
    def starts(self) -> Floats:
        """How probable it is that a trip starts at each place."""
        starts: Floats = np.asarray(self.model.to_places @ self.model.start, np.float64)
        return starts

    @cached_property
    def xy_km(self) -> Places:
        """The places in the plane."""
        xy_km: Places = self.model.xy_m / 1000
        return xy_km

    def plane(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Places:
        """Return coordinates in the plane."""
        return self.model.to_plane(lat, lon) / 1000

    def point(self, belief: Floats) -> Places:
        """Return the point of least expected distance, which need not be a place."""
        estimates = Estimator(self.model).estimates((belief[:, None] / belief.sum()).astype(np.float32))
        point: Places = self.plane(estimates.lat, estimates.lon)[0]
        return point


def load(roads: str, walks: str) -> World:
    """Return the world of a city."""
    table, about = scan_walks(walks)
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=about["spacing_m"])
    model = learn_motion(graph, places, walks=walks, part="train", split=SPLIT, order=1)
    parts = split_walks(table, path=walks, part="held_out", split=SPLIT)
    unseen = table.filter(pl.col("walk").is_in(parts.walks[parts.chosen])).collect()
    trips = [trip["place"].to_numpy() for _, trip in unseen.group_by("walk", maintain_order=True)]
    return World(model, trips, list(_hours(unseen)))


def _hours(walks: pl.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """Yield the slots and places of each vehicle and hour with enough reports."""
    slots = walks.with_columns(
        slot=pl.col("time").dt.epoch("s") // INTERVAL_S, hour=pl.col("time").dt.truncate("1h")
    ).unique(["vehicle", "slot"], keep="first", maintain_order=True)
    for _, part in slots.sort("vehicle", "slot").group_by("vehicle", "hour", maintain_order=True):
        if part.height >= LEAST_OF_AN_HOUR:
            yield part["slot"].to_numpy(), part["place"].to_numpy()


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
    seen: Callable[[MotionModel, Floats, Floats], tuple[Sight, Ints]]
    """What a tracker with a motion model knows of reports, degrees, and their numbers."""
    shift_log_density: Callable[[Places], Floats] | None = None
    shifts: Shifts | None = None
    """Those that a tracker thinks of."""


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
    lat, lon = world.model.lat, world.model.lon
    spec = spec_over(Area(lat.min(), lon.min(), lat.max(), lon.max()), epsilon=epsilon)
    chosen = None if anchor is None else make_anchor(spec.plane, epsilon_micro=round(anchor * 1e6), period_s=3600)
    lattice = Lattice.verified(spec, chosen)
    rate = float(slope(spec.rate)) * 10**6 / spec.plane.unit_mm
    floor = np.log(spec.floor / int(spec.window.weights(0, 0).max()))

    def seen(model: MotionModel, lat: Floats, lon: Floats) -> tuple[Sight, Ints]:
        east, north = spec.plane.units(lat, lon)
        cells = north // spec.cell_units * spec.cells_across + east // spec.cell_units
        return LatticeSight(lattice, model, interval_s=INTERVAL_S), cells

    return Way(
        name=f"lattice, ε = {epsilon:g}, " + ("no anchor" if anchor is None else f"anchor ε₀ = {anchor:g}"),
        cost_at_rest=f"{epsilon * REPORTS_AT_REST if anchor is None else anchor:g}",
        sampler=LatticeSampler(lattice),
        epsilon=epsilon,
        log_density=lambda report, points: np.maximum(-rate * away_km(points, report), floor),
        seen=seen,
        shift_log_density=None if anchor is None else lambda shifts: -anchor * away_km(shifts, np.zeros(2)),
        shifts=None if chosen is None else shifts_of(chosen, spec.plane.unit_mm / 1000),
    )


def _at_points(epsilon: float) -> Callable[[MotionModel, Floats, Floats], tuple[Sight, Ints]]:
    """Return what is known of reports whose probability falls like e^(−ε·d)."""
    return lambda model, lat, lon: (
        LaplaceSight(lat, lon, model, epsilon=epsilon, interval_s=INTERVAL_S),
        np.arange(len(lat)),
    )


def by_laplace(epsilon: float) -> Way:
    """Return planar Laplace noise in floating point."""
    return Way(
        f"planar Laplace in floating point, ε = {epsilon:g}",
        f"{epsilon * REPORTS_AT_REST:g}, if floats were numbers",
        FloatLaplace(epsilon),
        epsilon,
        lambda report, points: -epsilon * away_km(points, report),
        _at_points(epsilon),
    )


def by_peaks(world: World, epsilon: float) -> Way:
    """Return peaks over all places."""
    lat, lon = world.model.lat, world.model.lon
    distance_mm = np.floor(haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000).astype(np.int64)
    count = len(distance_mm)
    problem = Problem.in_millimetres(
        loss=np.zeros((count, count)), prior=np.full(count, 1 / count), distance_mm=distance_mm, epsilon=epsilon
    )
    made = peaks(problem)
    # As a function of the true place, a column falls like e^(−ε·d).
    return Way(
        f"peaks between places, ε = {epsilon:g}",
        f"{epsilon * REPORTS_AT_REST:g}, between places",
        TableSampler(lat, lon, made.mechanism.probabilities, made.promise),
        epsilon,
        lambda report, points: -epsilon * away_km(points, report),
        _at_points(epsilon),
    )


class PhoneSight:
    """What is known of the reports of a phone, numbered as they are given: its grid, and the offset's distribution."""

    def __init__(self, phone: CoarseLocation, model: MotionModel, lat: Floats, lon: Floats) -> None:
        self.interval_s, self.outputs = INTERVAL_S, len(lat)
        self._reports, self._places, self._half_m = model.to_plane(lat, lon), model.xy_m, phone.accuracy_m / 2

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each place without an offset, shape (P, B)."""
        return self.of_shifts(reports.output, np.zeros((1, 2)))[:, 0]

    def of_shifts(self, output: Ints, shifts_m: Floats) -> Singles:
        """Return how probable reports are from each place and each offset, shape (P, S, B)."""
        apart = np.abs((self._places[:, None] + shifts_m)[:, :, None] - self._reports[output])
        # An offset of the attacker's grid stands for all within half a step.
        inside = np.clip((self._half_m + SHIFT_STEP_M / 2 - apart) / SHIFT_STEP_M, 0.0, 1.0).prod(axis=-1)
        likelihood: Singles = (inside + 1e-9).astype(np.float32)
        return likelihood


def by_phone() -> Way:
    """Return Android's coarse location."""
    phone = CoarseLocation()
    axis = np.arange(-4 * phone.deviation_m, 4 * phone.deviation_m + 1, SHIFT_STEP_M)
    offsets = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    chances = np.exp(-(offsets**2).sum(axis=-1) / (2 * phone.deviation_m**2))
    return Way(
        "a phone's coarse location (Android)",
        "no promise",
        phone,
        1000 / phone.deviation_m,
        lambda _report, points: np.zeros(len(points)),
        lambda model, lat, lon: (PhoneSight(phone, model, lat, lon), np.arange(len(lat))),
        shifts=Shifts(offsets, (chances / chances.sum()).astype(np.float32), None),
    )


def moving(world: World, way: Way, every: int) -> Floats:
    """Return the mean tracked error and the number of reports of each of some trips, shape (trips, 2)."""
    trips = [trip for trip in world.trips if len(trip) >= 5][::every]
    errors = tracked(world, way, [(np.arange(len(trip)), trip) for trip in trips])
    return np.array([(error.mean(), len(error)) for error in errors])


def taxi_hours(world: World, way: Way, count: int) -> list[Floats]:
    """Return the errors of all reports of some whole hours of taxis, in the order of time."""
    chosen = np.random.default_rng(5).permutation(len(world.hours))[:count]
    return tracked(world, way, [world.hours[hour] for hour in chosen])


def tracked(world: World, way: Way, sequences: Sequence[tuple[Ints, Ints]]) -> list[Floats]:
    """Return the tracked errors of sequences of slots and places, an anchor for each sequence, kilometres."""
    rng, model = np.random.default_rng(0), world.model
    slot, place = (np.concatenate(parts) for parts in zip(*sequences, strict=True))
    starts = np.cumsum([0, *(len(slots) for slots, _ in sequences)])
    reports = [way.sampler.begin(rng).report(model.lat[places], model.lon[places]) for _, places in sequences]
    sight, output = way.seen(model, *(np.concatenate(parts) for parts in zip(*reports, strict=True)))
    shifts = None if way.shifts is None else replace(way.shifts, period_ms=None)
    beliefs, estimator = BeliefFilter(model, sight, shifts), Estimator(model)
    errors_km = np.empty(len(slot))

    def seen(positions: Positions, belief: Singles) -> None:
        estimates = estimator.estimates(beliefs.places(belief))
        truth = place[positions]
        errors_km[positions] = haversine_m(estimates.lat, estimates.lon, model.lat[truth], model.lon[truth]) / 1000

    follow(beliefs, Sequences(slot, output, starts[:-1]), seen)
    return [errors_km[first:last] for first, last in pairwise(starts.tolist())]


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
        lat, lon = (np.full(REPORTS_AT_REST, axis[place]) for axis in (world.model.lat, world.model.lon))
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
    places = world.model.place_count
    print(f"{machine()}; {places} places; lattices and peaks made in {time.perf_counter() - started:.0f} s")
    blind = away_km(world.xy_km[[trip[0] for trip in world.trips]], world.point(world.starts)).mean()
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
