"""Walks as arrays with a past: where a vehicle was at t, t - Δ, t - 2 Δ, ..., for samples chosen later.

Tens of millions of steps are held as a few small numbers each; the windows of past positions are put together only for
the samples that are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._arrays import Bools, Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket._tables import reading_parquet, table_batches
from geoblanket.errors import InputError, MismatchError
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places

__all__ = ["LaggedWalks", "load_walks"]

_ROWS_AT_A_TIME = 1_000_000
_DEEPEST = 255  # what a byte holds


@dataclass(frozen=True, eq=False)
class LaggedWalks:
    """The steps of all walks, one after the other; made by `load_walks`."""

    places: Places
    place: Indices
    """Place at each step, shape (N,)."""
    depth: Octets
    """How many earlier steps of the same walk there are (at most 255), shape (N,); 0 in walks that are left out."""
    hour: npt.NDArray[np.int8]
    """Hour of the day of each step in the time zone asked for, 0 to 23, shape (N,)."""
    moved_m: npt.NDArray[np.float32]
    """Great-circle distance from the place before to this one, metres, shape (N,); 0 at a walk's first step."""
    interval_s: float
    """Time between two steps, seconds."""
    counts: dict[str, int]
    """`walks`, `steps` and `vehicles` in the file, and the `repeated_walks` among them that are left out."""
    about: dict[str, Any]
    """How the walks were made."""

    def __len__(self) -> int:
        return len(self.place)

    def slices(self) -> Iterator[slice]:
        """Yield the steps in parts that are small enough to compute with."""
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield slice(start, min(start + _ROWS_AT_A_TIME, len(self)))

    def speed_m_s(self, steps: slice, m: int) -> Floats:
        """Return the mean speed over X_{t-m}, ..., X_t at steps t, metres per second, in straight lines between places.

        It looks at these m + 1 places and at nothing older. A speed that also knew X_{t-m-1} would make it tell
        something about X_t in every group of like speeds, and true hypotheses would be rejected. Steps with fewer than
        m earlier ones have no meaningful speed.
        """
        step = np.arange(steps.start, steps.stop)
        total = np.zeros(len(step))
        for lag in range(m):
            total += self.moved_m[np.maximum(step - lag, 0)]
        return total / (m * self.interval_s)

    def windows(self, steps: Ints, length: int) -> Floats:
        """Return X_t, X_{t-1}, ..., X_{t-length+1} of some steps t with that many earlier ones.

        Returns
        -------
        positions
            Metres east and north of the middle of the places, shape (n, length, 2).
        """
        positions: Floats = self._metres[self.place[steps[:, None] - np.arange(length)]]
        return positions

    @cached_property
    def _metres(self) -> Floats:
        lat, lon = self.places.lat, self.places.lon
        return np.stack(local_metres(lat, lon, origin_lat=lat.mean(), origin_lon=lon.mean()), axis=1)


def load_walks(
    walks: str | Path, roads: str | Path, *, time_zone: str = "UTC", progress: Progress = silent
) -> LaggedWalks:
    """Load a table of walks.

    Walks that occur more than once (the same vehicle, start, and places) count once: copies are no evidence.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`.
    roads
        The road graph it was matched to.
    time_zone
        An IANA name, in which hours are told.

    Raises
    ------
    MismatchError
        If the walks were matched to other roads.
    InputError
        If the table has no steps, or was changed so that its steps do not follow one another.
    """
    frame, about = scan_walks(walks)
    graph = RoadGraph.load(roads)
    if about.get("roads") != graph.identity:
        raise MismatchError(f"{walks} was matched to other roads than {roads}. Give the roads that it was matched to.")
    places = choose_places(graph, spacing_m=about["spacing_m"])
    if not (np.isfinite(places.lat).all() and np.isfinite(places.lon).all()):
        raise InputError("a node has no finite position", path=roads, hint="Import the roads again")
    with reading_parquet(walks):
        repeated, counts = _walk_facts(frame)
    if not counts["steps"]:
        raise InputError("has no steps", path=walks, hint="Match traces that lie on these roads")
    loading = _Loading(Path(walks), places, counts["steps"], repeated)
    columns = frame.select("walk", "step", "place", hour=pl.col("time").dt.convert_time_zone(time_zone).dt.hour())
    for batch in table_batches(columns, path=walks, rows=_ROWS_AT_A_TIME):
        loading.add(batch)
        progress("reading walks", loading.filled, counts["steps"])
    return LaggedWalks(
        places=places,
        place=loading.place,
        depth=loading.depth,
        hour=loading.hour,
        moved_m=loading.moved_m,
        interval_s=float(about["interval_s"]),
        counts=counts,
        about=about,
    )


def _walk_facts(frame: pl.LazyFrame) -> tuple[pl.Series, dict[str, int]]:
    """Return which walks repeat an earlier one, and how many walks, steps and vehicles there are."""
    way = (pl.col("place").hash() * (2 * pl.col("step").cast(pl.UInt64) + 1)).sum()
    per_walk = (
        frame.group_by("walk")
        .agg(pl.col("vehicle").first(), pl.col("time").min(), way.alias("way"), pl.len().alias("steps"))
        .collect(engine="streaming")
        .sort("walk")
    )
    same = ["vehicle", "time", "way", "steps"]
    repeated = per_walk.filter(~pl.struct(same).is_first_distinct())["walk"]
    counts = {
        "walks": per_walk.height,
        "steps": int(per_walk["steps"].sum()),
        "vehicles": per_walk["vehicle"].n_unique(),
        "repeated_walks": len(repeated),
    }
    return repeated, counts


class _Loading:
    """Fills the arrays of `LaggedWalks` part by part, and checks what it is given."""

    def __init__(self, path: Path, places: Places, steps: int, repeated: pl.Series) -> None:
        self._path, self._places, self._repeated = path, places, repeated
        self._last = (-1, -1, 0)
        self.filled = 0
        self.place = np.empty(steps, np.int32)
        self.depth = np.empty(steps, np.uint8)
        self.hour = np.empty(steps, np.int8)
        self.moved_m = np.empty(steps, np.float32)

    def add(self, batch: pl.DataFrame) -> None:
        self._check_complete(batch)
        walk, step, place = (batch[name].to_numpy() for name in ("walk", "step", "place"))
        before_walk, before_step, before = (
            np.append(last, column[:-1]) for last, column in zip(self._last, (walk, step, place), strict=True)
        )
        follows = (walk == before_walk) & (step == before_step + 1)
        self._check(follows | ((step == 0) & (walk != before_walk)), "does not follow the step before it")
        self._check((place >= 0) & (place < len(self._places)), "has a place that the roads do not have")
        lat, lon = self._places.lat, self._places.lon
        rows = slice(self.filled, self.filled + len(batch))
        self.place[rows] = place
        self.hour[rows] = batch["hour"].to_numpy()
        self.moved_m[rows] = np.where(step > 0, haversine_m(lat[before], lon[before], lat[place], lon[place]), 0.0)
        used = ~batch["walk"].is_in(self._repeated.implode()).to_numpy()
        self.depth[rows] = np.where(used, np.minimum(step, _DEEPEST), 0)
        self.filled += len(batch)
        self._last = (int(walk[-1]), int(step[-1]), int(place[-1]))

    def _check_complete(self, batch: pl.DataFrame) -> None:
        for name in batch.columns:
            if batch[name].null_count():
                self._check(batch[name].is_not_null().to_numpy(), f"has no {'time' if name == 'hour' else name}")

    def _check(self, good: Bools, problem: str) -> None:
        if not good.all():
            row = self.filled + int(np.argmin(good)) + 1
            raise InputError(f"step {row} of the table {problem}", path=self._path, hint="Match the traces again")
