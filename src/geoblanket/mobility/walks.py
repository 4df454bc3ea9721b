"""Walks: the place of a vehicle at t, t + Δ, t + 2 Δ, ... of every trip, in one table.

A split for training and testing holds out whole vehicles, or everything after a moment; never single points. Points of
one trip are so similar that some of them cannot test a model that has learned from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from geoblanket._arguments import checked, wrong_type
from geoblanket._arrays import Bools, Indices, Ints, Octets
from geoblanket._frames import FRAME, AnyFrame, DescribedFrame, conformed, is_frame, to_polars
from geoblanket._tables import reading_parquet, scan_table, table_batches, write_table
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places

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

_ROWS_AT_A_TIME: Final = 1_000_000

Part = Literal["all", "train", "held_out"]


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
    return scan_table(path, kind="walks", schema=WALKS_SCHEMA, needs=("roads", "spacing_m", "interval_s"))


def scan_walks_between(path: str | Path, places: Places) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table of walks, as `scan_walks` does; raise MismatchError unless it was matched to these places."""
    frame, about = scan_walks(path)
    _check_roads(path, about, places.roads_identity)
    if about["spacing_m"] != places.spacing_m:
        raise MismatchError(
            f"{path} was matched to places at {about['spacing_m']} m, not at {places.spacing_m:g} m. Choose the "
            "places with the spacing of the walks, or match again."
        )
    return frame, about


def _check_roads(path: str | Path, about: dict[str, Any], identity: str) -> None:
    if about["roads"] != identity:
        raise MismatchError(f"{path} was matched to other roads. Give the roads that it was matched to.")


@dataclass(frozen=True, eq=False)
class MatchedWalks:
    """A table of walks with its roads and its places."""

    path: Path
    frame: pl.LazyFrame
    """The rows (`WALKS_SCHEMA`), unread."""
    about: dict[str, Any]
    """How the walks were made; see `scan_walks`."""
    graph: RoadGraph
    places: Places

    @classmethod
    def open(cls, walks: str | Path, roads: str | Path | RoadGraph) -> MatchedWalks:
        """Open a table of walks with its road graph, or the file of the graph, and choose its places.

        Raises
        ------
        InputError
            If a file cannot be read.
        MismatchError
            If the walks were matched to other roads.
        """
        frame, about = scan_walks(walks)
        graph = roads if isinstance(roads, RoadGraph) else RoadGraph.load(roads)
        _check_roads(walks, about, graph.identity)
        return cls(Path(walks), frame, about, graph, choose_places(graph, spacing_m=about["spacing_m"]))

    @property
    def interval_s(self) -> float:
        """Time between two steps, seconds."""
        return float(self.about["interval_s"])


@checked
@dataclass(frozen=True, eq=False)
class Walks(DescribedFrame):
    """Walks in a data frame, with the places and the interval that a file of walks would name.

    Wherever the walks come from, they count as trips of people to whom nothing was promised.

    Parameters
    ----------
    frame
        A data frame of Polars or pandas, or an object with the Arrow stream interface, with the columns of
        `WALKS_SCHEMA` in any order; `speed_m_s` may be absent. Walks may be numbered in any way.
    places
        The places that `place` numbers.
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
        if not 0 < self.interval_s < math.inf:
            raise ParameterError(
                f"The 'interval_s' option must be a positive number of seconds. Got {self.interval_s}."
            )


def write_walks(walks: Walks | AnyFrame, path: Path) -> None:
    """Write walks that are in a data frame as a table of walks, in order.

    Raises
    ------
    ParameterError
        If it is a data frame without places and interval.
    InputError
        If columns are missing, or steps do not follow each other at the interval.
    """
    if not isinstance(walks, Walks):
        raise ParameterError(
            "A data frame does not name the places and the interval of its walks. Give Walks(frame, places=..., "
            "interval_s=...)."
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


def walk_batches(frame: pl.LazyFrame, *, path: str | Path, place_count: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of walks in order, in batches of bounded size.

    Parameters
    ----------
    frame
        Rows with at least the columns `walk`, `step` and `place`, without nulls.
    path
        The file, for messages.
    place_count
        The number of places.

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
            _check_rows(batch[name].is_not_null().to_numpy(), done, f"has no {name}", path)
        walk, step, place = (batch[name].to_numpy() for name in ("walk", "step", "place"))
        walk_before, step_before = (
            np.append(np.asarray(before, column.dtype), column[:-1])
            for before, column in zip(last, (walk, step), strict=True)
        )
        follows = (walk == walk_before) & (step == step_before + 1)
        _check_rows(follows | ((step == 0) & (walk > walk_before)), done, "does not follow the step before it", path)
        _check_rows((place >= 0) & (place < place_count), done, "has a place that the roads do not have", path)
        last = int(walk[-1]), int(step[-1])
        done += batch.height
        yield batch


def _check_rows(good: Bools, done: int, problem: str, path: str | Path) -> None:
    if not good.all():
        row = done + int(np.argmin(good)) + 1
        raise InputError(f"step {row} of the table {problem}", path=path, hint="Match the traces again")


@dataclass(frozen=True)
class Split:
    """How walks are split for training and testing."""

    by: Literal["vehicle", "time"] = "vehicle"
    """`vehicle`: some vehicles are held out. `time`: all walks that start after a moment are held out, and walks across
    that moment belong to neither part."""
    held_out: float = 0.2
    """Share of the vehicles, or of the steps, that is held out."""
    seed: int = 0
    """Seed of the choice of vehicles."""

    def __post_init__(self) -> None:
        if self.by not in ("vehicle", "time"):
            raise ParameterError(f"Walks are split by 'vehicle' or by 'time'. Got {self.by!r} instead.")
        if not 0 < self.held_out < 1:
            raise ParameterError(f"The share that is held out must be between 0 and 1. Got {self.held_out} instead.")


@dataclass(frozen=True, eq=False)
class WalkParts:
    """Which walks belong to a part, and the vehicle of each."""

    walks: Ints
    """Numbers of all walks, ascending, shape (W,)."""
    vehicle: Indices
    """A number for the vehicle of each walk, shape (W,)."""
    chosen: Bools
    """Whether the walk belongs to the part, shape (W,)."""
    start_hour: Octets
    """The hour of the day, UTC, of each walk's first step, shape (W,)."""
    length: Ints
    """How many steps each walk has, shape (W,)."""

    @property
    def steps(self) -> int:
        """The number of steps of all walks."""
        return int(self.length.sum())

    def of(self, walk: Ints) -> tuple[Indices, Bools]:
        """Return the vehicles of walks, and whether they belong to the part."""
        position = np.searchsorted(self.walks, walk)
        return self.vehicle[position], self.chosen[position]


def split_walks(frame: pl.LazyFrame, *, path: str | Path, part: Part, split: Split) -> WalkParts:
    """Find the walks of a part.

    Parameters
    ----------
    frame
        A table of walks.
    path
        The file, for messages.

    Raises
    ------
    InputError
        If either part would be empty.
    """
    if part not in ("all", "train", "held_out"):
        raise ParameterError(f"The part of the walks must be 'all', 'train' or 'held_out'. Got {part!r} instead.")
    per_walk = frame.group_by("walk").agg(
        pl.col("vehicle").first(),
        pl.col("time").min().alias("start"),
        pl.col("time").max().alias("end"),
        pl.len().alias("steps"),
    )
    with reading_parquet(path):
        walks = per_walk.collect(engine="streaming").sort("walk")
    vehicle = walks["vehicle"].fill_null("").rank("dense").cast(pl.Int32).to_numpy() - 1
    held_out = np.zeros(walks.height, bool)
    trained = np.ones(walks.height, bool)
    if part != "all":
        held_out, trained = _by_vehicle(vehicle, split) if split.by == "vehicle" else _by_time(walks, split)
        if not held_out.any() or not trained.any():
            raise InputError(
                f"cannot be split by {split.by} so that walks are left for training and for testing",
                path=path,
                hint="Split otherwise, or give more walks",
            )
    return WalkParts(
        walks=walks["walk"].to_numpy(),
        vehicle=vehicle.astype(np.int32),
        chosen=held_out if part == "held_out" else trained,
        start_hour=walks["start"].dt.hour().fill_null(0).cast(pl.UInt8).to_numpy(),
        length=walks["steps"].to_numpy().astype(np.int64),
    )


def _by_vehicle(vehicle: Indices, split: Split) -> tuple[Bools, Bools]:
    count = int(vehicle.max(initial=-1)) + 1
    chosen = np.random.default_rng(split.seed).permutation(count)[: max(1, round(split.held_out * count))]
    held_out = np.isin(vehicle, chosen)
    return held_out, ~held_out


def _by_time(walks: pl.DataFrame, split: Split) -> tuple[Bools, Bools]:
    start, end = (walks[name].to_physical().to_numpy() for name in ("start", "end"))
    order = np.argsort(start, kind="stable")
    steps = np.cumsum(walks["steps"].to_numpy()[order])
    if not len(steps):
        return np.zeros(0, bool), np.zeros(0, bool)
    cut = start[order[min(int(np.searchsorted(steps, (1 - split.held_out) * steps[-1])), len(order) - 1)]]
    return start >= cut, end < cut
