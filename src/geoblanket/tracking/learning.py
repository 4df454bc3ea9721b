"""Learn a motion model from a map, from walks, or from both, with as much memory as each place needs.

Counts of a history are mixed with a broader distribution by Witten and Bell's weights: a history that was seen c times,
followed by k different places, has the weight c / (c + k). Each line is made from left to right:

    places near by  ←  trips driven over the roads  ←  walks        from the present place alone
    from the present place alone  ←  trips driven  ←  walks         with the place before
    with the place before  ←  trips driven  ←  walks                with two places before

`BlanketOrders` gives the order of the model at each pair of places: the length of the Markov blanket that was found, or
predicted, there. A blanket of length γ says that the last γ places matter to the next one: a chain of order γ. The
length depends on the speed between the two places and on the region of the present place. The default is order 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket.build.blanket_lengths import (
    KnownLengths,
    LengthSource,
    check_source,
    read_source,
    regions_of_source,
)
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import Distributions, HistoryCounts, backed_off, count_histories, near_places
from geoblanket.mobility.walks import Part, Split, scan_walks, split_walks, write_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.roads.zones import Zones
from geoblanket.tracking.motion_model import LONGEST_MEMORY, MotionModel, Singles, TripShape
from geoblanket.tracking.synthetic_walks import count_steps, drive

_HOURS: Final = tuple(range(24))
Lengths = Callable[[Indices, Indices], Ints]
"""Returns the order of the chain, 1 or more, for pairs of the place at t and the place at t − 1."""

DEFAULT_INTERVAL_S: Final = 30.0
_LONGEST_MOVE_M_S: Final = 50.0
_TYPICAL_MOVE_M_S: Final = 250 / 30
_RARE_MOVE: Final = 2e-4
"""Less probable moves are left out: they are most of all pairs of places, and of hardly any use."""
_RARE_HISTORY: Final = 5
"""A history of three places that was seen less often gets no state; its last two places stand for it."""
_UNSEEN: Final = 0.5
"""Added to the count of each place, so that none is impossible."""


@checked
@dataclass(frozen=True, eq=False)
class BlanketOrders:
    """Orders by Markov blankets, for the `order` of `learn_motion`.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places, learn_motion, load_predictor
    >>> from geoblanket.tracking import BlanketOrders
    >>> graph = RoadGraph.load("city.roads")
    >>> places = choose_places(graph, spacing_m=500)
    >>> orders = BlanketOrders.of(load_predictor("city.blanket"), places, interval_s=30)
    >>> learn_motion(graph, places, order=orders).learned["order"]
    'by blanket'
    """

    lengths: KnownLengths

    @classmethod
    @checked
    def of(
        cls, source: LengthSource, places: Places, *, interval_s: float, zones: Zones | None = None
    ) -> BlanketOrders:
        """Return the orders by findings or by a predictor.

        A motion model does not know the hour: the longest blanket of a day counts.

        Parameters
        ----------
        interval_s
            Length of a step of the model, seconds.
        zones
            The zones that the blankets were found for, where this was not a grid.

        Raises
        ------
        MismatchError
            If blankets were found for another interval, or for other zones.
        """
        check_source(source, interval_s=interval_s, time_zone=source.origin.time_zone)
        return cls(KnownLengths(source, places, regions_of_source(source, places, zones), _HOURS, interval_s))

    def __call__(self, now: Indices, before: Indices) -> Ints:
        """Return the order for each pair of the place at t and the place at t − 1, from 1 to 3."""
        orders: Ints = np.clip(self.lengths(now, before), 1, LONGEST_MEMORY).astype(np.int64)
        return orders

    def __repr__(self) -> str:
        by = self.lengths.source.origin.by or "nothing"
        return short_repr(self, f"blankets by {by}", counted(len(self.lengths.places), "place"))


@checked
def read_orders(
    places: Places,
    *,
    interval_s: float,
    findings: str | Path | None = None,
    predictor: str | Path | None = None,
    zones: Zones | None = None,
) -> BlanketOrders:
    """Read findings, from `geoblanket blanket discover`, or a predictor, from `geoblanket blanket train`.

    Parameters
    ----------
    findings, predictor
        Give one of them.
    interval_s, zones
        As for `BlanketOrders.of`.

    Raises
    ------
    InputError
        If the file cannot be used.
    MismatchError
        If the file is for another interval, or for other zones.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places
    >>> from geoblanket.tracking import read_orders
    >>> places = choose_places(RoadGraph.load("city.roads"), spacing_m=500)
    >>> orders = read_orders(places, interval_s=30, predictor="city.blanket")
    >>> here, _ = places.nearest([45.001], [-30.002])
    >>> orders(here, here).tolist() in ([1], [2], [3])  # for a vehicle at rest
    True
    """
    source = read_source(findings=findings, predictor=predictor)
    return BlanketOrders.of(source, places, interval_s=interval_s, zones=zones)


@checked
@takes_frames(walks=write_walks)
def learn_motion(
    graph: RoadGraph,
    places: Places,
    *,
    walks: str | Path | AnyFrame | None = None,
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
        A table written by `geoblanket match`, or `Walks` of a data frame; None: the model knows the roads alone.
    split
        Learn from the training part of this split; None: from all walks.
    order
        How many of the last places matter, 1 to 3: a number for all places, or a function of the last two places.
    interval_s
        Length of a step, seconds; by default that of the walks, or 30 without walks.
    seed
        Seed of the trips simulated over the roads.

    Raises
    ------
    MismatchError
        If the walks were matched to other places.

    Examples
    --------
    >>> from geoblanket import RoadGraph, choose_places, learn_motion
    >>> graph = RoadGraph.load("city.roads")
    >>> model = learn_motion(graph, choose_places(graph, spacing_m=500), order=2)
    >>> model.in_words()
    'from the road network alone'
    >>> model.save("city.model")
    """
    memory = LONGEST_MEMORY if callable(order) else order
    if not callable(order) and not 1 <= order <= LONGEST_MEMORY:
        raise ParameterError(f"The order of a motion model is 1 to {LONGEST_MEMORY}. Got {order} instead.")
    learned: dict[str, Any] = {"roads": graph.identity, "spacing_m": places.spacing_m, "seed": seed}
    counts = trips = None
    if walks is not None:
        frame, about = scan_walks(walks)
        if interval_s is not None and interval_s != about["interval_s"]:
            raise ParameterError(
                f"The walks have a step every {about['interval_s']:g} s. Got {interval_s:g} s instead: leave it out."
            )
        interval_s = float(about["interval_s"])
        part: Part = "all" if split is None else "train"
        counts = count_histories(walks, places, largest=max(memory - 1, 1), part=part, split=split, progress=progress)
        parts = split_walks(frame, path=walks, part=part, split=split or Split())
        trips = TripShape.of(parts.start_hour[parts.chosen], parts.length[parts.chosen])
        learned |= {"walks": str(about.get("method", "")), "part": part, "steps": int(counts.count.sum())}
        learned |= {name: about[name] for name in ("training",) if name in about}
    interval_s = DEFAULT_INTERVAL_S if interval_s is None else interval_s
    road_trips = drive(graph, places, interval_s=interval_s, seed=seed, progress=progress)
    driven = count_steps(road_trips, largest=max(memory - 1, 1))
    learned |= {
        "from": "roads" if counts is None else "roads and walks",
        "order": "by blanket" if callable(order) else str(order),
    }
    _, off_m = places.nearest(graph.lat, graph.lon)
    model = model_of_counts(
        places,
        driven,
        counts,
        order=order,
        interval_s=interval_s,
        learned=learned,
        trips=trips or TripShape.of(None, road_trips.lengths),
    )
    return replace(model, spread_m=float(np.sqrt(np.mean(off_m**2))))


def model_of_counts(
    places: Places,
    driven: HistoryCounts,
    walked: HistoryCounts | None,
    *,
    order: int | Lengths,
    interval_s: float,
    learned: dict[str, Any],
    trips: TripShape | None = None,
) -> MotionModel:
    """Return the model of counted histories.

    Parameters
    ----------
    driven, walked
        Histories of trips simulated over the roads, and of walks if there are any.
    trips
        When trips start and how long they are; by default `TripShape.usual`.
    """
    trips = TripShape.usual(interval_s) if trips is None else trips
    evidence = [driven] if walked is None else [driven, walked]
    moves = _Moves.of(_by_present(places, evidence, interval_s))
    lengths = order(moves.targets, moves.sources) if callable(order) else order
    chain = _Chain.of(moves, np.broadcast_to(np.minimum(lengths, LONGEST_MEMORY), moves.targets.shape), evidence)
    return MotionModel(
        places_e7=places.coordinates_e7,
        places_identity=places.identity,
        interval_s=interval_s,
        states=chain.states,
        start=chain.start(*_shares_of_places(evidence[-1], len(places))),
        offsets=chain.rows.offsets,
        targets=chain.entered(),
        chances=chain.rows.chances.astype(np.float32),
        learned=learned,
        hours=trips.hours,
        lengths=trips.lengths,
    )


def _by_present(places: Places, evidence: list[HistoryCounts], interval_s: float) -> Distributions:
    """Return the distribution of the next place by the present place alone, without rare moves, shape (P, P)."""
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


@dataclass(frozen=True, eq=False)
class _Moves:
    """All moves from place to place; every state with the same present place has the same moves."""

    places: int
    offsets: Ints
    sources: Indices
    targets: Indices
    chances: Floats
    keys: Ints
    """Source and target in one number, ascending."""

    @classmethod
    def of(cls, matrix: Distributions) -> _Moves:
        places = matrix.shape[0]
        offsets = matrix.indptr.astype(np.int64)
        sources = np.repeat(np.arange(places, dtype=np.int32), np.diff(offsets))
        keys = sources.astype(np.int64) * places + matrix.indices
        return cls(places, offsets, sources, matrix.indices.astype(np.int32), matrix.data, keys)

    def number(self, sources: Indices, targets: Indices) -> Ints:
        """Return the numbers of moves, −1 where there is none."""
        return find_keys(self.keys, sources.astype(np.int64) * self.places + targets)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The moves of states: each state has every move of its present place, with its own probabilities."""

    offsets: Ints
    state: Ints
    """The state of each entry."""
    move: Ints
    """The number of each entry's move."""
    chances: Floats

    @classmethod
    def of(cls, moves: _Moves, present: Indices) -> _Rows:
        """Return the rows of states with these present places, with the probabilities of order 1."""
        degree = np.diff(moves.offsets)[present]
        offsets = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
        state = np.repeat(np.arange(len(present)), degree)
        move = moves.offsets[present][state] + np.arange(len(state)) - offsets[state]
        return cls(offsets, state, move, moves.chances[move])

    def with_chances(self, chances: Floats) -> _Rows:
        return _Rows(self.offsets, self.state, self.move, chances)

    def of_states(self, states: Ints) -> Floats:
        """Return the probabilities of some states, state after state."""
        degree = np.diff(self.offsets)[states]
        first = np.repeat(self.offsets[states] - np.cumsum(degree) + degree, degree)
        chances: Floats = self.chances[first + np.arange(len(first))]
        return chances

    def mixed(self, moves: _Moves, states: Ints, later: Indices, count: Ints) -> _Rows:
        """Mix the rows with counts by Witten and Bell's weights.

        Parameters
        ----------
        states, later, count
            How often each place came after each state (−1: a state that there is not).
        """
        size = len(self.offsets) - 1
        known = np.flatnonzero(states >= 0)
        entries = find_keys(
            self.state * moves.places + moves.targets[self.move], states[known] * moves.places + later[known]
        )
        seen = np.bincount(entries[entries >= 0], count[known][entries >= 0], len(self.chances))
        total = np.bincount(self.state, seen, size)
        kinds = np.bincount(self.state, seen > 0, size)
        trust = 1 / np.maximum(total + kinds, 1)
        return self.with_chances(
            np.where(total[self.state] > 0, (seen + kinds[self.state] * self.chances) * trust[self.state], self.chances)
        )


@dataclass(frozen=True, eq=False)
class _Chain:
    """States of one place, then of two, then of three, and their moves."""

    moves: _Moves
    of_move: Ints
    """The state, of one place or two, that each move leads to."""
    triple_keys: Ints
    """A move and the place before it in one number, ascending, of each state of three places."""
    states: Indices
    rows: _Rows
    lengths: Ints

    @classmethod
    def of(cls, moves: _Moves, lengths: Ints, evidence: list[HistoryCounts]) -> _Chain:
        """Make the chain whose order is given for each move.

        A place alone is a state if some move that leads there has order 1.
        """
        # The states: a place after moves of order 1, a move for order 2 or more, a frequent triple for order 3.
        alone, pairs = np.unique(moves.targets[lengths == 1]), np.flatnonzero(lengths >= 2)
        triple_keys = _triple_keys(moves, lengths, evidence)
        move, third = np.divmod(triple_keys, moves.places)
        of_move = np.searchsorted(alone, moves.targets)
        of_move[pairs] = len(alone) + np.arange(len(pairs))
        memory = 3 if len(triple_keys) else 2 if len(pairs) else 1
        states = np.full((len(alone) + len(pairs) + len(triple_keys), memory), -1, np.int32)
        states[: len(alone), 0] = alone
        if memory > 1:
            last = np.concatenate([pairs, move])
            states[len(alone) :, :2] = np.column_stack([moves.targets[last], moves.sources[last]])
        if memory > 2:
            states[len(alone) + len(pairs) :, 2] = third
        # Probabilities from short to long histories: each starts from the shorter one and is mixed with its counts.
        by_pair, by_triple = (_Rows.of(moves, moves.targets[some]) for some in (pairs, move))
        pair_of_move = np.full(len(lengths), -1, np.int64)
        pair_of_move[pairs] = np.arange(len(pairs))
        for counts in evidence:
            known = counts.where(counts.depth >= 1)
            pair = moves.number(known.histories[:, 1], known.histories[:, 0])
            by_pair = by_pair.mixed(moves, np.where(pair >= 0, pair_of_move[pair], -1), known.next_place, known.count)
        by_triple = by_triple.with_chances(by_pair.of_states(pair_of_move[move]))
        for counts in evidence if memory > 2 else ():
            known = counts.where(counts.depth >= 2)
            triple = find_keys(triple_keys, _triple_key(moves, known.histories))
            by_triple = by_triple.mixed(moves, triple, known.next_place, known.count)
        rows = _Rows.of(moves, states[:, 0])
        own = slice(rows.offsets[len(alone)], None)
        rows.chances[own] = np.concatenate([by_pair.chances, by_triple.chances])
        return cls(moves, of_move, triple_keys, states, rows, lengths)

    def entered(self) -> Indices:
        """Return the state after each move of a state: the longest state that the new history has."""
        rows = self.rows
        entered = self.of_move[rows.move]
        if self.states.shape[1] > 2:
            # A triple needs the place before the present one, which states of one place do not know.
            before = self.states[rows.state, 1].astype(np.int64)
            longer = find_keys(self.triple_keys, np.where(before >= 0, rows.move * self.moves.places + before, -1))
            first = len(self.states) - len(self.triple_keys)
            entered = np.where(longer >= 0, first + longer, entered)
        return entered.astype(np.int32)

    def start(self, starts: Floats, visits: Floats) -> Singles:
        """Return the belief over states at the start of a trip, given the shares of places.

        The place before is taken as usual: in proportion to visits times the probability of the move.
        """
        flow = visits[self.moves.sources] * self.moves.chances
        into = np.bincount(self.moves.targets, flow, self.moves.places)
        share = flow / into[self.moves.targets] * starts[self.moves.targets]
        belief = np.bincount(self.of_move, share, len(self.states))
        result: Singles = (belief / belief.sum()).astype(np.float32)
        return result


def _triple_key(moves: _Moves, histories: Indices) -> Ints:
    """Return a move and the place before it in one number, for histories of three places; −1 if no such move exists."""
    move = moves.number(histories[:, 1], histories[:, 0])
    return np.where(move >= 0, move * moves.places + histories[:, 2], -1)


def _triple_keys(moves: _Moves, lengths: Ints, evidence: list[HistoryCounts]) -> Ints:
    """Return the keys, ascending, of histories of three places that are frequent and whose move has order 3."""
    if not (lengths >= 3).any():
        return np.empty(0, np.int64)
    known = HistoryCounts.joined([counts.where(counts.depth >= 2) for counts in evidence])
    keys, which = np.unique(_triple_key(moves, known.histories), return_inverse=True)
    keys = keys[(np.bincount(which, known.count) >= _RARE_HISTORY) & (keys >= 0)]
    move, third = np.divmod(keys, moves.places)
    # A state of three places is entered from a state of two, so the earlier move must have order 2 or more.
    earlier = moves.number(third, moves.sources[move])
    kept: Ints = keys[(lengths[move] >= 3) & (earlier >= 0) & (lengths[earlier] >= 2)]
    return kept


def find_keys(ascending: Ints, asked: Ints) -> Ints:
    """Return the position of each number among ascending ones, −1 where it is absent."""
    if not len(ascending):
        return np.full(len(asked), -1, np.int64)
    position = np.searchsorted(ascending, asked).clip(max=len(ascending) - 1)
    return np.where(ascending[position] == asked, position, -1)


def _shares_of_places(counts: HistoryCounts, places: int) -> tuple[Floats, Floats]:
    """Return the share of each place among starts of trips, and among all steps; both positive."""
    at_start = np.where(counts.depth == 0, counts.count, 0)
    seen = [np.bincount(counts.histories[:, 0], weights, places) for weights in (at_start, counts.count)]
    starts, visits = ((part + _UNSEEN) / (part + _UNSEEN).sum() for part in seen)
    return starts, visits
