"""The public rule of a bundle: which mechanism and which row a history uses.

The regime is public, and so is the zone. A present place that no zone of the regime has counts as the nearest one that
some zone has; earlier places are anywhere, and the table of the mechanism knows what they count as. Nothing here
depends on more than the history itself, so that the rule tells nothing that the report does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from geoblanket._geodesy import unit_vectors
from geoblanket.build.history_table import HistoryTable
from geoblanket.errors import MismatchError
from geoblanket.mechanism._bundle_domain import Indices
from geoblanket.mechanism.bundle import Bundle, BundledMechanism

__all__ = ["ReleaseRule"]


class ReleaseRule:
    """What a bundle does with histories.

    Parameters
    ----------
    bundle
        With coordinates and histories: without them its rows stand for nothing.
    """

    def __init__(self, bundle: Bundle) -> None:
        if not bundle.located:
            raise MismatchError("The bundle has no places, so it does not say which row a history uses.")
        self._bundle = bundle
        self._regimes: dict[str, _Regime] = {}

    @property
    def past(self) -> int:
        """Γ: how many earlier places the mechanisms look at, at most."""
        return max(len(one.history_weights_micro) for one in self._bundle)

    def draw(self, histories: Indices, regime: str) -> Indices:
        """Draw the place to report for each of many histories, exactly, by the operating system's randomness.

        Parameters
        ----------
        histories
            Places at t, t − 1, ..., shape (n, 1 + Γ); earlier ones that are not known are −1.
        regime
            The name of their regime.

        Raises
        ------
        MismatchError
            If the bundle has no mechanism for the regime.
        """
        return self._regime(regime).draw(histories)

    def outside(self, places: Indices, regime: str) -> npt.NDArray[np.bool_]:
        """Return which present places are in no zone of the regime, so that they count as another one."""
        result: npt.NDArray[np.bool_] = self._regime(regime).stand_in[places] != places
        return result

    def _regime(self, name: str) -> _Regime:
        if name not in self._regimes:
            mechanisms = tuple(one for one in self._bundle if one.regime == name)
            if not mechanisms:
                raise MismatchError(f"The bundle has no mechanism for the regime '{name}'.")
            self._regimes[name] = _Regime(mechanisms, self._bundle.places_e7)
        return self._regimes[name]


@dataclass(frozen=True, eq=False)
class _Regime:
    """The mechanisms of one regime, one for each zone."""

    mechanisms: tuple[BundledMechanism, ...]
    places_e7: Indices

    def draw(self, histories: Indices) -> Indices:
        histories = histories.copy()
        histories[:, 0] = self.stand_in[histories[:, 0]]
        # NumPy sorts 16 bits ten times as fast, by their digits.
        zone = self._zone[histories[:, 0]].astype(np.int16)
        order = np.argsort(zone, kind="stable")
        ends = np.searchsorted(zone[order], np.arange(len(self.mechanisms) + 1))
        result = np.empty(len(histories), np.int32)
        for number, (one, table) in enumerate(zip(self.mechanisms, self._tables, strict=True)):
            some = order[ends[number] : ends[number + 1]]
            result[some] = one.output_places[one.mechanism.sample_many(table.row_of(histories[some]))]
        return result

    @cached_property
    def stand_in(self) -> Indices:
        """The place that each one counts as, shape (P,): itself, or the nearest in a zone (of equals, the first)."""
        inside = np.flatnonzero(self._zone >= 0).astype(np.int32)
        points = unit_vectors(*(self.places_e7 * 1e-7).T)
        found = np.asarray(KDTree(points[inside]).query(points)[1])
        result: Indices = np.where(self._zone >= 0, np.arange(len(points)), inside[found]).astype(np.int32)
        return result

    @cached_property
    def _zone(self) -> Indices:
        """The number of the mechanism that has each place as a present one, −1 for none, shape (P,)."""
        result = np.full(len(self.places_e7), -1, np.int32)
        for number, one in enumerate(self.mechanisms):
            present = np.unique(one.histories[:, 0])
            if (taken := present[result[present] >= 0]).size:
                raise MismatchError(
                    f"The zones '{self.mechanisms[result[taken[0]]].zone}' and '{one.zone}' of the bundle share "
                    f"{taken.size} place(s) in the regime '{one.regime}', so that it does not say which to use."
                )
            result[present] = number
        return result

    @cached_property
    def _tables(self) -> list[HistoryTable]:
        return [HistoryTable(self.places_e7, one.histories, one.history_rows) for one in self.mechanisms]
