"""The contents of a bundle: mechanisms by zone and regime, with what their rows and outputs stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Indices, Ints
from geoblanket._display import between, card, counted, short_repr
from geoblanket._lazy import companion
from geoblanket._training import NOBODY
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.header import MechanismHeader, ReadBundle
from geoblanket.mechanism.bundle.zones import ZoneFacts, snapping_radius_m, zone_facts, zone_in_words
from geoblanket.mechanism.costs import Costs, weight_in_micro
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import NEVER_MM

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from geoblanket.roads.graph import RoadGraph

__all__ = ["Bundle", "BundledMechanism", "whole_numbers"]

_LISTED = 3
_NO_INDICES: Indices = np.empty(0, np.int32)
_NO_HISTORIES: Indices = np.empty((0, 1), np.int32)


@checked
@dataclass(frozen=True, eq=False)
class BundledMechanism:
    """A mechanism with its place in a bundle. Make one with `BundledMechanism.of`.

    Examples
    --------
    With the `result` in the example of `optimise`:

    >>> from geoblanket import BundledMechanism
    >>> day = BundledMechanism.of(result.mechanism, zone="centre", regime="day")
    >>> day.zone, day.epsilon_per_location
    ('centre', 1.0)
    """

    zone: str
    regime: str
    mechanism: Mechanism
    """Over the outputs that are used: its column c is output `outputs[c]`."""
    outputs: Indices
    """The number of each column's output, increasing, shape (C,)."""
    output_count: int
    """How many outputs the problem has, used or not."""
    history_weights_micro: tuple[int, ...] = ()
    """What each earlier place of a history counts in distances, in millionths; `NEVER_MM` for a past that is known."""
    histories: Indices = field(default_factory=lambda: _NO_HISTORIES)
    """The places at t, t − 1, ... of each history, indices into the bundle's places, −1 for any; shape (N, 1 + Γ)."""
    history_rows: Indices = field(default_factory=lambda: _NO_INDICES)
    """The row that each history uses, shape (N,)."""
    output_places: Indices = field(default_factory=lambda: _NO_INDICES)
    """The place of each column's output, shape (C,); empty without coordinates."""

    @classmethod
    @checked
    def of(
        cls,
        mechanism: Mechanism,
        *,
        zone: str,
        regime: str,
        history_weights: Sequence[float] = (),
        histories: npt.ArrayLike | None = None,
        history_rows: npt.ArrayLike | None = None,
        output_places: npt.ArrayLike | None = None,
    ) -> BundledMechanism:
        """Prepare a mechanism for a bundle; columns that no row uses are left out.

        Parameters
        ----------
        zone, regime
            The names by which a device asks for it.
        history_weights
            What each earlier place of a history counts in distances; `inf` for a past that is known.
        histories
            The places at t, t − 1, ... of each history, indices into the bundle's places, −1 for any; shape
            (N, 1 + Γ), or (N,) without a past.
        history_rows
            The row that each history uses, shape (N,); by default history n uses row n.
        output_places
            The place of each output of the mechanism, used or not, shape (K,).
        """
        if (histories is None) != (output_places is None):
            raise ParameterError("Give both histories and output_places, or neither.")
        used = np.flatnonzero(mechanism.weights.any(axis=0))
        compact = Mechanism.from_weights(mechanism.weights[:, used], mechanism)
        places = _table(histories, columns=1 + len(history_weights))
        rows = range(len(places)) if history_rows is None else history_rows
        of_outputs = _NO_INDICES if output_places is None else whole_numbers(output_places)
        if len(of_outputs) not in {0, mechanism.output_count}:
            raise ParameterError(
                f"output_places must have {mechanism.output_count} values, one for each output. Got {len(of_outputs)}."
            )
        return cls(
            zone=zone,
            regime=regime,
            mechanism=compact,
            outputs=used.astype(np.int32),
            output_count=mechanism.output_count,
            history_weights_micro=tuple(map(weight_in_micro, history_weights)),
            histories=places,
            history_rows=whole_numbers(rows),
            output_places=of_outputs[used] if len(of_outputs) else _NO_INDICES,
        )

    @property
    def weights(self) -> Ints:
        """The weights over all outputs, used or not, shape (S, K)."""
        weights = np.zeros((self.mechanism.row_count, self.output_count), np.int64)
        weights[:, self.outputs] = self.mechanism.weights
        return weights

    @property
    def epsilon_micro(self) -> int:
        """ε in millionths per kilometre."""
        return self.mechanism.epsilon_micro

    @property
    def eta_mm(self) -> int:
        """η in millimetres."""
        return self.mechanism.eta_mm

    @property
    def epsilon_per_location(self) -> float:
        """What a report with history by this mechanism alone costs a location, ε·(1 + Σw) per km; see `Costs`."""
        return Costs.of([self], "").other / 10**6

    def sample(self, row: int) -> int:
        """Draw an output, by its number among all outputs, exactly and with the operating system's randomness."""
        return int(self.outputs[self.mechanism.sample(row)])

    def sample_many(self, rows: npt.ArrayLike) -> Indices:
        """Draw an output for each of many rows, shape (N,), in the same way."""
        return self.outputs[self.mechanism.sample_many(rows)]

    def header(self) -> MechanismHeader:
        """Return what the file's header says of it."""
        return MechanismHeader(
            zone=self.zone,
            regime=self.regime,
            rows=self.mechanism.row_count,
            outputs=self.output_count,
            columns=len(self.outputs),
            epsilon_micro=self.mechanism.epsilon_micro,
            eta_mm=self.mechanism.eta_mm,
            history_weights_micro=self.history_weights_micro,
            histories=len(self.histories),
        )

    def __repr__(self) -> str:
        named = f"zone {self.zone}", f"regime {self.regime}"
        sizes = counted(self.mechanism.row_count, "row"), counted(len(self.outputs), "output")
        return short_repr(self, *named, *sizes, f"ε = {self.mechanism.epsilon:g} per km", "verified exactly")


@dataclass(frozen=True, eq=False, kw_only=True)
class Bundle(ReadBundle):
    """Verified mechanisms, by zone and regime. Read one with `load_bundle`.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> bundle = load_bundle("city.bundle")
    >>> sorted({mechanism.regime for mechanism in bundle.mechanisms})
    ['all day', 'start']
    >>> print(bundle.guarantee)
    Disclosed by every report: the zone, the regime, ...
    """

    mechanisms: tuple[BundledMechanism, ...]
    """In order of zone and regime; none beside a lattice."""
    lattice: Lattice | None = None
    """The lattice of a whole city, if the bundle has one instead of zones."""

    def __iter__(self) -> Iterator[BundledMechanism]:
        return iter(self.mechanisms)

    def __len__(self) -> int:
        return len(self.mechanisms)

    @property
    def guarantee(self) -> str:
        """What is promised, how it was verified, and what is not covered, in words."""
        if self.lattice is not None:
            return (
                f"Disclosed by every report: {self.disclosed}. No zone is.\n{self.lattice.guarantee}\n"
                f"{self.in_one_sentence}"
            )
        certificates = [bundled.mechanism.certificate for bundled in self]
        promises = sorted({(bundled.mechanism.epsilon, bundled.mechanism.eta_km) for bundled in self})
        stated = "; ".join(
            f"ε = {epsilon:.9g} per km for " + ("any d" if eta == np.inf else f"d ≤ η = {eta:.9g} km")
            for epsilon, eta in promises[:_LISTED]
        )
        more = f"; and {len(promises) - _LISTED:,} more" if len(promises) > _LISTED else ""
        lines = [
            f"Disclosed by every report: {self.disclosed}. {self._zones_in_words()}",
            "Within a zone and regime, whatever is reported is at most e^(ε·d) times as probable from one history as "
            f"from another at distance d km: {stated}{more}.",
            f"Verified exactly, in integers: {len(self):,} mechanism(s), {self._total('rows'):,} rows, "
            f"{self._total('pairs'):,} pairs of rows, {self._total('checks'):,} inequalities. The largest ε found is "
            f"{max(certificate.epsilon_effective for certificate in certificates):.6g} per km.",
        ]
        if pasts := sorted({bundled.history_weights_micro for bundled in self if bundled.history_weights_micro}):
            counted = "; ".join(", ".join(_weight_in_words(weight) for weight in past) for past in pasts[:_LISTED])
            lines.append(f"Earlier places count in d, the latest first, times {counted}.")
        lines += [*self._beyond_in_words(), *self._parts_in_words()]
        lines.append(
            "Row distances were checked on the map, between all histories of the zone's present places with any past "
            "among the bundle's places, listed or not: none is larger."
            if self.located
            else "The file has no coordinates: its distances are taken as they are stated."
        )
        lines.append(self._snapping_in_words())
        lines.append(self._costs_in_words())
        if (promise := self.training.promise) is not None:
            lines.append(
                f"The ε of learning was computed again from the noise that the file names (ρ = {promise.rho:.4g} for "
                f"each {promise.unit}). That this noise was added, only who learned can know."
            )
        lines.append(self.in_one_sentence)
        return "\n".join(lines)

    @property
    def caveats(self) -> list[str]:
        """What the promise does not cover, in sentences, the gravest first."""
        learned = [] if (caveat := self.training.caveat()) is None else [caveat]
        if self.lattice is not None:
            return [self.lattice.not_covered, *learned]
        if not self.located:
            learned.insert(0, "The file has no coordinates: no device accepts it.")
        where = [self._zones_in_words(), self._snapping_in_words()] if self.located else []
        return [*self._parts_in_words(), *learned, self._costs_in_words(), *where, *self._beyond_in_words()]

    def _total(self, count: str) -> int:
        return sum(getattr(bundled.mechanism.certificate, count) for bundled in self)

    def _beyond_in_words(self) -> list[str]:
        if not (beyond := self._total("pairs_beyond")):
            return []
        return [
            f"Only for d ≤ η: {beyond:,} pairs of rows are further apart. Along a chain of pairs within η the bounds "
            "multiply."
        ]

    def _parts_in_words(self) -> list[str]:
        if not (parted := sum(not bundled.mechanism.certificate.connected for bundled in self)):
            return []
        return [f"In {parted:,} mechanism(s) no chain joins all rows: between the parts nothing is promised."]

    def _costs_in_words(self) -> str:
        return (
            f"Reports add up: each costs a location up to {self.costs.largest_per_km:.9g} per km, as present and as "
            "past."
        )

    @property
    def in_one_sentence(self) -> str:
        """What is promised to those who report, and to those who were learned from."""
        learned = (
            "nothing was learned from anyone"
            if self.training == NOBODY
            else f"the mechanisms were {self.training.in_words()}"
        )
        return f"In one sentence: {self._reporting()}; disclosed: {self.disclosed}; {learned}."

    def _reporting(self) -> str:
        """Return what is promised to those who report, as part of a sentence."""
        if self.lattice is None:
            epsilon = max(bundled.mechanism.epsilon for bundled in self)
            eta_km = min(bundled.mechanism.eta_km for bundled in self)
            within = "" if eta_km == np.inf else f" ≤ {eta_km:.9g}"
            return (
                f"each report is at most e^({epsilon:.9g}·d) times as probable from one history as from any other of "
                f"the same zone and regime, d{within} km apart"
            )
        add_m = 2 * self.lattice.certificate.rounding_mm / 1000
        stays = "; a stay costs one report" if self.lattice.hold_mm else ""
        return (
            f"each report is at most e^({self.lattice.epsilon:.9g}·d) times as probable from one coordinate as from "
            f"any other, d km apart with {add_m:.3g} m added for rounding{stays}"
        )

    @cached_property
    def zone_facts(self) -> list[ZoneFacts]:
        """Size of each zone and what it discloses by itself, computed from the places; empty without coordinates."""
        return zone_facts(self.mechanisms, self.places_e7) if self.located else []

    @cached_property
    def snapping_radius_m(self) -> float | None:
        """The largest distance from a coordinate among the places to the place it snaps to, metres.

        Computed from the places; None without coordinates. On a lattice, how far coordinates are rounded.
        """
        if self.lattice is not None:
            return self.lattice.certificate.rounding_mm / 1000
        return snapping_radius_m(self.mechanisms, self.places_e7) if self.located else None

    def _zones_in_words(self) -> str:
        if not self.located:
            return "The file does not tell where its zones are."
        facts = self.zone_facts
        places = between(min(zone.places for zone in facts), max(zone.places for zone in facts))
        width = between(round(min(zone.extent_m for zone in facts)), round(max(zone.extent_m for zone in facts)))
        error = np.average([zone.error_m for zone in facts], weights=[zone.places for zone in facts])
        return (
            f"A zone has {places} places and is {width} m wide; knowing it alone, one is {error:,.0f} m off on average "
            "(all places of a zone equally probable). Across the border of two zones nothing is promised."
        )

    def _snapping_in_words(self) -> str:
        if self.snapping_radius_m is None:
            return "How far raw coordinates lie from their places is not known."
        return (
            "The promise is between places. Between raw coordinates amid them, add "
            f"{2 * self.snapping_radius_m:,.0f} m to d: twice the largest distance from a place, computed from the "
            f"places themselves (on the roads, says the builder, {self.snapping_radius_mm / 1000:,.0f} m at most)."
        )

    def get(self, zone: str, regime: str) -> BundledMechanism:
        """Return the mechanism of a zone and regime."""
        for mechanism in self.mechanisms:
            if (mechanism.zone, mechanism.regime) == (zone, regime):
                return mechanism
        raise MismatchError(f"The bundle has no mechanism for {zone_in_words(zone)}, regime '{regime}'.")

    def plot(
        self,
        *,
        ax: Axes | None = None,
        roads: RoadGraph | None = None,
        zone: str | None = None,
        regime: str | None = None,
    ) -> Axes:
        """Draw the zones on a map, or where reports of one zone go; of a lattice, where a report goes (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        roads
            Drawn beneath the zones.
        zone, regime
            Draw the mechanism of this zone and regime: how often each place is reported. With one of them, the first
            that fits; without coordinates, its table of probabilities.
        """
        draw = companion("geoblanket.mechanism.bundle.picture", "Bundle.plot").plot_bundle
        axes: Axes = draw(self, ax=ax, roads=roads, zone=zone, regime=regime)
        return axes

    def _repr_html_(self) -> str:
        rows = [("version", f"{self.version:,}"), ("signed", "yes" if self.signed else "no")]
        if self.lattice is None:
            rows += [
                ("zones", f"{len({bundled.zone for bundled in self}):,}"),
                ("regimes", ", ".join(sorted({bundled.regime for bundled in self}))),
                ("places", f"{len(self.places_e7):,}" if self.located else "without coordinates"),
                ("a report costs a location at most", f"{self.costs.largest_per_km:g} per km"),
            ]
        else:
            cells, epsilon, hold, verified = self.lattice.facts()
            rows += [("lattice", cells), ("a report", epsilon)]
            rows += [("at rest", hold), ("promise", verified)]
        return card(self, rows, draw=lambda ax: self.plot(ax=ax), words=[self.in_one_sentence])

    def __repr__(self) -> str:
        signed = "signed" if self.signed else "not signed"
        if self.lattice is not None:
            return short_repr(self, *self.lattice.facts(), signed)
        zones = {bundled.zone for bundled in self}
        regimes = {bundled.regime for bundled in self}
        epsilon = f"ε = {max(bundled.mechanism.epsilon for bundled in self):g} per km"
        places = counted(len(self.places_e7), "place") if self.located else "no coordinates"
        sizes = counted(len(zones), "zone"), counted(len(regimes), "regime"), places
        return short_repr(self, *sizes, epsilon, "verified exactly", signed)


def _weight_in_words(micro: int) -> str:
    return "∞ (the past is taken as known)" if micro == NEVER_MM else f"{micro / 10**6:g}"


def whole_numbers(values: npt.ArrayLike) -> Indices:
    """Return places or rows as they are stored; raise unless they are whole numbers of 32 bits."""
    array = np.asarray(values)
    stored = array.astype(np.int32) if array.size == 0 or np.issubdtype(array.dtype, np.integer) else None
    if stored is None or not np.array_equal(stored, array):
        raise ParameterError("Places and rows of a bundle must be whole numbers of 32 bits.")
    return stored


def _table(histories: npt.ArrayLike | None, *, columns: int) -> Indices:
    if histories is None:
        return np.empty((0, columns), np.int32)
    places = whole_numbers(histories)
    if places.ndim == 1:
        places = places[:, None]
    if places.ndim != 2 or places.shape[1] != columns:
        raise ParameterError(f"histories must have {columns} column(s), one more than there are history_weights.")
    return places
