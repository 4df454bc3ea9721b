"""The public rule from histories of places to rows.

The rule is a table of histories, and a tree (`RowTree`): any other history uses the row of the nearest one in it. The
table is all there is to the rule, and a bundle holds it, so that a device needs nothing else. Every history has a row:
whatever places it holds, at each lag those of the table compete, and the nearest wins.

All machines agree on which place is nearest. A degree of longitude counts as many degrees of latitude as the cosine of
the asked place's latitude, rounded to 2^-20. What follows are sums and products of whole numbers of 1e-7 degrees, which
floats hold exactly within nine degrees, and round in the same way everywhere beyond. Of equally near places the first
one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.errors import ParameterError
from geoblanket.mechanism.row_distances import NO_MORE, RowTree

_BLOCK: Final = 1 << 20
"""Distances of places to listed ones that are computed at a time."""
COSINE_UNIT: Final = 2.0**-20
"""What cosines are rounded to."""
HALF_TURN_E7: Final = 1_800_000_000
"""Half a turn of longitude."""
NOWHERE_E7: Final = 1e15
"""A latitude that fills up lists of places: further from everything than any place."""
_TURN_E7: Final = 2 * HALF_TURN_E7


@dataclass(frozen=True, eq=False)
class _Level:
    """The places that the nodes of one lag list, as coordinates."""

    first: Ints
    """The first child of each node of the level above."""
    lat: Floats
    """Latitudes of the places that these children list, 1e-7 degrees, shape (nodes above, most children)."""
    lon: Floats


class HistoryTable(RowTree):
    """Which row a history uses.

    The present place decides first, then the one before it, and so on. Of the histories of the table that agree so far,
    those with the nearest place count (of equally near ones, the first); where they list −1, any place will do.

    Parameters
    ----------
    places_e7
        Latitude and longitude of each place in 1e-7 degrees, shape (P, 2).
    histories
        The place at t, t − 1, ... of each history, −1 for any, shape (N, 1 + Γ); no two are the same.
    rows
        The row that each of them uses, shape (N,).
    """

    def __init__(self, places_e7: Indices, histories: Indices, rows: Indices) -> None:
        super().__init__(histories, rows, [len(places_e7)] * histories.shape[1])
        self._lat, self._lon = (np.ascontiguousarray(column) for column in places_e7.astype(np.float64).T)
        self._cosine = cosine(self._lat)
        self._around = bool(np.ptp(self._lon) > HALF_TURN_E7)
        self._present_list: list[int] = self._node_of_present.tolist()
        self._levels = [
            _Level(
                first,
                np.where(listed == NO_MORE, NOWHERE_E7, self._lat[listed.clip(min=0)]),
                np.where(listed == NO_MORE, 0.0, self._lon[listed.clip(min=0)]),
            )
            for first, listed in zip(self._first, self._listed, strict=True)
        ]

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
        filled = self._filled(np.asarray(histories))
        present = filled[:, 0]
        if filled.size and min(present.min(), self._node_of_present[present].min()) < 0:
            raise ParameterError("Some histories are not in the zone at present, so that it has no row for them.")
        return self.rows_of(filled)

    def row_of_one(self, history: Sequence[int]) -> int:
        """Return the row of one history, as `row_of` does, within microseconds.

        The work is the same for every history: the time does not tell whether the table lists it.

        Parameters
        ----------
        history
            The present place, which must be one of the zone, and as many earlier ones as are known.
        """
        place = history[0]
        node = self._present_list[place]
        if node < 0:
            raise ParameterError("The history is not in the zone at present, so that it has no row for it.")
        for lag, level in enumerate(self._levels, start=1):
            place = history[lag] if lag < len(history) else place
            squared = squared_distance(
                level.lat[node] - self._lat[place],
                level.lon[node] - self._lon[place],
                self._cosine[place],
                around=self._around,
            )
            node = int(level.first[node]) + int(squared.argmin())
        return int(self.rows[node])

    def _nearest(self, lag: int, nodes: Ints, values: Ints) -> Ints:
        level = self._levels[lag - 1]
        result = np.empty(len(nodes), np.int64)
        step = max(1, _BLOCK // level.lat.shape[1])
        for start in range(0, len(nodes), step):
            block = slice(start, start + step)
            node, place = nodes[block], values[block, None]
            squared = squared_distance(
                level.lat[node] - self._lat[place], level.lon[node] - self._lon[place], self._cosine[place]
            )
            result[block] = level.first[node] + squared.argmin(axis=1)
        return result

    def _filled(self, asked: npt.NDArray[np.integer]) -> Ints:
        if asked.ndim != 2 or not asked.shape[1] or not np.issubdtype(asked.dtype, np.integer):
            raise ParameterError("Histories must be a table of whole numbers, one history a row.")
        if asked.size and (asked.max() >= len(self._lat) or asked.min() < -1):
            raise ParameterError("Some histories hold places that do not exist.")
        width = 1 + len(self._levels)
        filled = np.full((len(asked), width), -1, np.int64)
        filled[:, : asked.shape[1]] = asked[:, :width]
        for lag in range(1, width):
            filled[:, lag] = np.where(filled[:, lag] < 0, filled[:, lag - 1], filled[:, lag])
        return filled


def cosine(lat_e7: Floats | float) -> Floats:
    """Return what a degree of longitude counts at latitudes in 1e-7 degrees."""
    rounded: Floats = np.rint(np.cos(np.radians(lat_e7 * 1e-7)) / COSINE_UNIT) * COSINE_UNIT
    return rounded


def squared_distance(north_e7: Floats, east_e7: Floats, cosine_at: Floats | float, *, around: bool = True) -> Floats:
    """Return squared distances, for comparison only; overwrites its arguments.

    Parameters
    ----------
    north_e7, east_e7
        Differences of latitude and longitude in 1e-7 degrees.
    cosine_at
        The `cosine` at the asked place.
    around
        Whether some may be more than half a turn apart, so that the way around the Earth is shorter. The result is the
        same for those that are not, and comes sooner without.
    """
    if around:
        east_e7 -= np.rint(east_e7 / _TURN_E7) * _TURN_E7
    east_e7 *= cosine_at
    east_e7 *= east_e7
    north_e7 *= north_e7
    north_e7 += east_e7
    return north_e7
