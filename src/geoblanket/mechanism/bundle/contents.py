"""The contents of a bundle: mechanisms by zone and regime, or one lattice for a whole city."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Indices, Ints
from geoblanket._display import between, card, counted, short_repr
from geoblanket._lazy import companion
from geoblanket._training import Training
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.domain import unpack
from geoblanket.mechanism.bundle.header import Clock, LatticeHeader, MechanismHeader, ZoneHeader
from geoblanket.mechanism.bundle.zones import ZoneFacts, snapping_radius_m, zone_facts, zone_in_words
from geoblanket.mechanism.certainty import LossCurve, rows_curve
from geoblanket.mechanism.costs import Costs, weight_in_micro
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.place_metric import unit_of
from geoblanket.mechanism.problem import NEVER_MM
from geoblanket.mechanism.promise import Promise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from geoblanket.roads.graph import RoadGraph

_LISTED: Final = 3
_NO_INDICES: Indices = np.empty(0, np.int32)


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
    history_weights_micro: tuple[int, ...]
    """What each earlier place of a history counts in distances, in millionths; `NEVER_MM` for a past that is known."""
    histories: Indices
    """The places at t, t − 1, ... of each history, indices into the bundle's places, −1 for any; shape (N, 1 + Γ)."""
    history_rows: Indices
    """The row that each history uses, shape (N,)."""
    output_places: Indices
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

    def for_release(self) -> BundledMechanism:
        """Return it without the distances that were verified: they take most of a bundle's memory."""
        mechanism = Mechanism.known(self.mechanism.weights, epsilon_micro=self.epsilon_micro, eta_mm=self.eta_mm)
        return replace(self, mechanism=mechanism)

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

    def header(self) -> MechanismHeader:
        """Return the header of this mechanism in the file."""
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
class _AnyBundle:
    """What both kinds of bundles have."""

    output_kind: ClassVar[Literal["place", "cell"]]
    """What a report names."""

    header: ZoneHeader | LatticeHeader
    sha256: str
    """Hash of the file."""
    signed: bool
    """Whether a signature was asked for, and is valid."""

    @property
    def version(self) -> int:
        """The publisher's own number, which only grows."""
        return self.header.version

    @property
    def domain(self) -> str:
        """Hash of the domain (hexadecimal)."""
        return self.header.domain

    @property
    def disclosed(self) -> str:
        """What a report tells besides its output, in words."""
        return self.header.disclosed

    @property
    def clock(self) -> Clock | None:
        """When which regime is used; None: whoever uses the bundle says which."""
        return self.header.clock

    @property
    def training(self) -> Training:
        """What the mechanisms were learned from, and what that promises the drivers, as the builder says."""
        return self.header.training

    def needed_clock(self) -> Clock:
        """Return the clock; raise MismatchError if there is none."""
        if self.clock is None:
            raise MismatchError("The bundle has no clock: it does not say which regime is used when. Build it again.")
        return self.clock

    @property
    def promise(self) -> Promise:
        """What is promised, disclosed and not promised, how it was verified, and what reports add up to."""
        raise NotImplementedError

    @property
    def _signed_in_words(self) -> str:
        return "signed" if self.signed else "not signed"

    def _card(self, rows: Sequence[tuple[str, str]], draw: Callable[[Axes], object] | None) -> str:
        own = [("version", f"{self.version:,}"), ("signed", "yes" if self.signed else "no")]
        return card(self, [*own, *rows], draw=draw, words=[self.promise.in_one_sentence])


@dataclass(frozen=True, eq=False, kw_only=True)
class LatticeBundle(_AnyBundle):
    """A verified mechanism for a whole city: a lattice. Read one with `load_bundle`, or make one with `make_lattice`.

    Examples
    --------
    >>> from geoblanket import make_lattice
    >>> bundle = make_lattice((45.0, -30.0, 3), "lattice.bundle", epsilon=8)
    >>> bundle.lattice.epsilon
    8.0
    """

    output_kind = "cell"

    header: LatticeHeader
    lattice: Lattice

    @property
    def output_count(self) -> int:
        """How many cells can be reported."""
        return self.lattice.cells

    def outputs_e7(self, outputs: Ints) -> Ints:
        """Return latitude and longitude of the centres of cells, 1e-7 degrees, shape (N, 2)."""
        return np.rint(np.column_stack(self.lattice.centers(outputs)) * 1e7).astype(np.int64)

    @property
    def holds(self) -> bool:
        """Whether a vehicle at rest repeats its last report."""
        return self.lattice.hold_mm > 0

    @property
    def costs(self) -> Costs:
        """What a report costs the location that it protects, in millionths per kilometre."""
        return Costs(start=self.lattice.spec.epsilon_micro, other=self.lattice.spec.epsilon_micro)

    @property
    def snapping_radius_m(self) -> float:
        """How far coordinates are rounded, metres."""
        return self.lattice.certificate.rounding_mm / 1000

    @property
    def mean_error_km(self) -> float:
        """How far reports lie from the truth on average, kilometres."""
        return self.lattice.mean_error_km

    def loss_curve(self, apart_m: float) -> LossCurve:
        """Return how well one report tells coordinates up to a distance apart, metres, from one another."""
        return self.lattice.loss_curve(apart_m)

    @cached_property
    def promise(self) -> Promise:
        """What is promised, disclosed and not promised, how it was verified, and what reports add up to."""
        return replace(self.lattice.promise, interval_s=self.needed_clock().interval_s)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw where reports from the middle of the frame go (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        """
        draw = companion("geoblanket.mechanism.bundle.picture", "LatticeBundle.plot").plot_lattice
        axes: Axes = draw(self.lattice, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        rows = zip(("lattice", "a report", "at rest", "promise"), self.lattice.facts(), strict=True)
        return self._card(list(rows), lambda ax: self.plot(ax=ax))

    def __repr__(self) -> str:
        return short_repr(self, *self.lattice.facts(), self._signed_in_words)


@dataclass(frozen=True, eq=False, kw_only=True)
class ZoneBundle(_AnyBundle):
    """Verified mechanisms, by zone and regime. Read them with `load_bundle`.

    Examples
    --------
    >>> from geoblanket import load_bundle
    >>> bundle = load_bundle("city.bundle")
    >>> sorted({mechanism.regime for mechanism in bundle.mechanisms})
    ['all day', 'start']
    >>> print(bundle.promise.disclosed)
    the zone, the regime, and when a report was made
    """

    output_kind = "place"
    holds: ClassVar = False
    mean_error_km: ClassVar = None

    header: ZoneHeader
    mechanisms: tuple[BundledMechanism, ...]
    """In order of zone and regime."""
    places_e7: Indices
    """Latitude and longitude of each place in 1e-7 degrees, shape (P, 2); empty without coordinates."""
    place_distances_mm: npt.NDArray[np.uint32] | None = None
    """Distances of places in another metric than on the map, those above the diagonal, row by row; None: on the map."""

    def __iter__(self) -> Iterator[BundledMechanism]:
        return iter(self.mechanisms)

    def __len__(self) -> int:
        return len(self.mechanisms)

    @property
    def unit(self) -> str:
        """What distances are counted in, by the bundle's metric: ε is per unit."""
        return unit_of(self.header.metric)

    @property
    def located(self) -> bool:
        """Whether the file has coordinates, from which the distances were computed again."""
        return len(self.places_e7) > 0

    @property
    def snapping_radius_mm(self) -> int:
        """How far a point of the roads can lie from its place, millimetres, as the builder says."""
        return self.header.snapping_radius_mm

    @property
    def output_count(self) -> int:
        """How many places there are."""
        return len(self.places_e7)

    def outputs_e7(self, outputs: Ints) -> Ints:
        """Return latitude and longitude of places, 1e-7 degrees, shape (N, 2)."""
        return self.places_e7[outputs].astype(np.int64)

    @property
    def costs(self) -> Costs:
        """What a report costs the location that it protects, in millionths per kilometre."""
        return Costs.of(self.header.mechanisms, "" if self.clock is None else self.clock.start)

    def loss_curve(self, apart_m: float) -> LossCurve:
        """Return how well one report tells two lives from one another that are in one zone at any time.

        The lives differ by at most a distance, metres, at any time: twice the snapping radius comes on top. So two
        histories differ by 1 + Σw times as much, and use rows that are at most as far apart. In another metric than
        that of the map, lives are at places, since nothing bounds what snapping adds. A past that is taken as known is
        not protected: then there is no bound.
        """
        if any(NEVER_MM in bundled.history_weights_micro for bundled in self):
            return LossCurve(math.inf, np.empty(0))
        snapping_m = self.snapping_radius_m if self.unit == "km" else None
        apart_mm = math.ceil(1000 * (apart_m + 2 * (snapping_m or 0)))
        weights = ((bundled.mechanism, 10**6 + sum(bundled.history_weights_micro)) for bundled in self)
        return rows_curve([(mechanism, -(-apart_mm * weight // 10**6)) for mechanism, weight in weights])

    @cached_property
    def promise(self) -> Promise:
        """What is promised, disclosed and not promised, how it was verified, and what reports add up to."""
        adds_up = (
            f"Reports add up: each costs a location up to {self.costs.largest_per_km:.9g} per {self.unit}, as present "
            "and as past. Nothing in the bundle limits how often a vehicle reports."
        )
        located = self._zones_in_words() if self.located else ["The file has no coordinates: no device accepts it."]
        epsilons = sorted({bundled.mechanism.epsilon for bundled in self})
        return Promise(
            epsilon=epsilons[-1],
            smallest_epsilon=epsilons[0] if len(epsilons) > 1 else None,
            between="history",
            eta_km=min(bundled.mechanism.eta_km for bundled in self),
            unit=self.unit,
            added_m=None if self.snapping_radius_m is None or self.unit != "km" else 2 * self.snapping_radius_m,
            costs=self.costs,
            interval_s=None if self.clock is None else self.clock.interval_s,
            disclosed=self.disclosed,
            terms=self._terms(),
            verified=self._verified(),
            not_promised=(*self._parts_in_words(), adds_up, *located, *self._beyond_in_words()),
            training=self.training,
            source=self,
        )

    def _terms(self) -> tuple[str, ...]:
        promises = sorted({(bundled.mechanism.epsilon, bundled.mechanism.eta_km) for bundled in self})
        stated = "; ".join(
            f"ε = {epsilon:.9g} per {self.unit} for " + ("any d" if eta == np.inf else f"d ≤ η = {eta:.9g} km")
            for epsilon, eta in promises[:_LISTED]
        )
        more = f"; and {len(promises) - _LISTED:,} more" if len(promises) > _LISTED else ""
        pasts = sorted({bundled.history_weights_micro for bundled in self})
        counted = "; ".join(", ".join(_weight_in_words(weight) for weight in past) for past in pasts[:_LISTED] if past)
        by_zone = "ε is that of the zone. " if len({epsilon for epsilon, _ in promises}) > 1 else ""
        past = (
            f"Earlier places count in d, the latest first, times {counted}." if counted else "No earlier place counts."
        )
        return (
            f"One report changes the odds between two histories of one zone and regime, d {self.unit} apart, by at "
            f"most a factor of e^(ε·d): {stated}{more}. {by_zone}".rstrip(),
            f"A history is the present place with the places before it. {past}",
            "This holds for histories that no data showed, and whatever the recipient knows besides. Predictions and "
            "priors decide how useful reports are, not how private.",
            self._snapping_in_words(),
        )

    def _verified(self) -> tuple[str, ...]:
        largest = max(bundled.mechanism.certificate.epsilon_effective for bundled in self)
        return (
            f"Verified exactly, in integers: {counted(len(self), 'mechanism')}, {self._total('rows'):,} rows, "
            f"{self._total('pairs'):,} pairs of rows, {self._total('checks'):,} inequalities. The largest ε found is "
            f"{largest:.6g} per {self.unit}.",
            f"Row distances were checked {'on the map' if self.unit == 'km' else 'by the table of distances'}, between "
            "all histories of the zone's present places with any past among the bundle's places, listed or not: none "
            "is larger."
            if self.located
            else "The file has no coordinates: its distances are taken as they are stated.",
        )

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
        return [f"In {counted(parted, 'mechanism')} no chain joins all rows: between the parts nothing is promised."]

    @cached_property
    def zone_facts(self) -> list[ZoneFacts]:
        """Size of each zone and what it discloses by itself, computed from the places; empty without coordinates."""
        table = None if self.place_distances_mm is None else unpack(self.place_distances_mm, len(self.places_e7))
        return zone_facts(self.mechanisms, self.places_e7, table) if self.located else []

    @cached_property
    def snapping_radius_m(self) -> float | None:
        """The largest distance from a coordinate among the places to the place it snaps to, metres.

        Computed from the places; None without coordinates.
        """
        return snapping_radius_m(self.mechanisms, self.places_e7) if self.located else None

    def _zones_in_words(self) -> list[str]:
        facts = self.zone_facts
        places = between(min(zone.places for zone in facts), max(zone.places for zone in facts))
        width = between(round(min(zone.extent_m for zone in facts)), round(max(zone.extent_m for zone in facts)))
        error = np.average([zone.error_m for zone in facts], weights=[zone.places for zone in facts])
        detour = (
            f"Two places of a zone are up to {max(zone.detour for zone in facts):.3g} times as far apart in "
            f"{self.unit} as on the map, and so much easier to tell apart. These distances are the builder's statement."
        )
        zones = (
            f"A zone has {places} places and is {width} m wide; knowing it alone, one is {error:,.0f} m off on average "
            "(all places of a zone equally probable). Across the border of two zones nothing is promised."
        )
        return [zones] if self.unit == "km" else [detour, zones]

    def _snapping_in_words(self) -> str:
        if self.unit != "km":
            return "The promise is between places: a coordinate counts as the place nearest to it on the map."
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
        """Draw the zones on a map, or where reports of one zone go (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        roads
            Drawn beneath the zones.
        zone, regime
            Draw the mechanism of this zone and regime: how often each place is reported. With one of them, the first
            that fits.
        """
        draw = companion("geoblanket.mechanism.bundle.picture", "ZoneBundle.plot").plot_zones
        axes: Axes = draw(self, ax=ax, roads=roads, zone=zone, regime=regime)
        return axes

    def _repr_html_(self) -> str:
        rows = [
            ("zones", f"{len({bundled.zone for bundled in self}):,}"),
            ("regimes", ", ".join(sorted({bundled.regime for bundled in self}))),
            ("places", f"{len(self.places_e7):,}" if self.located else "without coordinates"),
            ("a report costs a location at most", f"{self.costs.largest_per_km:g} per {self.unit}"),
        ]
        return self._card(rows, (lambda ax: self.plot(ax=ax)) if self.located else None)

    def __repr__(self) -> str:
        zones = {bundled.zone for bundled in self}
        regimes = {bundled.regime for bundled in self}
        epsilon = f"ε = {max(bundled.mechanism.epsilon for bundled in self):g} per km"
        places = counted(len(self.places_e7), "place") if self.located else "no coordinates"
        sizes = counted(len(zones), "zone"), counted(len(regimes), "regime"), places
        return short_repr(self, *sizes, epsilon, "verified exactly", self._signed_in_words)


Bundle = ZoneBundle | LatticeBundle
"""What `load_bundle` returns: mechanisms of zones, or the lattice of a whole city. `isinstance` tells them apart."""


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
