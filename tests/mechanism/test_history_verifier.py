from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from geoblanket.mechanism import history_verifier
from geoblanket.mechanism.history_verifier import PlacesOfCity, RuleTree, first_too_far
from geoblanket.mechanism.metric import whole_millionths
from geoblanket.mechanism.problem import NEVER_MM
from tests.mechanism.slow_row_distances import row_distances_mm

Array = np.ndarray[Any, Any]

PAST_WEIGHTS = [(), (10**6,), (500_000, 0), (NEVER_MM, 10**6), (3_700_000, 500_000, 250_000), (10**7,)]


def city_of(rng: np.random.Generator, count: int) -> Array:
    """Places of a town, two of them at the same coordinates."""
    places = np.array([411_500_000, -86_200_000]) + rng.integers(0, 400_000, (count, 2))
    places[count - 1] = places[0]
    return places.astype(np.int32)


def rule_of(rng: np.random.Generator, count: int, past: int) -> tuple[Array, Array]:
    """Histories as a file may list them, some of which share a row."""
    listed: list[tuple[int, ...]] = [(int(place),) for place in rng.choice(count, 5, replace=False)]
    for _ in range(past):
        longer: list[tuple[int, ...]] = []
        for history in listed:
            places = rng.choice(count, rng.integers(1, 5), replace=False) if rng.random() < 0.7 else [-1]
            longer += [(*history, int(place)) for place in places]
        listed = longer
    size = int(rng.integers(2, len(listed) + 1))
    rows = rng.permutation(np.append(np.arange(size), rng.integers(0, size, len(listed) - size)))
    return np.array(listed, np.int32), rows.astype(np.int32)


@pytest.mark.parametrize("past", PAST_WEIGHTS)
@pytest.mark.parametrize(("near_pairs", "block"), [(1 << 20, 1 << 21), (300, 1 << 21), (300, 100), (25, 1)])
def test_every_row_distance_is_allowed_and_a_millimetre_more_is_not(
    past: tuple[int, ...], near_pairs: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_verifier, "NEAR_PAIRS", near_pairs)
    monkeypatch.setattr(history_verifier, "_BLOCK", block)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        places = city_of(rng, 24)
        histories, rows = rule_of(rng, 24, len(past))
        tree, city = RuleTree(histories, rows, 24), PlacesOfCity(places)
        # Some places in no zone count as one of this zone, the others as one of another.
        stand_in = np.where(rng.random(24) < 0.7, rng.choice(tree.present, 24), np.arange(24)).astype(np.int32)
        stand_in[tree.present] = tree.present
        true_mm = row_distances_mm(tree, places, past, stand_in, near_pairs=near_pairs)
        stated = whole_millionths(true_mm - 1e-3)
        np.fill_diagonal(stated, 0)

        def found(stated_mm: Array, tree: RuleTree = tree, city: PlacesOfCity = city, of: Array = stand_in) -> Any:
            return first_too_far(tree, city, weights_micro=past, stated_mm=stated_mm, stand_in=of)

        assert found(stated) is None
        pairs = np.argwhere(np.isfinite(true_mm) & ~np.eye(len(stated), dtype=bool))
        for row, other in rng.permutation(pairs)[:10].tolist():
            wrong = stated.copy()
            wrong[row, other] = wrong[other, row] = int(true_mm[row, other]) + 1
            assert set(found(wrong)) == {row, other}
            wrong[row, other] = wrong[other, row] = NEVER_MM
            assert set(found(wrong)) == {row, other}


def test_far_weights_and_distances_do_not_overflow() -> None:
    nm = np.array([0, 1, 10**6 - 1, 2 * 10**16, history_verifier._NEVER_NM])
    for weight in (0, 1, 10**6, 4 * 10**8, 2**62, NEVER_MM):
        weighted = history_verifier._weighted(nm, weight)
        exact = [0 if not each else 2**60 if weight == NEVER_MM else each * weight // 10**6 for each in nm.tolist()]
        exact[-1] = 2**60
        assert (weighted <= [min(each, 2**60) for each in exact]).all()
        assert (weighted >= 0).all()
        if weight <= 10**6:
            assert weighted[:-1].tolist() == exact[:-1]
