"""A motion model from a map, from walks, or from both, each place with the memory that it needs.

Where counts are few they are mixed with what is known more broadly, by Witten and Bell's weights: a history that was
seen c times and followed by k different places trusts itself by c / (c + k). From the inside out:

    places near by  ←  trips driven over the roads  ←  walks        from the present place alone
    from the present place alone  ←  trips driven  ←  walks         with the place before
    with the place before  ←  trips driven  ←  walks                with two places before
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._progress import Progress, silent
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import HistoryCounts, count_histories
from geoblanket.mobility.next_places import backed_off, near_places
from geoblanket.mobility.splitting import Part, Split
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.tracking.motion_model import LONGEST_MEMORY, MotionModel
from geoblanket.tracking.road_trips import count_steps, drive

__all__ = ["DEFAULT_INTERVAL_S", "Lengths", "learn_motion", "model_of_counts"]

Lengths = Callable[[Indices, Indices], Ints]
"""Gives the order of the chain, 1 or more, for pairs of the place at t and the place at t − 1."""

DEFAULT_INTERVAL_S: Final = 30.0
_LONGEST_MOVE_M_S: Final = 50.0
_TYPICAL_MOVE_M_S: Final = 250 / 30
_RARE_MOVE: Final = 2e-4
"""Moves that are less probable are left out: most of all pairs of places, and of hardly any use."""
_RARE_HISTORY: Final = 5
"""A state of three places is made where its history was seen so often; otherwise the last two stand for it."""
_UNSEEN: Final = 0.5
"""Share of a place in what is seen on average that it has without being seen."""


def learn_motion(
    graph: RoadGraph,
    places: Places,
    *,
    walks: str | Path | None = None,
    part: Part = "all",
    split: Split | None = None,
    order: int | Lengths = 2,
    interval_s: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> MotionModel:
    """Learn how vehicles move.

    Parameters
    ----------
    graph, places
        The roads, and the places between which vehicles move.
    walks
        A table written by `geoblanket match`; None: the model knows the roads alone.
    part, split
        Which of the walks to learn from; by default all.
    order
        How many of the last places matter, 1 to 3, everywhere; or a function that says it by the last two places.
    interval_s
        Seconds of a step, without walks (by default 30); walks have their own.
    seed
        Of the trips driven over the roads.

    Raises
    ------
    MismatchError
        If the walks were matched to other places.
    """
    memory = LONGEST_MEMORY if callable(order) else order
    if not callable(order) and not 1 <= order <= LONGEST_MEMORY:
        raise ParameterError(f"The order of a motion model is 1 to {LONGEST_MEMORY}. Got {order} instead.")
    learned: dict[str, Any] = {"roads": graph.identity, "spacing_m": places.spacing_m, "seed": seed}
    counts = None
    if walks is not None:
        _, about = scan_walks(walks)
        if interval_s is not None and interval_s != about["interval_s"]:
            raise ParameterError(
                f"The walks have a step every {about['interval_s']:g} s. Got {interval_s:g} s instead: leave it out."
            )
        interval_s = float(about["interval_s"])
        counts = count_histories(walks, places, largest=max(memory - 1, 1), part=part, split=split, progress=progress)
        learned |= {"walks": str(about.get("method", "")), "part": part, "steps": int(counts.count.sum())}
    interval_s = DEFAULT_INTERVAL_S if interval_s is None else interval_s
    driven = count_steps(
        drive(graph, places, interval_s=interval_s, seed=seed, progress=progress), largest=max(memory - 1, 1)
    )
    learned |= {
        "from": "roads" if counts is None else "roads and walks",
        "order": "by blanket" if callable(order) else str(order),
    }
    return model_of_counts(places, driven, counts, order=order, interval_s=interval_s, learned=learned)


def model_of_counts(
    places: Places,
    driven: HistoryCounts,
    walked: HistoryCounts | None,
    *,
    order: int | Lengths,
    interval_s: float,
    learned: dict[str, Any],
) -> MotionModel:
    """Return the model of histories that were counted on trips driven over the roads, and on walks if there are any."""
    evidence = [driven] if walked is None else [driven, walked]
    first = _by_present(places, evidence, interval_s)
    chain = _Chain(first, evidence, order)
    return MotionModel(
        places_e7=places.coordinates_e7,
        places_identity=places.identity,
        interval_s=interval_s,
        states=chain.states,
        start=chain.start(_starts(evidence, len(places)), _visits(evidence, len(places))),
        offsets=chain.offsets,
        targets=chain.targets,
        chances=chain.chances.astype(np.float32),
        learned=learned,
    )


def _by_present(places: Places, evidence: list[HistoryCounts], interval_s: float) -> csr_array[Any, tuple[int, int]]:
    """Return where vehicles go from each place, whatever was before, without rare moves; shape (P, P)."""
    count = len(places)
    moves = near_places(
        places,
        np.arange(count, dtype=np.int32),
        reach_m=_LONGEST_MOVE_M_S * interval_s,
        typical_m=_TYPICAL_MOVE_M_S * interval_s,
    )
    for counts in evidence:
        seen = csr_array(
            (counts.count.astype(np.float64), (counts.histories[:, 0], counts.next_place)), shape=(count, count)
        )
        seen.sum_duplicates()
        moves = backed_off(seen, moves)
    moves.data[moves.data < _RARE_MOVE] = 0.0
    moves.eliminate_zeros()
    moves.sort_indices()
    moves.data /= np.repeat(np.asarray(moves.sum(axis=1)).ravel(), np.diff(moves.indptr))
    return moves


class _Chain:
    """States and their moves: each state has a move to every place that its present place leads to."""

    def __init__(
        self, first: csr_array[Any, tuple[int, int]], evidence: list[HistoryCounts], order: int | Lengths
    ) -> None:
        self._first, self._evidence = first, evidence
        self._count = first.shape[0]
        self._degree = np.diff(first.indptr).astype(np.int64)
        before = np.repeat(np.arange(self._count, dtype=np.int32), self._degree)
        now = first.indices.astype(np.int32)
        lengths = np.minimum(order(now, before) if callable(order) else order, LONGEST_MEMORY)
        self._lengths: Ints = np.broadcast_to(np.asarray(lengths, np.int64), now.shape)
        """The order at each pair of places that follow one another, in the order of the moves of `first`."""
        # Where some pair needs no memory the place alone is a state; the first place of a trip is not, since a pair
        # is never far: it is drawn from the pairs that lead there.
        alone = np.unique(now[self._lengths == 1])
        pairs = np.flatnonzero(self._lengths >= 2)
        triples = self._triples()
        self.states: Indices = np.full((len(alone) + len(pairs) + len(triples), self._memory(triples)), -1, np.int32)
        self.states[: len(alone), 0] = alone
        second = slice(len(alone), len(alone) + len(pairs))
        if len(pairs):
            self.states[second, 0], self.states[second, 1] = now[pairs], before[pairs]
        if len(triples):
            self.states[second.stop :] = triples
        # State numbers of a place alone, of a pair (by its position in `first`) and of triples.
        self._of_alone = np.full(self._count, -1, np.int64)
        self._of_alone[alone] = np.arange(len(alone))
        self._of_pair = np.where(self._lengths >= 2, 0, self._of_alone[now])
        self._of_pair[pairs] = np.arange(second.start, second.stop)
        self._triple_keys = self._key(self._pair(triples[:, 1], triples[:, 0]), triples[:, 2])
        order_of_keys = np.argsort(self._triple_keys)
        self._triple_keys, self._of_triple = self._triple_keys[order_of_keys], second.stop + order_of_keys
        self.offsets, self.targets, self.chances = self._moves()

    def _memory(self, triples: Indices) -> int:
        return 3 if len(triples) else 1 + int((self._lengths >= 2).any())

    def _triples(self) -> Indices:
        """Return the histories of three places that were seen often enough, where the order is 3; shape (n, 3)."""
        histories, counts = [], []
        for seen in self._evidence:
            if seen.largest >= 2:
                known = seen.depth >= 2
                histories.append(seen.histories[known, :3])
                counts.append(seen.count[known])
        if not histories or not (self._lengths >= 3).any():
            return np.empty((0, 3), np.int32)
        unique, which = np.unique(np.concatenate(histories), axis=0, return_inverse=True)
        often = unique[np.bincount(which.ravel(), np.concatenate(counts)) >= _RARE_HISTORY]
        last, earlier = self._pair(often[:, 1], often[:, 0]), self._pair(often[:, 2], often[:, 1])
        exist = (last >= 0) & (earlier >= 0)
        often, last, earlier = often[exist], last[exist], earlier[exist]
        # A state of three places is only entered from one of two or three.
        kept: Indices = often[(self._lengths[last] >= 3) & (self._lengths[earlier] >= 2)]
        return kept

    def _pair(self, before: Indices, now: Indices) -> Ints:
        """Return the position in `first` of pairs of places, −1 where no move leads from the one to the other."""
        keys = np.repeat(np.arange(self._count, dtype=np.int64), self._degree) * self._count + self._first.indices
        asked = before.astype(np.int64) * self._count + now
        position = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
        return np.where(keys[position] == asked, position, -1)

    def _key(self, pair: Ints, place: Indices) -> Ints:
        key: Ints = pair * self._count + place
        return key

    def _moves(self) -> tuple[Ints, Indices, Floats]:
        present = self.states[:, 0].astype(np.int64)
        degree = self._degree[present]
        offsets = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
        source = np.repeat(np.arange(len(self.states)), degree)
        move = self._first.indptr[present][source] + np.arange(len(source)) - offsets[source]
        chances = self._first.data[move].astype(np.float64)
        for places in (2, 3):
            for counts in self._evidence:
                chances = self._mixed(chances, offsets, source, counts, places)
        return offsets, self._entered(source, move), chances

    def _mixed(self, chances: Floats, offsets: Ints, source: Ints, counts: HistoryCounts, places: int) -> Floats:
        """Mix the moves of states that have at least so many places with what was counted for these."""
        if counts.largest < places - 1 or self.states.shape[1] < places:
            return chances
        known = counts.depth >= places - 1
        histories, later, count = counts.histories[known], counts.next_place[known], counts.count[known]
        numbers = self._states_of(histories, places)
        own = np.flatnonzero((self.states[:, places - 1] >= 0) & self._shortest(places))
        # A state of three places learns from pairs through the pair that it extends.
        parts = [(own, own)]
        if places == 2 and self.states.shape[1] == 3:
            longer = np.flatnonzero(self.states[:, 2] >= 0)
            parts.append((longer, self._of_pair[self._pair(self.states[longer, 1], self.states[longer, 0])]))
        result = chances.copy()
        table, totals, kinds = self._counted(numbers, later, count)
        for states, like in parts:
            chosen = np.zeros(len(self.states), bool)
            chosen[states] = True
            alike = np.arange(len(self.states))
            alike[states] = like
            rows = np.flatnonzero(chosen[source])
            state = alike[source[rows]]
            asked = state * self._count + self._first.indices[self._move_place(rows, source, offsets)]
            position = np.searchsorted(table[0], asked).clip(max=max(len(table[0]) - 1, 0))
            found = table[1][position] * (table[0][position] == asked) if len(table[0]) else np.zeros(len(rows))
            total, kind = totals[state], kinds[state]
            both = np.maximum(total + kind, 1.0)
            result[rows] = np.where(total > 0, (found + kind * chances[rows]) / both, chances[rows])
        sums = np.add.reduceat(result, offsets[:-1])
        normalised: Floats = result / sums[source]
        return normalised

    def _move_place(self, rows: Ints, source: Ints, offsets: Ints) -> Ints:
        present = self.states[:, 0].astype(np.int64)
        move: Ints = self._first.indptr[present][source[rows]] + rows - offsets[source[rows]]
        return move

    def _shortest(self, places: int) -> Bools:
        """Return which states have exactly so many places."""
        exactly: Bools = (self.states >= 0).sum(axis=1) == places
        return exactly

    def _states_of(self, histories: Indices, places: int) -> Ints:
        """Return the state of exactly so many places that each history is in, −1 for none."""
        pair = self._pair(histories[:, 1], histories[:, 0])
        if places == 2:
            return np.where((pair >= 0) & (self._lengths[pair] >= 2), self._of_pair[pair], -1)
        return self._triple(pair, histories[:, 2])

    def _triple(self, pair: Ints, third: Indices) -> Ints:
        if not len(self._triple_keys):
            return np.full(len(pair), -1, np.int64)
        asked = self._key(pair, third)
        position = np.searchsorted(self._triple_keys, asked).clip(max=len(self._triple_keys) - 1)
        return np.where((pair >= 0) & (self._triple_keys[position] == asked), self._of_triple[position], -1)

    def _counted(self, states: Ints, later: Indices, count: Ints) -> tuple[tuple[Ints, Floats], Floats, Floats]:
        """Return how often each state was followed by each place, and how often and by how many in all.

        Places that the state's present place does not lead to are left out.
        """
        good = states >= 0
        states, later, count = states[good], later[good], count[good]
        reached = self._pair(self.states[states, 0], later) >= 0
        keys, which = np.unique(states[reached] * self._count + later[reached], return_inverse=True)
        sums = np.bincount(which, count[reached], len(keys)).astype(np.float64)
        of_keys = keys // self._count
        size = len(self.states)
        return (
            (keys, sums),
            np.bincount(of_keys, sums, size).astype(np.float64),
            np.bincount(of_keys, minlength=size).astype(np.float64),
        )

    def _entered(self, source: Ints, move: Ints) -> Indices:
        """Return the state after each move: the longest for the new history that there is."""
        target = self._of_pair[move]
        if self.states.shape[1] == 3:
            # (next, present, before): only where the state before the move knows its earlier place.
            before = self.states[source, 1]
            knows = (before >= 0) & (self._lengths[move] >= 3)
            longer = self._triple(move[knows], before[knows])
            target[knows] = np.where(longer >= 0, longer, target[knows])
        return target.astype(np.int32)

    def start(self, starts: Floats, visits: Floats) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the belief over states where a vehicle's trip starts by these shares of places.

        What came before is as usual: earlier places by how often they are visited, and lead there.
        """
        before = np.repeat(np.arange(self._count), self._degree)
        flow = visits[before] * self._first.data
        into = np.bincount(self._first.indices, flow, self._count)
        share = flow / into[self._first.indices]
        belief = np.bincount(self._of_pair, share * starts[self._first.indices], len(self.states))
        result: np.ndarray[Any, np.dtype[np.float32]] = (belief / belief.sum()).astype(np.float32)
        return result


def _starts(evidence: list[HistoryCounts], places: int) -> Floats:
    """Return how often trips start at each place, as shares."""
    counts = evidence[-1]
    return _shares(np.bincount(counts.histories[:, 0], np.where(counts.depth == 0, counts.count, 0), places))


def _visits(evidence: list[HistoryCounts], places: int) -> Floats:
    """Return how often vehicles are at each place, as shares."""
    counts = evidence[-1]
    return _shares(np.bincount(counts.histories[:, 0], counts.count, places))


def _shares(seen: npt.NDArray[Any]) -> Floats:
    total = max(float(seen.sum()), 1.0)
    shares: Floats = seen / total + _UNSEEN / len(seen) * min(1.0, len(seen) / total + 0.1)
    return shares / float(shares.sum())
