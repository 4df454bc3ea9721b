from __future__ import annotations

import numpy as np
import polars as pl
from scipy.stats import binom

from geoblanket.lab.study.dependence import dependence_table, dependence_test
from tests.lab.study.groups import by_chance, by_size, by_speed, made_up

PERMUTATIONS = 19
"""The fewest with which p can be 0.05."""


def share_rejected(times: int, rho: float, *, n: int = 60, bent: bool = False) -> int:
    rejected = 0
    for seed in range(times):
        rng = np.random.default_rng(seed)
        x, noise = rng.normal(size=(2, n))
        y = rho * (x**2 - 1 if bent else x) + np.sqrt(1 - rho**2) * noise
        rejected += dependence_test(x, y, seed=seed + 10**6, permutations=PERMUTATIONS).p_value <= 0.05
    return rejected


def test_type_one_error() -> None:
    times = 300
    assert binom.ppf(0.001, times, 0.05) <= share_rejected(times, 0.0) <= binom.ppf(0.999, times, 0.05)


def test_type_one_error_with_ties_hours_and_strata() -> None:
    """Discrete columns, a circular one, and y that depends on the stratum, of which x is a part too."""
    times = 300
    rejected = 0
    for seed in range(times):
        rng = np.random.default_rng(seed)
        stratum = rng.integers(0, 3, 60)
        hour, y = (8 * stratum + rng.integers(0, 4, 60)) % 24, (stratum + rng.random(60)).round(1)
        found = dependence_test(hour, y, seed=seed + 10**6, period=24, strata=stratum, permutations=PERMUTATIONS)
        rejected += found.p_value <= 0.05
    assert binom.ppf(0.001, times, 0.05) <= rejected <= binom.ppf(0.999, times, 0.05)


def test_power() -> None:
    assert share_rejected(30, 0.8) >= 28
    assert share_rejected(30, 0.8, bent=True) >= 24  # uncorrelated, but not independent


def test_the_answer_is_the_same_every_time_and_in_range() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 40))
    one, other = (dependence_test(x, y, seed=3, permutations=PERMUTATIONS) for _ in range(2))
    assert one == other
    assert 0 < one.accuracy < 1
    assert 1 / (1 + PERMUTATIONS) <= one.p_value <= 1
    assert dependence_test(x, x, seed=3, permutations=PERMUTATIONS).accuracy > 0.6


def test_constant_columns_are_independent_of_everything() -> None:
    x = np.random.default_rng(0).normal(size=40)
    assert dependence_test(x, np.zeros(40), seed=0, permutations=PERMUTATIONS).p_value == 1
    assert dependence_test(np.zeros(40), x, seed=0, permutations=PERMUTATIONS).p_value > 0.05


def test_the_table_tells_speed_from_size() -> None:
    speed, size = (
        dependence_table(made_up(outcome), permutations=PERMUTATIONS).filter(
            (pl.col("feature") == "speed") & pl.col("m").is_null()
        )
        for outcome in (by_speed, by_size)
    )
    assert speed["p_value"].item() == size["p_value"].item() == 1 / (1 + PERMUTATIONS)
    assert size["p_given_n"].item() > 0.05
    chance = dependence_table(made_up(by_chance), permutations=PERMUTATIONS)
    assert chance.height == 4 * 3
    assert (chance["p_value"] > 0.05).mean() >= 0.75  # type: ignore[operator]


def test_too_few_groups_give_nothing() -> None:
    table = dependence_table(made_up(by_chance, hours=3, speeds=1, regions=2), permutations=PERMUTATIONS)
    assert table["p_value"].null_count() == table.height
