"""What an attacker knows of how vehicles move in a zone: a hidden Markov chain, from training walks, smoothed.

A state is a present place of the zone, with the place before it (anywhere) if the model has a memory of 1. Where a
vehicle goes from a state is estimated as `mobility.next_places` does: the state's own counts, backed off to those of
its present place, backed off to places near by. Pairs of places that were never seen in a row, and that this makes less
probable than 1 in 10,000, are left out: they would be most of all states, and of hardly any use.

A vehicle may leave the zone. The chance to leave is kept, so the transitions from a state sum to less than 1: what is
computed from them is conditional on the vehicle having stayed for as long as it reported from the zone, which the
reports tell anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack

from geoblanket._arrays import Floats, Ints
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mobility.histories import HistoryCounts
from geoblanket.mobility.next_places import backed_off

__all__ = ["MobilityModel"]

Sparse = csr_array[Any, tuple[int, int]]

_TYPICAL_KM: Final = 0.3
"""Where nothing was seen, the probability of a place falls by a factor e over this distance."""
_RARE: Final = 1e-4
"""Pairs of places that were never seen in a row, and are no more probable than this, are no states."""
_PSEUDO_COUNT: Final = 0.1
"""Steps that each place is taken to have seen besides those that it has, as in the prior of rows."""


@dataclass(frozen=True, eq=False)
class MobilityModel:
    """A hidden Markov chain over the places of a zone, usually made by `MobilityModel.from_counts`.

    The transition matrix is `own` + `leave` @ `back`: transitions seen from a state itself, and those borrowed from its
    present place. Kept apart, they have far fewer entries than their sum.

    Examples
    --------
    With the `rows` and the `counts` in the example of `make_rows`:

    >>> from geoblanket.evaluate import MobilityModel
    >>> model = MobilityModel.from_counts(rows, counts)
    >>> f"{model.start.sum():.6f}"
    '1.000000'
    """

    zone: Ints
    """The places of the zone, ascending, shape (P,)."""
    states: Ints
    """The place at t, and t − 1 if the model has a memory, of each state, shape (N, 1 or 2)."""
    start: Floats
    """How probable each state is at any time, shape (N,)."""
    own: Sparse | Floats
    """Shape (N, N)."""
    leave: Sparse
    """Shape (N, G)."""
    back: Sparse
    """Shape (G, N)."""
    seen: HistoryCounts
    """The histories that were seen in the zone."""

    @classmethod
    def from_counts(cls, rows: ZoneRows, counts: HistoryCounts, *, memory: int = 1) -> MobilityModel:
        """Estimate the model from histories of training walks.

        Parameters
        ----------
        rows
            Rows of any mechanism of the zone: only its places are used, so that all mechanisms meet the same attacker.
        counts
            Histories of training walks and the place one step later (a delay of 1); those elsewhere are left out.
        memory
            1: where a vehicle goes depends on its place and the one before; 0: on its place only.
        """
        if memory not in (0, 1) or memory > counts.largest:
            raise ParameterError(
                f"The memory of a mobility model is 0 or 1 earlier places, and histories must have as many. "
                f"Got {memory}, and histories with {counts.largest}."
            )
        zone = rows.zone.astype(np.int64)
        seen = counts.where(np.isin(counts.histories[:, 0], zone))
        histories, now = seen.histories[:, :2].astype(np.int64), np.searchsorted(zone, seen.histories[:, 0])
        # Places of the zone, and one more column for all that is elsewhere.
        later = np.searchsorted(zone, seen.next_place).clip(max=len(zone) - 1)
        later = np.where(zone[later] == seen.next_place, later, len(zone))
        first = _summed(now, later, seen.count, (len(zone), len(zone) + 1))
        by_place = backed_off(first, _near(rows))[:, :-1].toarray()
        own: Sparse | Floats
        if memory == 0:
            states, of_seen = zone[:, None], now
            own, leave, back = by_place, _empty(len(zone), 0), _empty(0, len(zone))
        else:
            before, after = np.nonzero((by_place > _RARE) | (first[:, :-1].toarray() > 0))
            states = np.unique(np.concatenate([zone[np.column_stack([after, before])], histories]), axis=0)
            of_seen = _position(states, histories)
            steps = _summed(of_seen, later, seen.count, (len(states), len(zone) + 1))
            own, leave, back = _transitions(zone, states, steps, by_place)
        return cls(zone, states, _start(np.searchsorted(zone, states[:, 0]), of_seen, seen), own, leave, back, seen)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def memory(self) -> int:
        """How many earlier places a state has."""
        return int(self.states.shape[1]) - 1

    @cached_property
    def present(self) -> Ints:
        """The position in the zone of each state's present place, shape (N,)."""
        return np.searchsorted(self.zone, self.states[:, 0]).astype(np.int64)

    @cached_property
    def to_places(self) -> Sparse:
        """What adds up states to present places, shape (P, N)."""
        return csr_array((np.ones(len(self)), (self.present, np.arange(len(self)))), shape=(len(self.zone), len(self)))

    def forward(self, states: Floats) -> Floats:
        """Return the distributions one step later of distributions over states, both of shape (N, B)."""
        own, leave, back = self._transposed
        result: Floats = own @ states
        if self.leave.shape[1]:
            result += back @ (leave @ states)
        return result

    def backward(self, values: Floats) -> Floats:
        """Return the expectation from each state of values one step later, both of shape (N, B)."""
        result: Floats = self.own @ values
        if self.leave.shape[1]:
            result += self.leave @ (self.back @ values)
        return result

    def mixture(self, rows: ZoneRows) -> Sparse:
        """Return how probably each state uses each row of a mechanism, shape (N, S).

        A state decides the row if the mechanism looks no further back. Otherwise the histories that were seen in the
        state do, as often as they were; so the attacker forgets older places between reports, as its states do.
        """
        if not np.array_equal(rows.zone, self.zone):
            raise MismatchError("The mobility model was made for another zone than the rows.")
        state = np.arange(len(self))
        plain = csr_array((np.ones(len(self)), (state, rows.row_of(self.states))), shape=(len(self), len(rows)))
        if rows.histories.shape[1] <= self.states.shape[1] or not len(self.seen):
            return plain
        of_seen = _position(self.states, self.seen.histories[:, : self.states.shape[1]].astype(np.int64))
        counted = _summed(of_seen, rows.row_of(self.seen.histories), self.seen.count, plain.shape)
        total = np.asarray(counted.sum(axis=1)).ravel()
        scale = np.where(total > 0, 1 / np.maximum(total, 1), 0.0)
        return csr_array(counted.multiply(scale[:, None]) + plain.multiply((total == 0)[:, None]))

    @cached_property
    def _transposed(self) -> tuple[Sparse | Floats, Sparse, Sparse]:
        own = self.own.T if isinstance(self.own, np.ndarray) else csr_array(self.own.T)
        return own, csr_array(self.leave.T), csr_array(self.back.T)


def _position(states: Ints, asked: Ints) -> Ints:
    """Return the position of each history among the states, which are in order; all must be there."""
    base = max(int(states.max(initial=0)), int(asked.max(initial=0))) + 1
    powers = base ** np.arange(states.shape[1])[::-1]
    return np.searchsorted(states @ powers, asked @ powers).astype(np.int64)


def _summed(row: npt.ArrayLike, column: npt.ArrayLike, count: npt.ArrayLike, shape: tuple[int, int]) -> Sparse:
    result = csr_array((np.asarray(count, np.float64), (np.asarray(row), np.asarray(column))), shape=shape)
    result.sum_duplicates()
    return result


def _near(rows: ZoneRows) -> Sparse:
    """Return distributions over the places of the zone that fall with the distance; none leaves; shape (P, P + 1)."""
    lat, lon = (rows.places_e7[rows.zone] * 1e-7).T
    weight = np.exp(-haversine_m(lat[:, None], lon[:, None], lat, lon) / (1000 * _TYPICAL_KM))
    weight /= weight.sum(axis=1, keepdims=True)
    return csr_array(np.column_stack([weight, np.zeros(len(weight))]))


def _transitions(zone: Ints, states: Ints, steps: Sparse, by_place: Floats) -> tuple[Sparse, Sparse, Sparse]:
    """Return what pairs have themselves, the share of their present place, and where that leads."""
    count, places = len(states), len(zone)
    present = np.searchsorted(zone, states[:, 0])
    share = csr_array((np.ones(count), (np.arange(count), present)), shape=(count, places))
    # The larger group stands for itself, as columns of its own: the weights are those of `backed_off`.
    mixed = csr_array(
        backed_off(
            csr_array(hstack([steps, _empty(count, places)], format="csr")),
            csr_array(hstack([_empty(count, places + 1), share], format="csr")),
        )
    )
    stay = mixed[:, :places].tocoo()
    state, later = stay.coords
    following = _position(states, np.column_stack([zone[later], states[state, 0]]))
    own = csr_array((stay.data, (state, following)), shape=(count, count))
    before = np.searchsorted(zone, states[:, 1]).clip(max=places - 1)
    inside = np.flatnonzero(zone[before] == states[:, 1])
    chance = by_place[before[inside], present[inside]]
    back = csr_array((chance, (before[inside], inside)), shape=(places, count))
    return own, csr_array(mixed[:, places + 1 :]), back


def _start(present: Ints, of_seen: Ints, seen: HistoryCounts) -> Floats:
    mass = np.bincount(of_seen, seen.count, len(present)) + _PSEUDO_COUNT / np.bincount(present)[present]
    start: Floats = mass / mass.sum()
    return start


def _empty(rows: int, columns: int) -> Sparse:
    return csr_array((rows, columns), dtype=np.float64)
