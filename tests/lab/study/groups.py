"""Findings of made-up groups by hour, speed and region, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import polars as pl

from geoblanket.blanket.findings import FINDINGS_SCHEMA

Outcome = Callable[[np.random.Generator, int, int, int, int], float]
"""The p-value of a group from a generator, its hour, speed, region and number of samples."""


def made_up(
    outcome: Outcome, *, seed: int = 0, hours: int = 6, speeds: int = 5, regions: int = 2, orders: int = 2
) -> pl.DataFrame:
    """Return tested findings by hour+speed+region; sizes grow with the speed, but overlap."""
    rng = np.random.default_rng(seed)
    rows = []
    for group, (hour, bin_, region) in enumerate(product(range(hours), range(speeds), range(regions))):
        n = int(200 + 250 * bin_ + rng.integers(0, 600))
        for m in range(1, orders + 1):
            p_value = outcome(rng, hour, 5 * bin_, region, n)
            rows.append(
                {
                    "group": group,
                    "by": "hour+speed+region",
                    "hour": hour,
                    "speed_mph": 5 * bin_,
                    "region": region,
                    "lat": 41.1 + 0.1 * region + 0.01 * rng.random(),
                    "lon": -8.6 + 0.1 * region + 0.01 * rng.random(),
                    "m": m,
                    "available": n,
                    "n": n,
                    "statistic": 1.0,
                    "p_value": p_value,
                    "p_adjusted": p_value,
                    "effect_size": rng.random() / 10,
                    "rejected": p_value <= 0.05,
                    "status": "tested",
                }
            )
    return pl.DataFrame(rows, schema=FINDINGS_SCHEMA)


def by_chance(rng: np.random.Generator, hour: int, speed: int, region: int, n: int) -> float:  # noqa: ARG001
    """Every hypothesis is true."""
    return float(rng.random())


def by_size(rng: np.random.Generator, hour: int, speed: int, region: int, n: int) -> float:  # noqa: ARG001
    """Nothing but the number of samples matters."""
    return float(np.exp(-n / 300 + 0.3 * rng.normal()) * 0.9)


def by_speed(rng: np.random.Generator, hour: int, speed: int, region: int, n: int) -> float:  # noqa: ARG001
    """Speed matters, whatever the number of samples."""
    return float(np.clip((25 - speed) / 30 + 0.05 * rng.normal(), 0, 1))
