from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._arrays import Floats, Positions
from geoblanket.errors import ParameterError
from geoblanket.tracking import filtering
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from tests.tracking.chains import TableObservations, beliefs_by_all_paths, make_model, second_order

MODEL = second_order()
TABLE = np.random.default_rng(3).dirichlet(np.ones(4), size=len(MODEL))


def collected(sequences: Sequences, *, smoothed: bool = False, beliefs: BeliefFilter | None = None) -> Floats:
    """The belief over states at each report."""
    beliefs = BeliefFilter(MODEL, TableObservations(TABLE)) if beliefs is None else beliefs
    found = np.full((len(sequences.slot), len(beliefs.model)), np.nan)

    def seen(positions: Positions, values: Singles) -> None:
        found[positions] = values.T

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
    observations = TableObservations(TABLE, interval_s=60.0)
    found = collected(sequences_of([([5, 6, 8], [0, 2, 1])]), beliefs=BeliefFilter(MODEL, observations))
    exact, _ = beliefs_by_all_paths(MODEL, TABLE, [5, 6, 8], [0, 2, 1], steps_per_slot=2)
    np.testing.assert_allclose(found, exact, atol=1e-4)


def test_batches_do_not_change_beliefs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    parts = [(list(range(length)), rng.integers(4, size=length).tolist()) for length in (7, 1, 30, 12, 12, 3)]
    together, back = collected(sequences_of(parts)), collected(sequences_of(parts), smoothed=True)
    monkeypatch.setattr(filtering, "_CELLS", 2 * len(MODEL))
    np.testing.assert_allclose(collected(sequences_of(parts)), together, atol=1e-6)
    np.testing.assert_allclose(collected(sequences_of(parts), smoothed=True), back, atol=1e-5)


def test_long_sequences_are_smoothed_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain forgets within some steps, so a window with a margin of 60 tells as much as everything."""
    outputs = np.random.default_rng(6).integers(4, size=700)
    sequences = sequences_of([(range(700), outputs.tolist())])
    whole = collected(sequences, smoothed=True)
    monkeypatch.setattr(filtering, "_SMOOTHED_BYTES", 4 * len(MODEL) * 10)
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
    beliefs = BeliefFilter(MODEL, TableObservations(table))
    sequences = sequences_of([([1, 2, 3], [0, 3, 1])])
    impossible = follow(beliefs, sequences, lambda _, values: counted.append(values[:, 0].copy()))
    assert impossible == 1
    exact, _ = beliefs_by_all_paths(MODEL, table, [1, 2, 3], [0, NO_REPORT, 1])
    np.testing.assert_allclose(counted, exact, atol=1e-4)
    # Backwards too: what came before such a report is known as well as without it.
    table[:, 2] = 0.0
    parts = [([1, 2, 3], [0, 3, 1]), ([7, 8], [1, 0]), ([4, 5, 6], [2, 1, 3]), ([1, 2, 4], [NO_REPORT, 2, 1])]
    smoothed = collected(sequences_of(parts), smoothed=True, beliefs=BeliefFilter(MODEL, TableObservations(table)))
    for first, (slots, outputs) in zip((0, 3, 5, 8), parts, strict=True):
        _, exact = beliefs_by_all_paths(
            MODEL, table, slots, [NO_REPORT if output in (2, 3) else output for output in outputs]
        )
        np.testing.assert_allclose(smoothed[first : first + len(slots)], exact, atol=2e-4)


def moves_by_all_paths(
    model: MotionModel, table: Floats, slots: Sequence[int], outputs: Sequence[int]
) -> tuple[Floats, Floats]:
    """How often each move between states was made, as expected, in steps of one slot; and the first state."""
    dense = model.moves.toarray().astype(np.float64)
    moves, first, total = np.zeros_like(dense), np.zeros(len(model)), 0.0
    between = [np.linalg.matrix_power(dense, after - before) for before, after in pairwise(slots)]
    for path in product(range(len(model)), repeat=len(slots)):
        chance = float(model.start[path[0]])
        for number, state in enumerate(path):
            chance *= table[state, outputs[number]] if outputs[number] >= 0 else 1.0
            chance *= between[number - 1][path[number - 1], state] if number else 1.0
        total += chance
        first[path[0]] += chance
        for number, (before, after) in enumerate(pairwise(path)):
            if slots[number + 1] - slots[number] == 1:
                moves[before, after] += chance
    return moves / total, first / total


def moves_of(sequences: Sequences, beliefs: BeliefFilter) -> Floats:
    """The same as `smooth` tells it, over all sequences."""
    dense = beliefs.model.moves.toarray().astype(np.float64)
    found = np.zeros_like(dense)

    def moved(before: Singles, after: Singles) -> None:
        np.add(found, np.einsum("ib,jb->ij", before.astype(np.float64), after) * dense, out=found)

    smooth(beliefs, sequences, lambda *_: None, moved=moved)
    return found


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 2), st.integers(-1, 3)), min_size=1, max_size=5), min_size=1, max_size=3)
)
def test_moves_are_those_of_all_paths(drawn: list[list[tuple[int, int]]]) -> None:
    """Steps of several slots are not told: nobody knows which moves they were made of."""
    parts = [(np.cumsum([100, *[gap for gap, _ in part[1:]]]).tolist(), [out for _, out in part]) for part in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "_ANYWHERE", 0.0)
        found = moves_of(sequences_of(parts), BeliefFilter(MODEL, TableObservations(TABLE)))
    exact = sum(moves_by_all_paths(MODEL, TABLE, *part)[0] for part in parts)
    np.testing.assert_allclose(found, exact, atol=2e-5)


def test_moves_are_told_once_whatever_the_windows_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    parts = [(list(range(length)), rng.integers(-1, 4, size=length).tolist()) for length in (700, 300, 12, 1, 130)]
    whole = moves_of(sequences_of(parts), BeliefFilter(MODEL, TableObservations(TABLE)))
    assert whole.sum() == pytest.approx(sum(len(slots) - 1 for slots, _ in parts), rel=1e-4)
    monkeypatch.setattr(filtering, "_SMOOTHED_BYTES", 4 * len(MODEL) * 10)
    monkeypatch.setattr(filtering, "_CELLS", 2 * len(MODEL))
    np.testing.assert_allclose(
        moves_of(sequences_of(parts), BeliefFilter(MODEL, TableObservations(TABLE))), whole, rtol=1e-3
    )


def test_only_first_slots_are_told() -> None:
    sequences = sequences_of([([1, 2, 3], [0, 1, 2]), ([7, 8], [3, 3])])
    whole = collected(sequences, smoothed=True)
    told: dict[int, Floats] = {}

    def seen(positions: Positions, values: Singles) -> None:
        told.update(zip(positions.tolist(), values.T, strict=True))

    smooth(BeliefFilter(MODEL, TableObservations(TABLE)), sequences, seen, only_first=True)
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


HOLDING = BeliefFilter(MODEL, TableObservations(TABLE), holds=True)
SOME_SLOTS = st.lists(st.tuples(st.integers(1, 2), st.integers(-1, 1)), min_size=1, max_size=5)


def without_rests(slots: Sequence[int], outputs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Slots as if time stood still during rests, and the outputs, none where they are held."""
    moved, drawn, last = [slots[0]], [outputs[0]], 0 if outputs[0] >= 0 else -1
    for number in range(1, len(slots)):
        held = last >= 0 and outputs[number] == outputs[last]
        since = max(last, 0)
        moved.append(moved[since] + (0 if held else slots[number] - slots[since]))
        drawn.append(NO_REPORT if held else outputs[number])
        last = number if outputs[number] >= 0 else last
    return moved, drawn


@settings(max_examples=60)
@given(SOME_SLOTS)
def test_a_held_report_leaves_the_belief_as_it_was(drawn: list[tuple[int, int]]) -> None:
    """Each belief beside that of all paths, for which no time passes during a rest. Two outputs: rests are many."""
    slots = np.cumsum([100, *[gap for gap, _ in drawn[1:]]]).tolist()
    outputs = [output for _, output in drawn]
    moved, told = without_rests(slots, outputs)
    found = collected(sequences_of([(slots, outputs)]), beliefs=HOLDING)
    for number in range(len(slots)):
        known = {moved[at]: told[at] for at in range(number) if told[at] >= 0}
        if told[number] >= 0 or moved[number] not in known:
            known[moved[number]] = told[number]
        known = {slot: output for slot, output in known.items() if slot <= moved[number]}
        exact, _ = beliefs_by_all_paths(MODEL, TABLE, sorted(known), [known[slot] for slot in sorted(known)])
        if told[0] < 0 and slots[0] not in known:  # time runs from the first slot, with a report or without
            known[slots[0]] = NO_REPORT
            exact, _ = beliefs_by_all_paths(MODEL, TABLE, sorted(known), [known[slot] for slot in sorted(known)])
        np.testing.assert_allclose(found[number], exact[-1], atol=2e-4)


@pytest.mark.parametrize("outputs", [[0, 2, 2, 1], [0, 2, NO_REPORT, 2, 1], [2, 2, 2, 2, 0, 1]])
def test_smoothed_beliefs_know_rests_too(outputs: list[int]) -> None:
    """A slot without a report between two that are held is one of the rest."""
    found = collected(sequences_of([(range(len(outputs)), outputs)]), smoothed=True, beliefs=HOLDING)
    draws = [output for output, last in zip(outputs, [NO_REPORT, *outputs], strict=False) if output not in (last, -1)]
    draws = [output for output, last in zip(draws, [NO_REPORT, *draws], strict=False) if output != last]
    _, exact = beliefs_by_all_paths(MODEL, TABLE, range(len(draws)), draws)
    number = -1
    for position, output in enumerate(outputs):
        number += output >= 0 and (number < 0 or output != draws[number])
        np.testing.assert_allclose(found[position], exact[number], atol=2e-4)


def test_a_rest_is_a_step_to_the_same_place_where_moves_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside all paths that stay in the slots that are held: state (0, 1) becomes (0, 0)."""
    monkeypatch.setattr(filtering, "_ANYWHERE", 0.0)
    outputs, held = [0, 2, 2, 2, 1, 3, 3], [False, False, True, True, False, False, True]
    dense = MODEL.moves.toarray().astype(np.float64)
    moves, rests = np.zeros_like(dense), np.zeros(len(MODEL))

    def moved(before: Singles, after: Singles) -> None:
        np.add(moves, np.einsum("ib,jb->ij", before.astype(np.float64), after) * dense, out=moves)

    def rested(before: Singles) -> None:
        np.add(rests, before.sum(axis=1), out=rests)

    sequences = sequences_of([(range(7), outputs), (range(3), [1, 0, 3])])
    smooth(HOLDING, sequences, lambda *_: None, moved=moved, rested=rested)
    after_rest = [0, 1, 4, 4, 4]
    exact_moves, exact_rests, total = np.zeros_like(dense), np.zeros(len(MODEL)), 0.0
    for free in product(range(len(MODEL)), repeat=4):
        path, choices = list[int](), iter(free)
        for stays in held:
            path.append(after_rest[path[-1]] if stays else next(choices))
        chance = float(MODEL.start[path[0]])
        for number, state in enumerate(path):
            if not held[number]:
                chance *= TABLE[state, outputs[number]] * (dense[path[number - 1], state] if number else 1.0)
        total += chance
        for number, step in enumerate(pairwise(path)):
            if held[number + 1]:
                exact_rests[step[0]] += chance
            else:
                exact_moves[step] += chance
    other, _ = moves_by_all_paths(MODEL, TABLE, range(3), [1, 0, 3])
    np.testing.assert_allclose(moves, exact_moves / total + other, atol=2e-5)
    np.testing.assert_allclose(rests, exact_rests / total, atol=2e-5)


RING, SLOTS = 6, 4
STAY, HELD = 0.54, 0.43
"""Chance to stay at a place for a step, and share of these stays within 50 m: as taxis do, places 250 m apart."""


def all_reports_of_a_ring(table: Floats) -> Floats:
    """How probable all reports and the last place are together, by all paths round a ring; the last axis is the place.

    A vehicle goes to the next place or the one before, or stays; if it stays, its report may be held (None).
    """
    joint = np.zeros((RING,) * (SLOTS + 1))
    for first, steps in product(range(RING), product((None, -1, 0, 1), repeat=SLOTS - 1)):
        place, chance = first, 1 / RING
        reports: Floats = table[first]
        for step in steps:
            if step is None:
                chance *= STAY * HELD
                reports = reports[..., None] * np.eye(RING)
            else:
                chance *= (1 - STAY) / 2 if step else STAY * (1 - HELD)
                place = (place + step) % RING
                reports = reports[..., None] * table[place]
        joint[..., place] += chance * reports
    return joint


@pytest.mark.parametrize(("rate", "lost", "lost_by_repeating"), [(0.5, 0.049, 0.132), (1.0, 0.046, 0.075)])
def test_how_much_the_rule_for_rests_loses(rate: float, lost: float, lost_by_repeating: float) -> None:
    """Expected logarithms of the belief in the true place, beside the exact posterior that knows hold.

    What is lost is a share of what the reports tell. `lost_by_repeating`: if each repetition counts as new evidence.
    """
    apart = np.abs(np.arange(RING)[:, None] - np.arange(RING))
    table: Floats = np.exp(-rate * np.minimum(apart, RING - apart))
    table /= table.sum(axis=1, keepdims=True)
    joint = all_reports_of_a_ring(table).reshape(-1, RING)
    assert joint.sum() == pytest.approx(1)
    moves = {
        (here, (here + step) % RING): STAY if step == 0 else (1 - STAY) / 2
        for here in range(RING)
        for step in (-1, 0, 1)
    }
    places_e7 = np.array([[411_000_000 + 20_000 * number, -86_000_000] for number in range(RING)], np.int32)
    chain = make_model([(place,) for place in range(RING)], moves, [1 / RING] * RING, places_e7=places_e7)
    sequences = sequences_of([(range(SLOTS), outputs) for outputs in product(range(RING), repeat=SLOTS)])
    best = (joint * np.log(joint / joint.sum(axis=1, keepdims=True))).sum()
    for holds, expected in ((True, lost), (False, lost_by_repeating)):
        found = collected(sequences, beliefs=BeliefFilter(chain, TableObservations(table), holds=holds))[
            SLOTS - 1 :: SLOTS
        ]
        score = (joint * np.log(found)).sum()
        assert (best - score) / (best + np.log(RING)) == pytest.approx(expected, abs=0.002)
