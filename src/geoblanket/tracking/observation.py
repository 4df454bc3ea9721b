"""Observation models: the likelihood of a report from each state of a motion model, by its mechanism.

A likelihood is known up to a factor for each report, which cancels when beliefs are normalised. Floating point is
enough here: no promise depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Ints
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle, ZoneBundle
from geoblanket.mechanism.lattice.kernel import MANTISSA_BITS, slope
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import SINK, SINK_BASE
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.rule import NearestPlace, Regimes, ReleaseRule
from geoblanket.tracking.motion_model import MotionModel, Singles, SparseRows


@dataclass(frozen=True, eq=False)
class Reports:
    """Some reports, in any order."""

    output: Ints
    """The cell or place that was reported, shape (B,)."""
    slot: Ints
    """Intervals of the bundle since 1970, shape (B,)."""
    follows: Ints
    """Number of consecutive slots with a report just before, shape (B,). The mechanism knew as many earlier places; 0
    means the mechanism for a start."""
    time_ms: Ints | None = None
    """When each was made, milliseconds since 1970 in UTC, shape (B,); its hour chooses the mechanism. None: at the
    start of its slot."""

    def chosen(self, some: Bools) -> Reports:
        """Return some of them."""
        time_ms = None if self.time_ms is None else self.time_ms[some]
        return Reports(self.output[some], self.slot[some], self.follows[some], time_ms)


class ObservationModel(Protocol):
    """The likelihood of a mechanism's reports."""

    @property
    def interval_s(self) -> float:
        """Length of a slot, seconds."""

    @property
    def outputs(self) -> int:
        """The number of outputs, which are numbered from 0."""

    def likelihood(self, reports: Reports) -> Singles:
        """Return the likelihood of each report from each state, up to a factor for each report, shape (N, B)."""


class LatticeObservations:
    """Reports of a lattice.

    Parameters
    ----------
    fences
        The fences of the vehicles that report: a place inside one looks like its centre.
    """

    def __init__(self, lattice: Lattice, model: MotionModel, *, interval_s: float, fences: Fences = NO_FENCES) -> None:
        spec = lattice.spec
        self.interval_s = interval_s
        self.outputs = lattice.cells
        self._present = model.present
        self._across, self._cell = spec.cells_across, spec.cell_units
        self._side = np.float32(spec.plane.side)
        self._rate = np.float32(slope(spec.rate))
        places_e7 = model.places_e7.astype(np.int64)
        fenced_e7 = np.column_stack(fences.apply_many_e7(*places_e7.T))
        # A place stands for all points near it, so its likelihood has no sharp peak. The centre of a fence has one.
        spread = 1000 * model.spreads_m / spec.plane.unit_mm
        self._spread = np.where((fenced_e7 == places_e7).all(axis=1), spread, 0.0).astype(np.float32)[:, None]
        x, y = spec.plane.units_e7(*fenced_e7.T)
        self._x, self._y = x.astype(np.float32), y.astype(np.float32)
        inside = spec.plane.holds_many(model.lat, model.lon)[: model.map_places]
        if 2 * np.count_nonzero(inside) < len(inside):
            raise MismatchError(
                f"The motion model is of another city: {np.count_nonzero(~inside):,} of its {len(inside):,} places lie "
                "outside the bundle's frame. Make one from the roads of the bundle's city."
            )
        self._height = _log_heights(lattice, x, y)
        # All cells beyond some distance have the same, smallest weight.
        self._least = np.float32(np.log(spec.floor))

    def likelihood(self, reports: Reports) -> Singles:
        """Return the likelihood of each report from each state, shape (N, B)."""
        output, n = reports.output, self._cell
        row, column = np.divmod(output, self._across)
        east = self._apart(self._x, column * n + n // 2)
        north = self._apart(self._y, row * n + n // 2)
        distance = np.sqrt(east**2 + north**2 + self._spread**2)
        logs = np.maximum(self._height[:, None] - self._rate * distance, self._least)
        if (output == SINK).any():
            # The sink also takes the probability that is missing to 1, the same from every place.
            logs[:, output == SINK] = np.logaddexp(logs[:, output == SINK], np.float32(np.log(SINK_BASE)))
        logs -= logs.max(axis=0)
        likelihood: Singles = np.exp(logs)[self._present]
        return likelihood

    def _apart(self, place: Singles, cell: Ints) -> Singles:
        """Return distances along one axis of the torus, in units, shape (P, B)."""
        apart = np.abs(place[:, None] - cell.astype(np.float32))
        result: Singles = np.minimum(apart, self._side - apart)
        return result


def _log_heights(lattice: Lattice, x: Ints, y: Ints) -> Singles:
    """Return, for each place, the logarithm of the weight of a cell at distance 0."""
    spec, n = lattice.spec, lattice.spec.cell_units
    east, north = np.abs(x % n - n // 2), np.abs(y % n - n // 2)
    larger, smaller = np.maximum(east, north), np.minimum(east, north)
    multiplier = spec.multipliers[larger * (larger + 1) // 2 + smaller].astype(np.float64)
    heights: Singles = (np.log(multiplier) + (MANTISSA_BITS - spec.shift) * np.log(2.0)).astype(np.float32)
    return heights


class ZoneObservations:
    """Reports of zone mechanisms, with or without context.

    A mechanism may look further back than a state. The missing places are then those of the most probable earlier
    states.
    """

    def __init__(self, bundle: ZoneBundle, model: MotionModel, fences: Fences = NO_FENCES) -> None:
        clock = bundle.needed_clock()
        self.interval_s = clock.interval_s
        self.outputs = len(bundle.places_e7)
        if not np.array_equal(bundle.places_e7, model.places_e7):
            raise MismatchError(
                "The bundle and the motion model are of different places. Make the model from the bundle's roads, "
                "with the spacing of its places."
            )
        self._rule = ReleaseRule(bundle)
        if self._rule.past and model.steps_in(clock.interval_s) != 1:
            raise MismatchError(
                f"The bundle's mechanisms look at places {clock.interval_s:g} s apart, and a step of the motion model "
                f"takes {model.interval_s:g} s. Learn a model with that interval."
            )
        self._regimes = Regimes(clock)
        self._interval_ms = clock.interval_ms
        self._histories = _fenced(_histories(model, self._rule.past), bundle, fences)
        self._tables: dict[tuple[str, int], SparseRows] = {}
        self._present, self._places = model.present, model.place_count

    def likelihood(self, reports: Reports) -> Singles:
        """Return the likelihood of each report from each state, shape (N, B)."""
        time_ms = reports.slot * self._interval_ms if reports.time_ms is None else reports.time_ms
        result = np.zeros((len(self._histories), len(time_ms)), np.float32)
        made = zip(time_ms.tolist(), reports.follows.tolist(), reports.output.tolist(), strict=True)
        for column, (time, follows, output) in enumerate(made):
            regime = self._regimes.at(time) if follows else self._regimes.start
            table = self._table(regime, min(int(follows), self._rule.past))
            entries = slice(table.indptr[output], table.indptr[output + 1])
            # Two outputs of a mechanism may be the same place, so their probabilities add up.
            np.add.at(result[:, column], table.indices[entries], table.data[entries])
        return result

    def _table(self, regime: str, known: int) -> SparseRows:
        """Return the probability of each place from each state, if the mechanism knew `known` earlier places.

        The shape is (P, N), because a report asks for the row of its place.
        """
        if (regime, known) not in self._tables:
            histories = self._histories[:, : 1 + known]
            states, outputs, values = [], [], []
            for some, places, chances in self._rule.distributions(histories, regime):
                states.append(np.repeat(some, len(places)))
                outputs.append(np.tile(places, len(some)))
                values.append(chances.astype(np.float32).ravel())
            self._tables[regime, known] = SparseRows.of_entries(
                np.concatenate(values),
                np.concatenate(outputs),
                np.concatenate(states),
                (self._places, len(self._histories)),
            )
        return self._tables[regime, known]


def _histories(model: MotionModel, past: int) -> npt.NDArray[np.int32]:
    """Return the history of each state with `past` earlier places, shape (N, 1 + past)."""
    histories = np.full((len(model), 1 + past), -1, np.int32)
    known = min(model.states.shape[1], 1 + past)
    histories[:, :known] = model.states[:, :known]
    if past == 0:
        return histories
    into = model.moves_into
    # The most probable state before each state, by its long-run probability times the probability of the move.
    flow = into.data * model.usual[into.indices]
    order = np.lexsort((flow, into.row_numbers))
    last = into.indptr[1:] - 1
    entered = np.diff(into.indptr) > 0
    before = np.arange(len(model))
    before[entered] = into.indices[order[last[entered]]]
    # A missing place is one place back in the earlier state, which may itself lack it until the next round.
    for _ in range(past):
        for lag in range(1, 1 + past):
            missing = histories[:, lag] < 0
            histories[missing, lag] = histories[before[missing], lag - 1]
    return histories


def _fenced(histories: npt.NDArray[np.int32], bundle: ZoneBundle, fences: Fences) -> npt.NDArray[np.int32]:
    """Return histories where the place nearest to a fence's centre replaces every place inside the fence."""
    if not fences:
        return histories
    places_e7 = bundle.places_e7.astype(np.int64)
    fenced = np.column_stack(fences.apply_many_e7(*places_e7.T))
    seen_as = np.arange(len(places_e7), dtype=np.int32)
    nearest = NearestPlace(bundle.places_e7)
    for place in np.flatnonzero((fenced != places_e7).any(axis=1)).tolist():
        seen_as[place] = nearest.of(*fenced[place].tolist())
    return np.where(histories < 0, histories, seen_as[histories])


class LaplaceObservations:
    """Reports with planar Laplace noise in floating point, at any point; output n is the n-th point given.

    Parameters
    ----------
    lat, lon
        The points that were reported, degrees.
    epsilon
        Per kilometre.
    """

    def __init__(
        self, lat: npt.ArrayLike, lon: npt.ArrayLike, model: MotionModel, *, epsilon: float, interval_s: float
    ) -> None:
        if not 0 < epsilon < np.inf:
            raise ParameterError(f"ε must be more than 0 per km. Got {epsilon} instead.")
        self.interval_s = interval_s
        self._points = model.to_plane(lat, lon).astype(np.float32)
        self.outputs = len(self._points)
        self._xy_m, self._present = model.xy_m.astype(np.float32), model.present
        self._rate, self._spread = np.float32(epsilon / 1000), model.spreads_m[:, None]

    def likelihood(self, reports: Reports) -> Singles:
        """Return the likelihood of each report from each state, shape (N, B)."""
        x, y = self._points[reports.output].T
        logs = np.sqrt((self._xy_m[:, 0, None] - x) ** 2 + (self._xy_m[:, 1, None] - y) ** 2 + self._spread**2)
        logs -= logs.min(axis=0)
        logs *= -self._rate
        likelihood: Singles = np.exp(logs)[self._present]
        return likelihood


def observations_of(
    bundle: Bundle, model: MotionModel, fences: Fences = NO_FENCES
) -> LatticeObservations | ZoneObservations:
    """Return the observation model of a bundle's reports, made by vehicles with these fences.

    Raises
    ------
    MismatchError
        If bundle and model have different places, or the interval is not a whole number of the model's steps.
    """
    if isinstance(bundle, LatticeBundle):
        interval_s = bundle.needed_clock().interval_s
        model.steps_in(interval_s)
        return LatticeObservations(bundle.lattice, model, interval_s=interval_s, fences=fences)
    observations = ZoneObservations(bundle, model, fences)
    model.steps_in(observations.interval_s)
    return observations
