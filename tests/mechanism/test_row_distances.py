from __future__ import annotations

import itertools

import numpy as np
import pytest

from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism import row_distances as module
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.metric import Metric
from geoblanket.mechanism.problem import NEVER_MM, kilometres
from geoblanket.mechanism.row_distances import row_distances

PLACES_E7 = np.column_stack(
    [
        411_500_000 + np.random.default_rng(5).integers(0, 99_999, 10),
        -86_200_000 + np.random.default_rng(6).integers(0, 99_999, 10),
    ]
).astype(np.int32)
PLACES_E7[7] = PLACES_E7[3]  # two places at the same coordinates


def tree(rng: np.random.Generator, past: int) -> np.ndarray:
    """Histories as a table may list them: for each beginning some places, or any."""
    listed = [[int(place)] for place in rng.choice(10, 4, replace=False)]
    for _ in range(past):
        longer = []
        for history in listed:
            places = rng.choice(10, rng.integers(1, 4), replace=False) if rng.random() < 0.7 else [-1]
            longer += [[*history, int(place)] for place in places]
        listed = longer
    return np.array(listed, np.int32)


def distances(histories: Indices, rows: Indices, weights: tuple[int, ...]) -> Ints:
    table = HistoryTable(PLACES_E7, histories, rows)
    return row_distances(table, [Metric.haversine(PLACES_E7)] * histories.shape[1], weights)


def smallest_mm(histories: np.ndarray, rows: np.ndarray, weights: tuple[int, ...], *, size: int) -> np.ndarray:
    """The smallest distance between all histories, pair by pair."""
    between = Metric.haversine(PLACES_E7).whole
    present = np.unique(histories[:, 0])
    every = np.array(list(itertools.product(present, *[range(10)] * len(weights))))
    row = HistoryTable(PLACES_E7, histories, rows).row_of(every)
    expected = np.full((size, size), np.inf)
    for history, of in zip(every, row, strict=True):
        total = np.zeros(len(every))
        for lag, weight in enumerate((10**6, *weights)):
            apart = between[history[lag], every[:, lag]]
            total += np.where(apart > 0, np.inf, 0.0) if weight == NEVER_MM else apart * weight // 10**6
        np.minimum.at(expected[of], row, total)
    return expected


@pytest.mark.parametrize("weights", [(), (1_000_000,), (500_000, 0), (NEVER_MM, 1_000_000), (10**6, 500_000, 250_000)])
@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
def test_the_smallest_between_all_histories(
    weights: tuple[int, ...], cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_CELLS", cells)
    for seed in range(4 if len(weights) < 3 else 1):
        rng = np.random.default_rng(seed)
        histories = tree(rng, len(weights))
        size = int(rng.integers(2, len(histories) + 1))
        rows = rng.permutation(np.append(np.arange(size), rng.integers(0, size, len(histories) - size)))
        found = distances(histories, rows.astype(np.int32), weights)
        expected = smallest_mm(histories, rows.astype(np.int32), weights, size=size)
        # A row that no history uses, for another listed place has the same coordinates, is as far as can be.
        np.testing.assert_array_equal(kilometres(found), expected / 1e6)


def test_in_large_cities_far_places_count_as_not_quite_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = tree(np.random.default_rng(1), 2)
    rows = np.arange(len(histories), dtype=np.int32)
    exact = distances(histories, rows, (10**6, 10**6))
    monkeypatch.setattr(module, "NEAR_PAIRS", 40)
    near = distances(histories, rows, (10**6, 10**6))
    assert (near <= exact).all()
    assert (near < exact).any()
    assert (near[exact < 200_000] == exact[exact < 200_000]).all()
