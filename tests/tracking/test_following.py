from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._arrays import Floats, Positions
from geoblanket.errors import ParameterError
from geoblanket.tracking import following
from geoblanket.tracking.belief import BeliefFilter
from geoblanket.tracking.following import NO_REPORT, Sequences, follow, smooth
from geoblanket.tracking.motion_model import Singles
from tests.tracking.chains import TableSight, beliefs_by_all_paths, second_order

MODEL = second_order()
TABLE = np.random.default_rng(3).dirichlet(np.ones(4), size=len(MODEL))


def collected(sequences: Sequences, *, smoothed: bool = False, beliefs: BeliefFilter | None = None) -> Floats:
    """The belief over states at each report."""
    beliefs = BeliefFilter(MODEL, TableSight(TABLE)) if beliefs is None else beliefs
    found = np.full((len(sequences.slot), len(beliefs.model)), np.nan)

    def seen(positions: Positions, values: Singles) -> None:
        found[positions] = values.sum(axis=1).T

    (smooth if smoothed else follow)(beliefs, sequences, seen)
    return found


def sequences_of(parts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Sequences:
    lengths = [len(slots) for slots, _ in parts]
    return Sequences(
        np.concatenate([np.array(slots, np.int64) for slots, _ in parts]),
        np.concatenate([np.array(outputs, np.int64) for _, outputs in parts]),
        np.cumsum([0, *lengths[:-1]]),
    )


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 3)), min_size=1, max_size=5), min_size=1, max_size=4)
)
def test_beliefs_are_those_of_all_paths(drawn: list[list[tuple[int, int]]]) -> None:
    """Gaps, slots without a report, sequences of several lengths side by side: forwards and backwards."""
    parts = [
        (np.cumsum([100, *[gap for gap, _ in part[1:]]]).tolist(), [output for _, output in part]) for part in drawn
    ]
    sequences = sequences_of(parts)
    filtered, smoothed = collected(sequences), collected(sequences, smoothed=True)
    for start, (slots, outputs) in zip(sequences.starts.tolist(), parts, strict=True):
        exact = beliefs_by_all_paths(MODEL, TABLE, slots, outputs)
        some = slice(start, start + len(slots))
        # A prediction leaves one in 100,000 for a vehicle being anywhere.
        np.testing.assert_allclose(filtered[some], exact[0], atol=2e-4)
        np.testing.assert_allclose(smoothed[some], exact[1], atol=2e-4)


def test_slots_of_several_steps() -> None:
    sight = TableSight(TABLE, interval_s=60.0)
    found = collected(sequences_of([([5, 6, 8], [0, 2, 1])]), beliefs=BeliefFilter(MODEL, sight))
    exact, _ = beliefs_by_all_paths(MODEL, TABLE, [5, 6, 8], [0, 2, 1], steps_per_slot=2)
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_batches_do_not_change_beliefs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    parts = [(list(range(length)), rng.integers(4, size=length).tolist()) for length in (7, 1, 30, 12, 12, 3)]
    together, back = collected(sequences_of(parts)), collected(sequences_of(parts), smoothed=True)
    monkeypatch.setattr(following, "_CELLS", 2 * len(MODEL))
    np.testing.assert_allclose(collected(sequences_of(parts)), together, atol=1e-6)
    np.testing.assert_allclose(collected(sequences_of(parts), smoothed=True), back, atol=1e-5)


def test_long_sequences_are_smoothed_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain forgets within some steps, so a window with a margin of 60 tells as much as everything."""
    outputs = np.random.default_rng(6).integers(4, size=700)
    sequences = sequences_of([(range(700), outputs.tolist())])
    whole = collected(sequences, smoothed=True)
    monkeypatch.setattr(following, "_SMOOTHED_BYTES", 4 * len(MODEL) * 10)
    np.testing.assert_allclose(collected(sequences, smoothed=True), whole, atol=1e-5)


def test_a_long_gap_begins_anew() -> None:
    slots = [10, 10 + 241]  # more than two hours of 30 s
    found = collected(sequences_of([(slots, [0, 1])]))
    exact, _ = beliefs_by_all_paths(MODEL, TABLE, [251], [1])
    np.testing.assert_allclose(found[1], exact[0], atol=1e-6)


def test_reports_in_any_order_are_sorted() -> None:
    sequences, order = Sequences.of([7, 5, 6, 5, 5], [0, 1, 2, 3, 1], ["b", "a", "a", "b", "a"])
    assert sequences.slot.tolist() == [5, 6, 5, 7]
    assert sequences.output.tolist() == [1, 2, 3, 0]
    assert sequences.starts.tolist() == [0, 2]
    assert order.tolist() == [1, 2, 3, 0]  # the second report of vehicle a in slot 5 is left out


@pytest.mark.parametrize("slots", [[5, 5], [6, 5]])
def test_slots_that_do_not_ascend_are_refused(slots: list[int]) -> None:
    with pytest.raises(ParameterError, match="ascend"):
        Sequences(np.array(slots), np.array([0, 0]), np.array([0]))


def test_a_report_that_no_place_explains_is_left_out() -> None:
    table = TABLE.copy()
    table[:, 3] = 0.0
    counted: list[Singles] = []
    beliefs = BeliefFilter(MODEL, TableSight(table))
    sequences = sequences_of([([1, 2, 3], [0, 3, 1])])
    impossible = follow(beliefs, sequences, lambda _, values: counted.append(values[:, 0, 0].copy()))
    assert impossible == 1
    exact, _ = beliefs_by_all_paths(MODEL, table, [1, 2, 3], [0, NO_REPORT, 1])
    np.testing.assert_allclose(counted, exact, atol=1e-4)


def test_only_first_slots_are_told() -> None:
    sequences = sequences_of([([1, 2, 3], [0, 1, 2]), ([7, 8], [3, 3])])
    whole = collected(sequences, smoothed=True)
    told: dict[int, Floats] = {}

    def seen(positions: Positions, values: Singles) -> None:
        told.update(zip(positions.tolist(), values.sum(axis=1).T, strict=True))

    smooth(BeliefFilter(MODEL, TableSight(TABLE)), sequences, seen, only_first=True)
    assert sorted(told) == [0, 3]
    np.testing.assert_array_equal(told[3], whole[3])


def test_chosen_sequences_keep_what_they_know() -> None:
    sequences = Sequences(
        np.array([1, 2, 3, 7, 8, 5]),
        np.array([0, 1, 2, 3, 3, 1]),
        np.array([0, 3, 5]),
        follows=np.arange(6),
        time_ms=np.arange(6) * 10,
    )
    chosen = sequences.chosen(np.array([2, 0]))
    assert chosen.slot.tolist() == [5, 1, 2, 3]
    assert chosen.output.tolist() == [1, 0, 1, 2]
    assert chosen.starts.tolist() == [0, 1]
    assert chosen.follows is not None
    assert chosen.follows.tolist() == [5, 0, 1, 2]
    assert chosen.time_ms is not None
    assert chosen.time_ms.tolist() == [50, 0, 10, 20]
