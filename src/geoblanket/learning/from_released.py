"""A motion model from reports that were released anyway: no true place is ever seen, and nothing more is spent.

The model tells of the vehicles that reported, as far as their reports do. So it names the ε of the reports.

Expectation–maximisation over the tracker's chain. From the reports of a trip, before and after, follows how probable
each move was at each step (forwards and backwards); these probabilities, added up, are the counts from which the next
model is made; and so on. Where reports tell little, the model stays near the one it started from.

Hold: a report that is repeated shows that the vehicle stayed, and counts as a move to the same place. A report that
differs shows that it moved, if perhaps not to another place. So before such a report a stay is less probable than the
model says, by the share of all stays that were held; that share is learned with the rest. Without this, stays would
count twice: once where they are held, and again among the reports that differ. Where nearly all stays are held this
takes more rounds; after eight the chance to stay is some 3 % too high.
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
from geoblanket.tracking.released import ReleasedRows, ReleasedTable

__all__ = ["DEFAULT_ROUNDS", "learn_from_released"]

DEFAULT_ROUNDS: Final = 8
_SILENCE_S: Final = 300.0
"""After so long without a report, a trip starts anew."""
_TRUST_MOVES: Final = 10.0
_TRUST_STARTS: Final = 100.0
"""How many moves from a place, and how many starts, what was known before is worth."""
_FIRST_HELD: Final = 0.5
"""Share of the steps that stay at a place and are held, before any report was seen."""
_COLUMNS_AT_ONCE: Final = 2048
_PARTS: Final = 8
"""Trips are counted in so many parts, whatever the number of processes."""
_S_PER_MOVE: Final = 2e-9
"""Seconds for each move of the model and each report."""
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
        A table written by `geoblanket perturb`, or a data frame with its columns. A frame does not say which bundle
        made it: its reports must lie at the places, or the cells, of the one given, and the model says that their ε is
        unknown.
    bundle
        What the reports were made by.
    start
        Where to start from: a model of the roads alone, or one that was learned with privacy. Its step must be the
        interval of the reports.
    rounds
        How often reports are gone through, 1 or more.
    workers
        Processes; by default as many as pay. They make no difference to what is learned.

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
    held = _FIRST_HELD if bundle.lattice is not None and bundle.lattice.hold_mm else 0.0
    seconds = rounds * _S_PER_MOVE * len(model.chances) * table.rows
    processes = count_workers(workers, tasks=_PARTS, seconds=seconds)
    for number in range(rounds):
        beliefs = BeliefFilter.of(bundle, prior.between_reports(model, held))
        moves = _Moves.none(model)
        done = 0
        for rows in table.parts(outputs=beliefs.observations.outputs):
            parts = _divided(_trips(rows, interval_s))
            tasks = [(beliefs, parts[first::processes]) for first in range(processes)]
            counted = list(map_in_order(_counted, tasks, workers=processes))
            # In the order of the parts, so that it makes no difference who counted them.
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
    """Return the trips of vehicles: slots without a report are filled in, and long silences divide."""
    order = np.lexsort((rows.slot, rows.vehicle))
    vehicle, slot = rows.vehicle[order], rows.slot[order]
    again = np.append(False, (vehicle[1:] == vehicle[:-1]) & (slot[1:] == slot[:-1]))
    order, vehicle, slot = order[~again], vehicle[~again], slot[~again]
    gap = np.append(0, np.diff(slot))
    starts = np.append(True, vehicle[1:] != vehicle[:-1]) | (gap * interval_s > _SILENCE_S)
    added = np.where(starts, 0, gap - 1)
    position = np.arange(len(slot)) + np.cumsum(added)
    count = len(slot) + int(added.sum())
    output = np.full(count, NO_REPORT, np.int64)
    output[position] = rows.output[order]
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
    """Return trips in parts of about as many slots each, the longest trips first."""
    order = np.argsort(-trips.lengths, kind="stable")
    ends = np.cumsum(trips.lengths[order])
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, _PARTS) / _PARTS)
    return [trips.chosen(some) for some in np.split(order, cuts) if len(some)]


def _counted(beliefs: BeliefFilter, parts: list[Sequences]) -> list[_Moves]:
    """Return how probable starts and moves were, in each part."""
    groups = _groups(beliefs.model)
    counted = []
    for trips in parts:
        adder = _Adder(beliefs, groups)
        smooth(beliefs, trips, adder.started, moved=adder.moved, rested=adder.rested, only_first=True)
        counted.append(adder.total())
    return counted


@dataclass(frozen=True, eq=False)
class _Moves:
    """How often trips started at each state and made each move, as expected."""

    starts: Floats
    counts: Floats
    """Of moves before reports that differ from the last."""
    held: Floats
    """Of moves that stay at a place, by reports that are held."""

    @classmethod
    def none(cls, model: MotionModel) -> _Moves:
        return cls(np.zeros(len(model)), np.zeros(len(model.chances)), np.zeros(len(model.chances)))

    def add(self, other: _Moves) -> None:
        self.starts[:] += other.starts
        self.counts[:] += other.counts
        self.held[:] += other.held


class _Adder:
    """Adds up how probable starts and moves were."""

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
            How probable each state was before the step, by earlier reports, shape (N, B).
        after
            How probable later reports are from each state after it, such that all moves together have probability 1.
        """
        self._before.append(before)
        self._after.append(after)
        if sum(part.shape[1] for part in self._before) >= _COLUMNS_AT_ONCE:
            self._flush()

    def rested(self, before: Singles) -> None:
        """Count one step of vehicles that stayed where they were, by their states before it, shape (N, B)."""
        self._rested += before.sum(axis=1, dtype=np.float64)

    def _flush(self) -> None:
        if not self._before:
            return
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
    """Return states that lead to the same states: their numbers, those they lead to, and the moves between them.

    Moves of a group are counted by one product of matrices.
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
    """What was known before, and how it gives way to counts."""

    first: MotionModel
    state: Ints
    """Of each move, the state that it leaves."""
    pair: Ints
    """Of each move, a number for the places that it leads from and to."""
    source: Ints
    """Of each pair, the place that it leads from."""
    chances: Floats
    """Of each pair, how probable it was before, whatever came earlier."""

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
        """Return how vehicles move before a report that is not held, if this share of stays is."""
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
        """Return the model after counts: moves from place to place, then by what came before, then starts."""
        counts, states, places = moves.counts + moves.held, len(model), model.place_count
        of_pair = summed(counts, self.pair, len(self.chances))
        by_place = normalised(of_pair + _TRUST_MOVES * self.chances, self.source, places)
        changed = by_place / np.maximum(self.chances, _TINY)
        chances = normalised(self.first.chances * changed[self.pair], self.state, states)
        if len(of_pair) < len(counts):  # otherwise places are states, and their counts must not count twice
            chances = normalised(counts + _TRUST_MOVES * chances, self.state, states)
        starts = moves.starts + _TRUST_STARTS * self.first.start
        return replace(model, chances=chances.astype(np.float32), start=(starts / starts.sum()).astype(np.float32))
