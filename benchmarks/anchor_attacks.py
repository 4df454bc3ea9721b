"""Attacks on the anchor: how near an attacker comes who combines all reports of a period, and what it learns of the shift.

Run `python -m benchmarks.anchor_attacks ROADS WALKS` with a road graph and walks between places 100 m apart, a step
every 30 s (`geoblanket match --spacing 100`); `--quick` takes a few hours and the first two settings alone. Reports come
from real lattices and hourly anchors, drawn as a device draws them, so that figures differ a little from run to run;
errors are followed by their standard error over hours.

An hour has one anchor for all of a held-out vehicle's reports between two full hours of the clock, 45 or more of them,
and at its end the vehicle parks where it is, for 30 reports more. Attackers have learned from the other vehicles how
vehicles move, and know the mechanism and the anchor's distribution. They keep a joint belief over places (so many metres
apart, of order 1 to 3) and shifts (on a grid). *Later reports too* looks back from the end of the hour. *Zoom* takes
the shifts that are left at the end, divides them into 50 m and runs again: the likelihood of a path on the roads as a
function of the shift. *Shape* moves the smoothed reports over the map until they lie on roads.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.ndimage import uniform_filter1d
from scipy.spatial import KDTree

from benchmarks._measure import machine, show
from benchmarks.parked import INTERVAL_S, SPLIT, World, load, mean_and_error, on_lattice, parked
from geoblanket import RoadGraph, choose_places
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._tables import write_table
from geoblanket.mechanism.lattice.anchor import make_anchor
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mobility.walks import scan_walks
from geoblanket.tracking.belief import BeliefFilter, Shifts, shifts_of
from geoblanket.tracking.estimate import Estimator
from geoblanket.tracking.following import Sequences, follow, smooth
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sight import LatticeSight, Reports

SETTINGS = ((4.0, 4.0), (4.0, 8.0), (8.0, 4.0), (2.0, 4.0))
"""ε₀ of a period and ε of a report, per km."""
DRAWS = 3
REST = 30
PARTS = (0, 15, 30, 60, 120)
COUNTS = (5, 15, 30, 45, 60)
KNOWN_M = 100.0
ZOOM_M = 50.0
ZOOM_MASS = 0.99
MOST_ZOOMED = 400
PARKED = 400


@dataclass(frozen=True)
class Attacker:
    """Someone who keeps a joint belief over place and shift."""

    spacing_m: float
    order: int
    step_m: float | None = None
    """Of the grid of shifts; None: as the tracker has it."""
    smoothed: bool = False
    hours: int = 1000
    """Of how many drawn hours it is tried, at most: some take long."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        grid = "" if self.step_m is None else f", shifts {self.step_m:g} m apart"
        return f"places {self.spacing_m:g} m, order {self.order}{grid}{', later reports too' * self.smoothed}"


ATTACKERS = (
    Attacker(250, 1),
    Attacker(250, 2),
    Attacker(250, 3, hours=48),
    Attacker(250, 2, step_m=100, hours=48),
    Attacker(100, 1),
    Attacker(100, 1, step_m=100, hours=24),
    Attacker(100, 2, hours=12),
    Attacker(250, 2, smoothed=True, hours=48),
    Attacker(100, 1, smoothed=True, hours=24),
)
ZOOMER = Attacker(100, 2, hours=12)


class City:
    """A city with places of several spacings, and the hours of vehicles that nobody learned from."""

    def __init__(self, roads: str, walks: str) -> None:
        self.graph = RoadGraph.load(roads)
        self.world: World = load(roads, walks)
        self.lat, self.lon = self.world.model.lat, self.world.model.lon
        self._walks = walks
        self.model = cache(self._model)
        offsets, lat, lon = self.graph.lines()
        points = self.world.model.to_plane(lat, lon)
        inside = np.ones(len(points), bool)
        inside[offsets[1:] - 1] = False
        first = np.flatnonzero(inside)
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

    def lattice(self, anchor: float, epsilon: float) -> Lattice:
        """Return a lattice with an hourly anchor."""
        area = Area(self.lat.min(), self.lon.min(), self.lat.max(), self.lon.max())
        spec = spec_over(area, epsilon=epsilon)
        return Lattice.verified(spec, make_anchor(spec.plane, epsilon_micro=round(anchor * 1e6), period_s=3600))


@dataclass(frozen=True, eq=False)
class Hour:
    """An hour of a vehicle, and what it reported."""

    number: int
    slot: Ints
    place: Ints
    output: Ints
    rest: Ints
    """What it reported at its end, at rest."""
    shift_m: Floats


def drawn(city: City, lattice: Lattice, hours: int, draws: int) -> list[Hour]:
    """Draw reports of hours, each with an anchor of its own, all hours before any comes again."""
    assert lattice.anchor is not None
    result = []
    for _ in range(draws):
        for number, (slot, place) in enumerate(city.world.hours[:hours]):
            shift = lattice.anchor.draw(lattice.spec.plane.side, secrets.randbelow)
            at = np.append(place, np.full(REST, place[-1]))
            output = lattice.draw_many(city.lat[at], city.lon[at], shift=shift)
            metres = np.array(shift) * lattice.spec.plane.unit_mm / 1000
            result.append(Hour(number, slot, place, output[:-REST], output[-REST:], metres))
    return result


@dataclass(frozen=True, eq=False)
class Found:
    """What an attacker found in one hour, metres; after each report, shape (n,), and at the end."""

    hour: Hour
    error: Floats
    shift_error: Floats
    near: Floats
    """The probability that the attacker gives to shifts within 100 m of the true one."""
    at_rest: list[float] = field(default_factory=list)
    """The error of the place at the end of the rest, and that of the shift."""
    left: list[Singles] = field(default_factory=list)
    """How probable each shift is at the end of the rest."""


def attack(city: City, lattice: Lattice, attacker: Attacker, hours: Sequence[Hour], shifts: Shifts) -> list[Found]:
    """Attack hours with a grid of shifts."""
    model = city.model(attacker.spacing_m, attacker.order)
    beliefs = BeliefFilter(model, LatticeSight(lattice, model, interval_s=INTERVAL_S), replace(shifts, period_ms=None))
    estimator = Estimator(model)
    lengths = [len(hour.slot) for hour in hours]
    starts = np.cumsum([0, *lengths])[:-1]
    which = np.repeat(np.arange(len(hours)), lengths)
    truth = model.to_plane(city.lat, city.lon)[np.concatenate([hour.place for hour in hours])]
    true_shift = np.array([hour.shift_m for hour in hours])
    found = [Found(hour, *(np.empty(len(hour.slot)) for _ in range(3))) for hour in hours]
    step_m = np.diff(np.unique(shifts.metres[:, 0])).min()
    parts = step_m * (np.stack(np.meshgrid(*[np.arange(5)] * 2), axis=-1).reshape(-1, 2) - 2) / 5

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
                _rest(own, position, belief[..., positions == position].copy())

    def _rest(own: Found, position: int, belief: Singles) -> None:
        for output in own.hour.rest:
            beliefs.weigh(belief, Reports(np.array([output]), np.zeros(1, np.int64), np.ones(1, bool)))
        error, shift_error, _ = judged(np.array([position]), belief)
        own.at_rest[:] = float(error[0]), float(shift_error[0])
        own.left.append(beliefs.shift_chances(belief)[:, 0])

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
    return guess


def zoomed(city: City, lattice: Lattice, hour: Hour, shifts: Shifts, left: Singles) -> tuple[float, float, float]:
    """Return the errors of the shift after a second run with a finer grid: of the median, of the likeliest, and blind."""
    assert lattice.anchor is not None
    fine = shifts_of(lattice.anchor, lattice.spec.plane.unit_mm / 1000, step_m=ZOOM_M)
    order = np.argsort(-left)
    kept = order[: int(np.searchsorted(np.cumsum(left[order]), ZOOM_MASS)) + 1]
    apart, nearest = KDTree(shifts.metres[kept]).query(fine.metres)
    step_m = np.diff(np.unique(shifts.metres[:, 0])).min()
    chosen = np.flatnonzero(apart <= step_m / 2**0.5)
    chosen = chosen[np.argsort(nearest[chosen], kind="stable")[:MOST_ZOOMED]]
    chances = (fine.chances[chosen] / fine.chances[chosen].sum()).astype(np.float32)
    again = Shifts(fine.metres[chosen], chances, None)
    found = attack(city, lattice, ZOOMER, [hour], again)[0]
    likeliest = again.metres[int(np.argmax(found.left[0] / chances))]
    return found.at_rest[1], float(np.linalg.norm(likeliest - hour.shift_m)), float(np.linalg.norm(hour.shift_m))


def by_shape(city: City, lattice: Lattice, hour: Hour) -> float:
    """Return the error of the shift by which the smoothed reports lie on roads best."""
    assert lattice.anchor is not None
    reports = city.world.model.to_plane(*lattice.centers(hour.output))
    trips = np.split(reports, np.flatnonzero(np.diff(hour.slot) > 1) + 1)
    smoothed = np.concatenate([uniform_filter1d(trip, 5, axis=0, mode="nearest") for trip in trips])
    shifts = shifts_of(lattice.anchor, lattice.spec.plane.unit_mm / 1000, step_m=ZOOM_M).metres
    off_road, _ = city.road_m.query(smoothed - shifts[:, None])
    score = off_road.clip(max=200).sum(axis=1) / 50 + lattice.anchor.epsilon * np.linalg.norm(shifts, axis=1) / 1000
    return float(np.linalg.norm(shifts[score.argmin()] - hour.shift_m))


def over_hours(found: Sequence[Found], value: Any) -> str:
    """Return the mean of a value and its standard error over hours; what is NaN does not count."""
    values: dict[int, list[float]] = {}
    for one in found:
        if np.isfinite(number := value(one)):
            values.setdefault(one.hour.number, []).append(number)
    return mean_and_error(np.array([np.mean(draws) for draws in values.values()])) if values else "–"


def share(found: Sequence[Found], count: int, least: float) -> str:
    """Return the share of hours in which an attacker gives this probability to shifts within 100 m, and is right."""
    near = [one.near[count - 1] >= least for one in found if len(one.near) >= count]
    return f"{np.mean(near):.0%}"


def report(city: City, anchor: float, epsilon: float, *, quick: bool) -> None:
    """Print what all attackers make of one setting."""
    lattice = city.lattice(anchor, epsilon)
    unit_m = lattice.spec.plane.unit_mm / 1000
    assert lattice.anchor is not None
    hours = drawn(city, lattice, 8 if quick else 1000, 1 if quick else DRAWS)
    rows, shift_rows = [], []
    for attacker in ATTACKERS:
        if quick and attacker.hours < 24:
            continue
        started = time.perf_counter()
        shifts = shifts_of(lattice.anchor, unit_m, step_m=attacker.step_m)
        found = attack(city, lattice, attacker, hours[: attacker.hours], shifts)
        parts = [
            over_hours(found, lambda one, a=a, b=b: one.error[a:b].mean() / 1000 if len(one.error) > a else np.nan)
            for a, b in zip(PARTS[:-1], PARTS[1:], strict=True)
        ]
        rest = over_hours(found, lambda one: one.at_rest[0] / 1000 if one.at_rest else np.nan)
        rows.append((attacker.name, f"{len(found)}", *parts, rest, f"{time.perf_counter() - started:.0f}"))
        if not attacker.smoothed:
            errors = [[one.shift_error[n - 1] for one in found if len(one.error) >= n] for n in COUNTS]
            shift_rows.append(
                (
                    attacker.name,
                    *(f"{np.median(values):.0f}" for values in errors),
                    f"{np.mean(np.array(errors[3]) <= KNOWN_M):.0%}",
                    *(f"{share(found, n, 0.5)}, {share(found, n, 0.9)}" for n in (15, 45)),
                )
            )
        if attacker == ZOOMER:
            again = [zoomed(city, lattice, one.hour, shifts, one.left[0]) for one in found]
    title = f"ε₀ = {anchor:g} an hour, ε = {epsilon:g} a report: "
    show(
        title + "error, km, by reports so far",
        (
            "attacker",
            "hours",
            *(f"{a + 1}–{b}" for a, b in zip(PARTS[:-1], PARTS[1:], strict=True)),
            "then parked",
            "s",
        ),
        rows,
    )
    known = tuple(f"50 %, 90 % sure after {n}" for n in (15, 45))
    show(
        title + "median error of the shift, m, after so many reports; how often it is known to 100 m",
        ("attacker", *map(str, COUNTS), "within 100 m after 45", *known),
        shift_rows,
    )
    if not quick:
        median, likeliest, blind = np.median(again, axis=0)
        print(f"Zoom, end of {len(again)} hours: {median:.0f} m (likeliest: {likeliest:.0f}; no report: {blind:.0f})")
    shape = [by_shape(city, lattice, hour) for hour in hours]
    blind = np.median([np.linalg.norm(hour.shift_m) for hour in hours])
    print(f"Shape over the map, end of {len(shape)} hours: {np.median(shape):.0f} m (no report: {blind:.0f})")
    stay = parked(city.world, on_lattice(city.world, anchor, epsilon), count=PARKED // (4 if quick else 1), periods=1)
    print(f"Parked for the whole hour, places 100 m: {mean_and_error(stay.by_place)}; anywhere: "
          f"{mean_and_error(stay.anywhere)} km\n", flush=True)  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if len(paths) != 2:
        print("Usage: python -m benchmarks.anchor_attacks ROADS WALKS [--quick] (places 100 m apart, steps of 30 s)")
        return
    quick = "--quick" in arguments
    city = City(*paths)
    print(f"{machine()}; {len(city.lat)} places; {len(city.world.hours)} held-out hours")
    for setting in SETTINGS[: 2 if quick else None]:
        report(city, *setting, quick=quick)


if __name__ == "__main__":
    main(sys.argv[1:])
