"""Histories: where vehicles were at t, t − 1, ..., and where they were some steps later; from walks, streamed.

Walks are read in parts, so that tens of millions of steps need memory only for what is kept of them: the counts of
different histories, or the steps held out.

The next place has a distribution that is smoothed, so that what was seen seldom is not taken as certain. A group of
histories that was seen c times, followed by k different places, trusts its own counts by c / (c + k) and the
distribution of the larger group that it belongs to for the rest (Witten and Bell, 1991). The largest groups, single
places, fall back on places near by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl
from scipy.sparse import csr_array, diags_array, vstack

from geoblanket._arrays import ArrayTable, Floats, Indices, Ints, Octets
from geoblanket._display import Progress, silent
from geoblanket._geodesy import haversine_m
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.mobility.walks import Part, Split, WalkParts, scan_walks, split_walks, walk_batches
from geoblanket.roads.places import Places

__all__ = [
    "LONGEST_PAST",
    "Distributions",
    "HistoryCounts",
    "RegimeHours",
    "Steps",
    "backed_off",
    "collect_steps",
    "count_histories",
    "near_places",
]

LONGEST_PAST: Final = 3
"""Γ: no history looks further back."""

_HOURS = 24

Distributions = csr_array[np.float64, tuple[int, int]]
"""Sparse rows over all places that sum to 1."""

_CELLS: Final = 1 << 22
"""Pairs of places at a time."""


@dataclass(frozen=True)
class RegimeHours:
    """Hours of the day in named groups, each with its own mechanism: the hour of a report is public anyway.

    Parameters
    ----------
    hours
        The hours (0 to 23) of each regime, by name; every hour in exactly one.
    time_zone
        An IANA name, in which hours are told.
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
    """Steps of walks with their past, and where each vehicle was later; made by `collect_steps`."""

    histories: Indices
    """The place at t, t − 1, ..., t − Γ, shape (n, 1 + Γ). Where a walk does not go so far back, its first place stands
    for what came before."""
    depth: Octets
    """How many of the earlier places are known, shape (n,); 0 at the first step of a walk."""
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
        """Count steps, part by part; one part at least."""
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
    reading = _Reading.of(
        walks,
        places,
        largest=largest,
        delay=delay,
        part=part,
        split=split,
        regimes=regimes,
        progress=progress,
    )
    return Steps.joined(list(reading.steps()))


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
        The places it was matched to.
    largest
        Γ, how many earlier places a history has, 0 to 3.
    delay
        How many steps later the service uses the location.
    part
        Which walks: "train", "held_out", or "all", which needs no split.
    split
        How walks are split; by default a fifth of the vehicles is held out.
    regimes
        Hours in groups; by default one.

    Raises
    ------
    MismatchError
        If the walks were matched to other roads, or with places of another spacing.
    InputError
        If the table was changed so that its steps do not follow one another.
    """
    reading = _Reading.of(
        walks,
        places,
        largest=largest,
        delay=delay,
        part=part,
        split=split,
        regimes=regimes,
        progress=progress,
    )
    return HistoryCounts.of(reading.steps())


def _counted(steps: Steps) -> pl.DataFrame:
    columns = [f"x{lag}" for lag in range(steps.histories.shape[1])] + ["depth", "regime", "next"]
    parts = [*steps.histories.T, steps.depth, steps.regime, steps.next_place]
    frame = pl.DataFrame(dict(zip(columns, parts, strict=True)))
    return frame.group_by(columns).agg(pl.len().cast(pl.Int64).alias("count"))


@dataclass(frozen=True, eq=False)
class _Reading:
    """One pass over a table of walks."""

    path: Path
    rows: pl.LazyFrame
    place_count: int
    largest: int
    delay: int
    regime_of_hour: Octets
    parts: WalkParts
    progress: Progress

    @classmethod
    def of(
        cls,
        walks: str | Path,
        places: Places,
        *,
        largest: int,
        delay: int,
        part: Part,
        split: Split | None,
        regimes: RegimeHours | None,
        progress: Progress,
    ) -> _Reading:
        if not 0 <= largest <= LONGEST_PAST:
            raise ParameterError(f"A history has 0 to {LONGEST_PAST} earlier places. Got {largest} instead.")
        if delay < 1:
            raise ParameterError(f"The delay must be at least 1 step. Got {delay} instead.")
        regimes = RegimeHours.all_day() if regimes is None else regimes
        frame, about = scan_walks(walks)
        check_walks(walks, about, places)
        hour = pl.col("time").dt.convert_time_zone(regimes.time_zone).dt.hour()
        return cls(
            path=Path(walks),
            rows=frame.select("walk", "step", "place", hour=hour),
            place_count=len(places),
            largest=largest,
            delay=delay,
            regime_of_hour=regimes.of_hour,
            parts=split_walks(frame, path=walks, part=part, split=split or Split()),
            progress=progress,
        )

    def steps(self) -> Iterator[Steps]:
        """Yield the steps that have a place after the delay, part by part; one part at least."""
        kept = np.empty((4, 0), np.int64)
        done = 0
        yield self._with_past(kept, 0)
        for batch in walk_batches(self.rows, path=self.path, place_count=self.place_count):
            if batch["hour"].null_count():
                raise InputError("some steps have no time", path=self.path, hint="Match the traces again")
            fresh = np.stack([batch[name].to_numpy().astype(np.int64) for name in ("walk", "step", "place", "hour")])
            columns = np.concatenate([kept, fresh], axis=1)
            yield self._with_past(columns, kept.shape[1])
            done += batch.height
            kept = columns[:, -(self.largest + self.delay) :]
            self.progress("reading walks", done, self.parts.steps)

    def _with_past(self, columns: Ints, before: int) -> Steps:
        """Return the steps whose later place is among the columns from `before` on."""
        walk, step, place, hour = columns
        now = np.arange(max(0, before - self.delay), max(0, len(walk) - self.delay))
        vehicle, chosen = self.parts.of(walk[now])
        now, vehicle = (values[chosen & (walk[now] == walk[now + self.delay])] for values in (now, vehicle))
        lag = np.minimum(np.arange(self.largest + 1), step[now, None])
        return Steps(
            histories=place[now[:, None] - lag].astype(np.int32),
            depth=np.minimum(step[now], self.largest).astype(np.uint8),
            regime=self.regime_of_hour[hour[now]],
            next_place=place[now + self.delay].astype(np.int32),
            vehicle=vehicle,
        )


def check_walks(path: str | Path, about: Mapping[str, Any], places: Places) -> None:
    """Raise MismatchError unless walks were matched to these places."""
    if about.get("roads") != places.roads_identity:
        raise MismatchError(f"{path} was matched to other roads. Give the roads that it was matched to.")
    if about.get("spacing_m") != places.spacing_m:
        raise MismatchError(
            f"{path} was matched to places at {about.get('spacing_m')} m, not at {places.spacing_m:g} m. Choose the "
            "places with the spacing of the walks, or match again."
        )


def backed_off(counts: Distributions, fallback: Distributions) -> Distributions:
    """Mix counts, shape (n, P), with the distributions of larger groups, shape (n, P), by Witten and Bell's weights."""
    seen = np.asarray(counts.sum(axis=1), np.float64)
    kinds = np.diff(counts.indptr).astype(np.float64)
    both = np.where(seen > 0, seen + kinds, 1.0)
    own = diags_array(1.0 / both) @ counts
    rest = diags_array(np.where(seen > 0, kinds / both, 1.0)) @ fallback
    return csr_array(own + rest)


def near_places(places: Places, of: Indices, *, reach_m: float, typical_m: float) -> Distributions:
    """Return distributions that fall with the distance: where nothing was seen, a vehicle is still somewhere near.

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
