"""How probable a report is from each state of a motion model: what a recipient knows of each mechanism.

A *sight* answers for many reports at once, each up to a factor, which beliefs lose when they are normalised. Floating
point is enough here: nothing is promised by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.lattice.drawing import SINK
from geoblanket.mechanism.lattice.kernel import MANTISSA_BITS, slope
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import SINK_BASE
from geoblanket.release.regimes import Regimes
from geoblanket.release.rule import ReleaseRule
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.sparse_rows import SparseRows

__all__ = ["LaplaceSight", "LatticeSight", "Reports", "ShiftedSight", "Sight", "ZoneSight", "sight_of"]

_MOST_MISSING_M: Final = 1.0
"""Places of a bundle and of a model that are nearer than this are the same."""


@dataclass(frozen=True, eq=False)
class Reports:
    """Some reports, in any order."""

    output: Ints
    """The cell or place that was reported, shape (B,)."""
    slot: Ints
    """Intervals of the bundle since 1970, shape (B,)."""
    follows: Ints
    """In how many slots in a row just before it the vehicle reported, shape (B,): so many earlier places its mechanism
    knew, and without any it was that of a start."""
    time_ms: Ints | None = None
    """When each was made, milliseconds since 1970 in UTC, shape (B,): the hour chooses the mechanism. None: at the
    start of its slot."""

    def chosen(self, some: Bools) -> Reports:
        """Return some of them."""
        time_ms = None if self.time_ms is None else self.time_ms[some]
        return Reports(self.output[some], self.slot[some], self.follows[some], time_ms)


class Sight(Protocol):
    """What a recipient knows of a mechanism."""

    @property
    def interval_s(self) -> float:
        """Seconds of a slot."""

    @property
    def outputs(self) -> int:
        """Outputs are numbered from 0 to below this."""

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, each up to a factor, shape (N, B)."""


@runtime_checkable
class ShiftedSight(Sight, Protocol):
    """What a recipient knows of a mechanism whose reports share a secret shift."""

    def of_shifts(self, output: Ints, shifts_m: Floats) -> Singles:
        """Return how probable reports are from each place and each shift, metres east and north, shape (P, S, B)."""


class LatticeSight:
    """Reports of a lattice, without its anchor; `of_shifts` is for an anchor's shifts."""

    def __init__(self, lattice: Lattice, model: MotionModel, *, interval_s: float) -> None:
        spec = lattice.spec
        self.interval_s = interval_s
        self.outputs = lattice.cells
        self._present = model.present
        self._across, self._cell = spec.cells_across, spec.cell_units
        self._side = float(spec.plane.side)
        self._rate = float(slope(spec.rate))
        self.unit_m = spec.plane.unit_mm / 1000
        # A place stands for all points near it: what is seen from it has no sharp peak.
        self._spread = np.float32(model.spread_m / self.unit_m)
        x, y = spec.plane.units(model.lat, model.lon)
        self._x, self._y = x.astype(np.float64), y.astype(np.float64)
        inside = spec.plane.holds_many(model.lat, model.lon)
        if 2 * np.count_nonzero(inside) < len(inside):
            raise MismatchError(
                f"The motion model is of another city: {np.count_nonzero(~inside):,} of its {len(inside):,} places lie "
                "outside the bundle's frame. Make one from the roads of the bundle's city."
            )
        self._height = _log_heights(lattice, x, y)
        # Where a cell is so far away that it has the least weight, the exact distance tells nothing any more.
        self._least = float(np.log(spec.floor))

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, shape (N, B)."""
        by_place = self.of_shifts(reports.output, np.zeros((1, 2)))[:, 0]
        likelihood: Singles = by_place[self._present]
        return likelihood

    def of_shifts(self, output: Ints, shifts_m: Floats) -> Singles:
        """Return how probable reports are from each place and each shift, metres east and north, shape (P, S, B)."""
        n = self._cell
        row, column = np.divmod(output, self._across)
        shifts = shifts_m / self.unit_m
        east = self._apart(self._x[:, None], shifts[:, 0], column * n + n // 2)
        north = self._apart(self._y[:, None], shifts[:, 1], row * n + n // 2)
        distance = np.sqrt(east**2 + north**2 + self._spread**2)
        logs = np.maximum(self._height[:, None, None] - np.float32(self._rate) * distance, np.float32(self._least))
        if (output == SINK).any():
            # What is missing to a whole goes there, from everywhere alike.
            logs[..., output == SINK] = np.logaddexp(logs[..., output == SINK], np.float32(np.log(SINK_BASE)))
        logs -= logs.max(axis=(0, 1))
        likelihood: Singles = np.exp(logs)
        return likelihood

    def _apart(self, place: Floats, shift: Floats, cell: Ints) -> Singles:
        """Return distances along one axis of the torus, in units, shape (P, S, B)."""
        # Once round the frame or more: a shift may be longer than it.
        point = np.mod(place + shift, self._side).astype(np.float32)
        apart = np.abs(point[:, :, None] - cell.astype(np.float32))
        result: Singles = np.minimum(apart, np.float32(self._side) - apart)
        return result


def _log_heights(lattice: Lattice, x: Ints, y: Ints) -> Singles:
    """Return the logarithm of the weight that a cell would have at no distance, for each place."""
    spec, n = lattice.spec, lattice.spec.cell_units
    east, north = np.abs(x % n - n // 2), np.abs(y % n - n // 2)
    larger, smaller = np.maximum(east, north), np.minimum(east, north)
    multiplier = spec.multipliers[larger * (larger + 1) // 2 + smaller].astype(np.float64)
    heights: Singles = (np.log(multiplier) + (MANTISSA_BITS - spec.shift) * np.log(2.0)).astype(np.float32)
    return heights


class ZoneSight:
    """Reports by the mechanisms of zones, with or without context.

    A mechanism may look further back than a state. The places that are missing are then those of the states that most
    probably came before.
    """

    def __init__(self, bundle: Bundle, model: MotionModel) -> None:
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
        self._histories = _histories(model, self._rule.past)
        self._tables: dict[tuple[str, int], SparseRows] = {}
        self._present, self._places = model.present, model.place_count

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, shape (N, B)."""
        time_ms = reports.slot * self._interval_ms if reports.time_ms is None else reports.time_ms
        result = np.zeros((len(self._histories), len(time_ms)), np.float32)
        made = zip(time_ms.tolist(), reports.follows.tolist(), reports.output.tolist(), strict=True)
        for column, (time, follows, output) in enumerate(made):
            regime = self._regimes.at(time) if follows else self._regimes.start
            table = self._table(regime, min(int(follows), self._rule.past))
            entries = slice(table.indptr[output], table.indptr[output + 1])
            # Two outputs of a mechanism may be the same place.
            np.add.at(result[:, column], table.indices[entries], table.data[entries])
        return result

    def _table(self, regime: str, known: int) -> SparseRows:
        """Return how probable each place is from each state, if the mechanism knew so many earlier places.

        Shape (P, N): a row for each place, which is what is asked for.
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
    """Return the history of each state with so many earlier places, shape (N, 1 + past)."""
    histories = np.full((len(model), 1 + past), -1, np.int32)
    known = min(model.states.shape[1], 1 + past)
    histories[:, :known] = model.states[:, :known]
    if past == 0:
        return histories
    into = model.moves_into
    # The state that most probably came before each one: how usual it is, times how probably it leads there.
    flow = into.data * model.usual[into.indices]
    order = np.lexsort((flow, into.row_numbers))
    last = into.indptr[1:] - 1
    entered = np.diff(into.indptr) > 0
    before = np.arange(len(model))
    before[entered] = into.indices[order[last[entered]]]
    for _ in range(past):
        for lag in range(1, 1 + past):
            missing = histories[:, lag] < 0
            histories[missing, lag] = histories[before[missing], lag - 1]
    return histories


class LaplaceSight:
    """Reports of planar Laplace noise in floating point, at any point; outputs are numbered as they are given.

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
        self._rate, self._spread = np.float32(epsilon / 1000), np.float32(model.spread_m)

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, shape (N, B)."""
        likelihood: Singles = self.of_shifts(reports.output, np.zeros((1, 2)))[:, 0][self._present]
        return likelihood

    def of_shifts(self, output: Ints, shifts_m: Floats) -> Singles:
        """Return how probable reports are from each place and each shift, metres east and north, shape (P, S, B)."""
        (x, y), shifts = self._points[output].T, shifts_m.astype(np.float32)
        east = (self._xy_m[:, 0, None] + shifts[:, 0])[:, :, None] - x
        north = (self._xy_m[:, 1, None] + shifts[:, 1])[:, :, None] - y
        logs = np.sqrt(east**2 + north**2 + self._spread**2)
        logs -= logs.min(axis=(0, 1))
        logs *= -self._rate
        likelihood: Singles = np.exp(logs)
        return likelihood


def sight_of(bundle: Bundle, model: MotionModel) -> LatticeSight | ZoneSight:
    """Return what a recipient knows of a bundle's mechanisms.

    Raises
    ------
    MismatchError
        If the bundle is of other places than the model, or its interval is no whole number of the model's steps.
    """
    if bundle.lattice is not None:
        interval_s = bundle.needed_clock().interval_s
        model.steps_in(interval_s)
        return LatticeSight(bundle.lattice, model, interval_s=interval_s)
    sight = ZoneSight(bundle, model)
    model.steps_in(sight.interval_s)
    return sight
