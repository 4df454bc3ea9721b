"""Compare methods in one zone and setting: shared problems, mechanisms, and every measure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from geoblanket._arrays import Indices, Ints
from geoblanket._workers import leave_ctrl_c_to
from geoblanket.build.measures import VehicleLosses
from geoblanket.build.row_tree import Lengths, Reach
from geoblanket.build.rows import Aim, ZoneRows, make_problem, make_rows
from geoblanket.lab.evaluate.city_data import ZoneData
from geoblanket.lab.evaluate.experiment import Blanket, Experiment, Setting
from geoblanket.lab.evaluate.leakage import effective_epsilon
from geoblanket.lab.evaluate.measures import HeldOut, Measure, Value
from geoblanket.lab.evaluate.methods import METHODS, Made, Method, RowsKind, Task, make
from geoblanket.lab.evaluate.tracking import ZoneReports, draw_reports
from geoblanket.lab.evaluate.zone_measures import (
    PrivacyMeter,
    bundle_bytes,
    held_out_losses,
    memory_since_reset_mb,
    release_us,
    reset_peak_memory,
)
from geoblanket.loss.place_loss import KnownLoss
from geoblanket.mechanism.costs import times_counted
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mobility.histories import LONGEST_PAST


@dataclass(eq=False)
class ZoneProblems:
    """The problems of one zone, with one loss."""

    data: ZoneData
    _rows: dict[tuple[object, ...], ZoneRows] = field(default_factory=dict)
    _problems: dict[int, Problem] = field(default_factory=dict)
    optimal: dict[tuple[float, ...], tuple[Made, float]] = field(default_factory=dict)
    """Solved linear programs, each with its peak memory in MB: tasks of a zone may share rows and ε."""

    @cached_property
    def loss(self) -> KnownLoss:
        """Loss for all places where vehicles of the zone may be when reports are used."""
        data = self.data
        reach = Reach(data.places.coordinates_e7, data.reach_m)
        within = [reach.of(place) for place in data.members.tolist()]
        later = np.concatenate([*within, data.counts.next_place, data.steps.next_place])
        return KnownLoss.of(data.loss, later, data.members)

    def has(self, kind: RowsKind) -> bool:
        """Whether the lengths of blankets that these rows need are known."""
        needed = {"predicted": self.data.predicted, "found": self.data.found}
        return needed.get(kind, True) is not None

    def rows(self, kind: RowsKind, setting: Setting) -> ZoneRows:
        """Return the rows of a zone; those with equal lengths of blankets are the same ones."""
        key = ("none",) if kind == "none" else (kind, *_row_options(setting))
        if key not in self._rows:
            self._rows[key] = self._known(self._make_rows(kind, setting))
        return self._rows[key]

    def problem(self, rows: ZoneRows, *, epsilon: float, eta_km: float) -> Problem:
        """Return the problem of rows with this ε and η."""
        if id(rows) not in self._problems:
            self._problems[id(rows)] = make_problem(rows, self.loss, epsilon=epsilon, eta_km=eta_km)
        known = self._problems[id(rows)]
        return Problem.in_millimetres(
            loss=known.loss, prior=known.prior, distance_mm=known.distance_mm, epsilon=epsilon, eta_km=eta_km
        )

    def _known(self, rows: ZoneRows) -> ZoneRows:
        """Return rows that were made before, if they are the same."""
        for known in self._rows.values():
            if known.history_weights == rows.history_weights and np.array_equal(known.histories, rows.histories):
                return known
        return rows

    def _make_rows(self, kind: RowsKind, setting: Setting) -> ZoneRows:
        data = self.data
        lengths = {"predicted": data.predicted, "found": data.found}.get(kind)
        if lengths is not None and setting.blanket != "as told":
            lengths = _WrongLengths(lengths, setting.blanket)
        return make_rows(
            data.places,
            data.members,
            data.counts,
            reach_m=data.reach_m,
            context=lengths or kind,
            history_weights=setting.history_weights,
            max_rows=setting.max_rows,
            aim=Aim(self.loss, setting.epsilon, setting.protected_km),
        )


def _row_options(setting: Setting) -> tuple[object, ...]:
    """Return what rows with a past depend on."""
    return setting.history_weights, setting.max_rows, setting.blanket, setting.epsilon, setting.protected_km


@dataclass(frozen=True, eq=False)
class _WrongLengths:
    """Lengths of blankets that are made wrong on purpose."""

    lengths: Lengths
    how: Blanket

    def __call__(self, now: Indices, before: Indices) -> Ints:
        """Return the length for each pair of the place at t and the place at t − 1."""
        lengths = np.asarray(self.lengths(now, before), np.int64)
        if self.how == "shuffled":
            return np.random.default_rng(len(lengths)).permutation(lengths)
        off = {"too short": -1, "too long": 1}.get(self.how, 0)
        return np.clip(lengths + off, 1, LONGEST_PAST)


_KEPT = 2
"""How many zones a process remembers: tasks of one zone come one after the other."""


@dataclass(frozen=True, eq=False)
class ComparisonTask:
    """One zone and setting to compare methods in."""

    name: str
    """Unique in a run."""
    data: ZoneData
    setting: Setting
    methods: tuple[str, ...]
    """The methods of this task, some of the setting's."""
    experiment: Experiment
    """Gap, time limit and seed."""
    process: int
    """Id of the process that started the task."""


@dataclass(frozen=True, eq=False)
class MethodOutcome:
    """Measures of one method."""

    method: str
    values: tuple[Value, ...]
    held_out: dict[HeldOut, VehicleLosses]
    """Losses by vehicle; none for a method that has no mechanism."""
    note: str
    reports: ZoneReports | None = None
    """Its reports on held-out walks, for `track_city`; None if no vehicle is tracked."""

    @property
    def verified(self) -> bool:
        """Whether there is a mechanism that was verified."""
        return bool(self.held_out)


@dataclass(frozen=True, eq=False)
class ZoneOutcome:
    """Measures of all methods in one zone and setting."""

    zone: int
    share: float
    """Of all training steps, those in the zone."""
    unit: str
    """Of the loss."""
    spacing_m: float
    interval_s: float
    methods: tuple[MethodOutcome, ...]

    @classmethod
    def joined(cls, parts: Sequence[ZoneOutcome], order: Sequence[str]) -> ZoneOutcome:
        """Put the methods of one zone and setting together, in this order."""
        methods = {method.method: method for part in parts for method in part.methods}
        return replace(parts[0], methods=tuple(methods[key] for key in order if key in methods))


def compare_zone(task: ComparisonTask) -> ZoneOutcome:
    """Make the mechanism of each method of a task for a zone, and measure it."""
    leave_ctrl_c_to(task.process)
    problems = _problems(task.data)
    return ZoneOutcome(
        zone=task.data.number,
        share=task.data.share,
        unit=task.data.loss.unit,
        spacing_m=task.data.places.spacing_m,
        interval_s=task.data.interval_s,
        methods=tuple(_Comparison(task, problems).outcomes()),
    )


_known_problems: dict[str, ZoneProblems] = {}


def _problems(data: ZoneData) -> ZoneProblems:
    """Return the problems of a zone, as this process may know them from an earlier task."""
    if data.key not in _known_problems:
        while len(_known_problems) >= _KEPT:
            del _known_problems[next(iter(_known_problems))]
        _known_problems[data.key] = ZoneProblems(data)
    return _known_problems[data.key]


def _measured(method: Method, task: Task) -> tuple[Made, float]:
    """Make a mechanism; return it with the peak memory, MB."""
    reset_peak_memory()
    return make(method, task), memory_since_reset_mb()


class _Comparison:
    def __init__(self, task: ComparisonTask, problems: ZoneProblems) -> None:
        self.task, self.setting, self.problems = task, task.setting, problems

    def outcomes(self) -> Iterator[MethodOutcome]:
        for key in self.task.methods:
            method = METHODS[key]
            if self.problems.has(method.rows):
                yield self._outcome(method)

    @cached_property
    def _context_free(self) -> Mechanism | None:
        """The best mechanism without context, if it takes part with the same ε."""
        if "lp" not in self.setting.methods or self.setting.equal_cost:
            return None
        rows = self.problems.rows("none", self.setting)
        problem = self.problems.problem(rows, epsilon=self.setting.epsilon, eta_km=self.setting.protected_km)
        return self._made(METHODS["lp"], rows, problem)[0].mechanism

    def _outcome(self, method: Method) -> MethodOutcome:
        rows = self.problems.rows(method.rows, self.setting)
        epsilon = self._epsilon(rows)
        if epsilon <= 0:
            note = "a past that is taken as known has no finite cost, so there is nothing to compare at equal cost"
            return MethodOutcome(method.key, (Value(Measure.VERIFIED, 0.0, ""),), {}, note)
        problem = self.problems.problem(rows, epsilon=epsilon, eta_km=self.setting.protected_km)
        made, memory_mb = self._made(method, rows, problem)
        if made.mechanism is None:
            return MethodOutcome(method.key, (Value(Measure.VERIFIED, 0.0, ""),), {}, made.note)
        meter = PrivacyMeter(self.task.data)
        values = [
            *self._design(made, made.mechanism, rows, problem),
            *self._costs(rows, epsilon),
            *self._privacy(meter, made, made.mechanism, rows),
            *self._efficiency(made, made.mechanism, rows, memory_mb),
        ]
        if method.rows == "found" and self.problems.has("predicted"):
            same = rows is self.problems.rows("predicted", self.setting)
            values.append(Value(Measure.SAME_AS_PREDICTED, float(same), ""))
        held_out = held_out_losses(made.mechanism.probabilities, rows, self.task.data, self.problems.loss)
        data, reports = self.task.data, None
        if data.motion is not None:
            sent = made.mechanism.probabilities if made.reports is None else made.reports
            seed = [self.task.experiment.seed, data.number]
            reports = draw_reports(sent, rows, data.steps, data.motion, data.counts, seed=seed)
        return MethodOutcome(method.key, tuple(values), held_out, made.note, reports)

    def _costs(self, rows: ZoneRows, epsilon: float) -> Iterator[Value]:
        """Yield the cost of a location in all reports together, and of an hour for a trajectory shifted as a whole."""
        hour = 3600 / (self.task.data.interval_s * self.setting.every)
        yield Value(Measure.EPSILON_PER_LOCATION, epsilon * self._times_counted(rows), "per km")
        yield Value(Measure.EPSILON_PER_HOUR, hour * epsilon * times_counted(rows.history_weights), "per km")

    def _times_counted(self, rows: ZoneRows) -> float:
        """Return the sum of weights of a location over all reports in which it counts."""
        weights = (1.0, *rows.history_weights)
        return max(times_counted(weights[lag :: self.setting.every]) - 1 for lag in range(self.setting.every))

    def _privacy(self, meter: PrivacyMeter, made: Made, mechanism: Mechanism, rows: ZoneRows) -> Iterator[Value]:
        if not self.setting.city_wide:
            yield from meter.values(mechanism, rows, reports=self.task.experiment.reports)
            yield from meter.crossing()
            return
        spent = made.epsilon_effective
        yield from meter.of_one_report(
            mechanism.probabilities if made.reports is None else made.reports,
            rows,
            epsilon_effective=effective_epsilon(mechanism).epsilon if spent is None else spent,
        )

    def _epsilon(self, rows: ZoneRows) -> float:
        """Return ε of a single report, rounded down to the millionths that mechanisms are made of."""
        if not self.setting.equal_cost:
            return self.setting.epsilon
        return math.floor(self.setting.epsilon / self._times_counted(rows) * 1e6) / 1e6

    def _made(self, method: Method, rows: ZoneRows, problem: Problem) -> tuple[Made, float]:
        """Make the mechanism of a method; linear programs over the same rows are solved once."""
        experiment = self.task.experiment
        limits = experiment.gap, experiment.time_limit_s
        task = Task(problem, rows, *limits, self.setting.near_km, self.setting.city_wide)
        if method.maker is not METHODS["lp"].maker:
            return _measured(method, task)
        known, key = self.problems.optimal, (id(rows), problem.epsilon, self.setting.protected_km, *limits)
        if key not in known:
            known[key] = _measured(method, task)
        made, memory_mb = known[key]
        return self._at_least_context_free(made, rows, problem) if method.uses_past else made, memory_mb

    def _at_least_context_free(self, made: Made, rows: ZoneRows, problem: Problem) -> Made:
        """Return the best mechanism without context instead, where a search ended above it within its gap."""
        if made.mechanism is None or self._context_free is None:
            return made
        plain = Mechanism.from_weights(self._context_free.weights[_place_in_zone(rows)], problem)
        if plain.expected_loss(problem) >= made.mechanism.expected_loss(problem):
            return made
        note = "within its gap, the search found nothing better than the mechanism without context, which is used"
        return replace(made, mechanism=plain, note="; ".join(filter(None, (made.note, note))))

    def _design(self, made: Made, mechanism: Mechanism, rows: ZoneRows, problem: Problem) -> Iterator[Value]:
        unit = self.problems.loss.unit
        loss = mechanism.expected_loss(problem)
        yield Value(Measure.VERIFIED, 1.0, "")
        yield Value(Measure.DESIGN_LOSS, loss, unit)
        if made.lower_bound is not None:
            yield Value(Measure.LOWER_BOUND, made.lower_bound, unit)
            yield Value(Measure.GAP, max(0.0, 1 - made.lower_bound / loss) if loss > 0 else 0.0, "")
        if self._context_free is not None:
            # It also keeps the promise between finer rows, so the optimum over them cannot be above it.
            of_place = self._context_free.probabilities[_place_in_zone(rows)]
            yield Value(Measure.LP_LOSS_ON_ROWS, float(problem.prior @ (problem.loss * of_place).sum(axis=1)), unit)
        # Losses without any privacy, and with the most private report: always the same place.
        yield Value(Measure.NO_PRIVACY_LOSS, float(problem.prior @ problem.loss.min(axis=1)), unit)
        yield Value(Measure.CONSTANT_LOSS, float((problem.prior @ problem.loss).min()), unit)
        used = problem.prior @ mechanism.probabilities > 1e-3
        yield Value(Measure.PLACES, float(len(rows.zone)), "")
        yield Value(Measure.ROWS, float(len(rows)), "")
        yield Value(Measure.DEEPER_ROWS, float(sum(rows.report.rows_by_lag[2:])), "")
        yield Value(Measure.DEEPER_SHARE, rows.report.deeper_share, "")
        yield Value(Measure.OUTPUTS, float(np.count_nonzero(used)), "")

    def _efficiency(self, made: Made, mechanism: Mechanism, rows: ZoneRows, memory_mb: float) -> Iterator[Value]:
        yield Value(Measure.BUILD_SECONDS, made.seconds, "s")
        if made.reports is None:  # otherwise most memory is the table of reports, which only the comparison needs
            yield Value(Measure.PEAK_MEMORY_MB, memory_mb, "MB")
        size = bundle_bytes(mechanism, rows) if made.stored_bytes is None else made.stored_bytes
        yield Value(Measure.BUNDLE_BYTES, float(size), "bytes")
        microseconds = release_us(mechanism, rows, self.task.data.steps)
        if microseconds and made.reports is None:
            yield Value(Measure.RELEASE_US, statistics.median(microseconds), "µs")
            yield Value(Measure.RELEASE_US_LONGEST, max(microseconds), "µs")


def _place_in_zone(rows: ZoneRows) -> Indices:
    """Return the position in the zone of each row's present place, shape (S,)."""
    return np.searchsorted(rows.zone, rows.histories[:, 0]).astype(np.int32)
