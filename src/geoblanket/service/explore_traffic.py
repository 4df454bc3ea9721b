"""How vehicles move, as anyone may know from training walks, and a filter that follows one vehicle.

The recipient of reports is assumed to know this, and follows a vehicle by Bayes' rule: from the belief about its place,
to where vehicles go from there, to what the report says about that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.build.reach import reach_radius_m
from geoblanket.mobility.histories import count_histories
from geoblanket.mobility.next_places import Distributions, backed_off, near_places
from geoblanket.roads.places import Places
from geoblanket.service.explore_bundle import ZoneView

__all__ = ["Tracker", "Traffic"]

_LEAST_BELIEF = 1e-6
"""Places that are less probable are not followed further."""


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

    def prior(self, view: ZoneView, previous: int | None) -> Floats:
        """Return where in a zone vehicles are, after a previous place if there is one, shape (n,); it sums to 1."""
        whole = self.share if previous is None else self.next_place[[previous]].toarray()[0]
        inside = whole[view.places]
        # A zone that vehicles do not reach from there: what is left is how busy its places are.
        inside = inside if inside.sum() > 0 else self.share[view.places]
        result: Floats = inside / inside.sum()
        return result


class Tracker:
    """What a recipient believes of one vehicle's place, report by report.

    Parameters
    ----------
    traffic
        What he knows of how vehicles move.
    places
        All places.
    """

    def __init__(self, traffic: Traffic, places: Places) -> None:
        self._traffic = traffic
        self._places = places
        self.belief: Floats = traffic.share
        """The probability of each place, shape (P,)."""
        self._moving = False

    def wait(self) -> None:
        """Take in an interval without a report."""
        if self._moving:
            self.belief = self._after_a_step()
        self._moving = True

    def see_zone(self, view: ZoneView) -> None:
        """Take in a report of which only the zone is known."""
        self.wait()
        inside = np.zeros_like(self.belief)
        inside[view.places] = self.belief[view.places]
        self._believe(inside, view)

    def see(self, view: ZoneView, output: int, *, follows: bool) -> None:
        """Take in a report.

        Parameters
        ----------
        view
            The mechanism that made it.
        output
            The place that was reported.
        follows
            Whether there was a report in the interval before, so that the mechanism knew the place of then.
        """
        if follows:
            joint = self._with_previous(view, output)
        else:
            self.wait()
            joint = np.zeros_like(self.belief)
            joint[view.places] = self.belief[view.places] * view.likelihood(output, None)
        self._believe(joint, view)

    def guess(self) -> tuple[int, float]:
        """Return the place with the least expected distance from the true one, and that distance, metres."""
        likely = np.flatnonzero(self.belief >= _LEAST_BELIEF * self.belief.max())
        lat, lon = self._places.lat[likely], self._places.lon[likely]
        expected = haversine_m(lat[:, None], lon[:, None], lat, lon) @ self.belief[likely]
        return int(likely[expected.argmin()]), float(expected.min())

    def _after_a_step(self) -> Floats:
        return np.asarray(self.belief @ self._traffic.next_place, np.float64)

    def _with_previous(self, view: ZoneView, output: int) -> Floats:
        """Return the probability of each place with the report, over all that the previous place may have been."""
        result = np.zeros_like(self.belief)
        likely = np.flatnonzero(self.belief >= _LEAST_BELIEF * self.belief.max())
        ahead = self._traffic.next_place[likely][:, view.places].toarray()
        for previous, moves in zip(likely.tolist(), ahead, strict=True):
            result[view.places] += self.belief[previous] * moves * view.likelihood(output, previous)
        return result

    def _believe(self, joint: Floats, view: ZoneView) -> None:
        if not joint.sum() > 0:  # he was wrong altogether, and starts again in the zone
            joint = np.zeros_like(self.belief)
            joint[view.places] = self._traffic.share[view.places]
        self.belief = joint / joint.sum()
