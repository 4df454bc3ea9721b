"""What a bundle does at a place: what would be reported, how far off that is, and what a recipient could infer.

All of this concerns places that somebody picks on a map: nobody's location is involved, and nothing is released.
A recipient's prior is what anyone may know from training walks: where vehicles are, and where they go next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arrays import Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.build.record import BuildRecord, ZoneRecord
from geoblanket.build.row_tree import reach_radius_m
from geoblanket.mechanism.bundle.storage import BundledMechanism
from geoblanket.mechanism.history_rule.history_table import HistoryTable
from geoblanket.mobility.histories import Distributions, backed_off, count_histories, near_places
from geoblanket.roads.places import Places
from geoblanket.service.store import ServedBundle

__all__ = ["Conclusion", "ExploredBundle", "Outlook", "Traffic", "ZoneView"]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What would be reported from a place."""

    outputs: Indices
    """The places that may be reported, shape (K,)."""
    probability: Floats
    """Of each, shape (K,)."""
    error_m: float
    """The mean distance from the true place to the reported one, metres."""
    median_error_m: float
    """Half of the reports are at most this far off, metres."""
    exact: float
    """The probability that the true place itself is reported."""


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What a recipient who knows zone, regime and previous place can infer from a report."""

    places: Indices
    """The places of the zone, shape (n,)."""
    before: Floats
    """Their probability before the report, shape (n,)."""
    after: Floats
    """Their probability after the report, shape (n,)."""
    guess: int
    """The place with the least expected distance from the true one."""
    error_m: float
    """That expected distance, metres."""
    error_before_m: float
    """What it was for the best guess without the report, metres."""


class ZoneView:
    """One mechanism, row by row: which row is used at which places.

    Parameters
    ----------
    bundled
        The mechanism.
    places_e7
        Latitude and longitude of all places in 1e-7 degrees, shape (P, 2).
    """

    def __init__(self, bundled: BundledMechanism, places_e7: Indices) -> None:
        self.bundled = bundled
        self.places: Indices = np.unique(bundled.histories[:, 0])
        self._degrees = places_e7 * 1e-7
        self._table = HistoryTable(places_e7, bundled.histories, bundled.history_rows)
        self._after: dict[int, Indices] = {}

    def row(self, place: int, previous: int | None) -> int:
        """Return the row of a present place and the one before it; None: there is no history."""
        history = [place] if previous is None else [place, previous]
        return int(self._table.row_of(np.array([history]))[0])

    def rows_after(self, previous: int | None) -> Indices:
        """Return the row of each place of the zone after a previous one, shape (n,).

        If the mechanism looks further back, even earlier places count as the same one.
        """
        key = -1 if previous is None else previous
        if key not in self._after:
            histories = self.places[:, None]
            if previous is not None:
                histories = np.column_stack([self.places, np.full(len(self.places), previous, np.int32)])
            self._after[key] = self._table.row_of(histories)
        return self._after[key]

    def likelihood(self, output: int, previous: int | None) -> Floats:
        """Return how probable it is that a place is reported, from each place of the zone, shape (n,)."""
        column = np.flatnonzero(self.bundled.output_places == output)
        if not len(column):
            return np.zeros(len(self.places))
        weights: Floats = self.bundled.mechanism.weights[self.rows_after(previous), column[0]] / 2.0**62
        return weights

    def outlook(self, place: int, previous: int | None) -> Outlook:
        """Return what would be reported."""
        outputs = self.bundled.output_places
        probability = self.bundled.mechanism.weights[self.row(place, previous)] / 2.0**62
        distance = self._distance_m(np.array([place]), outputs)[0]
        order = np.argsort(distance, kind="stable")
        half = order[np.searchsorted(np.cumsum(probability[order]), 0.5)]
        return Outlook(
            outputs=outputs,
            probability=probability,
            error_m=float(probability @ distance),
            median_error_m=float(distance[half]),
            exact=float(probability[outputs == place].sum()),
        )

    def conclude(self, output: int, previous: int | None, prior: Floats) -> Conclusion:
        """Return what a recipient concludes from a report of a place.

        Parameters
        ----------
        output
            The place that was reported.
        previous
            The place before, which the recipient knows; None: there is no history.
        prior
            The probability of each place before the report, shape (n,); some of it where the report can come from.
        """
        joint = prior * self.likelihood(output, previous)
        after = joint / joint.sum()
        between = self._between_m
        expected = between @ after
        return Conclusion(
            places=self.places,
            before=prior,
            after=after,
            guess=int(self.places[expected.argmin()]),
            error_m=float(expected.min()),
            error_before_m=float((between @ prior).min()),
        )

    def recipient_error_m(self, previous: int | None, prior: Floats) -> float:
        """Return how far off the best guess of a recipient is after a report, on average, metres.

        On average over the prior, and over what is reported from each place.
        """
        joint = prior[:, None] * (self.bundled.mechanism.weights[self.rows_after(previous)] / 2.0**62)
        return float((self._between_m @ joint).min(axis=0).sum())

    def zone_error_m(self, prior: Floats) -> float:
        """Return how far off the best guess is for whoever learns the zone and no report, on average, metres."""
        return float((self._between_m @ prior).min())

    def error_of_m(self, guess: int, prior: Floats) -> float:
        """Return how far off a place is as a guess, on average over the prior, metres."""
        return float(self._distance_m(np.array([guess]), self.places)[0] @ prior)

    @cached_property
    def _between_m(self) -> Floats:
        return self._distance_m(self.places, self.places)

    def _distance_m(self, places: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Floats:
        (lat, lon), (other_lat, other_lon) = self._degrees[places].T, self._degrees[others].T
        return haversine_m(lat[:, None], lon[:, None], other_lat, other_lon)


class ExploredBundle:
    """A bundle with coordinates, by place and regime.

    Parameters
    ----------
    served
        The bundle.
    record
        Of its build, for losses; None: it is not there.
    """

    def __init__(self, served: ServedBundle, record: BuildRecord | None) -> None:
        self.bundle = bundle = served.bundle
        self.facts, self.guarantee, self.record = served.facts, served.guarantee, record
        self._views = {(bundled.zone, bundled.regime): ZoneView(bundled, bundle.places_e7) for bundled in bundle}

    @property
    def start(self) -> str | None:
        """The regime of reports without history; None: the bundle does not say."""
        return None if self.bundle.clock is None else self.bundle.clock.start

    @cached_property
    def zone(self) -> Indices:
        """The number of the zone of each place among `facts.zones`, −1 for none, shape (P,)."""
        result = np.full(len(self.bundle.places_e7), -1, np.int32)
        for (name, _), view in self._views.items():
            result[view.places] = self.facts.zones.index(name)
        return result

    def view(self, place: int, regime: str) -> ZoneView | None:
        """Return the mechanism of a place that is in a zone; None: it has none in that regime."""
        number = int(self.zone[place])
        return None if number < 0 else self._views.get((self.facts.zones[number], regime))

    def zone_record(self, view: ZoneView) -> ZoneRecord | None:
        """Return what the build says of a mechanism."""
        zones = () if self.record is None else self.record.zones
        asked = (view.bundled.zone, view.bundled.regime)
        return next((zone for zone in zones if (zone.zone, zone.regime) == asked), None)


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
