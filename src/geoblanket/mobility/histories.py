"""Histories: the places of a vehicle at t, t − 1, ..., and its place some steps later; streamed from walks.

Walks are read in batches. So tens of millions of steps need memory only for the result: counts of different histories,
or the steps held out.

The distribution of the next place is smoothed, so that rare observations do not count as certain. A group of histories
that was seen c times, followed by k different places, gives its own counts the weight c / (c + k); the rest goes to the
distribution of the larger group around it (Witten and Bell, 1991). The largest groups, single places, fall back on
places near by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl
from scipy.sparse import csr_array, diags_array, vstack

from geoblanket._arrays import ArrayTable, Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import haversine_m
from geoblanket.errors import ParameterError
from geoblanket.mobility.walks import Part, Split, scan_walks_between, split_walks, walk_batches
from geoblanket.roads.places import Places

LONGEST_PAST: Final = 3
"""Γ: the largest number of earlier places in a history."""

_HOURS = 24

Distributions = csr_array[np.float64, tuple[int, int]]
"""Sparse rows over all places that sum to 1."""

_CELLS: Final = 1 << 22
"""Pairs of places computed at once."""


@dataclass(frozen=True)
class RegimeHours:
    """Regimes: named groups of hours, each with its own mechanism; the hour of a report is public anyway.

    Parameters
    ----------
    hours
        The hours (0 to 23) of each regime, by name; every hour in exactly one.
    time_zone
        The time zone of the hours, an IANA name.
    """

    hours: Mapping[str, Sequence[int]]
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        listed = [hour for hours in self.hours.values() for hour in hours]
        if sorted(listed) != list(range(_HOURS)):
            raise ParameterError("Regimes must hold every hour from 0 to 23 exactly once.")
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ParameterError(
                "The time zone of the regimes must be an IANA name, such as 'Europe/Lisbon'."
            ) from error

    @classmethod
    def all_day(cls) -> RegimeHours:
        """Return one regime for all hours."""
        return cls({"all day": range(_HOURS)})

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self.hours)

    @property
    def of_hour(self) -> Octets:
        """The number of the regime of each hour, shape (24,)."""
        result = np.empty(_HOURS, np.uint8)
        for number, hours in enumerate(self.hours.values()):
            result[list(hours)] = number
        return result


@dataclass(frozen=True, eq=False)
class Steps(ArrayTable):
    """Steps of walks with their past, and the place some steps later. Made by `collect_steps`."""

    histories: Indices
    """The place at t, t − 1, ..., t − Γ, shape (n, 1 + Γ). Before the start of a walk its first place is repeated."""
    depth: Octets
    """The number of known earlier places, shape (n,); 0 at the first step of a walk."""
    regime: Octets
    """The number of the regime, shape (n,)."""
    next_place: Indices
    """The place after the delay, shape (n,)."""
    vehicle: Indices
    """A number for each vehicle, shape (n,)."""

    def __len__(self) -> int:
        return len(self.next_place)


@dataclass(frozen=True, eq=False)
class HistoryCounts(ArrayTable):
    """How often each history was followed by each place; made by `count_histories`, in order of all columns."""

    histories: Indices
    """As in `Steps`, shape (n, 1 + Γ)."""
    depth: Octets
    regime: Octets
    next_place: Indices
    count: Ints
    """How often, shape (n,)."""

    def __len__(self) -> int:
        return len(self.count)

    @property
    def largest(self) -> int:
        """Γ: how many earlier places a history has."""
        return int(self.histories.shape[1]) - 1

    @classmethod
    def of(cls, parts: Iterable[Steps]) -> HistoryCounts:
        """Count steps, part by part; there must be at least one part."""
        counted = pl.concat([_counted(steps) for steps in parts])
        columns = counted.columns[:-1]
        frame = counted.group_by(columns).agg(pl.col("count").sum()).sort(columns)
        return cls(
            histories=frame.select(columns[:-3]).to_numpy().astype(np.int32).reshape(-1, len(columns) - 3),
            depth=frame["depth"].to_numpy(),
            regime=frame["regime"].to_numpy(),
            next_place=frame["next"].to_numpy(),
            count=frame["count"].to_numpy(),
        )


def collect_steps(
    walks: str | Path,
    places: Places,
    *,
    largest: int = 2,
    delay: int = 1,
    part: Part = "held_out",
    split: Split | None = None,
    regimes: RegimeHours | None = None,
    progress: Progress = silent,
) -> Steps:
    """Return each step of walks with its past; the parameters are those of `count_histories`."""
    steps = _read_steps(
        walks, places, largest=largest, delay=delay, part=part, split=split, regimes=regimes, progress=progress
    )
    return Steps.joined(list(steps))


def count_histories(
    walks: str | Path,
    places: Places,
    *,
    largest: int = 2,
    delay: int = 1,
    part: Part = "train",
    split: Split | None = None,
    regimes: RegimeHours | None = None,
    progress: Progress = silent,
) -> HistoryCounts:
    """Count the histories of walks, and the places after them.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`.
    places
        The places of the walks.
    largest
        Γ, the number of earlier places in a history, 0 to 3.
    delay
        How many steps later the service uses the location.
    part
        Which walks to read: "train", "held_out", or "all", which needs no split.
    split
        How walks are split; by default a fifth of the vehicles is held out.
    regimes
        The regimes; by default one for all hours.

    Raises
    ------
    MismatchError
        If the walks were matched to other roads, or with places of another spacing.
    InputError
        If the table was changed so that its steps do not follow one another.
    """
    steps = _read_steps(
        walks, places, largest=largest, delay=delay, part=part, split=split, regimes=regimes, progress=progress
    )
    return HistoryCounts.of(steps)


def _counted(steps: Steps) -> pl.DataFrame:
    columns = [f"x{lag}" for lag in range(steps.histories.shape[1])] + ["depth", "regime", "next"]
    parts = [*steps.histories.T, steps.depth, steps.regime, steps.next_place]
    frame = pl.DataFrame(dict(zip(columns, parts, strict=True)))
    return frame.group_by(columns).agg(pl.len().cast(pl.Int64).alias("count"))


def _read_steps(
    walks: str | Path,
    places: Places,
    *,
    largest: int,
    delay: int,
    part: Part,
    split: Split | None,
    regimes: RegimeHours | None,
    progress: Progress,
) -> Iterator[Steps]:
    """Yield the steps that have a place after the delay, in at least one part."""
    if not 0 <= largest <= LONGEST_PAST:
        raise ParameterError(f"A history has 0 to {LONGEST_PAST} earlier places. Got {largest} instead.")
    if delay < 1:
        raise ParameterError(f"The delay must be at least 1 step. Got {delay} instead.")
    regimes = RegimeHours.all_day() if regimes is None else regimes
    regime_of_hour = regimes.of_hour
    frame, _ = scan_walks_between(walks, places)
    parts = split_walks(frame, path=walks, part=part, split=split or Split())

    def with_past(columns: Ints, before: int) -> Steps:
        """Return the steps whose later place is in the columns from `before` on."""
        walk, step, place, hour = columns
        now = np.arange(max(0, before - delay), max(0, len(walk) - delay))
        vehicle, chosen = parts.of(walk[now])
        now, vehicle = (values[chosen & (walk[now] == walk[now + delay])] for values in (now, vehicle))
        lag = np.minimum(np.arange(largest + 1), step[now, None])
        return Steps(
            histories=place[now[:, None] - lag].astype(np.int32),
            depth=np.minimum(step[now], largest).astype(np.uint8),
            regime=regime_of_hour[hour[now]],
            next_place=place[now + delay].astype(np.int32),
            vehicle=vehicle,
        )

    hour = pl.col("time").dt.convert_time_zone(regimes.time_zone).dt.hour()
    rows = frame.select("walk", "step", "place", hour=hour)
    # The last steps of a batch are the past of the next batch. An empty part comes first, for walks without steps.
    kept, done = np.empty((4, 0), np.int64), 0
    yield with_past(kept, 0)
    for batch in walk_batches(rows, path=walks, place_count=len(places)):
        fresh = np.stack([batch[name].to_numpy().astype(np.int64) for name in ("walk", "step", "place", "hour")])
        columns = np.concatenate([kept, fresh], axis=1)
        yield with_past(columns, kept.shape[1])
        done += batch.height
        kept = columns[:, -(largest + delay) :]
        progress("reading walks", done, parts.steps)


def backed_off(counts: Distributions, fallback: Distributions) -> Distributions:
    """Mix counts with the distributions of larger groups by Witten and Bell's weights; all of shape (n, P)."""
    seen = np.asarray(counts.sum(axis=1), np.float64)
    kinds = np.diff(counts.indptr).astype(np.float64)
    both = np.where(seen > 0, seen + kinds, 1.0)
    own = diags_array(1.0 / both) @ counts
    rest = diags_array(np.where(seen > 0, kinds / both, 1.0)) @ fallback
    return csr_array(own + rest)


def near_places(places: Places, of: Indices, *, reach_m: float, typical_m: float) -> Distributions:
    """Return distributions that fall with the distance, for places where nothing was observed.

    Parameters
    ----------
    of
        Places, shape (n,).
    reach_m
        Places further away than this, in metres, have no probability.
    typical_m
        The probability falls by a factor e over this distance, metres.
    """
    lat, lon = places.lat, places.lon
    parts = []
    size = max(1, _CELLS // max(1, len(places)))
    for start in range(0, max(len(of), 1), size):
        some = of[start : start + size]
        distance = haversine_m(lat[some][:, None], lon[some][:, None], lat, lon)
        weight: Floats = np.where(distance <= reach_m, np.exp(-distance / typical_m), 0.0)
        parts.append(csr_array(weight / weight.sum(axis=1, keepdims=True)))
    return csr_array(vstack(parts, format="csr"))
