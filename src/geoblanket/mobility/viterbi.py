"""Viterbi's algorithm over many sequences at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Bools, Floats, Ints

__all__ = ["Sequences", "cheapest_states"]


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences laid out by step: first the first items of all sequences, then the second ones, and so on.

    Longer sequences come first within a step, so the items of a step and the ones before them are two slices.
    """

    order: Ints
    """Item of the input at each position of the layout, shape (P,)."""
    starts: Ints
    """Where each step starts in the layout, shape (steps + 1,)."""

    @classmethod
    def from_starts(cls, begins: Bools) -> Sequences:
        """Lay out items that follow each other, given which of them begin a sequence (the first must)."""
        first = np.flatnonzero(begins)
        lengths = np.diff(np.append(first, len(begins)))
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(-lengths, kind="stable")] = np.arange(len(first))
        step = np.arange(len(begins)) - np.repeat(first, lengths)
        starts = np.concatenate([[0], np.cumsum(np.bincount(step))]).astype(np.int64)
        order = np.empty(len(begins), np.int64)
        order[starts[step] + np.repeat(rank, lengths)] = np.arange(len(begins))
        return cls(order, starts)

    def previous(self, first_step: int, last_step: int) -> Ints:
        """Return the position before each position of the steps `first_step` (at least 1) to `last_step` - 1."""
        starts = self.starts
        shift = np.repeat(np.diff(starts)[first_step - 1 : last_step - 1], np.diff(starts)[first_step:last_step])
        positions: Ints = np.arange(starts[first_step], starts[last_step]) - shift
        return positions

    def blocks(self, items: int) -> list[tuple[int, int]]:
        """Cut the steps from 1 on into ranges that hold about `items` positions each, at least one step."""
        cuts, steps = [1], len(self.starts) - 1
        while cuts[-1] < steps:
            reach = int(np.searchsorted(self.starts, self.starts[cuts[-1]] + items, side="right")) - 1
            cuts.append(min(max(reach, cuts[-1] + 1), steps))
        return list(pairwise(cuts))


def cheapest_states(
    emission: Floats,
    sequences: Sequences,
    transition: Callable[[Ints, Ints], Floats],
    *,
    block_items: int,
) -> tuple[npt.NDArray[np.int8], Bools]:
    """Find the sequence of states with the least sum of costs; start anew where no transition is possible.

    Parameters
    ----------
    emission
        Cost of each state at each position of the layout, shape (P, K); infinite where there is no such state. Every
        position has at least one.
    transition
        Given positions and those before them (each of shape (n,): before, after), the cost of moving from state i to
        state j as an array [:, i, j] of shape (n, K, K).
    block_items
        How many positions to ask `transition` for at once.

    Returns
    -------
    state, begins
        The state at each position, and whether a sequence or a new start begins there.
    """
    starts = sequences.starts
    back = np.full(emission.shape, -1, np.int8)
    best = np.zeros(len(emission), np.int8)
    begins = np.zeros(len(emission), dtype=bool)
    begins[: starts[1]] = True
    score = emission[: starts[1]]
    best[: starts[1]] = score.argmin(axis=1)
    for first, last in sequences.blocks(block_items):
        before = sequences.previous(first, last)
        cost = transition(before, np.arange(starts[first], starts[last]))
        for step in range(first, last):
            here = slice(starts[step], starts[step + 1])
            count = here.stop - here.start
            total = score[:count, :, None] + cost[here.start - starts[first] : here.stop - starts[first]]
            came_from = total.argmin(axis=1)
            score = np.take_along_axis(total, came_from[:, None, :], axis=1)[:, 0] + emission[here]
            broken = ~np.isfinite(score).any(axis=1)
            came_from[broken] = -1
            score[broken] = emission[here][broken]
            begins[here] = broken
            back[here] = came_from
            best[here] = score.argmin(axis=1)
    return _trace_back(back, best, starts), begins


def _trace_back(back: npt.NDArray[np.int8], best: npt.NDArray[np.int8], starts: Ints) -> npt.NDArray[np.int8]:
    """Follow the pointers from the last step to the first; `best` is where a sequence or stretch ends."""
    state = best.copy()
    for step in range(len(starts) - 2, 0, -1):
        here = slice(starts[step], starts[step + 1])
        before = slice(starts[step - 1], starts[step - 1] + here.stop - here.start)
        came_from = np.take_along_axis(back[here], state[here, None].astype(np.intp), axis=1)[:, 0]
        state[before] = np.where(came_from >= 0, came_from, best[before])
    return state
