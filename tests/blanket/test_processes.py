from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from benchmarks import processes
from benchmarks.processes import CITY_SIDE_M, LARGEST_ORDER, simulate_windows
from geoblanket._arrays import Floats
from geoblanket.errors import ParameterError


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_steps_remember_as_many_steps_as_the_order_says(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a field and turns, steps are an autoregression whose coefficients least squares must find.
    monkeypatch.setattr(processes, "_FIELD_M", 0.0)
    monkeypatch.setattr(processes, "_TURN", 0.0)
    windows = simulate_windows(order, 40_000, length=7, seed=order)
    inside = windows[(np.abs(windows[:, 1:]) < CITY_SIDE_M / 2).all(axis=(1, 2))]
    steps = inside[:, :-1] - inside[:, 1:]
    past = steps[:, 1:].reshape(len(steps), -1)
    coefficients, *_ = np.linalg.lstsq(past, steps[:, 0], rcond=None)
    strength = np.array([np.trace(coefficients[2 * lag : 2 * lag + 2]) / 2 for lag in range(5)])
    memory = np.zeros(5)
    memory[: order - 1] = {1: (), 2: (0.30,), 3: (0.40, 0.30), 4: (0.35, 0.15, 0.30)}[order]
    assert np.allclose(strength, memory, atol=0.03)


def test_the_same_seed_gives_the_same_vehicles() -> None:
    assert np.array_equal(simulate_windows(2, 30, seed=1), simulate_windows(2, 30, seed=1))
    assert not np.array_equal(simulate_windows(2, 30, seed=1), simulate_windows(2, 30, seed=2))


def test_vehicles_stand_still_and_keep_to_the_grid() -> None:
    windows = simulate_windows(2, 4_000, spacing_m=250, stops=0.38, length=3, seed=1)
    assert np.array_equal(windows, 250 * np.round(windows / 250))
    still = (windows[:, 0] == windows[:, 1]).all(axis=1).mean()
    assert 0.38 < still < 0.75


def _kurtosis(noise: Literal["gaussian", "heavy"]) -> float:
    windows = simulate_windows(1, 20_000, noise=noise, length=2, seed=3)
    steps: Floats = windows[:, 0] - windows[:, 1]
    centred = steps - steps.mean(axis=0)
    return float((centred**4).mean() / (centred**2).mean() ** 2)


def test_heavy_noise_has_heavy_tails() -> None:
    assert _kurtosis("gaussian") < 4.5
    assert _kurtosis("heavy") > 8


def test_vehicles_stay_about_the_city() -> None:
    windows = simulate_windows(4, 2_000, noise="heavy", field="rough", seed=4)
    assert windows.shape == (2_000, 6, 2)
    assert np.quantile(np.abs(windows), 0.99) < CITY_SIDE_M


@pytest.mark.parametrize("order", [0, LARGEST_ORDER + 1])
def test_orders_are_limited(order: int) -> None:
    with pytest.raises(ParameterError, match=f"from 1 to {LARGEST_ORDER}"):
        simulate_windows(order, 10, seed=0)
