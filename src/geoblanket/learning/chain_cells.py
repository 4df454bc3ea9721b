"""The cells that are counted for a private motion model: runs of places that a chain from the road network can take.

The cells are public, because the roads are. There are *moves* from place to place, *runs* of three places (and of four
for a chain of order 3), *turns*, which group runs of three by the lengths of both moves and the angle between them, and
*regions*, squares of several sizes. Steps of walks that fit no cell are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from geoblanket._arrays import Floats, Ints
from geoblanket.tracking.learning import find_keys
from geoblanket.tracking.motion_model import MotionModel

_TURNS: Final = 4
"""Number of classes of angles, from straight on to back."""
_DISTANCES: Final = np.array([0.04, 1.2, 1.8, 2.4, 3.2, 4.4, 6.0])
"""Limits between classes of distance, as multiples of the usual distance between places."""
_COARSEST, _FINEST = 4, 1024
"""The least and the largest number of squares along each side of the city."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of places, each a move from a state of the chain."""

    first: int
    """The runs are the entries of the chain's moves from `first` to before `last`."""
    last: int
    state: Ints
    """The state that each run starts from, shape (n,)."""
    prefix: Ints
    """The run without its last place, shape (n,)."""
    suffix: Ints
    """The run without its first place, shape (n,)."""
    keys: Ints
    """`prefix` and the last place in one number, ascending, shape (n,)."""
    by_key: Ints
    """The run of each key, shape (n,)."""

    def __len__(self) -> int:
        return len(self.state)


class ChainCells:
    """The cells of a chain that was learned from roads alone.

    Parameters
    ----------
    road
        A motion model of order 1, 2 or 3, the same order everywhere.
    """

    def __init__(self, road: MotionModel) -> None:
        self.road = road
        self.places = road.place_count
        lengths = (road.states >= 0).sum(axis=1)
        self._entry_state = np.repeat(np.arange(len(road), dtype=np.int64), np.diff(road.offsets))
        if road.memory == 1:
            self.source, self.target = self._entry_state, road.targets.astype(np.int64)
            self.flow: Floats = road.usual[self._entry_state].astype(np.float64) * road.chances
        else:
            # With the same order everywhere, every move is a state. States of three places come after states of two.
            pairs = int((lengths == 2).sum())
            self.source, self.target = (road.states[:pairs, column].astype(np.int64) for column in (1, 0))
            self.flow = self._flow_of_pairs(pairs)
        self.flow = self.flow / self.flow.sum()
        keys = self.source * self.places + self.target
        self._by_key = np.argsort(keys)
        self._keys = keys[self._by_key]

    def _flow_of_pairs(self, pairs: int) -> Floats:
        """Return the long-run share of each move, over all states that end in it."""
        usual = self.road.usual.astype(np.float64)
        flow = usual[:pairs].copy()
        if pairs < len(self.road):
            longer = self.road.states[pairs:].astype(np.int64)
            key = self.source * self.places + self.target
            order = np.argsort(key)
            pair = order[np.searchsorted(key[order], longer[:, 1] * self.places + longer[:, 0])]
            flow += np.bincount(pair, usual[pairs:], pairs)
        return flow + 1e-12

    @property
    def move_count(self) -> int:
        """How many moves there are."""
        return len(self.source)

    def move(self, source: Ints, target: Ints) -> Ints:
        """Return the numbers of moves, −1 where there is none."""
        return _numbers_of(self._keys, self._by_key, source * self.places + target)

    @cached_property
    def runs(self) -> list[Runs]:
        """Runs of three places for order 2 or more, then runs of four for order 3."""
        if self.road.memory == 1:
            return []
        # A run of three is a move from a state of two places. These states, and their moves, come first in the chain.
        pairs = self.move_count
        split = int(self.road.offsets[pairs])
        state = self._entry_state[:split]
        target = self.road.states[self.road.targets[:split], 0].astype(np.int64)
        three = self._runs(0, split, state, prefix=state, suffix=self.move(self.target[state], target), last=target)
        if self.road.memory == 2:
            return [three]
        # A run of four is a move from a state of three places.
        state = self._entry_state[split:]
        history = self.road.states[state].astype(np.int64)
        target = self.road.states[self.road.targets[split:], 0].astype(np.int64)
        prefix = self.run(three, self.move(history[:, 2], history[:, 1]), history[:, 0])
        suffix = self.run(three, self.move(history[:, 1], history[:, 0]), target)
        return [three, self._runs(split, len(self._entry_state), state, prefix=prefix, suffix=suffix, last=target)]

    def _runs(self, first: int, end: int, state: Ints, *, prefix: Ints, suffix: Ints, last: Ints) -> Runs:
        keys = prefix * self.places + last
        order = np.argsort(keys)
        return Runs(first, end, state, prefix, suffix, keys[order], order)

    def run(self, runs: Runs, prefix: Ints, last: Ints) -> Ints:
        """Return the numbers of runs by their prefix (−1: none) and last place, −1 where there is no such run."""
        return np.where(prefix >= 0, _numbers_of(runs.keys, runs.by_key, prefix * self.places + last), -1)

    @cached_property
    def turn(self) -> Ints:
        """The turn of each run of three places, numbered without gaps; at order 1, the distance class of each move."""
        xy = self.road.xy_m
        if self.road.memory == 1:
            return _numbered(self._distance(xy[self.target] - xy[self.source]))
        three = self.runs[0]
        before = xy[self.target[three.prefix]] - xy[self.source[three.prefix]]
        after = xy[self.target[three.suffix]] - xy[self.source[three.suffix]]
        far_before, far_after = self._distance(before), self._distance(after)
        angle = np.abs(np.angle(np.exp(1j * (np.arctan2(*after.T) - np.arctan2(*before.T)))))
        sharp = np.minimum((angle / np.pi * _TURNS).astype(np.int64), _TURNS - 1)
        sharp[(far_before == 0) | (far_after == 0)] = 0
        return _numbered((far_before * (len(_DISTANCES) + 1) + far_after) * _TURNS + sharp)

    def _distance(self, moved_m: Floats) -> Ints:
        """Return the distance class of each move, 0 where the vehicle stays."""
        usual = float(np.sqrt(np.prod(np.ptp(self.road.xy_m, axis=0).clip(1.0)) / self.places))
        return np.digitize(np.hypot(*moved_m.T), usual * _DISTANCES).astype(np.int64)


def regions(xy_m: Floats) -> dict[int, Ints]:
    """Return the square of each place, numbered without gaps, for 4 × 4 squares, 8 × 8 and so on.

    Squares are halved as long as they hold three places on average, to at most 1024 × 1024.
    """
    low, side = xy_m.min(axis=0), max(float(np.ptp(xy_m, axis=0).max()), 1.0) * (1 + 1e-9)
    found: dict[int, Ints] = {}
    across = _COARSEST
    while across <= _FINEST:
        column, row = ((xy_m - low) / side * across).astype(np.int64).T
        region = _numbered(column * across + row)
        if region.max(initial=0) + 1 > len(xy_m) / 3:
            break
        found[across] = region
        across *= 2
    return found


def _numbered(values: Ints) -> Ints:
    """Renumber values from 0, without gaps."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _numbers_of(ascending: Ints, numbers: Ints, asked: Ints) -> Ints:
    """Return the number that belongs to each key asked for, −1 where there is no such key."""
    position = find_keys(ascending, asked)
    return np.where(position >= 0, np.append(numbers, -1)[position], -1)
