"""The zones of a bundle: their names, what a zone discloses by itself, and how far coordinates lie from its places.

Zones are numbered from 0, as in the file of zones (`geoblanket roads zones --out`). A build gives them these numbers as
names in the bundle, and every reader of the bundle uses them. Makers of other bundles may choose names at will.

Facts about zones are computed from the places. The statements of a file's author are not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.mechanism.verifier import components

_GRID: Final = 32
_PRECISION_M: Final = 1.0
_MOST_CELLS: Final = 4096
_BLOCK: Final = 1 << 21


def zone_name(number: int) -> str:
    """Return the name in a bundle of the zone with a number."""
    return f"{number}"


def zone_in_words(name: str | int) -> str:
    """Return what a message calls a zone: `zone 3`, or `zone 'centre'` where somebody chose a name."""
    text = f"{name}"
    return f"zone {text}" if text.isdecimal() else f"zone '{text}'"


def zone_order(name: str) -> tuple[int, str]:
    """Return a key that sorts zones by their numbers, and those with other names behind them."""
    return (len(name) if name.isdecimal() else 1_000, name)


class ZoneTable(Protocol):
    """The part of a mechanism that its zone's facts depend on."""

    @property
    def zone(self) -> str:
        """The zone's name."""

    @property
    def regime(self) -> str:
        """The regime."""

    @property
    def eta_mm(self) -> int:
        """η in millimetres."""

    @property
    def histories(self) -> Indices:
        """Places at t, t − 1, ..., shape (N, 1 + Γ)."""


@dataclass(frozen=True)
class ZoneFacts:
    """One zone in one regime."""

    zone: str
    regime: str
    places: int
    """How many present places it has."""
    extent_m: float
    """The largest distance between two of them, metres."""
    fewest_sharing: int
    """Places in the smallest part. Chains of steps of at most η join the places of a part; between parts nothing is
    promised."""
    smallest_part_m: float
    """The largest distance between two places of the narrowest such part, metres."""
    detour: float
    """How many times as far apart as on the map two of them are at most, in the bundle's metric."""
    error_m: float
    """Mean error of the best guess of someone who knows only the zone, if all its places are equally probable,
    metres."""


def zone_facts(tables: Iterable[ZoneTable], places_e7: Indices, table_mm: Ints | None = None) -> list[ZoneFacts]:
    """Return the facts of each zone and regime.

    Parameters
    ----------
    table_mm
        Distances of places in another metric than on the map, millimetres, shape (P, P); None: on the map.
    """
    return [_facts(table, places_e7, table_mm) for table in tables]


def _facts(table: ZoneTable, places_e7: Indices, table_mm: Ints | None) -> ZoneFacts:
    present = np.unique(table.histories[:, 0])
    lat, lon = (places_e7[present] * 1e-7).T
    between = haversine_m(lat[:, None], lon[:, None], lat, lon)
    promised = between * 1000 if table_mm is None else table_mm[np.ix_(present, present)].astype(np.float64)
    parts = components(promised <= table.eta_mm)
    # Places within a metre of each other on the map count as a metre apart: no metric is a multiple of 0.
    detour = 1.0 if table_mm is None else float((promised / np.maximum(between * 1000, 1000)).max(initial=1.0))
    return ZoneFacts(
        zone=table.zone,
        regime=table.regime,
        places=len(lat),
        extent_m=float(between.max()),
        fewest_sharing=min(len(part) for part in parts),
        smallest_part_m=min(float(between[np.ix_(part, part)].max()) for part in parts),
        detour=detour,
        error_m=float(between.mean(axis=1).min()),
    )


def snapping_radius_m(tables: Iterable[ZoneTable], places_e7: Indices) -> float:
    """Return the largest distance from a coordinate among the places to the present place it snaps to, metres.

    Among the places: within their convex hull. Rounded up, by at most a few metres.
    """
    used = np.unique(np.concatenate([table.histories[:, 0] for table in tables]))
    lat, lon = places_e7.astype(np.float64).T * 1e-7
    x, y = local_metres(lat, lon, origin_lat=float(lat.mean()), origin_lon=float(lon.mean()))
    hull = _hull(np.column_stack([x, y]))
    inside = np.column_stack([x[used], y[used]])
    # By how much the flat map is too short at most, anywhere on it.
    stretch = max(1.0, float(np.cos(np.radians(lat)).max() / np.cos(np.radians(lat.mean()))))
    return stretch * _covering_radius(inside, hull)


def _covering_radius(points: Floats, hull: Floats) -> float:
    """Return the largest distance from a point of a convex hull to the nearest of some points, by branch and bound."""
    low, high = hull.min(axis=0), hull.max(axis=0)
    side = max(float((high - low).max()) / _GRID, _PRECISION_M)
    counts = np.ceil((high - low) / side).astype(int) + 1
    axes = [low[axis] + side * (np.arange(counts[axis]) + 0.5) for axis in range(2)]
    centres = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    largest = 0.0
    while True:
        half = side / np.sqrt(2)
        outside = _outside_m(centres, hull)
        centres, outside = centres[outside <= half], outside[outside <= half]
        nearest = _nearest_m(centres, points)
        largest = max(largest, float(nearest[outside <= 0].max(initial=0.0)))
        promising = nearest + half > largest + _PRECISION_M
        bound = max(largest, float((nearest + half)[promising].max(initial=0.0)))
        centres = centres[promising]
        if not len(centres) or side <= _PRECISION_M or 4 * len(centres) > _MOST_CELLS:
            return max(bound, largest + _PRECISION_M)
        side /= 2
        corners = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * (side / 2)
        centres = (centres[:, None] + corners).reshape(-1, 2)


def _nearest_m(some: Floats, points: Floats) -> Floats:
    result = np.empty(len(some))
    step = max(1, _BLOCK // len(points))
    for start in range(0, len(some), step):
        block = some[start : start + step]
        squared = (block[:, :1] - points[:, 0]) ** 2 + (block[:, 1:] - points[:, 1]) ** 2
        result[start : start + step] = np.sqrt(squared.min(axis=1))
    return result


def _outside_m(some: Floats, hull: Floats) -> Floats:
    """Return a lower bound of how far points lie outside a convex hull (counter-clockwise); negative within."""
    edge = np.roll(hull, -1, axis=0) - hull
    length = np.maximum(np.hypot(*edge.T), 1e-9)
    result = np.full(len(some), -np.inf)
    for corner, (dx, dy), size in zip(hull, edge, length, strict=True):
        right = ((some[:, 0] - corner[0]) * dy - (some[:, 1] - corner[1]) * dx) / size
        np.maximum(result, right, out=result)
    return result


def _hull(points: Floats) -> Floats:
    """Return the convex hull of points in the plane, counter-clockwise."""
    ordered = np.unique(points, axis=0).tolist()

    def half(some: list[list[float]]) -> list[list[float]]:
        chain: list[list[float]] = []
        for x, y in some:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append([x, y])
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]) or ordered)
