"""How the fleet moves: a Markov chain on the nodes whose order is known exactly.

At a tick a vehicle at node x draws a speed band (or a stop) with probabilities that depend on x and the hour alone,
then one of the band's candidates j with probability

    p_j = w_j (1 + g_j · h),    h = a₁ u₁ + a₂ u₂,

where u₁ and u₂ are the directions of its last two displacements (zero for a stop or before the trip), and a₁, a₂ depend
on the order of (district of x, speed band): order 1 has a = (0, 0), order 2 (a₁, 0), order 3 (a₁, a₂). Hence the
next node depends on the last `order` nodes, and on nothing else.

The weights w are chosen such that the mean displacement Σ w_j d_j is a given smooth field f(x), and g such that the
mean of d given the past is f(x) + h: whatever streets a node has, the drift is smooth. Candidates in another district
have g = 0, and Σ w_j g_j = 0 over the others: the probability to cross a border never depends on the past.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import Floats
from geoblanket.city.plan import DISTRICTS, Plan
from geoblanket.city.routes import BIN_EDGES_M, TICK_S, Routes
from geoblanket.city.streets import Streets

__all__ = ["BANDS", "BAND_BINS", "ORDERS", "STRENGTH", "Moves", "build_moves", "speed_range_m_s"]

BANDS = ("stopped", "slow", "medium", "fast")
"""Bands of straight-line speed: 0, up to 15, 15 to 30, and 30 to 60 mph."""
BAND_BINS = ((0, 0), (0, 2), (2, 5), (5, 8))
"""First and last + 1 bin (between `BIN_EDGES_M`) of each band."""

ORDERS = {
    ("downtown", "slow"): 1,
    ("downtown", "medium"): 2,
    ("inner", "medium"): 2,
    ("inner", "fast"): 3,
    ("outskirts", "medium"): 1,
    ("outskirts", "fast"): 3,
}
"""The Markov order by district of the node that is left and speed band: the truth about the city."""

STRENGTH = {1: (0.0, 0.0), 2: (0.48, 0.0), 3: (0.25, 0.25)}
"""(a₁, a₂) by order. Their sum is below 1/2, the most that keeps every p_j positive for evenly spread directions."""

_BAND_CHANCES = {
    "downtown": {"stopped": 0.10, "slow": 0.72, "medium": 0.18},
    "inner": {"stopped": 0.07, "medium": 0.74, "fast": 0.19},
    "outskirts": {"stopped": 0.05, "medium": 0.17, "fast": 0.78},
}
_SLOWER = np.array([1.0, 1.15, 1.5])
"""Odds of stops and of the district's slower band by traffic: calm, busy, rush hour."""
_CROSSING = 0.6
_MOST_CROSSING = 0.3
_EXTRA_SPREADS = (0.0, 0.05, 0.12, 0.25, 0.5, 1.0)
_FEWEST_CANDIDATES = 3
_MOVING = len(BANDS) - 1

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Moves:
    """The Markov chain as tables. A row is (node, moving band) = node × 3 + band - 1; a slot is one candidate of it."""

    chances: npt.NDArray[np.float32]
    """Cumulative chances of the bands, by traffic and node, shape (3, N, 4); zero where no vehicle stops."""
    weight: npt.NDArray[np.float32]
    """w of each slot, shape (rows, K), zero where there is no candidate; each usable row sums to 1."""
    heading: npt.NDArray[np.float32]
    """g of each slot, east and north, shape (2, rows, K)."""
    route: npt.NDArray[np.int32]
    """Index of each slot's route in `routes`, shape (rows, K), -1 where there is none."""
    order: npt.NDArray[np.uint8]
    """Order used at each row by steps inside the district, shape (rows,), 0 where the band is impossible."""
    routes: Routes

    @cached_property
    def last_slot(self) -> npt.NDArray[np.int32]:
        """Number of the last candidate of each row, -1 where there is none, shape (rows,)."""
        return ((self.route >= 0).sum(1) - 1).astype(np.int32)

    @property
    def usable(self) -> Flags:
        """Nodes at which vehicles may be at a tick, shape (N,)."""
        result: Flags = self.chances[0, :, -1] > 0
        return result


def build_moves(plan: Plan, streets: Streets, routes: Routes) -> Moves:
    """Calibrate the chain; nodes whose streets lead only one way are passed through, never stopped at."""
    points = streets.points
    district = plan.district(points)
    rows = _gather_rows(routes, district)
    weight, heading = np.zeros(rows.slot.shape), np.zeros((*rows.slot.shape, 2))
    order = np.zeros(len(rows.slot), np.uint8)
    changed = np.ones(len(rows.slot), np.bool_)
    main = np.array([_main_band(name) for name in DISTRICTS])[district]
    while changed.any():
        some = rows.take(changed)
        weight[changed], heading[changed], order[changed] = _calibrate(plan, points, district, some)
        alive = np.zeros(len(points), np.bool_)
        alive[rows.source[(order > 0) & (rows.band == main[rows.source])]] = True
        # A candidate at which no vehicle could go on is no candidate: rows that lose one are calibrated again.
        lost = rows.there & ~(alive[rows.target] & alive[rows.source][:, None])
        changed = lost.any(1)
        rows.there[lost] = False
    return _to_moves(district, rows, weight, heading, order, routes)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows that have routes, with their candidates side by side."""

    source: Ints
    band: Ints
    stride_m: Floats
    slot: Ints
    """Route of each slot, shape (n, K), -1 for none."""
    there: Flags
    """Which slots are candidates still, shape (n, K)."""
    target: Ints
    step: Floats
    """Displacements over the band's middle, shape (n, K, 2)."""
    bin: Ints
    base: Floats
    """Liking of each candidate before calibration, shape (n, K)."""

    def take(self, chosen: Flags) -> _Rows:
        return _Rows(*(getattr(self, field.name)[chosen] for field in fields(self)))


def _gather_rows(routes: Routes, district: npt.NDArray[np.uint8]) -> _Rows:
    band_of_bin = np.repeat(np.arange(len(BANDS)), [end - first for first, end in BAND_BINS])
    band = band_of_bin[routes.bin]
    possible = np.array([[(name, band) in ORDERS for band in BANDS] for name in DISTRICTS])
    key = routes.source.astype(np.int64) * _MOVING + band - 1
    number, first, count = np.unique(key, return_index=True, return_counts=True)
    position = np.arange(count.max())
    slot = np.where(position < count[:, None], first[:, None] + position, -1)
    source, band = number // _MOVING, number % _MOVING + 1
    edges = BIN_EDGES_M[np.array(BAND_BINS)[band]]
    there = (slot >= 0) & possible[district[source], band][:, None]
    return _Rows(
        source=source,
        band=band,
        stride_m=edges.mean(1),
        slot=slot,
        there=there,
        target=routes.target[slot].astype(np.int64),
        step=routes.displacement[slot] / edges.mean(1)[:, None, None],
        bin=routes.bin[slot].astype(np.int64),
        base=np.exp(-2.0 * (routes.detour[slot] - 1.0)),
    )


def _main_band(district: str) -> int:
    """Return the moving band that is most frequent in a district."""
    chances = _BAND_CHANCES[district]
    return max(range(1, len(BANDS)), key=lambda band: chances.get(BANDS[band], 0.0))


def _calibrate(
    plan: Plan, points: Floats, district: npt.NDArray[np.uint8], rows: _Rows
) -> tuple[Floats, Floats, npt.NDArray[np.uint8]]:
    """Return weights, headings and orders of rows; the order is 0 where a row cannot be used."""
    here, where = district[rows.source], points[rows.source]
    stays = rows.there & (district[rows.target] == here[:, None])
    crosses = rows.there & ~stays
    order_of = np.array([[ORDERS.get((name, band), 0) for band in BANDS] for name in DISTRICTS])
    order = order_of[here, rows.band]
    strength = np.array([0.0] + [sum(STRENGTH[number]) for number in (1, 2, 3)])[order]

    staying, fits = _tilt(rows, stays, _drift(plan, where, here, rows.stride_m))
    heading = _headings(rows.step, staying, strength)
    leaving = rows.base * crosses
    share = np.minimum(_CROSSING * leaving.sum(1) / np.maximum((rows.base * rows.there).sum(1), 1e-300), _MOST_CROSSING)
    leaving /= np.maximum(leaving.sum(1, keepdims=True), 1e-300)
    weight = (1.0 - share)[:, None] * staying + share[:, None] * leaving
    heading = np.where((stays & fits[:, None])[..., None], heading, 0.0)

    # Beside a border the district may offer only one side: there the step has no memory, and all candidates count.
    free, free_fits = _tilt(rows, rows.there, _drift(plan, where, None, rows.stride_m))
    free_fits &= ~fits & crosses.any(1)
    weight = np.where(free_fits[:, None], free, weight)
    return weight, heading, np.where(fits, order, np.where(free_fits, 1, 0)).astype(np.uint8)


def _drift(plan: Plan, points: Floats, district: npt.NDArray[np.uint8] | None, stride_m: Floats) -> Floats:
    """Return the mean displacement wanted at points, in strides: a slow circulation, and away from borders.

    A vehicle that moves evenly in all directions that stay inside goes, at a straight border, on average 2/π of a
    stride inwards, and less further away from it.
    """
    rng = np.random.default_rng([plan.seed, 5])
    drift = np.zeros_like(points)
    for _ in range(4):
        angle, phase = rng.uniform(0, 2 * np.pi, 2)
        wave = 2 * np.pi / (plan.borders_m[0] * rng.uniform(1.0, 2.0))
        direction = np.array([np.cos(angle), np.sin(angle)])
        # The curl of a stream function: vehicles circulate and gather nowhere.
        drift += 0.1 * np.cos(wave * points @ direction + phase)[:, None] * np.array([-direction[1], direction[0]])
    outward = points / np.maximum(np.hypot(*points.T), 1.0)[:, None]
    radius, stretch = plan.radius_m(points), plan.stretch(np.arctan2(points[:, 1], points[:, 0]))

    def push(distance_m: Floats) -> Floats:
        result: Floats = 2 / np.pi * np.maximum(0.0, 1.0 - distance_m / stride_m)[:, None]
        return result

    ends = plan.borders_m[2] if district is None else plan.borders_m[district]
    drift -= outward * push((ends - radius) * stretch)
    if district is not None:
        begins = np.append(-np.inf, plan.borders_m[:2])[district]
        drift += outward * push((radius - begins) * stretch)
    distance, nearest = plan.river_tree.query(points)
    from_river = (points - plan.river_tree.data[nearest]) / np.maximum(distance, 1.0)[:, None]
    drift += from_river * push(np.maximum(distance - plan.size.river_m / 2, 0.0))
    return drift * np.minimum(1.0, 0.75 / np.maximum(np.hypot(*drift.T), 1e-9))[:, None]


def _tilt(rows: _Rows, among: Flags, mean: Floats) -> tuple[Floats, Flags]:
    """Return weights of candidates under which the mean step is `mean`, and where there are enough candidates.

    Weights of the form base × exp(λ · features), by Newton's method on the dual of a penalised problem: the mean is
    met where the streets allow it, and nearly elsewhere. That it is right within each 5 mph bin as well, and that
    there is as much north-south as east-west, are lesser wishes.
    """
    first_bin = np.array(BAND_BINS)[rows.band, 0][:, None]
    off = rows.step - mean[:, None]
    features = np.concatenate(
        [
            off,
            off * (rows.bin == first_bin)[..., None],
            off * (rows.bin == first_bin + 1)[..., None],
            rows.step[..., :1] ** 2 - rows.step[..., 1:] ** 2,
            2 * rows.step[..., :1] * rows.step[..., 1:],
        ],
        axis=-1,
    )
    count = features.shape[-1]
    ridge = np.diag([0.01] * 2 + [0.03] * 4 + [0.05] * 2)
    multiplier = np.zeros((len(off), count))
    log_base = np.where(among, np.log(rows.base), -np.inf)
    enough = among.sum(1) >= _FEWEST_CANDIDATES
    log_base[~enough] = 0.0
    for _ in range(40):
        score = log_base + np.einsum("nkf,nf->nk", features, multiplier)
        weight = np.exp(score - score.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        expected = np.einsum("nk,nkf->nf", weight, features)
        slope = -expected - multiplier @ ridge
        if np.abs(slope).max(initial=0.0) < 1e-6:
            break
        centred = features - expected[:, None]
        curvature = np.swapaxes(weight[..., None] * centred, 1, 2) @ centred + ridge
        change = np.linalg.solve(curvature, slope[..., None])[..., 0]
        multiplier += change * np.minimum(1.0, 2.0 / np.maximum(np.abs(change).max(1, keepdims=True), 1e-9))
    return weight * enough[:, None], enough


def _headings(step: Floats, weight: Floats, strength: Floats) -> Floats:
    """Return g = (M + τ)⁻¹ (d - mean), with the least τ for which |g| × strength is at most 1: no chance is negative.

    M is the covariance of the steps; with τ = 0 the mean step given the past is exactly mean + h.
    """
    mean = np.einsum("nk,nkd->nd", weight, step)
    centred = step - mean[:, None]
    spread = np.einsum("nk,nkd,nke->nde", weight, centred, centred)
    result = np.zeros_like(step)
    open_rows = strength > 0
    for extra in _EXTRA_SPREADS:
        heading = np.linalg.solve((spread + (extra + 1e-9) * np.eye(2))[:, None], centred[..., None])[..., 0]
        largest = np.where(weight > 0, np.hypot(heading[..., 0], heading[..., 1]), 0.0).max(1) * strength
        done = open_rows & ((largest <= 1.0) | (extra == _EXTRA_SPREADS[-1]))
        result[done] = heading[done] / np.maximum(largest[done], 1.0)[:, None, None]
        open_rows &= ~done
    return result


def _to_moves(
    district: npt.NDArray[np.uint8],
    rows: _Rows,
    weight: Floats,
    heading: Floats,
    order: npt.NDArray[np.uint8],
    routes: Routes,
) -> Moves:
    """Lay the usable rows out by number, and drop the routes that nobody takes."""
    good = order > 0
    # Candidates come first in their row, so that the last one can be told by their number.
    first = np.argsort(~rows.there, axis=1, kind="stable")[:, : int(rows.there.sum(1).max(initial=1))]
    slot, there, weight = (np.take_along_axis(array, first, 1) for array in (rows.slot, rows.there, weight))
    heading = np.take_along_axis(heading, first[..., None], 1)
    used = there & good[:, None]
    kept = np.zeros(len(routes.source), np.bool_)
    kept[slot[used]] = True
    renumbered = np.cumsum(kept) - 1
    count, number = len(district) * _MOVING, (rows.source * _MOVING + rows.band - 1)[good]
    moves = Moves(
        chances=np.empty(0, np.float32),
        weight=np.zeros((count, used.shape[1]), np.float32),
        heading=np.zeros((2, count, used.shape[1]), np.float32),
        route=np.full((count, used.shape[1]), -1, np.int32),
        order=np.zeros(count, np.uint8),
        routes=routes.take(kept),
    )
    moves.weight[number] = (weight * used)[good]
    moves.heading[:, number] = np.moveaxis((heading * used[..., None])[good], 2, 0)
    moves.route[number] = np.where(used, renumbered[slot], -1)[good]
    moves.order[number] = order[good]
    return replace(moves, chances=_band_chances(district, (moves.order > 0).reshape(-1, _MOVING)))


def _band_chances(district: npt.NDArray[np.uint8], possible: Flags) -> npt.NDArray[np.float32]:
    """Return the cumulative chances of the bands, by traffic and node."""
    table = np.array([[_BAND_CHANCES[name].get(band, 0.0) for band in BANDS] for name in DISTRICTS])
    slower = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]], np.bool_)
    usable = possible.any(1, keepdims=True)
    result = []
    for factor in _SLOWER:
        chance = np.where(slower, table * factor, table)[district] * np.concatenate([usable, possible], 1)
        result.append(np.cumsum(chance / np.where(usable, chance.sum(1, keepdims=True), 1.0), 1))
    return np.array(result, np.float32)


def speed_range_m_s(band: str) -> tuple[float, float]:
    """Return the straight-line speeds of a band in this city, metres per second: above the first, up to the second."""
    first, end = BAND_BINS[BANDS.index(band)]
    if first == end:
        return 0.0, 0.0
    return float(BIN_EDGES_M[first] / TICK_S), float(BIN_EDGES_M[end] / TICK_S)
