"""Filtering and smoothing: the belief over a vehicle's states after each of its reports.

A filter predicts by the motion model, weighs by the report, and normalises. Beliefs of several vehicles are the columns
of one array of shape (N, B), where N is the number of states. One sparse product then steps all of them.

A *sequence* holds the reports of one vehicle: ascending slots, each with an output, or −1 for a slot without a report.
Sequences run side by side, the longest first, so that one sparse product steps many of them. *Filtered* beliefs know
the reports up to their slot; *smoothed* beliefs also know the later ones.

Direction
---------
A chain of order 1 forgets where a vehicle came from. Over several steps its belief then spreads less than vehicles do,
which keep their direction: at ε = 1 only 82 % of its circles of 90 % held Porto's training vehicles, and order 2, which
remembers, held 88 %. So half of a belief of order 1 takes a second step in each step. That makes the estimates of
order 1 better, too, by 3 to 4 % at ε = 1 and 2.

Hold
----
A vehicle at rest repeats its last report. With a bundle that holds, a report equal to the last one counts as *held*: it
tells nothing new, and the belief stays as it was. The next different report is weighed as always, one prediction after
the last held one, however long the rest was.

An exact posterior would know more: a rest is likelier where vehicles often stay, and a new report shows that the
vehicle has moved. On a small chain of four slots, where all paths can be tried, the rule loses 5 % of the information.
Counting every repetition as a new report loses 7 to 13 %, and more for longer rests. On real trips (300 of Porto,
places 250 m apart, ε = 2 and 4) such counting makes estimates at rest 17 to 21 % worse than the rule. Weighing each
held slot by the model's chance to stay makes them 2 to 3 % worse: real rests are longer than a chain believes. Halving
the chance to stay before each new report would reduce the error by 2 to 3 %; the rule leaves that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Ints, Positions
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.tracking.motion_model import MotionModel, Singles, SparseRows
from geoblanket.tracking.observation import ObservationModel, Reports, observations_of
from geoblanket.tracking.surroundings import surrounded

_AGAIN: Final = 0.5
"""In a chain of order 1, this share of a belief takes a second step in each step; see *Direction*."""
_ANYWHERE: Final = 1e-5
"""Share of a prediction that is spread over all states, so that no report stays impossible for good."""
NO_REPORT: Final = -1
_CELLS: Final = 1 << 19
"""States × sequences in one batch: 2 megabytes, which stays in the processor's cache."""
_SMOOTHED_BYTES: Final = 1 << 28
_LAG: Final = 60
"""Later slots of a sequence that count at least in a smoothed belief; where memory allows, all of them do."""
LONGEST_GAP_MS: Final = 2 * 3_600_000
"""After a longer gap the filter starts anew, milliseconds."""

Seen = Callable[[Positions, Singles], None]
"""Called with positions among the reports, shape (B,), and the beliefs over states there, (N, B)."""
Moved = Callable[[Singles, Singles], None]
"""Called for one step with two arrays of shape (N, B): the filtered beliefs before it, and the likelihood of this and
all later reports from each state after it. Their product with a move's probability is the posterior of that move."""
Rested = Callable[[Singles], None]
"""Called with the beliefs before a slot in which the vehicle stayed at its place, shape (N, B)."""


class BeliefFilter:
    """Takes beliefs from one report to the next.

    Parameters
    ----------
    model
        How vehicles move.
    observations
        The likelihood of reports; `BeliefFilter.of` finds it for a bundle.
    holds
        Whether a vehicle at rest repeats its last report, which then tells nothing new.
    keeps_direction
        Whether vehicles keep their direction even where the model forgets it, as it does in a chain of order 1.
    """

    def __init__(
        self, model: MotionModel, observations: ObservationModel, *, holds: bool = False, keeps_direction: bool = False
    ) -> None:
        self.model, self.observations, self.holds = model, observations, holds
        self._again = np.float32(_AGAIN if keeps_direction and model.memory == 1 else 0.0)
        self.steps_per_slot = model.steps_in(observations.interval_s)
        self.interval_ms = round(observations.interval_s * 1000)

    @classmethod
    def of(cls, bundle: Bundle, model: MotionModel, *, fences: Fences = NO_FENCES) -> BeliefFilter:
        """Return the filter of a bundle's reports, made by vehicles with these fences.

        Vehicles that report by a lattice may leave the roads of a model: the filter's model then has cells around them.
        """
        if isinstance(bundle, LatticeBundle) and model.places_identity:
            model = surrounded(model, epsilon=bundle.lattice.spec.epsilon_micro / 1e6)
        return cls(model, observations_of(bundle, model, fences), holds=bundle.holds, keeps_direction=True)

    @property
    def bytes_per_vehicle(self) -> int:
        """Memory of one belief."""
        return self.model.start.nbytes

    def are_held(self, output: Ints | int, last: Ints | int) -> Bools:
        """Return which reports count as held: those equal to the last report, if the bundle holds.

        A moving vehicle draws the same cell again in less than one of a hundred draws.
        """
        held: Bools = np.equal(output, last) & np.greater_equal(output, 0) & self.holds
        return held

    def begin(self, count: int) -> Singles:
        """Return the prior beliefs of `count` vehicles, shape (N, count)."""
        return np.repeat(self.model.start[:, None], count, axis=1)

    def predicted(self, beliefs: Singles, steps: int) -> Singles:
        """Return beliefs some steps of the model later."""
        result = beliefs
        for _ in range(steps):
            result = self._moved(self.model.moves_into, result)
        if steps:
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * self.model.start[:, None]
        return result

    def predicted_back(self, values: Singles, steps: int) -> Singles:
        """Return the expectation of values, given the state some steps earlier: the transpose of `predicted`."""
        result = values
        for _ in range(steps):
            result = self._moved(self.model.moves, result)
        if steps:
            result *= np.float32(1 - _ANYWHERE)
            result += np.float32(_ANYWHERE) * (self.model.start @ values)
        return result

    def _moved(self, moves: SparseRows, values: Singles) -> Singles:
        result: Singles = moves @ values
        if self._again:
            result += self._again * (moves @ result - result)
        return result

    @cached_property
    def stays(self) -> Ints:
        """The move from each state that stays at its place, −1 if there is none, shape (N,)."""
        model = self.model
        state = np.repeat(np.arange(len(model)), np.diff(model.offsets))
        staying = np.flatnonzero(model.present[state] == model.present[model.targets])
        stays = np.full(len(model), -1)
        stays[state[staying]] = staying
        return stays

    @cached_property
    def _rested_in(self) -> Ints:
        """The state that follows each state after a step at the same place, shape (N,)."""
        return np.where(self.stays < 0, np.arange(len(self.model)), self.model.targets[self.stays])

    def rested(self, beliefs: Singles) -> Singles:
        """Return beliefs one step later, given that the vehicles stayed at their places."""
        result = np.zeros_like(beliefs)
        np.add.at(result, self._rested_in, beliefs)
        return result

    def rested_back(self, values: Singles) -> Singles:
        """Return the expectation of values one step earlier, given that the vehicles stayed at their places."""
        result: Singles = values[self._rested_in]
        return result

    def weigh(self, beliefs: Singles, reports: Reports) -> Bools:
        """Weigh beliefs by reports, in place; return which reports were impossible, and were left out."""
        weighed = beliefs * self.observations.likelihood(reports)
        total = _totals(weighed)
        impossible: Bools = ~(total > np.finfo(np.float32).tiny)
        # One impossible report must not end a sequence: the belief stays as predicted.
        if impossible.any():
            weighed[:, impossible] = beliefs[:, impossible]
            total = _totals(weighed)
        np.multiply(weighed, 1 / total, out=beliefs)
        return impossible

    def places(self, beliefs: Singles) -> Singles:
        """Return beliefs over places, shape (P, B)."""
        result: Singles = self.model.to_places @ beliefs
        return result


def _totals(beliefs: Singles) -> Singles:
    """Return the sums of beliefs, shape (B,), by a product with ones, which is faster than a sum over an axis."""
    totals: Singles = np.ones(len(beliefs), np.float32) @ beliefs
    return totals


@dataclass(frozen=True, eq=False)
class Sequences:
    """The reports of vehicles, vehicle after vehicle."""

    slot: Ints
    """Ascending in each sequence, shape (n,)."""
    output: Ints
    """−1 where there is no report, shape (n,)."""
    starts: Ints
    """Where each sequence starts, ascending from 0, shape (V,)."""
    follows: Ints | None = None
    """Number of consecutive slots with a report just before, shape (n,); see `Reports`. None: counted from the
    sequence. It must be given where a vehicle starts anew without a gap."""
    time_ms: Ints | None = None
    """When each report was made; see `Reports`. None: at the start of its slot."""

    def __post_init__(self) -> None:
        inside = np.ones(len(self.slot), bool)
        inside[self.starts] = False
        if len(self.slot) and (self.starts[0] != 0 or (np.diff(self.slot)[inside[1:]] <= 0).any()):
            raise ParameterError("The slots of each sequence must ascend, without duplicates.")

    @classmethod
    def of(cls, slot: npt.ArrayLike, output: npt.ArrayLike, vehicle: npt.ArrayLike) -> tuple[Sequences, Positions]:
        """Sort reports by vehicle and slot; return them, and the position that each came from.

        If a vehicle has several reports in one slot, only the first is kept.
        """
        slots, outputs, names = np.asarray(slot, np.int64), np.asarray(output, np.int64), np.asarray(vehicle)
        order = np.lexsort((slots, names))
        same_vehicle = np.append(False, names[order][1:] == names[order][:-1])
        again = same_vehicle & np.append(False, slots[order][1:] == slots[order][:-1])
        order, same_vehicle = order[~again], same_vehicle[~again]
        return cls(slots[order], outputs[order], np.flatnonzero(~same_vehicle)), order

    def chosen(self, some: Ints) -> Sequences:
        """Return some of the sequences, by their numbers, in the order given."""
        lengths = self.lengths[some]
        starts = np.cumsum(lengths) - lengths
        rows = np.repeat(self.starts[some] - starts, lengths) + np.arange(int(lengths.sum()))
        follows, time_ms = (None if values is None else values[rows] for values in (self.follows, self.time_ms))
        return Sequences(self.slot[rows], self.output[rows], starts, follows, time_ms)

    @property
    def lengths(self) -> Ints:
        """Slots of each sequence, shape (V,)."""
        return np.diff(np.append(self.starts, len(self.slot)))


def follow(beliefs: BeliefFilter, sequences: Sequences, seen: Seen) -> int:
    """Filter all sequences; return how many reports were impossible, and were left out."""
    impossible = 0
    size = max(1, _CELLS // (beliefs.bytes_per_vehicle // 4))
    for starts, lengths in _batches(sequences, size):
        for tick in _Batch(beliefs, sequences, starts, lengths).forwards():
            impossible += int(tick.impossible.sum())
            seen(tick.positions, tick.beliefs)
    return impossible


def smooth(
    beliefs: BeliefFilter,
    sequences: Sequences,
    seen: Seen,
    *,
    moved: Moved | None = None,
    rested: Rested | None = None,
    only_first: bool = False,
) -> int:
    """Smooth all sequences (forward–backward algorithm); otherwise as `follow`.

    Parameters
    ----------
    moved
        Called for each slot that lies one step of the motion model after the slot before.
    rested
        Called for each held slot. If given, a held slot is a step that stays at the place: a state of two places then
        holds the same place twice.
    only_first
        Call `seen` for the first slot of each sequence only.
    """
    impossible = 0
    sequences = _with_rests(beliefs, sequences)
    cells = beliefs.bytes_per_vehicle // 4
    window = max(2 * _LAG, _SMOOTHED_BYTES // (4 * cells))
    size = max(1, min(_CELLS // cells, _SMOOTHED_BYTES // (4 * cells * max(1, int(sequences.lengths.max(initial=1))))))
    for starts, lengths in _batches(sequences, size):
        batch = _Batch(beliefs, sequences, starts, lengths, rested=rested, only_first=only_first)
        # Smoothing needs all ticks that come later. Where a sequence is too long for memory, a window of ticks is
        # smoothed as soon as `_LAG` later ticks are known.
        kept: list[_Tick] = []
        for tick in batch.forwards():
            impossible += int(tick.impossible.sum())
            kept.append(tick)
            if len(kept) >= window + _LAG:
                batch.backwards(kept, seen, moved, count=len(kept) - _LAG)
                kept = kept[-_LAG:]
        batch.backwards(kept, seen, moved, count=len(kept))
    return impossible


def _with_rests(beliefs: BeliefFilter, sequences: Sequences) -> Sequences:
    """Fill slots without a report that lie between two equal, held reports: the vehicle rested there."""
    output, number = sequences.output, np.arange(len(sequences.output))
    sequence = np.repeat(np.arange(len(sequences.starts)), sequences.lengths)
    told = output != NO_REPORT
    before = np.maximum.accumulate(np.where(told, number, 0))
    after = np.minimum.accumulate(np.where(told, number, len(number) - 1)[::-1])[::-1]
    held = beliefs.are_held(output[after], output[before]) & (sequence[after] == sequence[before])
    return replace(sequences, output=np.where(held, output[before], output))


def _batches(sequences: Sequences, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield starts and lengths of the sequences of each batch, the longest first."""
    lengths = sequences.lengths
    order = np.argsort(-lengths, kind="stable")
    for first in range(0, len(order), size):
        some = order[first : first + size]
        yield sequences.starts[some], lengths[some]


@dataclass(frozen=True, eq=False)
class _Tick:
    """The n-th slot of every sequence of a batch that has one."""

    number: int
    """n, from 0."""
    positions: Positions
    steps: Ints
    """Steps of the model since the slot before; 0: the report is held; −1: the filter starts anew."""
    reports: Reports
    beliefs: Singles
    impossible: Bools
    """Whether the report was left out because no state explains it."""


class _Batch:
    """Sequences side by side, the longest first."""

    def __init__(
        self,
        beliefs: BeliefFilter,
        sequences: Sequences,
        starts: Ints,
        lengths: Ints,
        *,
        rested: Rested | None = None,
        only_first: bool = False,
    ) -> None:
        self._filter, self._sequences = beliefs, sequences
        self._starts, self._lengths, self._rested, self._only_first = starts, lengths, rested, only_first
        self._longest_gap = max(1, LONGEST_GAP_MS // beliefs.interval_ms)

    def forwards(self) -> Iterator[_Tick]:
        """Yield filtered beliefs, tick by tick."""
        beliefs = at_report = self._filter.begin(len(self._starts))
        last = np.full(len(self._starts), NO_REPORT)
        reported = np.zeros(len(self._starts), np.int64)
        for tick in range(int(self._lengths[0]) if len(self._lengths) else 0):
            # The longest sequences come first, so those that go on are always the first columns.
            active = int(np.searchsorted(-self._lengths, -tick, side="left"))
            positions = self._starts[:active] + tick
            slot, output = self._sequences.slot[positions], self._sequences.output[positions]
            beliefs = beliefs[:, :active].copy() if active < beliefs.shape[1] else beliefs
            # Slots since the last one; −1 at the start and after a long gap, where the filter starts anew.
            elapsed = slot - self._sequences.slot[positions - 1] if tick else np.full(active, -1)
            elapsed = np.where(elapsed > self._longest_gap, -1, elapsed)
            follows = np.where(elapsed == 1, reported[:active], 0)
            held = self._filter.are_held(output, last[:active]) & (elapsed > 0)
            if tick:
                elapsed = np.where(held, 0, elapsed)
                # Slots without a report have spread the belief. A held report takes it back to the last report.
                silent = held & (reported[:active] == 0)
                if silent.any():
                    beliefs[:, silent] = at_report[:, :active][:, silent]
                beliefs = self._predicted(beliefs, elapsed)
            if self._sequences.follows is not None:
                follows = self._sequences.follows[positions]
            time_ms = None if self._sequences.time_ms is None else self._sequences.time_ms[positions]
            # A held report is no new evidence: it is weighed as none.
            reports = Reports(np.where(held, NO_REPORT, output), slot, follows, time_ms)
            impossible = self._weighed(beliefs, reports)
            told = output != NO_REPORT
            reported = np.where(told, follows + 1, 0)
            last = np.where(told, output, np.where(elapsed < 0, NO_REPORT, last[:active]))
            kept = beliefs.copy()  # the next tick changes it
            if self._filter.holds:
                at_report = kept if told.all() else np.where(told, kept, at_report[:, :active])
            steps = np.where(elapsed >= 0, elapsed * self._filter.steps_per_slot, -1)
            yield _Tick(tick, positions, steps, reports, kept, impossible)

    def _predicted(self, beliefs: Singles, elapsed: Ints) -> Singles:
        """Step beliefs by the slots elapsed since the last one; columns with equal gaps share one product."""
        unlike = np.unique(elapsed)
        if len(unlike) == 1 and unlike[0] > 0:
            beliefs = self._filter.predicted(beliefs, int(unlike[0]) * self._filter.steps_per_slot)
        else:
            for slots in unlike.tolist():
                some = elapsed == slots
                if slots < 0:
                    beliefs[:, some] = self._filter.begin(int(some.sum()))
                elif slots:
                    beliefs[:, some] = self._filter.predicted(
                        np.ascontiguousarray(beliefs[:, some]), slots * self._filter.steps_per_slot
                    )
                elif self._rested is not None:
                    beliefs[:, some] = self._filter.rested(beliefs[:, some])
        return beliefs

    def _weighed(self, beliefs: Singles, reports: Reports) -> Bools:
        told = reports.output != NO_REPORT
        if told.all():
            return self._filter.weigh(beliefs, reports)
        impossible = np.zeros(len(told), bool)
        if told.any():
            some = np.ascontiguousarray(beliefs[:, told])
            impossible[told] = self._filter.weigh(some, reports.chosen(told))
            beliefs[:, told] = some
        return impossible

    def backwards(self, ticks: list[_Tick], seen: Seen, moved: Moved | None, *, count: int) -> None:
        """Call `seen` with smoothed beliefs of the first `count` ticks, from the last to the first.

        Call `moved` with the steps that lead on from these ticks.
        """
        # `later`: the likelihood of all reports after a tick from each state in it, up to a factor.
        later: Singles | None = None
        for number in reversed(range(len(ticks))):
            tick = ticks[number]
            active = len(tick.positions)
            if later is None:
                later = np.ones_like(tick.beliefs)
            elif later.shape[1] < active:
                # Sequences that end at this tick have no later reports.
                ended = np.ones((len(later), active - later.shape[1]), np.float32)
                later = np.concatenate([later, ended], axis=1)
            if number < count and not (self._only_first and tick.number):
                smoothed = tick.beliefs * later
                smoothed /= np.maximum(smoothed.sum(axis=0), np.finfo(np.float32).tiny)
                seen(tick.positions, smoothed)
            if number:
                later = self._weighed_back(later, tick)
                earlier = self._stepped_back(later, tick)
                # Moves into the first tick after the `count` ones still start from one of them.
                if moved is not None and number <= count:
                    self._tell_moves(ticks[number - 1].beliefs[:, :active], later, earlier, tick, moved)
                # Scaled in every tick, because the product over a long sequence would underflow.
                largest = earlier.max(axis=0)
                later = earlier * (1 / np.maximum(largest, np.finfo(np.float32).tiny))

    def _weighed_back(self, later: Singles, tick: _Tick) -> Singles:
        """Return the likelihood of the reports of a tick and all later ones from each state in it."""
        told = (tick.reports.output != NO_REPORT) & ~tick.impossible
        if told.all():
            likely: Singles = later * self._filter.observations.likelihood(tick.reports)
            return likely
        weighed: Singles = later.copy()
        if told.any():
            weighed[:, told] *= self._filter.observations.likelihood(tick.reports.chosen(told))
        return weighed

    def _stepped_back(self, later: Singles, tick: _Tick) -> Singles:
        """Return the same likelihood from each state one tick before."""
        if (tick.steps == 1).all():
            return self._filter.predicted_back(later, 1)
        earlier: Singles = later.copy()
        for steps in np.unique(tick.steps).tolist():
            some = tick.steps == steps
            if steps < 0:
                earlier[:, some] = 1.0
            elif steps:
                earlier[:, some] = self._filter.predicted_back(np.ascontiguousarray(later[:, some]), steps)
            elif self._rested is not None:
                earlier[:, some] = self._filter.rested_back(later[:, some])
        return earlier

    def _tell_moves(self, before: Singles, later: Singles, earlier: Singles, tick: _Tick, moved: Moved) -> None:
        """Call `moved` and `rested`, each normalised so that all moves of a sequence have probability 1 together."""
        single, held = tick.steps == 1, tick.steps == 0
        if self._rested is not None and held.any():
            stayed = before[:, held] * earlier[:, held]
            self._rested(stayed / np.maximum(stayed.sum(axis=0), np.finfo(np.float32).tiny))
        if not single.any():
            return
        if not single.all():
            before, later, earlier = (part[:, single] for part in (before, later, earlier))
        total = np.einsum("nb,nb->b", before, earlier)
        moved(before, later * (1 / np.maximum(total, np.finfo(np.float32).tiny)))
