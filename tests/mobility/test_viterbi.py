from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.mobility.map_matcher import Sequences, cheapest_states


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 10_000), st.integers(1, 8))
def test_finds_the_cheapest_of_all_state_sequences(lengths: list[int], seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    begins = np.concatenate([np.arange(length) == 0 for length in lengths])
    emission, moves = rng.random((len(begins), 3)), rng.random((len(begins), 3, 3))
    sequences = Sequences.from_starts(begins)
    order = sequences.order
    state, new = cheapest_states(emission[order], sequences, lambda _, after: moves[order[after]], block_items=block)
    chosen = np.empty(len(begins), np.int64)
    chosen[order] = state
    assert (new == begins[order]).all()
    for start, length in zip(np.flatnonzero(begins).tolist(), lengths, strict=True):

        def cost(states: tuple[int, ...], start: int = start) -> float:
            total = sum(float(emission[start + step, state]) for step, state in enumerate(states))
            steps = range(1, len(states))
            return total + sum(float(moves[start + step, states[step - 1], states[step]]) for step in steps)

        best = min(cost(states) for states in product(range(3), repeat=length))
        assert cost(tuple(chosen[start : start + length].tolist())) == pytest.approx(best)


def test_previous_positions_belong_to_the_same_sequence() -> None:
    sequences = Sequences.from_starts(np.array([1, 0, 0, 1, 1, 0], dtype=bool))
    before, after = sequences.previous(1, 3), np.arange(sequences.starts[1], sequences.starts[3])
    assert {(int(sequences.order[b]), int(sequences.order[a])) for b, a in zip(before, after, strict=True)} == {
        (0, 1),
        (1, 2),
        (4, 5),
    }


def test_starts_anew_where_no_move_is_possible() -> None:
    emission = np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 0.0], [0.0, 9.0]])
    moves = np.zeros((4, 2, 2))
    moves[2] = np.inf
    state, begins = cheapest_states(
        emission, Sequences.from_starts(np.arange(4) == 0), lambda _, after: moves[after], block_items=1
    )
    assert state.tolist() == [0, 0, 1, 0]
    assert begins.tolist() == [True, False, True, False]


def test_an_impossible_state_is_never_taken() -> None:
    emission = np.array([[0.0, np.inf], [np.inf, 3.0]])
    state, begins = cheapest_states(
        emission,
        Sequences.from_starts(np.array([True, False])),
        lambda _, after: np.full((len(after), 2, 2), 7.0),
        block_items=10,
    )
    assert state.tolist() == [0, 1]
    assert begins.tolist() == [True, False]
