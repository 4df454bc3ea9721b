"""Walks read in parts, with the promise checked that their steps follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from geoblanket._arrays import Bools
from geoblanket._tables import table_batches
from geoblanket.errors import InputError

__all__ = ["walk_batches"]

_ROWS_AT_A_TIME: Final = 1_000_000


def walk_batches(frame: pl.LazyFrame, *, path: str | Path, place_count: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of walks in order, in parts of bounded size.

    Parameters
    ----------
    frame
        Rows with at least the columns `walk`, `step` and `place`; none may be empty.
    path
        Where they come from, for messages.
    place_count
        How many places there are.

    Raises
    ------
    InputError
        If a step does not follow the one before it, or has a place that does not exist.
    """
    done = 0
    last = (-1, -1)
    for batch in table_batches(frame, path=path, rows=_ROWS_AT_A_TIME):
        if batch.is_empty():
            continue
        for name in ("walk", "step", "place"):
            _check(batch[name].is_not_null().to_numpy(), done, f"has no {name}", path)
        walk, step, place = (batch[name].to_numpy() for name in ("walk", "step", "place"))
        walk_before, step_before = (
            np.append(np.asarray(before, column.dtype), column[:-1])
            for before, column in zip(last, (walk, step), strict=True)
        )
        follows = (walk == walk_before) & (step == step_before + 1)
        _check(follows | ((step == 0) & (walk > walk_before)), done, "does not follow the step before it", path)
        _check((place >= 0) & (place < place_count), done, "has a place that the roads do not have", path)
        last = int(walk[-1]), int(step[-1])
        done += batch.height
        yield batch


def _check(good: Bools, done: int, problem: str, path: str | Path) -> None:
    if not good.all():
        row = done + int(np.argmin(good)) + 1
        raise InputError(f"step {row} of the table {problem}", path=path, hint="Match the traces again")
