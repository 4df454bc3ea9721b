"""Which histories have rows of their own; every other one uses the row of the nearest (`HistoryTable`).

Rows grow as a tree: a place at t; below it, the places at t − 1 that are nearest to it; below these, where the blanket
is long enough, the places at t − 2 that were seen with them most often; and so on.

Why the nearest places at t − 1, and not those seen most often: histories that share a row bring all rows near them
closer together, also those of frequent histories. If all that lies beyond some radius of x_t is lumped together, two
vehicles that stand at places d apart are protected as if they were no further apart than twice the radius plus d, and
what context is worth ends there. So the radius must be as large as the number of rows allows. No vehicle comes from
further away than it can drive within one interval (`Reach`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import HistoryCounts

__all__ = [
    "MAX_SPEED_M_S",
    "Branches",
    "FixedLengths",
    "Lengths",
    "Reach",
    "choose_branches",
    "every_branch",
    "list_histories",
    "reach_radius_m",
]

MAX_SPEED_M_S = 35.0
"""No vehicle is faster, by default (126 km/h)."""


def reach_radius_m(*, interval_s: float, snapping_radius_m: float, max_speed_m_s: float = MAX_SPEED_M_S) -> float:
    """Return how far apart two places of a history can be in a straight line, metres.

    Each may lie as far from the vehicle as the snapping radius.
    """
    for name, value in (("interval_s", interval_s), ("max_speed_m_s", max_speed_m_s)):
        if not 0 < value < np.inf:
            raise ParameterError(f"{name} must be a positive number. Got {value} instead.")
    if not 0 <= snapping_radius_m < np.inf:
        raise ParameterError(f"snapping_radius_m must be zero or more metres. Got {snapping_radius_m} instead.")
    return max_speed_m_s * interval_s + 2 * snapping_radius_m


class Reach:
    """Which places lie within a radius of a place.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    radius_m
        The radius, metres, by great-circle distance.
    """

    def __init__(self, places_e7: Indices, radius_m: float) -> None:
        if not radius_m >= 0:
            raise ParameterError(f"The reach must be zero or more metres. Got {radius_m} instead.")
        self.radius_m = radius_m
        self._lat, self._lon = (places_e7 * 1e-7).T
        self._within: dict[int, Indices] = {}

    def of(self, place: int) -> Indices:
        """Return the places within reach of a place, itself among them, ascending."""
        if place not in self._within:
            distance = haversine_m(self._lat[place], self._lon[place], self._lat, self._lon)
            self._within[place] = np.flatnonzero(distance <= self.radius_m).astype(np.int32)
        return self._within[place]

    def distance_m(self, place: int, others: Indices) -> Floats:
        """Return how far some places are from a place, metres."""
        return haversine_m(self._lat[place], self._lon[place], self._lat[others], self._lon[others])


Lengths = Callable[[Indices, Indices], npt.ArrayLike]
"""How long the blanket is, 1 to Γ, for many pairs of the place at t and the place at t − 1."""


@dataclass(frozen=True)
class FixedLengths:
    """The same length everywhere."""

    order: int

    def __call__(self, now: Indices, before: Indices) -> Ints:  # noqa: ARG002 - one signature for all
        """Return the length for each pair of the place at t and the place at t − 1."""
        return np.full(len(now), self.order)


Branches = Callable[[tuple[int, ...]], Indices]
"""The earlier places that have rows of their own below the beginning of a history, the most important first."""

_FIRST_SHARE: Final = 0.95
"""Of the rows, where some blanket is longer than 1, the share for places at t − 1: a row lowers the loss more there."""
_MIN_COUNT: Final = 2
"""How often a history must have been seen, to be told apart by places at t − 2 and before."""
_NONE: Final[Indices] = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class _Level:
    """Different beginnings (x_t, ..., x_{t-k}) of the histories that were seen."""

    prefixes: Indices
    count: Ints
    parent: Positions
    """The position of each one's own beginning in the level above."""


def choose_branches(
    zone: Indices,
    counts: HistoryCounts,
    reach: Reach,
    *,
    largest: int,
    lengths: Lengths,
    max_rows: int,
) -> Branches:
    """Choose the histories that have rows of their own.

    Parameters
    ----------
    zone
        The places of the zone, ascending.
    counts
        Histories of the zone.
    largest
        Γ: how many earlier places are looked at.
    lengths
        See `Lengths`.
    max_rows
        How many rows there may be; each place has one at least.
    """
    levels = _levels(counts, largest)
    allowed = [np.ones(len(levels[0].count), bool)] if levels else []
    for lag, level in enumerate(levels[1:], start=2):
        longer = np.asarray(lengths(level.prefixes[:, 0], level.prefixes[:, 1])) >= lag
        allowed.append(longer & (level.count >= _MIN_COUNT) & allowed[-1][level.parent])
    deeper = any(ok.any() for ok in allowed[1:])
    nearest = _nearest(zone, reach, int(max_rows * _FIRST_SHARE) if deeper else max_rows) if largest else {}
    below: dict[tuple[int, ...], list[int]] = {}
    if deeper:
        with_row = {(now, before) for now, places in nearest.items() for before in places.tolist()}
        allowed[0] = np.array([tuple(prefix) in with_row for prefix in levels[0].prefixes.tolist()])
        below = _frequent(levels, allowed, max(0, max_rows - len(with_row)))

    def branches(prefix: tuple[int, ...]) -> Indices:
        return nearest[prefix[0]] if len(prefix) == 1 else np.array(below.get(prefix, _NONE), np.int32)

    return branches


def every_branch(reach: Reach) -> Branches:
    """Return all that can be reached: every history has a row of its own."""
    return lambda prefix: reach.of(prefix[-1])


def _nearest(zone: Indices, reach: Reach, max_rows: int) -> dict[int, Indices]:
    """Return the places within a radius of each place of the zone, as large as the number of rows allows."""
    within = [reach.of(place) for place in zone.tolist()]
    distance_m = [reach.distance_m(place, places) for place, places in zip(zone.tolist(), within, strict=True)]
    ordered = np.sort(np.concatenate(distance_m))
    # All at the same distance, or none of them.
    radius_m = ordered[max_rows] if max_rows < len(ordered) else np.inf
    return {
        place: places[np.argsort(distance, kind="stable")][: max(1, int((distance < radius_m).sum()))]
        for place, places, distance in zip(zone.tolist(), within, distance_m, strict=True)
    }


def _levels(counts: HistoryCounts, largest: int) -> list[_Level]:
    """Return the beginnings with one earlier place, with two, ..."""
    levels = []
    node = counts.histories[:, 0].astype(np.int64)
    for lag in range(1, largest + 1):
        keys = np.column_stack([node, counts.histories[:, lag]])
        different, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        node = inverse.ravel()
        count = np.bincount(node, counts.count, len(different)).astype(np.int64)
        levels.append(_Level(counts.histories[first, : lag + 1], count, different[:, 0].astype(np.intp)))
    return levels


def _frequent(levels: list[_Level], allowed: list[Bools], more_rows: int) -> dict[tuple[int, ...], list[int]]:
    """Return the places at t − 2 and before with rows of their own, for at most `more_rows` rows more than before."""
    allowed = [allowed[0], *allowed[1:]]
    for lag in range(1, len(levels)):
        allowed[lag] = allowed[lag] & allowed[lag - 1][levels[lag].parent]
    seen = np.unique(np.concatenate([level.count[ok] for level, ok in zip(levels[1:], allowed[1:], strict=True)]))
    # Rows get fewer as the least count grows; beyond all counts there are none more.
    steps = [_MIN_COUNT, *seen[seen > _MIN_COUNT].tolist(), int(seen.max(initial=_MIN_COUNT)) + 1]
    least = steps[bisect_left(steps, True, key=lambda count: _more_rows(levels, allowed, count) <= more_rows)]
    below: dict[tuple[int, ...], list[int]] = {}
    for level, ok in zip(levels[1:], allowed[1:], strict=True):
        kept = np.flatnonzero(ok & (level.count >= least))
        for index in kept[np.argsort(-level.count[kept], kind="stable")]:
            *before, place = level.prefixes[index].tolist()
            below.setdefault(tuple(before), []).append(place)
    return below


def _more_rows(levels: list[_Level], allowed: list[Bools], least: int) -> int:
    """Return how many rows come on top if histories seen so often have rows of their own."""
    rows = np.ones(len(levels[-1].count), np.int64)
    for upper, level, ok in zip(levels[-2::-1], levels[:0:-1], allowed[:0:-1], strict=True):
        kept = ok & (level.count >= least)
        rows = np.maximum(1, np.bincount(level.parent[kept], rows[kept], len(upper.count)).astype(np.int64))
    return int(rows.sum()) - len(rows)


def list_histories(zone: Indices, branches: Branches, *, largest: int) -> Indices:
    """List the histories that have rows of their own, −1 for any place, shape (S, 1 + Γ).

    The oldest places are left out if none of them is told apart: they would count in the budget for nothing.
    """
    listed = [history for place in zone.tolist() for history in _below((place,), branches, 1 + largest)]
    histories = np.array([[*history, *[-1] * (1 + largest - len(history))] for history in listed], np.int32)
    used = int(np.flatnonzero((histories >= 0).any(axis=0))[-1]) + 1
    return histories[:, :used]


def _below(prefix: tuple[int, ...], branches: Branches, width: int) -> Iterator[tuple[int, ...]]:
    """Yield the histories with rows of their own that begin so."""
    places = branches(prefix) if len(prefix) < width else _NONE
    if len(prefix) == width or (len(prefix) > 1 and len(places) < 2):
        # One branch only would tell nothing apart.
        yield prefix
        return
    for place in places.tolist():
        yield from _below((*prefix, place), branches, width)
