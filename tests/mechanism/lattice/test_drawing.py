"""Each cell has as many words as it has weight, to the last one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from geoblanket._arrays import Ints
from geoblanket.mechanism.lattice.lattice import Lattice
from geoblanket.mechanism.lattice.spec import Drawing
from tests import predictable
from tests.mechanism.lattice.frames import small_spec


@pytest.fixture(autouse=True)
def _predictable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(predictable.MARKER, predictable.MARKER_VALUE)


def some_words(seed: int, count: int) -> Ints:
    return np.random.default_rng(seed).integers(0, 2**62, count)


def words_by_cell(drawing: Drawing, x: int, y: int) -> Counter[int]:
    """Count the words that lead to each cell, by bisection between words that lead to different ones."""

    def cells(words: list[int]) -> list[int]:
        array = np.array(words, np.int64)
        result: list[int] = drawing.cells(np.full(len(array), x), np.full(len(array), y), array).tolist()
        return result

    count: Counter[int] = Counter()
    pending = [(0, 2**62 - 1)]
    while pending:
        middles = [(low + high) // 2 for low, high in pending]
        ends = cells([word for low, high in pending for word in (low, high)])
        at_middle = cells(middles)
        later = []
        for index, (low, high) in enumerate(pending):
            if ends[2 * index] == ends[2 * index + 1] == at_middle[index] and high - low < 2**54:
                count[at_middle[index]] += high - low + 1
            elif low == high:
                count[ends[2 * index]] += 1
            else:
                later += [(low, middles[index]), (middles[index] + 1, high)]
        pending = later
    return count


@pytest.mark.parametrize(("cells", "prepare"), [(5, True), (5, False), (6, True), (40, True)])
def test_words_of_each_cell_are_its_weight(cells: int, prepare: bool) -> None:
    epsilon_micro = 100_000_000 if cells == 40 else 2_000_000  # with a window smaller than the frame, and without
    spec = small_spec(cells, epsilon_micro=epsilon_micro, cell_units=2 if cells == 40 else 10, unit_mm=5_000)
    if cells == 40:
        assert spec.window.outside > 0
    lattice, drawing = Lattice.verified(spec), Drawing(spec, prepare=prepare)
    side = spec.plane.side
    for x, y in [(0, 0), (side - 1, side // 2), (side // 3, side // 3 + 1)]:
        count = words_by_cell(drawing, x, y)
        expected = lattice.weights_at(x, y)
        assert [count[cell] for cell in range(spec.cell_count)] == expected.tolist()


def test_without_preparation_the_draws_are_the_same() -> None:
    spec = small_spec(40, epsilon_micro=100_000_000, cell_units=2, unit_mm=5_000)
    x, y = np.random.default_rng(6).integers(0, spec.plane.side, (2, 300))
    words = some_words(7, 300)
    quick = Drawing(spec, prepare=True)
    cells = quick.cells(x, y, words)
    assert Drawing(spec, prepare=False).cells(x, y, words).tolist() == cells.tolist()
    single = [quick.cell(*each) for each in zip(x.tolist(), y.tolist(), words.tolist(), strict=True)]
    assert single == cells.tolist()


def test_many_draws_have_the_distribution() -> None:
    spec = small_spec(12)
    lattice = Lattice.verified(spec)
    lat, lon = lattice.center(77)
    with predictable.predictable_words(some_words(5, 200_000)):
        drawn = lattice.draw_many(np.full(200_000, lat), np.full(200_000, lon))
    expected = lattice.weights(lat, lon) / 2**62 * 200_000
    seen = np.bincount(drawn, minlength=lattice.cells)
    assert ((seen - expected) ** 2 / expected).sum() < 143 + 4 * (2 * 143) ** 0.5


def test_one_draw_is_the_same_as_many() -> None:
    lattice = Lattice.verified(small_spec(12))
    lat, lon = lattice.center(30)
    with predictable.predictable_words(some_words(8, 50)):
        single = [lattice.draw(lat, lon) for _ in range(50)]
    with predictable.predictable_words(some_words(8, 50)):
        many = lattice.draw_many(np.full(50, lat), np.full(50, lon)).tolist()
    assert single == many
