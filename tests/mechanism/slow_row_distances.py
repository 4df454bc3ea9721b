"""Row distances over all histories the slow way: from each cell, place by place, in floats; no lists in order.

It takes the tree of a rule and which place is nearest from `history_verifier`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geoblanket._geodesy import haversine_m
from geoblanket.mechanism.history_verifier import PlacesOfCity, RuleTree
from geoblanket.mechanism.problem import NEVER_MM

Array = np.ndarray[Any, Any]


def row_distances_mm(
    tree: RuleTree, places_e7: Array, weights_micro: Sequence[int], stand_in: Array, *, near_pairs: int
) -> Array:
    """The least distance between all histories of two rows, millimetres, not rounded; `inf` where there are none."""
    city = PlacesOfCity(places_e7)
    lat, lon = places_e7.T * 1e-7
    between = haversine_m(lat[:, None], lon[:, None], lat, lon) * 1000
    served = [np.flatnonzero(stand_in == place) for place in tree.present]
    leaves = _least(between, served)[np.ix_(tree.lags[0].node, tree.lags[0].node)]
    rank = near_pairs // len(lat)
    if rank < len(lat):
        beyond = np.sort(between, axis=1)[:, rank].min()
        between = np.minimum(between, beyond)
    for lag, weight in zip(tree.lags[1:], weights_micro, strict=True):
        cells = [np.arange(len(lat)) for _ in range(lag.count)]
        for node, places in lag.listed.items():
            nearest = city.nearest_of(places)
            for child in range(len(places)):
                cells[lag.first_child[node] + child] = np.flatnonzero(nearest == child)
        least = _least(between, cells)
        with np.errstate(invalid="ignore"):
            least = (
                np.where(least > 0, np.inf, 0.0)
                if weight == NEVER_MM
                else np.where(least > 0, least * (weight / 1e6), 0)
            )
        leaves = leaves + least[np.ix_(lag.node, lag.node)]
    result = np.full((tree.rows.max() + 1,) * 2, np.inf)
    np.minimum.at(result, (tree.rows[:, None], tree.rows), leaves)
    return result


def _least(between: Array, sets: Sequence[Array]) -> Array:
    """The least distance between the places of two sets."""
    return np.array([[between[np.ix_(some, others)].min(initial=np.inf) for others in sets] for some in sets])
