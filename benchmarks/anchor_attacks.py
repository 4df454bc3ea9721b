"""Attacks on the anchor: how near one comes who combines all reports of a period, and what they tell of the shift.

Run `python -m benchmarks.anchor_attacks ROADS WALKS` with a road graph and walks between places 100 m apart, a step
every 30 s (`geoblanket match --spacing 100`); `--quick` takes a few hours and the first two settings alone. Reports
come from real lattices and hourly anchors, drawn as a device draws them, so that figures differ a little from run to
run; errors are followed by their standard error over hours.

An hour has one anchor for all of a held-out vehicle's reports between two full hours of the clock, 45 or more of them;
at its end the vehicle parks where it is, for 30 reports more. Attackers have learned from other vehicles how vehicles
move, and know the mechanism and the anchor's distribution. They keep a joint belief over places (so many metres apart,
of order 1 to 3) and shifts (on a grid). *Later reports too* looks back from the end of the hour. *Zoom* divides the
shifts that are left at the end and runs again over places 100 m apart, order 2: the likelihood of paths on the roads as
a function of the shift. *Shape* moves the smoothed reports over the map until they lie on roads.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from scipy.ndimage import uniform_filter1d
from scipy.spatial import KDTree

from benchmarks._measure import machine, show
from benchmarks.parked import INTERVAL_S, SPLIT, LatticeSampler, load, mean_and_error, on_lattice, parked
from geoblanket import RoadGraph, choose_places
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._tables import write_table
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mobility.walks import scan_walks
from geoblanket.tracking.belief import BeliefFilter, Shifts, shifts_of
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.following import Sequences, follow, smooth
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import LatticeSight, Reports

SETTINGS = ((4.0, 4.0, True), (4.0, 8.0, True), (8.0, 4.0, False), (2.0, 4.0, False))
"""ε₀ of a period and ε of a report, per km, and whether all attackers are tried or only the first two."""
SOME = 8  # hours, for attackers that take long
REST, PARKED = 30, 400
PARTS = (0, 15, 30, 60, 120)
COUNTS = (5, 15, 30, 45, 60)
KNOWN_M = ZOOM_M = 100.0
SHAPE_M = 50.0
ZOOM_MASS, MOST_ZOOMED = 0.99, 150


@dataclass(frozen=True)
class Attacker:
    """Keeps a joint belief over place and shift."""

    spacing_m: float
    order: int
    step_m: float | None = None
    """Of the grid of shifts; None: as the tracker has it."""
    smoothed: bool = False
    hours: int | None = None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        grid = "" if self.step_m is None else f", shifts {self.step_m:g} m apart"
        return f"places {self.spacing_m:g} m, order {self.order}{grid}{', later reports too' * self.smoothed}"


FIRST, COARSE, ZOOMER = Attacker(250, 1), Attacker(250, 2), Attacker(100, 2)
FINER, LONGER = Attacker(250, 2, step_m=100, hours=SOME), Attacker(250, 3, hours=SOME)
NEARER, LOOKING_BACK = Attacker(100, 1, hours=SOME), Attacker(250, 2, smoothed=True, hours=SOME)


class City:
    """A city with places of several spacings, and the hours of vehicles that nobody learned from."""

    def __init__(self, roads: str, walks: str) -> None:
        self.graph = RoadGraph.load(roads)
        self.world = load(roads, walks)
        self.lat, self.lon = self.world.model.lat, self.world.model.lon
        self._walks = walks
        self.model = cache(self._model)
        offsets, lat, lon = self.graph.lines()
        points = self.world.model.to_plane(lat, lon)
        first = np.delete(np.arange(len(points)), offsets[1:] - 1)
        shares = np.linspace(0, 1, 6)[:, None, None]
        self.road_m = KDTree((points[first] * (1 - shares) + points[first + 1] * shares).reshape(-1, 2))

    def _model(self, spacing_m: float, order: int) -> MotionModel:
        places = choose_places(self.graph, spacing_m=spacing_m)
        table, about = scan_walks(self._walks)
        nearest, _ = places.nearest(self.lat, self.lon)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "walks"
            coarser = table.with_columns(place=pl.Series(nearest).gather(table.collect()["place"]).cast(pl.Int32))
            write_table(coarser, path, kind="walks", about={**about, "spacing_m": places.spacing_m})
            return learn_motion(self.graph, places, walks=path, part="train", split=SPLIT, order=order)


@dataclass(frozen=True, eq=False)
class Hour:
    """An hour of a vehicle, what it reported, and then at rest."""

    slot: Ints
    place: Ints
    output: Ints
    rest: Ints
    shift_m: Floats


def grid(lattice: Lattice, step_m: float | None) -> Shifts:
    """Return shifts so many metres apart."""
    assert lattice.anchor is not None
    return shifts_of(lattice.anchor, lattice.spec.plane.unit_mm / 1000, step_m=step_m)


def drawn(city: City, lattice: Lattice) -> list[Hour]:
    """Draw the reports of all hours, each with an anchor of its own."""
    assert lattice.anchor is not None
    side, unit_m = lattice.spec.plane.side, lattice.spec.plane.unit_mm / 1000
    result = []
    for slot, place in city.world.hours:
        shift = lattice.anchor.draw(side, secrets.randbelow)
        at = np.append(place, np.full(REST, place[-1]))
        output = lattice.draw_many(city.lat[at], city.lon[at], shift=shift)
        # On the torus, a shift to the west is a long one to the east.
        metres = ((np.array(shift) + side // 2) % side - side // 2) * unit_m
        result.append(Hour(slot, place, output[:-REST], output[-REST:], metres))
    return result


@dataclass(frozen=True, eq=False)
class Found:
    """What an attacker found in one hour, metres; after each report, shape (n,), and at the end."""

    hour: Hour
    error: Floats
    shift_error: Floats
    near: Floats
    """Belief in shifts within 100 m of the true one."""
    at_rest: list[float] = field(init=False, default_factory=list)
    """The error of the place at the end of the rest, and that of the shift."""
    left: list[Singles] = field(init=False, default_factory=list)
    """How probable each shift is at the end of the rest."""


def attack(city: City, lattice: Lattice, attacker: Attacker, hours: Sequence[Hour], shifts: Shifts) -> list[Found]:
    """Attack hours with a grid of shifts."""
    model = city.model(attacker.spacing_m, attacker.order)
    beliefs = BeliefFilter(model, LatticeSight(lattice, model, interval_s=INTERVAL_S), replace(shifts, period_ms=None))
    estimator = Estimator(model)
    which = np.repeat(np.arange(len(hours)), [len(hour.slot) for hour in hours])
    starts = np.searchsorted(which, np.arange(len(hours)))
    truth = model.to_plane(city.lat, city.lon)[np.concatenate([hour.place for hour in hours])]
    true_shift = np.array([hour.shift_m for hour in hours])
    found = [Found(hour, *np.empty((3, len(hour.slot)))) for hour in hours]
    parts = (
        np.diff(np.unique(shifts.metres[:, 0])).min()
        * (np.stack(np.meshgrid(*[np.arange(5)] * 2), axis=-1).reshape(-1, 2) - 2)
        / 5
    )

    def judged(positions: Positions, belief: Singles) -> tuple[Floats, Floats, Floats]:
        estimates = estimator.estimates(beliefs.places(belief))
        chances = beliefs.shift_chances(belief)
        true = true_shift[which[positions]]
        # A shift stands for a square, which may lie within 100 m of the true one in part.
        apart = np.linalg.norm(shifts.metres[:, None, None] + parts[:, None] - true, axis=-1)
        return (
            np.linalg.norm(model.to_plane(estimates.lat, estimates.lon) - truth[positions], axis=-1),
            np.linalg.norm(medians(shifts.metres, chances) - true, axis=-1),
            ((apart <= KNOWN_M).mean(axis=1) * chances).sum(axis=0),
        )

    def seen(positions: Positions, belief: Singles) -> None:
        for position, *values in zip(positions.tolist(), *judged(positions, belief), strict=True):
            own = found[which[position]]
            number = position - starts[which[position]]
            own.error[number], own.shift_error[number], own.near[number] = values
            if number == len(own.error) - 1 and not attacker.smoothed:
                last = belief[..., positions == position].copy()
                for output in own.hour.rest:
                    beliefs.weigh(last, Reports(np.array([output]), np.zeros(1, np.int64), np.ones(1, bool)))
                own.at_rest[:] = (float(values[0]) for values in judged(np.array([position]), last)[:2])
                own.left.append(beliefs.shift_chances(last)[:, 0])

    slot, output = (np.concatenate([getattr(hour, name) for hour in hours]) for name in ("slot", "output"))
    (smooth if attacker.smoothed else follow)(beliefs, Sequences(slot, output, starts), seen)
    return found


def medians(points: Floats, chances: Singles) -> Floats:
    """Return the points of least expected distance, shape (B, 2) (Weiszfeld's iteration)."""
    weights = chances.T.astype(np.float64)
    guess = weights @ points / weights.sum(axis=1, keepdims=True)
    for _ in range(10):
        pull = weights / np.maximum(np.linalg.norm(points - guess[:, None], axis=-1), 5.0)
        guess = pull @ points / pull.sum(axis=1, keepdims=True)
    return np.asarray(guess)


def zoomed(city: City, lattice: Lattice, coarse: Found, shifts: Shifts) -> tuple[float, float, float]:
    """Run again with a finer grid; return the final errors of the place, the shift and the likeliest shift, metres."""
    fine = grid(lattice, ZOOM_M)
    order = np.argsort(-coarse.left[0])
    kept = order[: int(np.searchsorted(np.cumsum(coarse.left[0][order]), ZOOM_MASS)) + 1]
    apart = np.linalg.norm(fine.metres[:, None] - shifts.metres[kept], axis=-1)
    near = apart.min(axis=1) <= np.diff(np.unique(shifts.metres[:, 0])).min() / 2**0.5
    # The likeliest first, if there are too many.
    chosen = np.flatnonzero(near)[np.argsort(apart.argmin(axis=1)[near], kind="stable")[:MOST_ZOOMED]]
    again = Shifts(fine.metres[chosen], fine.chances[chosen] / fine.chances[chosen].sum(), None)
    found = attack(city, lattice, ZOOMER, [coarse.hour], again)[0]
    likeliest = again.metres[int(np.argmax(found.left[0] / again.chances))]
    return found.at_rest[0], found.at_rest[1], float(np.linalg.norm(likeliest - coarse.hour.shift_m))


def by_shape(city: City, lattice: Lattice, hour: Hour) -> float:
    """Return the error of the shift by which the smoothed reports lie on roads best."""
    reports = city.world.model.to_plane(*lattice.centers(hour.output))
    trips = np.split(reports, np.flatnonzero(np.diff(hour.slot) > 1) + 1)
    smoothed = np.concatenate([uniform_filter1d(trip, 5, axis=0, mode="nearest") for trip in trips])
    shifts = grid(lattice, SHAPE_M)
    off_road = np.asarray(city.road_m.query(smoothed - shifts.metres[:, None])[0])
    score = off_road.clip(max=200).sum(axis=1) / 50 - np.log(shifts.chances)
    return float(np.linalg.norm(shifts.metres[score.argmin()] - hour.shift_m))


def kilometres(metres: Sequence[float] | Floats) -> str:
    """Return a mean and its standard error over hours, km."""
    return mean_and_error(np.array(metres) / 1000) if len(metres) else "–"


def rows_of(attacker: Attacker, found: Sequence[Found], seconds: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rows of an attacker: how far off it is, and what it knows of the shift."""
    parts = [kilometres([one.error[a:b].mean() for one in found if len(one.error) > a]) for a, b in pairwise(PARTS)]
    rest = kilometres([one.at_rest[0] for one in found if one.at_rest])
    off = (attacker.name, f"{len(found)}", *parts, rest, f"{seconds:.0f}")
    long = {n: [one for one in found if len(one.error) >= n] for n in COUNTS}
    known = [f"{np.median([one.shift_error[n - 1] for one in some]):.0f}" for n, some in long.items()]
    within = f"{np.mean([one.shift_error[44] <= KNOWN_M for one in long[45]]):.0%}"
    near = [np.array([one.near[n - 1] for one in long[n]]) for n in (15, 45)]
    sure = [f"{(chances >= 0.5).mean():.0%}, {(chances >= 0.9).mean():.0%}" for chances in near]
    rest_m = f"{np.median([one.at_rest[1] for one in found]):.0f}" if found[0].at_rest else "–"
    return off, (attacker.name, *known, rest_m, within, *sure)


def report(city: City, anchor: float, epsilon: float, *, thorough: bool, quick: bool) -> None:
    """Print what attackers make of one setting."""
    way = on_lattice(city.world, anchor, epsilon)
    assert isinstance(way.sampler, LatticeSampler)
    lattice = way.sampler.lattice
    hours = drawn(city, lattice)[: SOME // 2 if quick else None]
    rows, again = [], []
    for attacker in (FIRST, COARSE, LONGER, FINER, NEARER, LOOKING_BACK)[: None if thorough else 2]:
        started = time.perf_counter()
        shifts = grid(lattice, attacker.step_m)
        found = attack(city, lattice, attacker, hours[: attacker.hours], shifts)
        rows.append(rows_of(attacker, found, time.perf_counter() - started))
        if thorough and attacker == COARSE:
            rows.append(rows_of(attacker, found[:SOME], np.nan))
            again = [zoomed(city, lattice, coarse, shifts) for coarse in found[:SOME]]
    title = f"ε₀ = {anchor:g} an hour, ε = {epsilon:g} a report: "
    header = ("attacker", "hours", *(f"{a + 1}–{b}" for a, b in pairwise(PARTS)), "then parked", "s")
    show(title + "error, km, by reports so far", header, [off for off, _ in rows])
    title += "median error of the shift, m, after so many reports; in how many hours it is known to 100 m"
    header = ("attacker", *map(str, COUNTS), "parked", "right after 45", "50, 90 % sure after 15", "after 45")
    show(title, header, [shift for _, shift in rows if not shift[0].endswith("too")])
    if again:
        place, shift, likeliest = np.transpose(again)
        print(f"Zoom, {len(again)} hours: parked {kilometres(place)} km; median error of the shift", end=" ")
        print(f"{np.median(shift):.0f} m, of the likeliest shift {np.median(likeliest):.0f} m")
    errors = np.array([(by_shape(city, lattice, hour), np.linalg.norm(hour.shift_m)) for hour in hours])
    shape, blind = np.median(errors, axis=0)
    print(f"Shape over the map: median error of the shift {shape:.0f} m; without any report {blind:.0f} m")
    stay = parked(city.world, way, count=PARKED // (4 if quick else 1), periods=1)
    print(f"Parked for the whole hour: {kilometres(1000 * stay.by_place)} km by places,", end=" ")
    print(f"{kilometres(1000 * stay.anywhere)} km anywhere\n", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if len(paths) != 2:
        print("Usage: python -m benchmarks.anchor_attacks ROADS WALKS [--quick] (places 100 m apart, steps of 30 s)")
        return
    city, quick = City(*paths), "--quick" in arguments
    print(f"{machine()}; {len(city.lat)} places; {len(city.world.hours)} held-out hours")
    for *setting, thorough in SETTINGS[: 2 if quick else None]:
        report(city, *setting, thorough=thorough, quick=quick)


if __name__ == "__main__":
    main(sys.argv[1:])
