"""How the fleet moves: a Markov chain on the nodes whose order is known exactly.

At a tick a vehicle at node x draws a speed band (or a stop), and whether it stays in its district or leaves it, with
probabilities that depend on x and the hour alone. Then it draws one of the candidates j that fit with probability

    p_j ∝ w_j exp(d_j · h),    h = κ₁ u₁ + κ₂ u₂,

where d_j is the candidate's displacement in strides, and u₁ and u₂ are the directions of the vehicle's last two
displacements (zero for a stop or before the trip). κ depends on the order of (district of x, speed band): order 1 has
κ = (0, 0), order 2 (κ₁, 0), order 3 (κ₁, κ₂); steps out of the district have h = 0. Hence the next node depends on the
last `order` nodes and on nothing else: no vehicle has a destination or a temper.

The weights w are such that the mean displacement Σ w_j d_j is a smooth field f(x), whatever streets a node has, as far
as they allow it, beside borders and the river too. Otherwise the streets of each single node would be a hidden cause of
where vehicles come from and where they go, which a test that knows positions only roughly would take for memory.

In each district the usual band has memory and the other has none. So a group of like mean speeds over several steps may
mix a few steps without memory with those that have it, but never two kinds of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import ArrayTable, Bools, Floats, Indices, Ints, Octets
from geoblanket.city.plan import DISTRICTS, Plan
from geoblanket.city.routes import BIN_EDGES_M, TICK_S, Routes
from geoblanket.city.streets import Streets

__all__ = ["BANDS", "BAND_BINS", "ORDERS", "STRENGTH", "Moves", "build_moves", "speed_range_m_s"]

BANDS = ("stopped", "slow", "medium", "fast")
"""Bands of straight-line speed: 0, 10 to 20, 20 to 30, and 30 to 45 mph."""
BAND_BINS = ((0, 0), (0, 2), (2, 4), (4, 7))
"""First and last + 1 bin (between `BIN_EDGES_M`) of each band."""

ORDERS = {
    ("downtown", "slow"): 2,
    ("downtown", "medium"): 1,
    ("inner", "medium"): 2,
    ("inner", "fast"): 1,
    ("outskirts", "medium"): 1,
    ("outskirts", "fast"): 3,
}
"""The Markov order by district of the node that is left and speed band: the truth about the city."""

STRENGTH = {1: (0.0, 0.0), 2: (1.0, 0.0), 3: (0.9, 0.9)}
"""(κ₁, κ₂) by order."""

_BAND_CHANCES = {
    "downtown": {"stopped": 0.10, "slow": 0.72, "medium": 0.18},
    "inner": {"stopped": 0.07, "medium": 0.74, "fast": 0.19},
    "outskirts": {"stopped": 0.05, "medium": 0.17, "fast": 0.78},
}
_SLOWER = np.array([1.0, 1.15, 1.5])
"""Odds of stops and of the district's slower band by traffic: calm, busy, rush hour."""
_MOST_CROSSING = 0.5  # chance that a step leaves its district, where steps have memory
_LEAST_STAYING = 0.1
"""Where the candidates inside the district have less weight than this, beside its border, steps have no memory."""
_FEWEST_CANDIDATES = 3  # of a step that can be calibrated, or have memory
_LEAST_WEIGHT = 1e-9  # of a candidate: none is impossible
_ROWS_AT_ONCE = 2048  # calibrated together, to bound memory
_MOVING = len(BANDS) - 1


@dataclass(frozen=True, eq=False)
class Moves:
    """The Markov chain as tables. A row is (node, moving band) = node × 3 + band - 1; a slot is one candidate of it."""

    chances: npt.NDArray[np.float32]
    """Cumulative chances of the bands, by traffic and node, shape (3, N, 4); zero where no vehicle stops."""
    weight: npt.NDArray[np.float32]
    """w of each slot, shape (rows, K), zero where there is no candidate."""
    step: npt.NDArray[np.float32]
    """d of each slot, east and north, in strides, shape (2, rows, K)."""
    route: Indices
    """Index of each slot's route in `routes`, shape (rows, K), -1 where there is none."""
    stay_chance: npt.NDArray[np.float32]
    """Chance to stay in the district, shape (rows,)."""
    stay_slots: Octets
    """Number of slots that stay in the district; they come first, shape (rows,)."""
    slots: Octets
    """Number of candidates, shape (rows,)."""
    order: Octets
    """Order used at each row by steps inside the district, shape (rows,), 0 where the band is impossible."""
    routes: Routes

    @property
    def usable(self) -> Bools:
        """Nodes at which vehicles may be at a tick, shape (N,)."""
        result: Bools = self.chances[0, :, -1] > 0
        return result


def build_moves(plan: Plan, streets: Streets, routes: Routes) -> Moves:
    """Calibrate the chain; nodes whose streets lead only one way are passed through, never stopped at."""
    points = streets.points
    district = plan.district(points)
    rows = _gather_rows(routes, district)
    weight = np.zeros(rows.slot.shape)
    stays = np.zeros(rows.slot.shape, np.bool_)
    stay_chance = np.zeros(len(rows.slot))
    order = np.zeros(len(rows.slot), np.uint8)
    main = np.array([_main_band(name) for name in DISTRICTS])[district]
    changed = np.ones(len(rows.slot), np.bool_)
    while changed.any():
        calibrated = _calibrate(plan, points, district, rows.where(changed))
        weight[changed], stays[changed], stay_chance[changed], order[changed] = calibrated
        alive = np.zeros(len(points), np.bool_)
        alive[rows.source[(order > 0) & (rows.band == main[rows.source])]] = True
        # A candidate at which no vehicle could go on is no candidate: rows that lose one are calibrated again.
        lost = rows.there & ~(alive[rows.target] & alive[rows.source][:, None])
        changed = np.asarray(lost.any(1))
        rows.there[lost] = False
    chain = _Chain(weight, stays, stay_chance, order)
    return _to_moves(district, rows, chain, routes)


@dataclass(frozen=True, eq=False)
class _Rows(ArrayTable):
    """The rows that have routes, with their candidates side by side."""

    source: Ints
    band: Ints
    slot: Ints
    """Route of each slot, shape (n, K), -1 for none."""
    there: Bools
    """Which slots are candidates still, shape (n, K)."""
    target: Ints
    step: Floats
    """Displacements over the band's middle, shape (n, K, 2)."""
    bin: Ints
    base: Floats
    """Liking of each candidate before calibration, shape (n, K)."""


def _gather_rows(routes: Routes, district: Octets) -> _Rows:
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


class _Chain(NamedTuple):
    """What calibration finds for rows."""

    weight: Floats
    """Shape (n, K); those that stay and those that leave each sum to 1."""
    stays: Bools
    """Which slots stay in the district, shape (n, K)."""
    stay_chance: Floats
    order: Octets
    """0 where a row cannot be used."""


def _calibrate(plan: Plan, points: Floats, district: Octets, rows: _Rows) -> _Chain:
    here = district[rows.source]
    weight, fits = _tilt(rows, _drift(plan, points[rows.source]))
    inside = rows.there & (district[rows.target] == here[:, None])
    staying, leaving = weight * inside, weight * ~inside
    stay = staying.sum(1)
    remembers = (inside.sum(1) >= _FEWEST_CANDIDATES) & (stay >= _LEAST_STAYING)
    parts = sum(part / np.maximum(part.sum(1, keepdims=True), _LEAST_WEIGHT) for part in (staying, leaving))
    order_of = np.array([[ORDERS.get((name, band), 0) for band in BANDS] for name in DISTRICTS])
    order = np.where(remembers, order_of[here, rows.band], 1)
    return _Chain(
        weight=np.where(remembers[:, None], parts, weight),
        stays=np.where(remembers[:, None], inside, rows.there),
        stay_chance=np.where(remembers, np.maximum(stay, 1.0 - _MOST_CROSSING), 1.0),
        order=np.where(fits, order, 0).astype(np.uint8),
    )


def _drift(plan: Plan, points: Floats) -> Floats:
    """Return the mean displacement wanted at points, in strides: a slow circulation."""
    rng = np.random.default_rng([plan.seed, 5])
    drift = np.zeros_like(points)
    for _ in range(4):
        angle, phase = rng.uniform(0, 2 * np.pi, 2)
        wave = 2 * np.pi / (plan.borders_m[-1] * rng.uniform(0.8, 1.6))
        direction = np.array([np.cos(angle), np.sin(angle)])
        # The curl of a stream function: vehicles circulate and gather nowhere.
        drift += 0.13 * np.cos(wave * points @ direction + phase)[:, None] * np.array([-direction[1], direction[0]])
    return drift


def _tilt(rows: _Rows, mean: Floats) -> tuple[Floats, Bools]:
    """Return weights of candidates under which the mean step is `mean`, and where there are enough candidates.

    Weights of the form base × exp(λ · features), by Newton's method on the dual of a penalised problem: the mean is
    met in each 5 mph bin where the streets allow it, and nearly elsewhere. That there is as much north-south as
    east-west is a lesser wish.
    """
    weight = np.zeros(rows.slot.shape)
    enough = rows.there.sum(1) >= _FEWEST_CANDIDATES
    open_rows = np.flatnonzero(enough)
    for first in range(0, len(open_rows), _ROWS_AT_ONCE):
        part = open_rows[first : first + _ROWS_AT_ONCE]
        weight[part] = _tilt_part(rows.where(part), mean[part])
    return weight, enough


def _tilt_part(rows: _Rows, mean: Floats) -> Floats:
    off = rows.step - mean[:, None]
    east, north = rows.step[..., 0], rows.step[..., 1]
    wishes = np.stack([off[..., 0], off[..., 1], east**2 - north**2, 2 * east * north], -1)
    ends = np.array(BAND_BINS)
    bins = int(np.diff(ends).max())
    number = rows.bin - ends[rows.band, :1]
    features = np.concatenate([wishes * (number == bin_number)[..., None] for bin_number in range(bins)], -1)
    count = features.shape[-1]
    ridge = np.diag([0.001, 0.001, 0.02, 0.02] * bins)
    multiplier = np.zeros((len(off), count))
    log_base = np.where(rows.there, np.log(rows.base), -np.inf)
    weight = np.zeros(rows.there.shape)
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
    return np.where(rows.there, np.maximum(weight, _LEAST_WEIGHT), 0.0)


def _to_moves(district: Octets, rows: _Rows, chain: _Chain, routes: Routes) -> Moves:
    """Lay the usable rows out by number, those that stay first, and drop the routes that nobody takes."""
    good = chain.order > 0
    width = int(rows.there[good].sum(1).max(initial=1))
    first = np.argsort(2 * ~rows.there + ~chain.stays, axis=1, kind="stable")[good, :width]

    def arrange(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.take_along_axis(array[good], first, 1)

    there, slot = arrange(rows.there), arrange(rows.slot)
    kept = np.zeros(len(routes.source), np.bool_)
    kept[slot[there]] = True
    renumbered = np.cumsum(kept) - 1
    number = (rows.source * _MOVING + rows.band - 1)[good]

    def spread(values: npt.NDArray[Any], dtype: npt.DTypeLike, *, empty: int = 0) -> npt.NDArray[Any]:
        result = np.full((len(district) * _MOVING, *values.shape[1:]), empty, dtype)
        result[number] = values
        return result

    order = spread(chain.order[good], np.uint8)
    return Moves(
        chances=_band_chances(district, (order > 0).reshape(-1, _MOVING)),
        weight=spread(np.where(there, arrange(chain.weight), 0.0), np.float32),
        step=np.stack([spread(np.where(there, arrange(rows.step[..., axis]), 0.0), np.float32) for axis in (0, 1)]),
        route=spread(np.where(there, renumbered[slot], -1), np.int32, empty=-1),
        stay_chance=spread(chain.stay_chance[good], np.float32),
        stay_slots=spread((there & arrange(chain.stays)).sum(1), np.uint8),
        slots=spread(there.sum(1), np.uint8),
        order=order,
        routes=routes.where(kept),
    )


def _band_chances(district: Octets, possible: Bools) -> npt.NDArray[np.float32]:
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
