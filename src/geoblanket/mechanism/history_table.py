"""The public rule from histories to rows: a table of histories, and for any other one the nearest in it.

The table is all there is to the rule, and a bundle holds it, so that a device needs nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mechanism.row_distances import Indices

__all__ = ["HistoryTable"]

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Level:
    """One place of histories: the different parts of the table up to it."""

    lag: int
    keys: Keys
    """Number of the part before it and place, as one number, ascending."""
    first: npt.NDArray[np.intp]
    """The first key of each part before it."""
    any_place: npt.NDArray[np.bool_]
    """Whether that key lists −1, and is then the only one."""


class HistoryTable:
    """Which row a history uses.

    The present place decides first, then the one before it, and so on. Of the histories of the table that agree so far,
    those with the nearest place count (of equally near ones, the first); where they list −1, any place will do.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    histories
        The place at t, t − 1, ... of each history, −1 for any, shape (N, 1 + Γ).
    rows
        The row that each of them uses, shape (N,).
    """

    def __init__(self, places_e7: Indices, histories: Indices, rows: Indices) -> None:
        self._places_e7 = places_e7
        order = np.lexsort(histories.T[::-1])
        self._histories, self._rows = histories[order], rows[order]

    def row_of(self, histories: npt.ArrayLike) -> Indices:
        """Return the rows of many histories.

        Parameters
        ----------
        histories
            Places at t, t − 1, ..., shape (n, 1 + at least 0). Earlier places that are missing, or −1, are taken as
            the oldest one that is known; older ones than the table looks at do not matter.

        Raises
        ------
        ParameterError
            If a present place is not one of the zone, or an earlier one not a place at all.
        """
        asked = self._filled(np.asarray(histories))
        node = np.zeros(len(asked), np.int64)
        for level, places in zip(self._levels, asked.T, strict=True):
            node = self._step(level, node, places)
        return self._rows[node]

    def row_of_one(self, history: Sequence[int]) -> int:
        """Return the row of one history, as `row_of` does, in some microseconds.

        Parameters
        ----------
        history
            The present place, which must be one of the zone, and as many earlier ones as are known.
        """
        node, place = 0, -1
        for lag, (any_place, keys) in enumerate(self._one_by_one):
            place = history[lag] if lag < len(history) else place
            if (only := any_place[node]) is not None:
                node = only
                continue
            wanted = node * (len(self._places_e7) + 1) + place + 1
            position = bisect_left(keys, wanted)
            if position < len(keys) and keys[position] == wanted:
                node = position
            elif lag:
                node = self._nearest(self._levels[lag].keys, wanted)
            else:
                raise ParameterError("The history is not in the zone at present, so that it has no row for it.")
        return int(self._rows[node])

    def _filled(self, asked: npt.NDArray[np.int64] | Indices) -> Keys:
        if asked.ndim != 2 or not asked.shape[1] or not np.issubdtype(asked.dtype, np.integer):
            raise ParameterError("Histories must be a table of whole numbers, one history a row.")
        width = self._histories.shape[1]
        if asked.size and (asked.max() >= len(self._places_e7) or asked.min() < -1):
            raise ParameterError("Some histories hold places that do not exist.")
        filled = np.full((len(asked), width), -1, np.int64)
        filled[:, : asked.shape[1]] = asked[:, :width]
        for lag in range(1, width):
            filled[:, lag] = np.where(filled[:, lag] < 0, filled[:, lag - 1], filled[:, lag])
        return filled

    @cached_property
    def _levels(self) -> list[_Level]:
        levels: list[_Level] = []
        node = np.zeros(len(self._histories), np.int64)
        for column in self._histories.T:
            parts = np.arange(int(node[-1]) + 1)
            keys, node = np.unique(self._key(node, column), return_inverse=True)
            first = np.searchsorted(keys, self._key(parts, np.array(-1)))
            levels.append(_Level(len(levels), keys, first, keys[first] == self._key(parts, np.array(-1))))
        return levels

    @cached_property
    def _one_by_one(self) -> list[tuple[list[int | None], list[int]]]:
        """For each level: what follows each part where any place will do, and the keys."""
        return [
            (
                [
                    first if every else None
                    for first, every in zip(level.first.tolist(), level.any_place.tolist(), strict=True)
                ],
                level.keys.tolist(),
            )
            for level in self._levels
        ]

    def _key(self, node: Keys, place: npt.NDArray[np.integer]) -> Keys:
        return node * (len(self._places_e7) + 1) + place + 1

    def _step(self, level: _Level, node: Keys, place: Keys) -> Keys:
        """Return the position among the level's keys of each place after the parts `node`."""
        keys, found = level.keys, level.first[node]
        asked = np.flatnonzero(~level.any_place[node])
        wanted = self._key(node[asked], place[asked])
        found[asked] = np.searchsorted(keys, wanted)
        missing = keys[np.minimum(found[asked], len(keys) - 1)] != wanted
        if not missing.any():
            return found
        if level.lag == 0:
            raise ParameterError("Some histories are not in the zone at present, so that it has no row for them.")
        unlisted, which = np.unique(wanted[missing], return_inverse=True)
        found[asked[missing]] = np.array([self._nearest(keys, key) for key in unlisted.tolist()])[which]
        return found

    def _nearest(self, keys: Keys, wanted: int) -> int:
        place = wanted % (len(self._places_e7) + 1) - 1
        any_place = wanted - place - 1
        first, end = np.searchsorted(keys, [any_place, any_place + len(self._places_e7) + 1])
        listed = self._places_e7[keys[first:end] - any_place - 1] * 1e-7
        lat, lon = self._places_e7[place] * 1e-7
        return int(first + haversine_m(lat, lon, listed[:, 0], listed[:, 1]).argmin())
