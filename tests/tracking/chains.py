"""Small chains whose beliefs can be found by trying all paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import Reports

PLACES_E7 = np.array([[411_000_000, -86_000_000], [411_020_000, -86_000_000], [411_000_000, -85_970_000]], np.int32)


def make_model(
    states: Sequence[tuple[int, ...]], moves: Mapping[tuple[int, int], float], start: Sequence[float], **changes: object
) -> MotionModel:
    """A chain from a table of its moves, by the numbers of states."""
    longest = max(map(len, states))
    ordered = sorted(moves)
    parts: dict[str, object] = {
        "places_e7": PLACES_E7,
        "places_identity": "",
        "interval_s": 30.0,
        "states": np.array([[*state, *[-1] * (longest - len(state))] for state in states], np.int32),
        "start": np.array(start, np.float32),
        "offsets": np.searchsorted([source for source, _ in ordered], np.arange(len(states) + 1)).astype(np.int64),
        "targets": np.array([target for _, target in ordered], np.int32),
        "chances": np.array([moves[move] for move in ordered], np.float32),
    }
    return MotionModel(**(parts | changes))  # type: ignore[arg-type]


def second_order() -> MotionModel:
    """Place 0 remembers where the vehicle came from, places 1 and 2 do not."""
    states = [(1,), (2,), (0, 1), (0, 2), (0, 0)]
    moves = {
        (0, 0): 0.5, (0, 2): 0.3, (0, 1): 0.2,  # from 1: stay, to 0, to 2
        (1, 1): 0.4, (1, 3): 0.6,  # from 2: stay, to 0
        (2, 1): 0.8, (2, 0): 0.1, (2, 4): 0.1,  # from 0, which was entered from 1: mostly on to 2
        (3, 0): 0.7, (3, 1): 0.2, (3, 4): 0.1,
        (4, 4): 0.6, (4, 0): 0.2, (4, 1): 0.2,
    }  # fmt: skip
    return make_model(states, moves, [0.3, 0.2, 0.1, 0.1, 0.3])


class TableObservations:
    """Reports whose probability from each state is given."""

    def __init__(self, table: Floats, *, interval_s: float = 30.0) -> None:
        self.table, self.interval_s, self.outputs = table, interval_s, table.shape[1]

    def likelihood(self, reports: Reports) -> Singles:
        likelihood: Singles = self.table[:, reports.output].astype(np.float32)
        return likelihood


def beliefs_by_all_paths(
    model: MotionModel, table: Floats, slots: Sequence[int], outputs: Sequence[int], *, steps_per_slot: int = 1
) -> tuple[Floats, Floats]:
    """Filtered and smoothed beliefs over states at each report, by the sum over all paths; shape (reports, N)."""
    dense = model.moves.toarray().astype(np.float64)
    count = len(model)
    joint: dict[tuple[int, ...], float] = {}
    between = [np.linalg.matrix_power(dense, steps_per_slot * (after - before)) for before, after in pairwise(slots)]
    filtered = np.zeros((len(slots), count))
    for path in product(range(count), repeat=len(slots)):
        chance = float(model.start[path[0]])
        for number, state in enumerate(path):
            if number:
                chance *= between[number - 1][path[number - 1], state]
            if outputs[number] >= 0:
                chance *= table[state, outputs[number]]
            prefix = path[: number + 1]
            if len(set(path[number + 1 :])) <= 1 and all(later == 0 for later in path[number + 1 :]):
                joint[prefix] = chance
    for prefix, chance in joint.items():
        filtered[len(prefix) - 1, prefix[-1]] += chance
    smoothed = np.zeros((len(slots), count))
    for path, chance in joint.items():
        if len(path) == len(slots):
            smoothed[np.arange(len(slots)), path] += chance
    return filtered / filtered.sum(axis=1, keepdims=True), smoothed / smoothed.sum(axis=1, keepdims=True)
