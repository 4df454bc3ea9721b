"""Walks for training and walks held out: whole vehicles, or a time before and a time after; never single points.

Points of one trip are so alike that a model is not tested by some of them after it learned from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from geoblanket._arrays import Bools, Indices, Ints, Octets
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError, ParameterError

__all__ = ["Part", "Split", "WalkParts", "split_walks"]

Part = Literal["all", "train", "held_out"]


@dataclass(frozen=True)
class Split:
    """How walks are split for training and testing."""

    by: Literal["vehicle", "time"] = "vehicle"
    """`vehicle`: some vehicles are held out; `time`: all that starts after a moment is, and what goes on over that
    moment belongs to neither part."""
    held_out: float = 0.2
    """Of the vehicles, or of the steps, the share that is held out."""
    seed: int = 0
    """Chooses the vehicles."""

    def __post_init__(self) -> None:
        if self.by not in ("vehicle", "time"):
            raise ParameterError(f"Walks are split by 'vehicle' or by 'time'. Got {self.by!r} instead.")
        if not 0 < self.held_out < 1:
            raise ParameterError(f"The share that is held out must be between 0 and 1. Got {self.held_out} instead.")


@dataclass(frozen=True, eq=False)
class WalkParts:
    """Which walks belong to a part, and whose they are."""

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
        """How many steps all walks have."""
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
        Where it comes from, for messages.

    Raises
    ------
    InputError
        If nothing would be left to train with, or to hold out.
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
