"""Findings of made-up groups whose blankets follow a known rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from geoblanket.blanket.findings import FINDINGS_SCHEMA

LARGEST = 5
ABOUT: dict[str, Any] = {
    "interval_s": 30.0,
    "time_zone": "Europe/Lisbon",
    "regions": {"kind": "grid", "rows": 2, "columns": 2},
    "alpha": 0.05,
    "largest": LARGEST,
    "test": "analytic",
    "seed": 0,
}

Rule = Callable[[int, int, int], int]
"""The length of the blanket from hour, speed (mph) and region."""


def learnable(hour: int, speed_mph: int, region: int) -> int:
    """Medium speeds have long blankets, as in the paper; peak hours and the second region longer ones."""
    length = 2 if 20 <= speed_mph < 60 else 1
    return length + (7 <= hour < 10 or 16 <= hour < 19) + (region == 1)


def drawn_by_lot(seed: int) -> Rule:
    """Return a rule that depends on nothing that the predictor sees."""
    rng = np.random.default_rng(seed)
    return lambda *_: int(rng.integers(1, 4))


def make_findings(
    rule: Rule,
    *,
    hours: int = 24,
    speeds: int = 16,
    regions: int = 3,
    by: str = "hour+speed+region",
    impute: bool = True,
    noise: float = 0.0,
    seed: int = 0,
) -> pl.DataFrame:
    """Return findings in which a share `noise` of the tested decisions is turned round, as errors of a test would."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    cells = np.ndindex(
        *(
            size if name in by else 1
            for name, size in zip(("hour", "speed", "region"), (hours, speeds, regions), strict=True)
        )
    )
    for group, (hour, speed, region) in enumerate(cells):
        length, ended = rule(hour, 5 * speed, region), False
        for m in range(1, LARGEST + 1):
            status = "imputed" if ended and impute else "tested"
            rejected = status == "tested" and bool((m < length) != (rng.random() < noise))
            ended = ended or not rejected
            rows.append({
                "group": group, "by": by,
                "hour": hour if "hour" in by else None,
                "speed_mph": 5 * speed if "speed" in by else None,
                "region": region if "region" in by else None,
                "lat": 0.0, "lon": 0.0, "m": m, "available": 1000, "n": 1000,
                "statistic": None, "p_value": None, "p_adjusted": None, "effect_size": None,
                "rejected": rejected, "status": status,
            })  # fmt: skip
    return pl.DataFrame(rows, schema=FINDINGS_SCHEMA)
