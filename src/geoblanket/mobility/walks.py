"""Walks: the place of a vehicle at t, t + Δ, t + 2 Δ, ... of every trip, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked
from geoblanket._tables import is_number, is_text, scan_table

__all__ = ["WALKS_SCHEMA", "scan_walks"]

WALKS_SCHEMA: dict[str, pl.DataType] = {
    "walk": pl.Int64(),
    "vehicle": pl.String(),
    "trip": pl.Int64(),
    "step": pl.Int32(),
    "time": pl.Datetime("us", "UTC"),
    "place": pl.Int32(),
    "speed_m_s": pl.Float32(),
}
"""One row a step. `walk` numbers the walks from 0 and `step` the steps of a walk from 0; each step is one interval
after the one before. `place` is an index into the places of the roads. `speed_m_s` is the mean speed over the interval
that ends at the step, so it tells nothing about what comes later; it is null at a walk's first step."""

_CHECKS = {"roads": is_text, "spacing_m": is_number, "interval_s": lambda value: is_number(value) and value > 0}


@checked
def scan_walks(path: str | Path) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table written by `geoblanket match` lazily, and return it with how it was made.

    Returns
    -------
    frame, about
        The rows (`WALKS_SCHEMA`), and among others `roads` (the identity of the road graph), `spacing_m` (of the
        places), `interval_s` and `method`. Walks that were drawn from a model have its statement as `training`.

    Examples
    --------
    >>> from geoblanket import scan_walks
    >>> walks, about = scan_walks("walks.parquet")
    >>> about["interval_s"], about["spacing_m"]
    (30.0, 500)
    """
    return scan_table(path, kind="walks", schema=WALKS_SCHEMA, checks=_CHECKS)
