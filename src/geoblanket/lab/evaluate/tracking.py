"""Reports drawn along walks, and the filter that the service and an attacker run over them.

Reports are drawn with a seed. A recipient knows the mechanism, the rule from histories to rows, and the zone of each
report. That is an observation model for the filter of `geoblanket.tracking`: in each zone, the states of the motion
model use rows, and rows send reports.

The service and the attacker run the same filter over the same reports, with a motion model that was learned from other
vehicles. The service wants to know where a vehicle is when it uses the report; the attacker wants to know where it is,
or, in hindsight, where it was. Walks and the filter go from zone to zone: the zone of a report is part of
the observation.

Guesses are compared with the true places, so a wrong motion model counts. Steps of one vehicle are correlated, so
confidence intervals are over whole vehicles (`build.measures.measure`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.build.measures import VehicleLosses, by_vehicle
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mobility.histories import HistoryCounts, Steps
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import ObservationModel, Reports

_RowsOfStates = csr_array[Any, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ZoneReports:
    """Reports from the steps in one zone; made by `draw_reports`.

    Examples
    --------
    With the `drawn` in the example of `draw_reports`:

    >>> drawn.chances.shape[1] > int(drawn.sent.max())
    True
    """

    states: Ints
    """The states of the motion model whose present place is in the zone, shape (n,)."""
    rows: _RowsOfStates
    """How probably each of them uses each row of the mechanism, shape (n, S)."""
    chances: Singles
    """Probability from each row of each report that was sent, shape (S, U)."""
    sent: Ints
    """The report of each step in the zone, from 0 to U − 1."""

    def as_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the arrays by name, after a prefix, for a file of several."""
        arrays = {
            "states": self.states,
            "rows": self.rows.data,
            "columns": self.rows.indices.astype(np.int64),
            "offsets": self.rows.indptr.astype(np.int64),
            "chances": self.chances,
            "sent": self.sent,
        }
        return {f"{prefix}{name}": array for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Any, prefix: str) -> ZoneReports:
        """Return the reports that `as_arrays` stored."""
        states, values, columns, offsets, chances, sent = (
            arrays[f"{prefix}{name}"] for name in ("states", "rows", "columns", "offsets", "chances", "sent")
        )
        return cls(states, csr_array((values, columns, offsets), shape=(len(states), len(chances))), chances, sent)

    def __repr__(self) -> str:
        rows, kinds = self.chances.shape
        of_kinds = f"{counted(len(self.sent), 'report')} of {counted(kinds, 'kind')}"
        return short_repr(self, of_kinds, counted(rows, "row"), counted(len(self.states), "state"))


@checked
def draw_reports(
    probabilities: npt.ArrayLike,
    rows: ZoneRows,
    steps: Steps,
    motion: MotionModel,
    counts: HistoryCounts,
    *,
    seed: int | Sequence[int] = 0,
) -> ZoneReports:
    """Draw a report for each step in a zone.

    Parameters
    ----------
    probabilities
        Probability that each row sends each report, shape (S, any).
    rows
        The rows, and the rule from histories to them.
    steps
        Steps of held-out walks; those outside the zone are ignored.
    motion
        How vehicles move: its states are what a recipient thinks of.
    counts
        Histories of training walks. Where rows look further back than states, those seen in a state stand for it.
    seed
        The same seed and probabilities give the same reports.

    Raises
    ------
    MismatchError
        If the probabilities are not those of the rows.

    Examples
    --------
    With the `rows` and `counts` in the example of `make_rows`, and reports that are true:

    >>> from geoblanket.lab.evaluate import draw_reports
    >>> from geoblanket.mobility.histories import collect_steps
    >>> from geoblanket.tracking.motion_model import MotionModel
    >>> motion = MotionModel.by_distance(places.coordinates_e7, interval_s=30.0)
    >>> steps = collect_steps("walks.parquet", places, largest=1)
    >>> truth = (rows.histories[:, :1] == rows.zone).astype(float)
    >>> drawn = draw_reports(truth, rows, steps, motion, counts)
    >>> len(drawn.sent) == sum(place in rows.zone for place in steps.histories[:, 0])
    True
    """
    table = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or len(table) != len(rows):
        raise MismatchError(f"Probabilities of the shape {table.shape} do not belong to {len(rows)} rows.")
    here = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    used, sent = np.unique(_drawn(table, rows.row_of(here.histories), seed), return_inverse=True)
    states = np.flatnonzero(np.isin(motion.present, rows.zone)).astype(np.int64)
    return ZoneReports(
        states, _rows_of_states(states, rows, motion, counts), table[:, used].astype(np.float32), sent.astype(np.int64)
    )


def only_the_zone(members: Indices, steps: int, motion: MotionModel) -> ZoneReports:
    """Return reports that disclose only the zone."""
    states = np.flatnonzero(np.isin(motion.present, members)).astype(np.int64)
    alike = csr_array(np.ones((len(states), 1)))
    return ZoneReports(states, alike, np.ones((1, 1), np.float32), np.zeros(steps, np.int64))


class RowObservation:
    """How probable reports are from each state, in any of several zones.

    Parameters
    ----------
    zones
        Reports are numbered across all zones; those of a zone start at its number in `first`.

    Examples
    --------
    With the `motion` and `drawn` in the example of `draw_reports`:

    >>> from geoblanket.lab.evaluate import RowObservation
    >>> observation = RowObservation(motion, [drawn])
    >>> observation.outputs == drawn.chances.shape[1]
    True
    """

    @checked
    def __init__(self, motion: MotionModel, zones: Sequence[ZoneReports]) -> None:
        self.interval_s = motion.interval_s
        self._states, self._zones = len(motion), zones
        counts = [zone.chances.shape[1] for zone in zones]
        self.first: Ints = np.cumsum([0, *counts])[:-1].astype(np.int64)
        self.outputs = sum(counts)

    def likelihood(self, reports: Reports) -> Singles:
        """Return how probable each report is from each state, shape (N, B)."""
        result = np.zeros((self._states, len(reports.output)), np.float32)
        number = np.searchsorted(self.first, reports.output, side="right") - 1
        for zone, some in _by_value(number):
            known = self._zones[zone]
            chances = known.chances[:, reports.output[some] - self.first[zone]]
            result[np.ix_(known.states, some)] = known.rows @ chances
        return result

    def __repr__(self) -> str:
        zones, states = counted(len(self._zones), "zone"), counted(self._states, "state")
        return short_repr(self, zones, counted(self.outputs, "output"), states, f"every {self.interval_s:g} s")


def _drawn(probabilities: Floats, rows: npt.NDArray[np.integer], seed: int | Sequence[int]) -> Ints:
    """Draw a report for each row: the number of cumulated probabilities at most as large as a random number."""
    # Not exact, as releases are: this is an estimate, and the seed makes it the same every time.
    chance = np.random.default_rng(seed).random(len(rows))
    result = np.empty(len(rows), np.int64)
    for row, some in _by_value(rows):
        cumulated = np.cumsum(probabilities[row])
        result[some] = np.searchsorted(cumulated / cumulated[-1], chance[some], side="right")
    return result


def _by_value(values: npt.NDArray[np.integer]) -> Iterator[tuple[int, Ints]]:
    """Yield each value and the positions that have it."""
    order = np.argsort(values, kind="stable").astype(np.int64)
    for some in np.split(order, np.flatnonzero(np.diff(values[order])) + 1):
        if len(some):
            yield int(values[some[0]]), some


def _rows_of_states(states: Ints, rows: ZoneRows, motion: MotionModel, counts: HistoryCounts) -> _RowsOfStates:
    """Return how probably each state uses each row, shape (n, S).

    A state determines the row if the mechanism looks no further back. Otherwise rows are weighted by how often
    histories with that state were seen.
    """
    histories = motion.states[states]
    shape = len(states), len(rows)
    plain = csr_array((np.ones(len(states)), (np.arange(len(states)), rows.row_of(histories))), shape=shape)
    known = histories.shape[1]
    if rows.histories.shape[1] <= known or counts.largest < known:
        return plain
    seen = counts.where(np.isin(counts.histories[:, 0], rows.zone))
    places, of_place = np.unique(np.concatenate([histories, seen.histories[:, :known]]), axis=0, return_inverse=True)
    state_of = np.full(len(places), -1, np.int64)
    state_of[of_place.ravel()[: len(states)]] = np.arange(len(states))
    of_seen = state_of[of_place.ravel()[len(states) :]]
    has_state = of_seen >= 0
    counted = csr_array(
        (
            seen.count[has_state].astype(np.float64),
            (of_seen[has_state], rows.row_of(seen.histories[has_state])),
        ),
        shape=shape,
    )
    counted.sum_duplicates()
    total: Floats = np.asarray(counted.sum(axis=1)).ravel()
    scale = np.where(total > 0, 1 / np.maximum(total, 1), 0.0)
    return csr_array(counted.multiply(scale[:, None]) + plain.multiply((total == 0)[:, None]))


_UNKNOWN: Final = -1


@dataclass(frozen=True, eq=False)
class Tracked:
    """How well vehicles are tracked, summed over the steps of each. `build.measures.measure` computes means.

    Examples
    --------
    With the `motion`, `steps`, `rows` and `drawn` in the example of `draw_reports`:

    >>> import numpy as np
    >>> from geoblanket.build.measures import measure
    >>> from geoblanket.lab.evaluate import RowObservation, WalkTracker
    >>> tracker = WalkTracker(motion, steps.where(np.isin(steps.histories[:, 0], rows.zone)))
    >>> tracked = tracker.single(RowObservation(motion, [drawn]), drawn.sent)
    >>> measure(tracked.success).loss
    1.0
    """

    error_km: VehicleLosses
    """Distance of the best guess from the true place, kilometres."""
    success: VehicleLosses
    """How often the most probable place was the true one."""
    loss: VehicleLosses | None
    """Loss of the service by its best guess of where the vehicle is when the report is used."""

    def __repr__(self) -> str:
        steps = max(float(self.error_km.steps.sum()), 1.0)
        return short_repr(
            self,
            counted(len(self.error_km.vehicle), "vehicle"),
            counted(int(self.error_km.steps.sum()), "step"),
            f"{self.error_km.loss.sum() / steps:.4g} km off on average",
            f"right {self.success.loss.sum() / steps:.1%} of the time",
        )


@checked
@dataclass(frozen=True, eq=False)
class WalkTracker:
    """Tracks held-out vehicles over their walks.

    Parameters
    ----------
    motion
        How vehicles move, from training walks.
    steps
        Steps of held-out walks from `collect_steps`, without those that have no past: there all methods are the same.
    loss
        Loss for each true place (row) and guess (column), shape (P, P); None to measure only errors.
    delay
        Number of steps until the service uses a report.
    usual
        How probable each state is at any time, for single reports, shape (N,); None: as where nothing is known.
    judged
        Which steps are scored, shape (n,); None: all.

    Examples
    --------
    With the `motion`, `steps`, `rows` and `drawn` in the example of `draw_reports`:

    >>> from geoblanket.build.measures import measure
    >>> from geoblanket.lab.evaluate import RowObservation, WalkTracker
    >>> import numpy as np
    >>> here = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    >>> tracker = WalkTracker(motion, here)
    >>> round(measure(tracker.tracked(RowObservation(motion, [drawn]), drawn.sent).error_km).loss, 6)
    0.0
    """

    motion: MotionModel
    steps: Steps
    loss: Floats | None = None
    delay: int = 1
    usual: Singles | None = None
    judged: Bools | None = None

    @property
    def number_in_walk(self) -> Ints:
        """Position of each step in its walk, from 0, shape (n,)."""
        starts = find_runs(self.steps)
        return np.arange(len(self.steps)) - np.repeat(starts, np.diff(np.append(starts, len(self.steps))))

    def tracked(self, observation: ObservationModel, outputs: Ints) -> Tracked:
        """Guess each place from all reports up to its own.

        Parameters
        ----------
        observation
            What is known of the mechanism.
        outputs
            The report of each step, −1 for none, shape (n,).
        """
        guesses = _Guesses(self, BeliefFilter(self.motion, observation))
        follow(guesses.filter, Sequences(np.arange(len(outputs)), outputs, find_runs(self.steps)), guesses.take)
        return guesses.scored()

    def single(self, observation: ObservationModel, outputs: Ints) -> Tracked:
        """Guess the place of each report from it alone; steps without a report are left out."""
        sent, whose = np.unique(outputs, return_inverse=True)
        motion = self.motion if self.usual is None else replace(self.motion, start=self.usual)
        guesses = _Guesses(self, BeliefFilter(motion, observation), count=len(sent))
        # Equal reports get the same guess, so one is enough.
        follow(guesses.filter, Sequences(np.arange(len(sent)), sent, np.arange(len(sent))), guesses.take)
        return guesses.scored(whose, outputs != NO_REPORT)

    def in_hindsight(self, observation: ObservationModel, outputs: Ints, *, steps: int) -> Tracked:
        """Guess each place from all reports of its window: walks are cut into windows of this many steps."""
        if steps < 1:
            raise ParameterError(f"An attacker needs one step or more. Got {steps} instead.")
        guesses = _Guesses(self, BeliefFilter(self.motion, observation), with_loss=False)
        starts = find_windows(find_runs(self.steps), len(outputs), steps)
        smooth(guesses.filter, Sequences(np.arange(len(outputs)), outputs, starts), guesses.take)
        return guesses.scored()

    def __repr__(self) -> str:
        delay = f"reports are used {counted(self.delay, 'step')} later"
        return short_repr(self, counted(len(self.steps), "step"), counted(self.motion.place_count, "place"), delay)


class _Guesses:
    """The best guesses by beliefs, for the error, for success and for the service's loss."""

    def __init__(
        self, tracker: WalkTracker, beliefs: BeliefFilter, *, count: int | None = None, with_loss: bool = True
    ) -> None:
        self.filter, self._tracker = beliefs, tracker
        self._distance_km = place_distance_km(tracker.motion).astype(np.float32)
        self._loss = None if tracker.loss is None or not with_loss else tracker.loss.astype(np.float32)
        size = len(tracker.steps) if count is None else count
        self._nearest, self._likeliest, self._best = np.full((3, size), _UNKNOWN, np.int64)

    def take(self, positions: Positions, beliefs: Singles) -> None:
        """Note the guesses by some beliefs, shape (N, 1, B)."""
        places = self.filter.places(beliefs)
        self._nearest[positions] = (self._distance_km @ places).argmin(axis=0)
        self._likeliest[positions] = places.argmax(axis=0)
        if self._loss is not None:
            later = self.filter.places(self.filter.predicted(beliefs, self._tracker.delay))
            self._best[positions] = (self._loss.T @ later).argmin(axis=0)

    def scored(self, whose: Positions | None = None, reported: Bools | None = None) -> Tracked:
        """Score the guesses against the true places of the steps that reported."""
        steps = self._tracker.steps
        which = np.arange(len(steps)) if whose is None else whose.ravel()
        chosen = np.ones(len(steps), bool)
        for part in (self._tracker.judged, reported):
            chosen &= True if part is None else part
        steps, which = steps.where(chosen), which[chosen]
        place = steps.histories[:, 0]
        error, success = (
            by_vehicle(steps, values.astype(np.float64))
            for values in (self._distance_km[place, self._nearest[which]], self._likeliest[which] == place)
        )
        loss = None
        if self._loss is not None and self._tracker.loss is not None:
            loss = by_vehicle(steps, self._tracker.loss[steps.next_place, self._best[which]])
        return Tracked(error, success, loss)


def place_distance_km(motion: MotionModel) -> Floats:
    """Return the great-circle distances of a model's places, kilometres, shape (P, P)."""
    return haversine_m(motion.lat[:, None], motion.lon[:, None], motion.lat, motion.lon) / 1000


def find_runs(steps: Steps) -> Ints:
    """Return where walks begin among steps, ascending, shape (R,).

    Steps must be in the order of `collect_steps`; where some are left out, a new run begins. A step continues the run
    before it if its history does, and it is one step deeper into the same vehicle's walk. (With one earlier
    place only, and without the first steps of walks, trips of a vehicle that parks between them look like one.)
    """
    if steps.histories.shape[1] < 2:
        raise ParameterError("Runs are found by the places before: histories must have one or more earlier places.")
    past = steps.histories.shape[1] - 1
    goes_on = (
        (steps.histories[1:, 1:] == steps.histories[:-1, :-1]).all(axis=1)
        & (steps.vehicle[1:] == steps.vehicle[:-1])
        & (steps.depth[1:] == np.minimum(steps.depth[:-1] + 1, past))
    )
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(steps)), bool), ~goes_on])).astype(np.int64)


def find_windows(runs: Ints, steps: int, longest: int) -> Ints:
    """Return the first steps of windows: each run is cut from its beginning."""
    length = np.diff(np.append(runs, steps))
    count = -(-length // longest)
    run = np.repeat(np.arange(len(runs)), count)
    number = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    first: Ints = runs[run] + number * longest
    return first
