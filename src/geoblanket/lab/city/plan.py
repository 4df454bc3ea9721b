"""The plan of the city: its size, its districts, its river, and where junctions stand before streets join them.

Everything is in metres east (x) and north (y) of the city's centre. Rings and district borders are level sets of a
slightly deformed radius, so that no border is a perfect circle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from geoblanket._arrays import Bools, Floats, Ints, Octets
from geoblanket.errors import ParameterError

DISTRICTS = ("downtown", "inner", "outskirts")
"""The public districts, from the centre outwards; a node stores the index."""


@dataclass(frozen=True)
class Size:
    """How large a city is, and what it has."""

    placed: int
    """Junctions to place for a street network of the wanted size; the river and joined streets remove some."""
    shares: tuple[float, float, float]
    """Share of the junctions in each district."""
    radials: int
    """Roads that leave the centre."""
    boulevard: bool
    """Whether a ring of avenues surrounds downtown."""
    motorway: bool
    """Whether an orbital motorway lies outside the ring road."""
    river_m: float
    """Width of the river, metres."""
    stands: int
    """Taxi stands."""


SIZES = {
    "small": Size(535, (0.28, 0.36, 0.36), 5, boulevard=False, motorway=False, river_m=60.0, stands=15),
    "medium": Size(4_750, (0.22, 0.38, 0.40), 8, boulevard=True, motorway=False, river_m=90.0, stands=60),
    "large": Size(42_500, (0.14, 0.40, 0.46), 12, boulevard=True, motorway=True, river_m=160.0, stands=150),
}
"""The sizes of city there are."""

RIVER_STEP_M = 60.0
"""Distance between the points of the river's middle line, metres, about."""

_SPACING_M = (88.0, 115.0, 155.0)  # between junctions, by district
# Joining two streets end to end removes a junction, so more are placed than wanted.
_PLACED_PER_NODE = 1.36


@dataclass(frozen=True)
class Arterial:
    """A main road as a chain of points."""

    road_class: str
    points: Floats
    """Shape (n, 2), metres; a closed chain repeats its first point at the end."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The shape of a city."""

    size: Size
    seed: int
    borders_m: Floats
    """Deformed radius at which each district ends, metres, shape (3,)."""
    wobble: Floats
    """Amplitude and phase of the deformation's harmonics 2, 3, ..., shape (h, 2)."""
    river: Floats
    """The river's middle line, shape (n, 2), metres."""
    arterials: tuple[Arterial, ...]

    def stretch(self, angle: npt.ArrayLike) -> Floats:
        """Return how far the city reaches towards `angle` (radians), as a factor about 1."""
        angle = np.asarray(angle, np.float64)[..., None]
        harmonics = np.arange(2, 2 + len(self.wobble))
        result: Floats = 1.0 + (self.wobble[:, 0] * np.cos(harmonics * angle + self.wobble[:, 1])).sum(-1)
        return result

    def radius_m(self, points: Floats) -> Floats:
        """Return the deformed radius of points of shape (n, 2), metres."""
        result: Floats = np.hypot(*points.T) / self.stretch(np.arctan2(points[:, 1], points[:, 0]))
        return result

    def district(self, points: Floats) -> Octets:
        """Return the district of points of shape (n, 2)."""
        return np.searchsorted(self.borders_m[:2], self.radius_m(points), side="right").astype(np.uint8)

    def spacing_m(self, points: Floats) -> Floats:
        """Return the wanted distance between junctions near `points`, metres: wider towards the outside."""
        inner, outer, end = self.borders_m
        # Constant in the middle of each district, changing smoothly across its borders.
        at = [0.0, 0.8 * inner, 1.1 * inner, 0.9 * outer, outer + 0.15 * (end - outer), end]
        spacing: Floats = np.interp(self.radius_m(points), at, np.repeat(_SPACING_M, 2))
        return spacing

    @cached_property
    def river_tree(self) -> cKDTree:
        """The river's middle line, sampled densely, for nearest-distance questions."""
        return cKDTree(_densify(self.river, 10.0))

    def river_distance_m(self, points: Floats) -> Floats:
        """Return the distance of points from the river's middle line, metres."""
        return np.asarray(self.river_tree.query(points)[0], np.float64)


@dataclass(frozen=True, eq=False)
class Junctions:
    """Where junctions stand. The first ones belong to the arterials."""

    points: Floats
    """Shape (n, 2), metres."""
    chains: tuple[Ints, ...]
    """For each arterial, the junctions along it."""
    patch: Ints
    """Neighbourhood of each junction, -1 on arterials."""
    row: Ints
    """Row and column in the neighbourhood's grid of streets."""
    column: Ints


def make_plan(size: str, seed: int) -> Plan:
    """Draw the plan of a city: the same for the same size and seed."""
    if size not in SIZES:
        raise ParameterError(f"size must be one of {', '.join(SIZES)}. Got '{size}' instead.")
    wanted = SIZES[size]
    rng = np.random.default_rng([seed, 1])
    areas = np.array(wanted.shares) * wanted.placed * np.square(_SPACING_M)
    borders = np.sqrt(np.cumsum(areas) / np.pi)
    wobble = np.stack([rng.uniform(0.02, 0.05, 3), rng.uniform(0, 2 * np.pi, 3)], 1)
    bare = Plan(wanted, seed, borders, wobble, np.zeros((0, 2)), ())
    return Plan(wanted, seed, borders, wobble, _draw_river(bare, rng), tuple(_draw_arterials(bare, rng)))


def place_junctions(plan: Plan) -> Junctions:
    """Place junctions: on the arterials first, then in neighbourhoods, each a jittered grid turned its own way."""
    rng = np.random.default_rng([plan.seed, 2])
    main, chains = _merge_chains(plan)
    points, patch, row, column = _fill_neighbourhoods(plan, rng)
    roads = np.concatenate([_densify(arterial.points, 15.0) for arterial in plan.arterials])
    spacing = plan.spacing_m(points)
    keep = (
        (plan.radius_m(points) < plan.borders_m[2])
        & (plan.river_distance_m(points) > plan.size.river_m / 2 + 25.0)
        & (cKDTree(roads).query(points)[0] > 0.48 * spacing)
    )
    keep[keep] = _thin(points[keep], 0.6 * spacing[keep])
    return Junctions(
        points=np.concatenate([main, points[keep]]),
        chains=chains,
        patch=np.concatenate([np.full(len(main), -1), patch[keep]]),
        row=np.concatenate([np.zeros(len(main), np.int64), row[keep]]),
        column=np.concatenate([np.arange(len(main)), column[keep]]),
    )


def _draw_river(plan: Plan, rng: np.random.Generator) -> Floats:
    """Return a winding line across the city that passes beside the centre."""
    reach = 1.4 * plan.borders_m[2]
    along = np.arange(-reach, reach, RIVER_STEP_M)
    away = rng.uniform(0.75, 0.95) * plan.borders_m[0] + plan.size.river_m / 2
    waves = sum(
        plan.borders_m[0] * rng.uniform(0.1, 0.22) * np.sin(along * rng.uniform(1.5, 4.0) / reach * np.pi + phase)
        for phase in rng.uniform(0, 2 * np.pi, 3)
    )
    line = np.stack([along, -away + waves], 1)
    angle = rng.uniform(-0.5, 0.5)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    result: Floats = line @ turn.T
    return result


def _draw_arterials(plan: Plan, rng: np.random.Generator) -> list[Arterial]:
    inner, outer, end = plan.borders_m
    rings = [(outer + 0.28 * (end - outer), "trunk", 1.0)]
    if plan.size.boulevard:
        rings += [(1.02 * inner, "primary", 1.0), (0.55 * (inner + outer), "secondary", 1.0)]
    if plan.size.motorway:
        rings += [(outer + 0.66 * (end - outer), "motorway", 2.2)]
    radii = sorted(radius for radius, _, _ in rings)
    count = plan.size.radials
    first = rng.uniform(0, 2 * np.pi)
    spokes = []
    for index in range(count):
        angle = first + 2 * np.pi * (index + rng.uniform(-0.18, 0.18)) / count
        spokes.append(_Spoke(angle, rng.uniform(-0.25, 0.25), end))
    result = []
    for index, spoke in enumerate(spokes):
        # Every second road starts at the first ring, so that not all roads meet in the centre.
        start = 0.0 if index % 2 == 0 else radii[0]
        stops = [start, *[radius for radius in radii if radius > start], 0.985 * end]
        result.append(Arterial("primary" if index % 2 == 0 else "secondary", _sample_spoke(plan, spoke, stops)))
    for radius, road_class, stride in rings:
        angles = np.sort(np.array([spoke.angle(radius) for spoke in spokes]) % (2 * np.pi))
        result.append(Arterial(road_class, _sample_ring(plan, radius, angles, stride)))
    return result


@dataclass(frozen=True)
class _Spoke:
    start: float
    bend: float
    end_m: float

    def angle(self, radius: npt.ArrayLike) -> Floats:
        share = np.asarray(radius, np.float64) / self.end_m
        result: Floats = self.start + self.bend * np.sin(1.5 * share)
        return result


def _sample_spoke(plan: Plan, spoke: _Spoke, stops: list[float]) -> Floats:
    radii = [np.array([stops[0]])]
    for low, high in pairwise(stops):
        inside = np.array([[(low + high) / 2, 0.0]])
        pieces = max(1, round((high - low) / float(plan.spacing_m(inside)[0])))
        radii.append(np.linspace(low, high, pieces + 1)[1:])
    radius = np.concatenate(radii)
    return _from_polar(plan, radius, spoke.angle(radius))


def _sample_ring(plan: Plan, radius: float, angles: Floats, stride: float) -> Floats:
    spacing = stride * float(plan.spacing_m(np.array([[radius, 0.0]]))[0])
    parts = []
    for low, high in zip(angles, np.append(angles[1:], angles[0] + 2 * np.pi), strict=True):
        pieces = max(1, round((high - low) * radius / spacing))
        parts.append(np.linspace(low, high, pieces, endpoint=False))
    around = np.append(np.concatenate(parts), angles[0])
    return _from_polar(plan, np.full(len(around), radius), around)


def _from_polar(plan: Plan, radius: Floats, angle: Floats) -> Floats:
    reach = radius * plan.stretch(angle)
    return np.stack([reach * np.cos(angle), reach * np.sin(angle)], 1)


def _merge_chains(plan: Plan) -> tuple[Floats, tuple[Ints, ...]]:
    """Return the arterials' junctions, without those in the river, and each arterial as a chain of them."""
    points = np.concatenate([arterial.points for arterial in plan.arterials])
    number = np.arange(len(points))
    for low, high in sorted(cKDTree(points).query_pairs(30.0)):
        number[high] = number[low]
    dry = plan.river_distance_m(points) > plan.size.river_m / 2 + 15.0
    used = np.unique(number[dry])
    new = np.full(len(points), -1)
    new[used] = np.arange(len(used))
    chains = []
    ends = np.cumsum([len(arterial.points) for arterial in plan.arterials])
    for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
        chain = new[number[start:end]]
        chain = chain[chain >= 0]
        chains.append(chain[np.append(True, chain[1:] != chain[:-1])])
    return points[used], tuple(chains)


def _fill_neighbourhoods(plan: Plan, rng: np.random.Generator) -> tuple[Floats, Ints, Ints, Ints]:
    centres = _neighbourhood_centres(plan, rng)
    tree = cKDTree(centres)
    spacing = plan.spacing_m(centres) / np.sqrt(_PLACED_PER_NODE)
    sixth = np.asarray(tree.query(centres, k=[min(7, len(centres))])[0])[:, 0]
    reach = 1.6 * np.minimum(sixth, 20 * spacing)
    placed = []
    for patch, (centre, step) in enumerate(zip(centres, spacing, strict=True)):
        aspect = rng.uniform(1.0, 1.25)
        irregular = rng.uniform(0.16, 0.24) if rng.random() < 0.35 else rng.uniform(0.05, 0.1)
        angle = rng.uniform(0, np.pi / 2)
        half = int(reach[patch] / step) + 1
        row, column = (grid.ravel() for grid in np.mgrid[-half : half + 1, -half : half + 1])
        local = np.stack([column * step * aspect, row * step / aspect], 1)
        local += rng.normal(0.0, irregular * step, local.shape)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        points = centre + local @ turn.T
        nearest = tree.query(points)[1] == patch
        placed.append((points[nearest], np.full(int(nearest.sum()), patch), row[nearest], column[nearest]))
    points, patches, rows, columns = (np.concatenate(parts) for parts in zip(*placed, strict=True))
    return points, patches, rows, columns


def _neighbourhood_centres(plan: Plan, rng: np.random.Generator) -> Floats:
    """Return well-spread centres, more where junctions are dense (Lloyd's algorithm on a weighted sample)."""
    count = max(8, plan.size.placed // 80)
    end = plan.borders_m[2] * 1.15
    sample = rng.uniform(-end, end, (60 * count, 2))
    sample = sample[plan.radius_m(sample) < plan.borders_m[2]]
    weight = 1.0 / np.square(plan.spacing_m(sample))
    centres = sample[rng.choice(len(sample), count, replace=False, p=weight / weight.sum())]
    for _ in range(8):
        owner = cKDTree(centres).query(sample)[1]
        total = np.maximum(np.bincount(owner, weight, count), 1e-12)
        moved = [np.bincount(owner, weight * sample[:, axis], count) / total for axis in (0, 1)]
        centres = np.stack(moved, 1)
    return np.asarray(centres, np.float64)


def _thin(points: Floats, least_m: Floats) -> Bools:
    """Return which points stay so that none is too close to an earlier one."""
    keep = np.ones(len(points), np.bool_)
    for low, high in sorted(cKDTree(points).query_pairs(float(least_m.max()))):
        if keep[low] and keep[high] and np.hypot(*(points[low] - points[high])) < least_m[high]:
            keep[high] = False
    return keep


def _densify(line: Floats, step_m: float) -> Floats:
    """Return points at most `step_m` apart along a line."""
    length = np.hypot(*np.diff(line, axis=0).T)
    along = np.append(0.0, np.cumsum(length))
    at = np.linspace(0.0, along[-1], int(along[-1] / step_m) + 2)
    points: Floats = np.stack([np.interp(at, along, line[:, axis]) for axis in (0, 1)], 1)
    return points
