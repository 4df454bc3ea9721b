"""What the zones of reports give away, on the walks that a build was made from.

The zone of a report is that of the true place, so an attacker knows it for certain, and where a vehicle crosses a
border he knows both zones. He guesses the place from which the true one is least far on average, knowing how often
vehicles are where.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mobility.histories import HistoryCounts

__all__ = ["Disclosure", "zone_disclosure"]

Whole = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Disclosure:
    """How far off an attacker is on average, metres, in one zone and regime; None without steps of that kind."""

    zone_error_m: float | None
    """Who knows the zone alone."""
    report_error_m: float | None
    """Who knows the zone and the report."""
    crossing_share: float
    """Of the steps, the share whose place before was in another zone."""
    crossing_error_m: float | None
    """At these, who knows both zones alone."""
    crossing_report_error_m: float | None
    """At these, who knows both zones and the report."""


def zone_disclosure(mechanism: Mechanism, rows: ZoneRows, counts: HistoryCounts, zone_of: Indices) -> Disclosure:
    """Measure what the zone gives away.

    Parameters
    ----------
    mechanism, rows
        Of the zone and regime.
    counts
        Histories of training walks, of one regime; those elsewhere are left out.
    zone_of
        The number of the zone of each place, shape (P,).
    """
    lat, lon = rows.places_e7[rows.zone].T * 1e-7
    attacker = _Attacker(haversine_m(lat[:, None], lon[:, None], lat, lon), mechanism.probabilities)
    counts = counts.where(np.isin(counts.histories[:, 0], rows.zone))
    place = np.searchsorted(rows.zone, counts.histories[:, 0])
    row = rows.row_of(counts.histories) if len(counts.histories) else np.empty(0, np.int32)
    before = zone_of[counts.histories[:, 1]] if counts.histories.shape[1] > 1 else zone_of[counts.histories[:, 0]]
    crossing = before != zone_of[counts.histories[:, 0]]
    steps, crossings = float(counts.count.sum()), float(counts.count[crossing].sum())
    known = attacker.errors(place, row, counts.count) if steps else (None, None)
    at_border = np.zeros(2)
    for zone in np.unique(before[crossing]).tolist():
        entered = crossing & (before == zone)
        count = counts.count[entered]
        at_border += np.array(attacker.errors(place[entered], row[entered], count)) * count.sum()
    return Disclosure(
        zone_error_m=known[0],
        report_error_m=known[1],
        crossing_share=crossings / steps if steps else 0.0,
        crossing_error_m=float(at_border[0] / crossings) if crossings else None,
        crossing_report_error_m=float(at_border[1] / crossings) if crossings else None,
    )


class _Attacker:
    def __init__(self, between_m: Floats, probabilities: Floats) -> None:
        self._between_m, self._probabilities = between_m, probabilities

    def errors(self, place: Whole, row: Whole, count: Whole) -> tuple[float, float]:
        """Return the mean error without and with the report, where histories were seen so often."""
        joint = np.zeros((len(self._between_m), len(self._probabilities)))
        np.add.at(joint, (place, row), count / count.sum())
        alone = (joint.sum(axis=1) @ self._between_m).min()
        with_report = (self._between_m @ (joint @ self._probabilities)).min(axis=0).sum()
        return float(alone), float(with_report)
