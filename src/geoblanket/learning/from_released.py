"""Learn a motion model from released reports: no true place is seen, and no further budget is spent.

The model tells as much about the vehicles as their reports do. So it states the ε of the reports.

The method is expectation–maximisation over the tracker's chain. The forward–backward algorithm gives the probability of
each move at each step of a trip, by all its reports. The sums of these probabilities are the counts for the next model,
and so on. Where reports tell little, the model stays near the one it started from.

Hold: a held report shows that the vehicle stayed, and counts as a move to the same place. A different report shows that
the vehicle moved, though perhaps not to another place. So before a different report, a stay is less probable than the
model says, by the share of all stays that were held; this share is learned, too. Otherwise stays would count twice:
once where they are held, and again before different reports. Where nearly all stays are held, learning takes more
rounds; after eight, the chance to stay is about 3 % too high.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints, Positions, Singles
from geoblanket._display import Progress, silent
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._workers import count_workers, map_in_order
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.learning.estimating import normalised, summed
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, smooth
from geoblanket.tracking.motion_model import MotionModel
from geoblanket.tracking.observation import observations_of
from geoblanket.tracking.released import ReleasedRows, ReleasedTable

DEFAULT_ROUNDS: Final = 8
_SILENCE_S: Final = 300.0
"""After a longer time without a report, a new trip starts, seconds."""
_TRUST_MOVES: Final = 10.0
_TRUST_STARTS: Final = 100.0
"""Weight of the starting model: in moves from each place, and in starts."""
_FIRST_HELD: Final = 0.5
"""The initial share of stays that are held."""
_COLUMNS_AT_ONCE: Final = 2048
_PARTS: Final = 8
"""Trips are counted in this many parts, whatever the number of processes, so that sums round the same."""
_S_PER_MOVE: Final = 2e-9
"""Estimated time for each move of the model and each report, seconds."""
_TINY: Final = 1e-30


@checked
@takes_frames(reports=None)
def learn_from_released(
    reports: str | Path | AnyFrame,
    bundle: Bundle,
    start: MotionModel,
    *,
    rounds: int = DEFAULT_ROUNDS,
    workers: int | None = None,
    progress: Progress = silent,
) -> MotionModel:
    """Learn how vehicles move from their perturbed reports.

    Parameters
    ----------
    reports
        A table written by `geoblanket perturb`, or a data frame with its columns. A frame does not name its bundle: its
        reports must lie at the places or cells of `bundle`, and the model states that their ε is unknown.
    bundle
        The bundle that made the reports.
    start
        The model to start from: of the roads alone, or learned with privacy. Its step must be the interval of the
        reports.
    rounds
        Number of passes over the reports, 1 or more.
    workers
        Number of processes; None: as many as pay. The result does not depend on it.

    Raises
    ------
    MismatchError
        If the reports were made by another bundle, or come at another interval than the model steps.

    Examples
    --------
    >>> from geoblanket import MotionModel, learn_from_released, load_bundle, perturb_walks
    >>> bundle, start = load_bundle("city.bundle"), MotionModel.load("city.model")
    >>> reports = perturb_walks("walks.parquet", "city.roads", "released.parquet", bundle=bundle).reports
    >>> model = learn_from_released("released.parquet", bundle, start, rounds=2)
    >>> model.learned["reports"] == reports
    True
    """
    if rounds < 1:
        raise ParameterError(f"Learning takes 1 round or more. Got {rounds} instead.")
    table = ReleasedTable(reports, bundle)
    interval_s = bundle.needed_clock().interval_s
    if start.steps_in(interval_s) != 1:
        raise MismatchError(
            f"Reports come every {interval_s:g} s, and a step of the motion model takes {start.interval_s:g} s. Start "
            "with a model whose step is the interval of the reports."
        )
    model = first = start
    prior = _Prior.of(first)
    held = _FIRST_HELD if bundle.holds else 0.0
    seconds = rounds * _S_PER_MOVE * len(model.chances) * table.rows
    processes = count_workers(workers, tasks=_PARTS, seconds=seconds)
    for number in range(rounds):
        between = prior.between_reports(model, held)
        # Expected counts need the chain as it is: without cells around the map.
        beliefs = BeliefFilter(between, observations_of(bundle, between), holds=bundle.holds)
        moves = _Moves.none(model)
        done = 0
        for rows in table.parts(outputs=beliefs.observations.outputs):
            parts = _divided(_trips(rows, interval_s))
            tasks = [(beliefs, parts[first::processes]) for first in range(processes)]
            counted = list(map_in_order(_counted, tasks, workers=processes))
            # Added in the order of the parts, so that the sum does not depend on the number of processes.
            for part in range(len(parts)):
                moves.add(counted[part % processes][part // processes])
            done += len(rows.row)
            progress(f"round {number + 1} of {rounds}", done, table.rows)
        held = prior.held_share(moves)
        model = prior.updated(model, moves)
    learned: dict[str, Any] = {
        "from": "released",
        "reports": table.rows,
        "vehicles": table.vehicles,
        "rounds": rounds,
        "bundle": bundle.sha256,
        "start": dict(first.learned),
        "training": bundle.training.as_json(),
        "released": asdict(table.statement),
    }
    learned |= {name: first.learned[name] for name in ("roads", "spacing_m", "order") if name in first.learned}
    return replace(model, learned=learned)


def _trips(rows: ReleasedRows, interval_s: float) -> Sequences:
    """Return the trips of vehicles: long silences separate them, and slots without a report are filled in."""
    reported, order = Sequences.of(rows.slot, rows.output, rows.vehicle)
    slot, gap = reported.slot, np.append(0, np.diff(reported.slot))
    starts = gap * interval_s > _SILENCE_S
    starts[reported.starts] = True
    # Every slot of a trip has a row: the filter steps once for each, with a report or without.
    added = np.where(starts, 0, gap - 1)
    position = np.arange(len(slot)) + np.cumsum(added)
    count = len(slot) + int(added.sum())
    output = np.full(count, NO_REPORT, np.int64)
    output[position] = reported.output
    first = position[starts]
    trip = np.repeat(np.arange(len(first)), np.diff(np.append(first, count)))
    every_slot = slot[starts][trip] + np.arange(count) - first[trip]
    return Sequences(
        every_slot,
        output,
        first,
        follows=_filled(rows.follows, order, position, count),
        time_ms=_filled(rows.time_ms, order, position, count),
    )


def _filled(values: Ints | None, order: Ints, position: Ints, count: int) -> Ints | None:
    if values is None:
        return None
    filled = np.zeros(count, np.int64)
    filled[position] = values[order]
    return filled


def _divided(trips: Sequences) -> list[Sequences]:
    """Divide trips into parts with about equally many slots, the longest trips first."""
    order = np.argsort(-trips.lengths, kind="stable")
    ends = np.cumsum(trips.lengths[order])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, _PARTS) / _PARTS)
    return [trips.chosen(some) for some in np.split(order, cuts) if len(some)]


def _counted(beliefs: BeliefFilter, parts: list[Sequences]) -> list[_Moves]:
    """Return the expected starts and moves of each part."""
    groups = _groups(beliefs.model)
    counted = []
    for trips in parts:
        adder = _Adder(beliefs, groups)
        smooth(beliefs, trips, adder.started, moved=adder.moved, rested=adder.rested, only_first=True)
        counted.append(adder.total())
    return counted


@dataclass(frozen=True, eq=False)
class _Moves:
    """Expected counts of starts at each state, and of each move."""

    starts: Floats
    counts: Floats
    """Moves before reports that are not held."""
    held: Floats
    """Moves that stay at a place, shown by held reports."""

    @classmethod
    def none(cls, model: MotionModel) -> _Moves:
        return cls(np.zeros(len(model)), np.zeros(len(model.chances)), np.zeros(len(model.chances)))

    def add(self, other: _Moves) -> None:
        self.starts[:] += other.starts
        self.counts[:] += other.counts
        self.held[:] += other.held


class _Adder:
    """Adds up the posterior probabilities of starts and moves (the E-step)."""

    def __init__(self, beliefs: BeliefFilter, groups: list[tuple[Ints, Ints, Ints]]) -> None:
        model = beliefs.model
        self._chances, self._stays = model.chances, beliefs.stays
        self._groups = groups
        self._starts: Floats = np.zeros(len(model))
        self._rested: Floats = np.zeros(len(model))
        self._together: Floats = np.zeros(len(model.chances))
        self._before: list[Singles] = []
        self._after: list[Singles] = []

    def started(self, _positions: Positions, beliefs: Singles) -> None:
        """Count trips by where they start."""
        self._starts += beliefs.sum(axis=1, dtype=np.float64)

    def moved(self, before: Singles, after: Singles) -> None:
        """Count one step of some trips.

        Parameters
        ----------
        before
            Filtered beliefs before the step, shape (N, B).
        after
            Likelihood of later reports from each state after it, scaled so that all moves together have probability 1.
        """
        self._before.append(before)
        self._after.append(after)
        if sum(part.shape[1] for part in self._before) >= _COLUMNS_AT_ONCE:
            self._flush()

    def rested(self, before: Singles) -> None:
        """Count one step of vehicles that stayed at their places, by their beliefs before it, shape (N, B)."""
        self._rested += before.sum(axis=1, dtype=np.float64)

    def _flush(self) -> None:
        if not self._before:
            return
        # For each move, the sum over steps of `before` at its source times `after` at its target: a matrix product.
        before, after = np.concatenate(self._before, axis=1), np.concatenate(self._after, axis=1)
        for states, targets, entries in self._groups:
            self._together[entries] += (before[states] @ after[targets].T).ravel()
        self._before, self._after = [], []

    def total(self) -> _Moves:
        """Return all that was counted."""
        self._flush()
        held, some = np.zeros(len(self._chances)), self._stays >= 0
        held[self._stays[some]] = self._rested[some]
        return _Moves(self._starts, self._together * self._chances, held)


def _groups(model: MotionModel) -> list[tuple[Ints, Ints, Ints]]:
    """Group states that lead to the same states; return the states, their targets, and the moves of each group.

    One matrix product counts all moves of a group.
    """
    alike: dict[bytes, list[int]] = {}
    offsets = model.offsets
    for state in range(len(model)):
        alike.setdefault(model.targets[offsets[state] : offsets[state + 1]].tobytes(), []).append(state)
    groups = []
    for key, states in alike.items():
        targets = np.frombuffer(key, np.int32).astype(np.int64)
        entries = offsets[states][:, None] + np.arange(len(targets))
        groups.append((np.array(states, np.int64), targets, entries.ravel()))
    return groups


@dataclass(frozen=True, eq=False)
class _Prior:
    """The starting model as a prior, and its update by counts (the M-step)."""

    first: MotionModel
    state: Ints
    """The state that each move leaves."""
    pair: Ints
    """The pair of places, as a number, of each move."""
    source: Ints
    """The place that each pair leads from."""
    chances: Floats
    """The prior probability of each pair, given its first place."""

    @classmethod
    def of(cls, first: MotionModel) -> _Prior:
        state = np.repeat(np.arange(len(first)), np.diff(first.offsets))
        places = first.place_count
        keys, pair = np.unique(first.present[state] * places + first.present[first.targets], return_inverse=True)
        flow = (first.usual.astype(np.float64)[state] + _TINY) * first.chances
        source = keys // places
        return cls(first, state, pair, source, normalised(summed(flow, pair, len(keys)), source, places))

    @property
    def _stays(self) -> Bools:
        """Which moves stay at a place."""
        stays: Bools = self.first.present[self.state] == self.first.present[self.first.targets]
        return stays

    def between_reports(self, model: MotionModel, held: float) -> MotionModel:
        """Return how vehicles move before a report that is not held, given the share of stays that are held."""
        if not held:
            return model
        left = np.where(self._stays, 1 - held, 1.0)
        chances = normalised(model.chances.astype(np.float64) * left, self.state, len(model))
        return replace(model, chances=chances.astype(np.float32))

    def held_share(self, moves: _Moves) -> float:
        """Return the share of stays that were held."""
        held = float(moves.held.sum())
        return held / (held + float(moves.counts[self._stays].sum()) + _TINY)

    def updated(self, model: MotionModel, moves: _Moves) -> MotionModel:
        """Return the model updated by counts: moves between places, then moves of states, then starts."""
        # Moves between places correct the prior of all their states; then states with counts of their own differ.
        counts, states, places = moves.counts + moves.held, len(model), model.place_count
        of_pair = summed(counts, self.pair, len(self.chances))
        by_place = normalised(of_pair + _TRUST_MOVES * self.chances, self.source, places)
        changed = by_place / np.maximum(self.chances, _TINY)
        chances = normalised(self.first.chances * changed[self.pair], self.state, states)
        if len(of_pair) < len(counts):  # otherwise places are the states, and counts would be used twice
            chances = normalised(counts + _TRUST_MOVES * chances, self.state, states)
        starts = moves.starts + _TRUST_STARTS * self.first.start
        return replace(model, chances=chances.astype(np.float32), start=(starts / starts.sum()).astype(np.float32))
