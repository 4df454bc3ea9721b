"""How private a mechanism is: what it spends, what reports leak, and what attackers make of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows
from geoblanket.evaluate.city_data import ZoneData
from geoblanket.evaluate.measures.attacker import Cases, attack_report, zone_distance_km
from geoblanket.evaluate.measures.catalogue import CONTEXT_INFERENCE, INFERENCE, AttackMeasures, Measure
from geoblanket.evaluate.measures.composition import compose
from geoblanket.evaluate.measures.epsilon_effective import effective_epsilon
from geoblanket.evaluate.measures.leakage import posterior_leakage, same_past
from geoblanket.evaluate.measures.values import Value, by_reports
from geoblanket.mechanism.mechanism import Mechanism

__all__ = ["PrivacyMeter"]

_PER_KM = "per km"


@dataclass(frozen=True, eq=False)
class PrivacyMeter:
    """Measures the privacy of mechanisms of one zone."""

    data: ZoneData

    def values(self, mechanism: Mechanism, rows: ZoneRows, *, reports: Sequence[int]) -> Iterator[Value]:
        """Yield what is spent, what leaks, and what attackers make of one report.

        The context-free attacker knows how probable each place is; the other one knows where the vehicle was one step
        before, too.

        Parameters
        ----------
        reports
            How many reports in a row the composed cost is for, the usual number first.
        """
        yield Value(Measure.EPSILON_EFFECTIVE, effective_epsilon(mechanism).epsilon, _PER_KM)
        for count, part in by_reports(reports):
            cost = compose(mechanism.epsilon, rows.history_weights, reports=count)
            yield Value(Measure.COMPOSED_EPSILON, cost.per_trajectory, _PER_KM, part=part)
        leakage = posterior_leakage(
            mechanism.probabilities,
            rows.prior,
            rows.distance_km,
            eta_km=mechanism.eta_km,
            pairs=same_past(rows.histories),
        )
        yield Value(Measure.LEAKAGE_MAX, leakage.maximum, _PER_KM)
        yield Value(Measure.LEAKAGE_EXPECTED, leakage.expected, _PER_KM)
        yield from self._attack(INFERENCE, mechanism.probabilities, rows, known_past=0)
        yield from self._attack(CONTEXT_INFERENCE, mechanism.probabilities, rows, known_past=1)

    def of_one_report(self, reports: Floats, rows: ZoneRows, *, epsilon_effective: float) -> Iterator[Value]:
        """Yield what one report spends, and what the context-free attacker makes of it.

        Parameters
        ----------
        reports
            How probably each row sends each report, whatever a receiver makes of it, shape (S, any).
        epsilon_effective
            What they spend, per kilometre.
        """
        yield Value(Measure.EPSILON_EFFECTIVE, epsilon_effective, _PER_KM)
        yield from self._attack(INFERENCE, reports, rows, known_past=0)

    def crossing(self) -> Iterator[Value]:
        """Yield what zones give away by themselves where a vehicle comes into this one from another.

        The attacker sees no report, only which zone the vehicle was in one step before, and that it is in this one now.
        """
        before = self.data.zone_of[self.data.counts.histories[:, 1]]
        came = (self.data.counts.depth > 0) & (before != self.data.number)
        counts = self.data.counts.where(came)
        total = int(self.data.counts.count.sum())
        if total:
            yield Value(Measure.CROSSING_SHARE, int(counts.count.sum()) / total, "")
        if not len(counts):
            return
        lat, lon = self.data.places.lat, self.data.places.lon
        error = 0.0
        for zone in np.unique(before[came]):
            seen = before[came] == zone
            place, weight = counts.histories[seen, 0], counts.count[seen]
            here = self.data.members[:, None]
            apart = haversine_m(lat[here], lon[here], lat[place], lon[place]) / 1000
            error += float((apart @ weight).min())
        yield Value(Measure.CROSSING_ERROR, error / int(counts.count.sum()), "km")

    def _attack(self, attack: AttackMeasures, reports: Floats, rows: ZoneRows, *, known_past: int) -> Iterator[Value]:
        cases = Cases.of_counts(rows, self.data.counts, known_past=known_past)
        inference = attack_report(reports, cases, zone_distance_km(rows))
        yield Value(attack.error, inference.error_km, "km")
        yield Value(attack.success, inference.success, "")
        yield Value(attack.blind_error, inference.prior_error_km, "km")
        if attack is INFERENCE:
            yield Value(Measure.INFERENCE_ERROR_LIKELIEST, inference.likeliest_error_km, "km")
        yield Value(attack.blind_success, inference.prior_success, "")
