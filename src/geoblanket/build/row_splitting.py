"""Rows split by places further back: the fine rows of the second stage, each a part of a coarse one.

All rows are split by the same places, each of which stands for those nearest to it. Two fine rows that are split alike
are then as far apart as their coarse rows, and both can follow what their common past says of the loss. If rows were
split by places of their own, a part of one would touch several parts of another, and hardly any could move.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from geoblanket._arrays import Indices
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows, rows_of_histories
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.roads.places import Places

__all__ = ["MOST_FINE_ROWS", "split_rows"]

MOST_FINE_ROWS: Final = 480
"""More would take the linear program of the second stage minutes."""
_MOST_PARTS: Final = 4
"""By as many places a row is split, at each place further back."""


def split_rows(
    coarse: ZoneRows,
    places: Places,
    counts: HistoryCounts,
    *,
    further: int,
    reach_m: float,
    history_weights: tuple[float, ...],
    most_rows: int = MOST_FINE_ROWS,
) -> ZoneRows:
    """Split each row by what vehicles passed before the places that it looks at.

    Parameters
    ----------
    coarse
        The rows of a zone.
    places, reach_m
        Those that they were made with.
    counts
        Histories of training walks with more earlier places than the rows look at; those elsewhere are left out.
    further
        How many more places each row looks at.
    history_weights
        What earlier places count in distances: no row looks further back than there are weights.
    most_rows
        With more than two parts of a row there are fewer parts instead.

    Returns
    -------
    fine
        The rows themselves if no vehicle came from elsewhere, or there are no weights for a longer past.

    Raises
    ------
    ParameterError
        If there would be more rows even with two parts of each.
    """
    seen = counts.where(np.isin(counts.histories[:, 0], coarse.zone))
    longest = min(len(history_weights), counts.largest)
    for parts in range(_MOST_PARTS, 1, -1):
        listed = coarse.histories
        for _ in range(further):
            listed = _split(listed, places, seen, longest, parts)
        if len(listed) == len(coarse):
            return coarse
        if len(listed) <= most_rows:
            return rows_of_histories(
                places,
                coarse.zone,
                listed,
                seen,
                reach_m=reach_m,
                history_weights=history_weights,
                context=f"{coarse.report.context}, refined",
                largest=longest,
            )
    raise ParameterError(
        f"{len(coarse):,} rows would be split into {len(listed):,}, more than {most_rows:,}. Give the first stage "
        "fewer rows, or make zones smaller."
    )


def _split(listed: Indices, places: Places, seen: HistoryCounts, longest: int, parts: int) -> Indices:
    """Return the listed histories, each replaced by those with one earlier place more."""
    length = (listed >= 0).sum(axis=1)
    centres = {lag: _centres(places, seen, lag, parts) for lag in np.unique(length).tolist() if lag <= longest}
    histories = [
        (*history[:lag], *centre)
        for history, lag in zip(listed.tolist(), length.tolist(), strict=True)
        for centre in ([(place,) for place in centres[lag]] if len(centres.get(lag, ())) > 1 else [()])
    ]
    width = max(map(len, histories))
    return np.array([[*history, *[-1] * (width - len(history))] for history in histories], np.int32)


def _centres(places: Places, seen: HistoryCounts, lag: int, parts: int) -> list[int]:
    """Return places to which those seen at a lag are near on average, chosen one after the other."""
    passed, inverse = np.unique(seen.histories[:, lag], return_inverse=True)
    count = np.bincount(inverse, seen.count, len(passed))
    lat, lon = places.lat[passed], places.lon[passed]
    distance_m = haversine_m(lat[:, None], lon[:, None], lat, lon)
    nearest_m = np.full(len(passed), np.inf)
    chosen: list[int] = []
    while len(chosen) < min(parts, len(passed)):
        best = int((count @ np.minimum(nearest_m[:, None], distance_m)).argmin())
        chosen.append(int(passed[best]))
        nearest_m = np.minimum(nearest_m, distance_m[:, best])
    return chosen
