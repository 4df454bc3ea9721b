"""Walks: the place of a vehicle at t, t + Δ, t + 2 Δ, ... of every trip, in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket._arguments import checked, wrong_type
from geoblanket._frames import FRAME, AnyFrame, DescribedFrame, conformed, is_frame, to_polars
from geoblanket._tables import is_number, is_text, reading_parquet, scan_table, write_table
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.walk_batches import walk_batches
from geoblanket.roads.places import Places

__all__ = ["WALKS_SCHEMA", "Walks", "scan_walks", "write_walks"]

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


@checked
@dataclass(frozen=True, eq=False)
class Walks(DescribedFrame):
    """Walks in a data frame, for functions that take walks: with what a file of walks would say of itself.

    They count as trips of people that nothing was promised to, wherever they come from.

    Parameters
    ----------
    frame
        A data frame of Polars or pandas, or an object with the Arrow stream interface, with the columns of
        `WALKS_SCHEMA` in any order; `speed_m_s` may be absent. Walks may be numbered in any way.
    places
        What `place` numbers.
    interval_s
        Time between two steps, seconds.

    Examples
    --------
    With the `graph` and the `places` in the example of `learn_privately`:

    >>> from geoblanket import Walks, learn_motion, scan_walks
    >>> frame, about = scan_walks("walks.parquet")
    >>> early = Walks(frame.head(500), places=places, interval_s=about["interval_s"])
    >>> learn_motion(graph, places, walks=early).training.in_words()
    'learned without privacy for those in the traces'
    """

    places: Places = field(kw_only=True)
    interval_s: float = field(kw_only=True)

    def __post_init__(self) -> None:
        if not is_frame(self.frame):
            raise wrong_type(Walks, "frame", self.frame, ["data frame"])
        if not (is_number(self.interval_s) and self.interval_s > 0):
            raise ParameterError(
                f"The 'interval_s' option must be a positive number of seconds. Got {self.interval_s}."
            )


def write_walks(walks: Walks | AnyFrame, path: Path) -> None:
    """Write walks that are in a data frame as a table of walks, in order.

    Raises
    ------
    ParameterError
        If it is a data frame alone.
    InputError
        If it has not the columns of walks, or steps that do not follow each other at the interval.
    """
    if not isinstance(walks, Walks):
        raise ParameterError(
            "A data frame does not say which places its walks are between, nor how often they step. Give "
            "Walks(frame, places=..., interval_s=...)."
        )
    places = walks.places
    about = {
        "roads": places.roads_identity,
        "spacing_m": places.spacing_m,
        "interval_s": float(walks.interval_s),
        "method": "frame",
    }
    with reading_parquet(FRAME, "cannot be computed as a table of walks"):
        rows = conformed(to_polars(walks.frame, WALKS_SCHEMA), WALKS_SCHEMA, kind="walks", optional={"speed_m_s"})
        rows = rows.sort("walk", "step").with_columns(walk=pl.col("walk").rle_id().cast(pl.Int64))
        write_table(rows, path, kind="walks", about=about)
    _check_steps(path, len(places), interval_us=round(walks.interval_s * 1e6))


def _check_steps(path: Path, place_count: int, *, interval_us: int) -> None:
    last: pl.DataFrame | None = None
    for batch in walk_batches(pl.scan_parquet(path), path=path, place_count=place_count):
        rows = batch if last is None else pl.concat([last, batch])
        same = pl.col("walk") == pl.col("walk").shift()
        late = same & (pl.col("time").to_physical().diff() != interval_us)
        moved = same & pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in ("vehicle", "trip"))
        if rows.select(pl.any_horizontal(pl.col("trip", "time").is_null()).any()).item():
            raise InputError("some steps have no trip or no time", path=path)
        if rows.select((late | moved).any()).item():
            raise InputError(
                f"some steps of a walk are not {interval_us / 1e6:g} s apart, or not of one vehicle and trip",
                path=path,
                hint="Give the interval_s that the walks have",
            )
        last = rows[-1:]
