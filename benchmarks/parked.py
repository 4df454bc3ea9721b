"""On the move and at rest: what an attacker makes of reports with an anchor, without, and of what phones do today.

Run `python -m benchmarks.parked ROADS WALKS` with a road graph and walks between places 250 m apart, a step every 30 s
(`geoblanket match --spacing 250`). A fifth of the vehicles is held out; the attacker knows the others' moves, the
mechanism and the anchor's distribution, and keeps a joint belief over place and shift. Its best guess is the place of
least expected distance. At rest a vehicle reports 60 times from one coordinate; there the attacker looks at every cell
of 100 m near the reports' mean, not only at places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from benchmarks._measure import show
from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import local_metres

HELD_OUT = 0.2
EVERY_TRIP = 12
PARKED = 40
REPORTS_AT_REST = 60
SHIFT_STEP_KM = 0.2
FINE_STEP_KM = 0.1

Density = Callable[[Floats], Floats]
"""How probable a report is, up to a factor, from points at some vectors (km) from it."""


@dataclass(frozen=True)
class World:
    """Places, how vehicles move between them, and trips that nobody learned from."""

    xy_km: Floats
    prior: Floats
    moves: Floats
    trips: list[Ints]


def load(roads: str, walks: str) -> World:
    """Return the world of a city."""
    from geoblanket import RoadGraph, choose_places

    places = choose_places(RoadGraph.load(roads), spacing_m=250)
    x, y = local_metres(
        places.lat, places.lon, origin_lat=float(places.lat.mean()), origin_lon=float(places.lon.mean())
    )
    xy = np.stack([x, y], axis=1) / 1000
    table = pl.read_parquet(walks)
    vehicles = table["vehicle"].unique().sort().to_numpy()
    held = list(np.random.default_rng(1).choice(vehicles, round(len(vehicles) * HELD_OUT), replace=False))
    train = table.filter(~pl.col("vehicle").is_in(held))
    unseen = table.filter(pl.col("vehicle").is_in(held)).group_by("walk", maintain_order=True)
    trips = [trip["place"].to_numpy() for _, trip in unseen]
    place, walk, step = (train[name].to_numpy() for name in ("place", "walk", "step"))
    follows = (walk[1:] == walk[:-1]) & (step[1:] == step[:-1] + 1)
    prior = np.bincount(place, minlength=len(xy)) + 0.5
    distance = np.hypot(*(xy[:, None] - xy).transpose(2, 0, 1))
    moves = np.zeros((len(xy), len(xy)))
    np.add.at(moves, (place[:-1][follows], place[1:][follows]), 1)
    near = np.exp(-distance / 0.25) * prior**0.5
    moves += 2 * near / near.sum(axis=1, keepdims=True)
    return World(
        xy,
        prior / prior.sum(),
        moves / moves.sum(axis=1, keepdims=True),
        [t for t in trips if len(t) >= 5][::EVERY_TRIP],
    )


@dataclass(frozen=True)
class Noise:
    """A way to report: how it is drawn, and what an attacker knows of it."""

    name: str
    cost_at_rest: str
    shift_epsilon: float | None
    start: Callable[[np.random.Generator], Callable[[Floats], Floats]]
    """Begins a period; returns what reports a point (km)."""
    density: Callable[[Floats, Floats], Floats]
    """How probable a report (km) is from points (km), up to a factor."""
    shift_density: Density | None = None


def laplace(rng: np.random.Generator, epsilon: float) -> Floats:
    """Draw planar Laplace noise, km."""
    radius, angle = rng.gamma(2, 1 / epsilon), rng.uniform(0, 2 * np.pi)
    return np.array([radius * np.cos(angle), radius * np.sin(angle)])


def anchored(anchor: float | None, epsilon: float) -> Noise:
    """Return planar Laplace noise on cells of 0.2/ε km, with or without an anchor."""
    cell = 0.2 / epsilon

    def start(rng: np.random.Generator) -> Callable[[Floats], Floats]:
        shift = np.zeros(2) if anchor is None else laplace(rng, anchor)
        return lambda point: np.round((point + shift + laplace(rng, epsilon)) / cell) * cell

    return Noise(
        name=f"lattice, ε = {epsilon:g}, " + ("no anchor" if anchor is None else f"anchor ε₀ = {anchor:g}"),
        cost_at_rest=f"{epsilon * REPORTS_AT_REST if anchor is None else anchor:g}",
        shift_epsilon=anchor,
        start=start,
        density=lambda report, points: np.exp(-epsilon * np.hypot(*np.moveaxis(points - report, -1, 0))),
        shift_density=None if anchor is None else lambda shifts: np.exp(-anchor * np.hypot(*shifts.T)),
    )


def phone(accuracy_km: float = 2.0) -> Noise:
    """Return Android's coarse location: a normal offset that drifts by 3 % an hour, then a grid; no promise."""
    deviation = accuracy_km / 4

    def start(rng: np.random.Generator) -> Callable[[Floats], Floats]:
        offset = rng.normal(0, deviation, 2)
        return lambda point: np.round((point + offset) / accuracy_km) * accuracy_km

    return Noise(
        name="a phone's coarse location (Android: an offset, then a grid of 2 km)",
        cost_at_rest="no promise",
        shift_epsilon=2 / deviation,
        start=start,
        density=lambda report, points: (np.abs(points - report).max(axis=-1) <= accuracy_km / 2) + 1e-9,
        shift_density=lambda shifts: np.exp(-(shifts**2).sum(axis=1) / (2 * deviation**2)),
    )


def shifts_of(noise: Noise) -> tuple[Floats, Floats]:
    """Return the shifts that the attacker thinks of, km, and their weights."""
    if noise.shift_density is None or noise.shift_epsilon is None:
        return np.zeros((1, 2)), np.ones(1)
    reach = min(9.6 / noise.shift_epsilon, 3.6)
    axis = np.arange(-reach, reach + 1e-9, SHIFT_STEP_KM)
    shifts = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    weights = noise.shift_density(shifts)
    return shifts, weights / weights.sum()


def moving(world: World, noise: Noise) -> float:
    """Return the tracked error over all reports of trips that nobody learned from, km."""
    rng = np.random.default_rng(0)
    shifts, weights = shifts_of(noise)
    at = world.xy_km + shifts[:, None]
    distance = np.hypot(*(world.xy_km[:, None] - world.xy_km).transpose(2, 0, 1))
    errors = []
    for trip in world.trips:
        report, belief = noise.start(rng), weights[:, None] * world.prior
        for step, place in enumerate(trip):
            belief = belief @ world.moves if step else belief
            belief = belief * noise.density(report(world.xy_km[place]), at)
            belief /= belief.sum()
            errors.append(distance[place, np.argmin(belief.sum(axis=0) @ distance)])
    return float(np.mean(errors))


def parked(world: World, noise: Noise) -> tuple[float, float]:
    """Return an attacker's error after an hour at one coordinate: by places and their prior, and on a fine grid, km."""
    rng = np.random.default_rng(2)
    shifts, weights = shifts_of(noise)
    at = world.xy_km + shifts[:, None]
    distance = np.hypot(*(world.xy_km[:, None] - world.xy_km).transpose(2, 0, 1))
    axis = np.arange(-3, 3 + 1e-9, FINE_STEP_KM)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    apart = np.hypot(*(grid[:, None] - grid).transpose(2, 0, 1))
    by_place, by_grid = [], []
    for trip in world.trips[:PARKED]:
        truth, report = world.xy_km[trip[0]], noise.start(rng)
        reports = np.array([report(truth) for _ in range(REPORTS_AT_REST)])
        logs = np.log(weights)[:, None] + np.log(world.prior)
        for each in reports:
            logs = logs + np.log(noise.density(each, at))
        belief = np.exp(logs - logs.max()).sum(axis=0)
        by_place.append(distance[trip[0], np.argmin(belief @ distance)])
        middle = np.median(reports, axis=0)
        fine = grid + middle
        # Where the vehicle is plus the shift is one point; the shift's distribution says how far apart they are.
        together = sum(np.log(noise.density(each, fine)) for each in reports)
        near = np.exp(together - np.max(together))
        posterior = near if noise.shift_density is None else _spread(near, noise.shift_density, len(axis))
        guess = fine[np.argmin(posterior @ apart)]
        by_grid.append(float(np.hypot(*(guess - truth))))
    return float(np.mean(by_place)), float(np.mean(by_grid))


def _spread(near: Floats, shift_density: Density, side: int) -> Floats:
    """Return the belief over places, where place + shift has the belief `near`: all grid points apart by a shift."""
    axis = (np.arange(2 * side - 1) - (side - 1)) * FINE_STEP_KM
    kernel = shift_density(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)).reshape(
        2 * side - 1, 2 * side - 1
    )
    shape = (3 * side - 2, 3 * side - 2)
    product = np.fft.rfft2(near.reshape(side, side), shape) * np.fft.rfft2(kernel, shape)
    middle: Floats = np.fft.irfft2(product, shape)[side - 1 : 2 * side - 1, side - 1 : 2 * side - 1].ravel()
    return np.maximum(middle, 0)


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    if len(arguments) != 2:
        print("Usage: python -m benchmarks.parked ROADS WALKS (places 250 m apart, a step every 30 s)")
        return
    world = load(*arguments)
    settings = [(None, 2.0), (None, 4.0), (8.0, 4.0), (4.0, 4.0), (4.0, 8.0), (2.0, 4.0)]
    noises = [*(anchored(*setting) for setting in settings), phone()]
    rows = []
    for noise in noises:
        by_place, by_grid = parked(world, noise)
        rows.append(
            (noise.name, f"{moving(world, noise):.3f}", f"{by_place:.3f}", f"{by_grid:.3f}", noise.cost_at_rest)
        )
    show(
        "The attacker's error, km",
        ("how it reports", "on the move", "parked, by places", "parked, anywhere", "cost of that hour, per km"),
        rows,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
