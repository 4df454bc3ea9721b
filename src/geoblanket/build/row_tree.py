"""Which histories have rows of their own; every other one uses the row of the nearest (`HistoryTable`).

Rows grow as a tree: a place at t; below it, the places at t − 1 within a radius of it; below those of them that were
seen, and where the blanket is long enough, the places at t − 2 within a radius of that at t − 1; and so on. From lag to
lag the radius shrinks by one factor. The tree is as large as the number of rows allows.

Why the nearest places, and not only those that were seen: histories that share a row bring all rows near them closer
together, also those of frequent histories. If all that lies beyond some radius is lumped together, two vehicles are
protected as if their pasts were no further apart than twice the radius, and what context is worth ends there. So
histories that nobody drove get rows too, where they keep others apart. And every place gets the same radius: a place
with a smaller one is a short cut between the rows of its neighbours.

No vehicle comes from further away than it can drive within one interval (`Reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import HistoryCounts

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
        self._distinct = np.unique(places_e7, axis=0, return_index=True)[1]
        self._within: dict[int, Indices] = {}
        self._nearest: dict[int, tuple[Indices, Floats]] = {}

    def of(self, place: int) -> Indices:
        """Return the places within reach of a place, itself among them, ascending."""
        if place not in self._within:
            distance = haversine_m(self._lat[place], self._lon[place], self._lat, self._lon)
            self._within[place] = np.flatnonzero(distance <= self.radius_m).astype(np.int32)
        return self._within[place]

    def nearest(self, place: int, radius_m: float) -> Indices:
        """Return the places within a radius of a place and within reach, the nearest first: at least itself.

        Of several at one point only the first: no history would use the rows of the others.
        """
        if place not in self._nearest:
            others = np.intersect1d(self.of(place), self._distinct).astype(np.int32)
            distance = haversine_m(self._lat[place], self._lon[place], self._lat[others], self._lon[others])
            order = np.argsort(distance, kind="stable")
            self._nearest[place] = others[order], distance[order]
        others, distance = self._nearest[place]
        return others[: max(1, int(np.searchsorted(distance, radius_m, side="right")))]


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

_HALVINGS: Final = 24
"""Until the size of the tree is found: its radius to less than a millimetre."""
_MOST_UNREDUCED: Final = 5_000
_NONE: Final[Indices] = np.empty(0, np.int32)


def grow_rows(
    zone: Indices,
    counts: HistoryCounts,
    reach: Reach,
    *,
    largest: int,
    lengths: Lengths,
    max_rows: int,
    shrink: float,
) -> tuple[Indices, bool]:
    """Choose the histories that have rows of their own: as many as fit.

    The radius at t − 1 grows first, up to the reach; then the shrink, up to 1, where every history that was seen has a
    row.

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
    shrink
        The radius at a lag, as a share of that at the lag before, while that at t − 1 grows, 0 to 1. With 0, places
        before t − 1 are told apart only where rows are left.

    Returns
    -------
    listed
        The histories, −1 for any place, shape (S, 1 + Γ).
    complete
        Whether every history that was seen has a row.
    """
    longer = _longer(counts, largest, lengths)

    def grown(size: float) -> Branches:
        """Return the tree of a size from 0 to 2: it grows in radius up to 1, then in depth."""
        radius_m, factor = reach.radius_m * min(size, 1.0), shrink + (1 - shrink) * max(size - 1, 0.0)
        return lambda prefix: (
            reach.nearest(prefix[-1], radius_m * factor ** (len(prefix) - 1))
            if len(prefix) == 1 or prefix in longer
            else _NONE
        )

    def fits(size: float) -> bool:
        return _fit(zone, grown(size), largest=largest, most=max_rows)

    least, most = 0.0, 2.0
    if fits(most):
        return _list_histories(zone, grown(most), largest=largest), True
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return _list_histories(zone, grown(least), largest=largest), False


def _longer(counts: HistoryCounts, largest: int, lengths: Lengths) -> set[tuple[int, ...]]:
    """Return the beginnings of histories that were seen and whose blanket is longer than they are."""
    longer: set[tuple[int, ...]] = set()
    for past in range(1, largest):
        prefixes = np.unique(counts.histories[:, : past + 1], axis=0)
        deeper = np.asarray(lengths(prefixes[:, 0], prefixes[:, 1])) > past
        longer.update(map(tuple, prefixes[deeper].tolist()))
    return longer


def every_history(zone: Indices, reach: Reach, *, largest: int) -> Indices:
    """List every history within reach, −1 for any place, shape (S, 1 + Γ).

    Raises
    ------
    ParameterError
        If there are more than 5,000.
    """

    def branches(prefix: tuple[int, ...]) -> Indices:
        return reach.of(prefix[-1])

    if not _fit(zone, branches, largest=largest, most=_MOST_UNREDUCED):
        raise ParameterError(
            f"The context 'full' would need more than {_MOST_UNREDUCED:,} rows here. Take a smaller zone, a wider "
            "spacing of places, a slower largest speed or fewer history weights, or the context 'blanket'."
        )
    return _list_histories(zone, branches, largest=largest)


def _fit(zone: Indices, branches: Branches, *, largest: int, most: int) -> bool:
    """Whether there are at most so many histories with rows of their own; it counts no further than that."""
    rows = (history for place in zone.tolist() for history in _below((place,), branches, 1 + largest))
    return next(islice(rows, most, None), None) is None


def _list_histories(zone: Indices, branches: Branches, *, largest: int) -> Indices:
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
