from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks import families
from benchmarks.families import HELD_BACK, TUNING, simulate_family
from benchmarks.processes import Waves
from geoblanket.errors import ParameterError

FAMILIES = (*TUNING, *HELD_BACK)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_vehicles_and_another_gives_others(family: str) -> None:
    one, same, other = (simulate_family(family, 3, 40, length=5, seed=seed) for seed in (1, 1, 2))
    assert one.shape == (40, 5, 2)
    assert np.isfinite(one).all()
    assert np.array_equal(one, same)
    assert not np.isclose(one, other).any()


@pytest.mark.parametrize("family", FAMILIES)
def test_vehicles_move_as_far_as_vehicles_do(family: str) -> None:
    windows = simulate_family(family, 4, 500, length=6, seed=3)
    steps = np.linalg.norm(np.diff(windows, axis=1), axis=2)
    assert 80 < np.median(steps) < 500
    assert np.abs(windows).max() < 50_000


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "waves"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_step_depends_on_as_many_steps_as_the_order_says(
    family: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a move is shown is the place and the last order - 1 steps; each of them matters."""
    move, side, wavelength = families._FAMILIES[family]
    shown: list[list[np.ndarray]] = []

    def watched(position: np.ndarray, steps: list[np.ndarray], *others: object) -> np.ndarray:
        shown.append([position, *steps])
        return np.asarray(move(position, steps, *others))  # type: ignore[arg-type]  # others are passed on

    monkeypatch.setitem(families._FAMILIES, family, (watched, side, wavelength))
    simulate_family(family, order, 30, length=5, seed=4)
    assert {len(parts) for parts in shown} == {order}
    for before, after in pairwise(shown):
        if order > 1:
            assert np.allclose(before[0] + after[1], after[0])
    position, *steps = shown[-1]
    fields = Waves(np.random.default_rng(0), wavelength, sharp=False)
    base = move(position, steps, families._SHARES[order], fields, np.random.default_rng(5))
    for lag in range(order - 1):
        turned = [-step if at == lag else step for at, step in enumerate(steps)]
        changed = move(position, turned, families._SHARES[order], fields, np.random.default_rng(5))
        assert not np.allclose(base, changed)


@pytest.mark.parametrize(("family", "order"), [("trams", 1), ("roads", 0), ("roads", 5), ("waves", 5)])
def test_an_unknown_family_or_order_is_refused(family: str, order: int) -> None:
    with pytest.raises(ParameterError, match="must be"):
        simulate_family(family, order, 10, length=3, seed=0)
