"""Where vehicles are, and where they go next, as anyone may know from training walks: the prior of a single report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.build.reach import reach_radius_m
from geoblanket.mobility.histories import Distributions, backed_off, count_histories, near_places
from geoblanket.build.row_tree import reach_radius_m
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.next_places import Distributions, backed_off, near_places
from geoblanket.roads.places import Places
from geoblanket.service.explore_bundle import ZoneView

__all__ = ["Traffic"]


class Traffic:
    """Where vehicles are, and where they go next.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`; the vehicles that are not held out count.
    places
        The places it was matched to.
    interval_s
        Seconds between two steps.
    snapping_radius_m
        How far a vehicle can be from its place, metres.
    """

    def __init__(self, walks: str | Path, places: Places, *, interval_s: float, snapping_radius_m: float) -> None:
        counted = count_histories(walks, places, largest=0)
        now, after, count = counted.histories[:, 0], counted.next_place, counted.count.astype(np.float64)
        size = len(places)
        counts: Distributions = csr_array((count, (now, after)), shape=(size, size))
        moved = haversine_m(places.lat[now], places.lon[now], places.lat[after], places.lon[after])
        near = near_places(
            places,
            np.arange(size, dtype=np.int32),
            reach_m=reach_radius_m(interval_s=interval_s, snapping_radius_m=snapping_radius_m),
            typical_m=max(float(moved @ count / count.sum()), 1.0),
        )
        self.next_place: Distributions = backed_off(counts, near)
        """The distribution of the next place after each one, shape (P, P)."""
        visits = np.bincount(now, count, minlength=size) + 1.0
        self.share: Floats = visits / visits.sum()
        """How often vehicles are at each place, shape (P,); places never seen count as seen once."""

    def anywhere(self, previous: int | None) -> Floats:
        """Return where in the city vehicles are, after a previous place if there is one, shape (P,)."""
        whole: Floats = self.share if previous is None else self.next_place[[previous]].toarray()[0]
        return whole

    def prior(self, view: ZoneView, previous: int | None) -> Floats:
        """Return where in a zone vehicles are, after a previous place if there is one, shape (n,); it sums to 1."""
        inside = self.anywhere(previous)[view.places]
        # A zone that vehicles do not reach from there: what is left is how busy its places are.
        inside = inside if inside.sum() > 0 else self.share[view.places]
        result: Floats = inside / inside.sum()
        return result
