"""Turn a table of traces into a table of walks, trip by trip, in bounded memory and on all cores.

Points are matched to roads (`MapMatcher`) or snapped to places, then resampled on a fixed clock: the position of a
vehicle at t0, t0 + Δ, t0 + 2 Δ, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket._files import check_output, temporary_folder
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._geodesy import haversine_m
from geoblanket._tables import reading_parquet, write_table
from geoblanket._workers import count_workers, run_tasks
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.map_matcher import MapMatcher, MatchedPoints, MatchOptions, Method, begins_by_gap
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.traces.table import scan_traces, write_traces

_CHUNK_POINTS = 250_000
"""Points matched at once, in whole trips."""
_SECONDS_PER_POINT: dict[Method, float] = {"hmm": 2e-5, "nearest": 2e-6}
"""Estimated time of matching, to decide whether more processes pay."""

_BIN_M = 0.05
"""Distances are counted in bins of this width, for a median over any number of points."""


@checked
@takes_frames(traces=write_traces)
def match_traces(
    traces: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    interval_s: float = 30.0,
    spacing_m: float = 0.0,
    options: MatchOptions | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> MatchSummary:
    """Match traces to roads and write the walks.

    A trip's clock starts at its first matched point. A walk is a stretch without a break in the matching. Positions
    between two points are interpolated by time, along the route (hmm) or the straight line (nearest).

    Parameters
    ----------
    traces
        A table written by `geoblanket traces import`, or a data frame with its columns (`TRACES_SCHEMA`).
    roads
        A road graph written by `geoblanket roads import`.
    out
        The table of walks to write (`WALKS_SCHEMA`), completely or not at all.
    interval_s
        Time between two steps, seconds.
    spacing_m
        Spacing of the places, metres; 0 takes every node.
    options
        The method, `hmm` or `nearest`, and its parameters.
    workers
        Number of processes; None: as many as pay. The result does not depend on it.

    Raises
    ------
    InputError
        If the traces have no points, or none of them is near the roads.
    WorkerError
        If a process died more than once on the same trips.

    Examples
    --------
    >>> from geoblanket import match_traces
    >>> summary = match_traces("traces.parquet", "city.roads", "walks.parquet", interval_s=30, spacing_m=500)
    >>> summary.trips, summary.walks
    (150, 151)
    """
    return match_once(
        traces, roads, {spacing_m: out}, interval_s=interval_s, options=options, workers=workers, progress=progress
    )


def match_once(
    traces: str | Path,
    roads: str | Path,
    outs: Mapping[float, str | Path],
    *,
    interval_s: float = 30.0,
    options: MatchOptions | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> MatchSummary:
    """Match traces to roads once and write a table of walks for each spacing of places, as `match_traces` does.

    Parameters
    ----------
    outs
        The table to write for each spacing, metres. By `nearest`, matching itself depends on the spacing: give one.

    Returns
    -------
    MatchSummary
        Of the first table.
    """
    options = options or MatchOptions()
    if not (np.isfinite(interval_s) and interval_s >= 1e-3):
        raise ParameterError(f"The 'interval_s' option must be at least 0.001 seconds. Got {interval_s} instead.")
    if options.method == "nearest" and len(outs) > 1:
        raise ParameterError(
            f"The method 'nearest' matches for one spacing at a time. Got {len(outs)} spacings instead."
        )
    for out in outs.values():
        check_output(out)
    frame = scan_traces(traces)
    graph = RoadGraph.load(roads)
    with reading_parquet(traces):
        trips = frame.group_by("trip").len().sort("trip").collect(engine="streaming")
    chunks = _cut(trips["len"].to_numpy().astype(np.int64))
    if not chunks:
        raise InputError("has no points", path=traces, hint="Look at the summary of their import")
    points = sum(count for _, count in chunks)
    with temporary_folder(next(iter(outs.values()))) as folder:
        job = _Job(
            folder=folder,
            traces=Path(traces),
            roads=Path(roads),
            roads_identity=graph.identity,
            interval_us=round(interval_s * 1e6),
            spacings_m=tuple(outs),
            options=options,
        )
        processes = count_workers(workers, tasks=len(chunks), seconds=points * _SECONDS_PER_POINT[options.method])
        counts = _match_chunks(job, chunks, processes=processes, progress=progress)
        if not any(chunk.matched_points for chunk in counts):
            raise InputError(
                f"none of its {points} points lies within {job.reach}",
                path=traces,
                hint="Check that traces and roads cover the same area, and that latitude and longitude are not swapped",
            )
        summaries = []
        for number, (spacing_m, out) in enumerate(outs.items()):
            places = len(choose_places(graph, spacing_m=spacing_m))
            summaries.append(summarise_chunks(counts, number, trips=trips.height, places=places))
            about = job.about(spacing_m) | {"counts": summaries[-1].as_dict()}
            write_table(_join(job, counts, number), out, kind="walks", about=about)
    return summaries[0]


@dataclass(frozen=True)
class _Job:
    """What a process needs to match any chunk."""

    folder: Path
    """Folder of the chunks' walks. It differs in each run, so that a process does not reuse the matcher of another."""
    traces: Path
    roads: Path
    roads_identity: str
    interval_us: int
    spacings_m: tuple[float, ...]
    """Of the places of each table."""
    options: MatchOptions

    @property
    def snap_m(self) -> float:
        """The largest distance from a point to its place by `nearest`, metres."""
        return self.options.snap_m + self.spacings_m[0]

    @property
    def reach(self) -> str:
        """How near a point must be to be matched, in words."""
        by_route = self.options.method == "hmm"
        return f"{self.options.radius_m:g} m of a road" if by_route else f"{self.snap_m:g} m of a place"

    def file(self, chunk: int) -> Path:
        """Return where the walks of a chunk go."""
        return self.folder / f"{chunk}.parquet"

    def about(self, spacing_m: float) -> dict[str, Any]:
        """Return how the walks of one table were made, as JSON values."""
        return {
            "roads": self.roads_identity,
            "spacing_m": spacing_m,
            "interval_s": self.interval_us / 1e6,
            "method": self.options.method,
            "options": asdict(self.options),
        }


def _cut(lengths: Ints) -> list[tuple[int, int]]:
    """Cut rows into chunks (start, count) of about `_CHUNK_POINTS`; `lengths` are those of trips, which stay whole."""
    ends = np.cumsum(lengths)
    chunks, start, trip = [], 0, 0
    while trip < len(ends):
        trip = max(trip + 1, int(np.searchsorted(ends, start + _CHUNK_POINTS, side="right")))
        chunks.append((start, int(ends[trip - 1]) - start))
        start = int(ends[trip - 1])
    return chunks


def _match_chunks(job: _Job, chunks: list[tuple[int, int]], *, processes: int, progress: Progress) -> list[ChunkCounts]:
    """Match all chunks, write the walks of each to its file, and return the counts in order."""
    points, done = sum(count for _, count in chunks), 0
    progress("matching", done, points)
    counts = {}
    tasks = {number: (job, rows, job.file(number)) for number, rows in enumerate(chunks)}
    try:
        for number, chunk in run_tasks(_match_chunk, tasks, workers=processes):
            counts[number] = chunk
            done += chunk.points
            progress("matching", done, points)
    finally:
        _chunk_matcher.cache_clear()
    return [counts[number] for number in tasks]


def _join(job: _Job, counts: list[ChunkCounts], table: int) -> pl.LazyFrame:
    """Return the walks of all chunks, numbered through, between the places of one table."""
    first = np.cumsum([0, *(chunk.walks for chunk in counts)])
    return pl.concat(
        pl.scan_parquet(job.file(number))
        .with_columns(pl.col("walk") + int(first[number]), place=pl.col(_place_column(table)))
        .select(*WALKS_SCHEMA)
        for number in range(len(counts))
    )


def _place_column(table: int) -> str:
    return f"place {table}"


class _ChunkMatcher:
    """Matches chunks in one process."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._frame = scan_traces(job.traces)
        graph = RoadGraph.load(job.roads)
        self._places = [choose_places(graph, spacing_m=spacing_m) for spacing_m in job.spacings_m]
        self._matcher = MapMatcher(graph, job.options) if job.options.method == "hmm" else None

    def run(self, rows: tuple[int, int], file: Path) -> ChunkCounts:
        """Match the rows (start, count) and write their walks, numbered from 0."""
        with reading_parquet(self._job.traces):
            frame = self._frame.slice(*rows).collect()
        trip, time_us = frame["trip"].to_numpy(), frame["time"].to_physical().to_numpy()
        lat, lon = frame["lat"].to_numpy(), frame["lon"].to_numpy()
        job, matcher = self._job, self._matcher
        points = (
            snap_points(self._places[0], trip, time_us, lat, lon, snap_m=job.snap_m, max_gap_s=job.options.max_gap_s)
            if matcher is None
            else matcher.match(trip, time_us, lat, lon)
        )
        ticks = clock_ticks(trip, time_us, matched=points.matched, begins=points.begins, interval_us=job.interval_us)
        at_lat, at_lon, moved_m = (
            positions_between(ticks, lat, lon)
            if matcher is None or not isinstance(points, MatchedPoints)
            else positions_on_roads(ticks, points, matcher)
        )
        found = [places.nearest(at_lat, at_lon)[0] for places in self._places]
        walks = _walks(ticks, frame, found, moved_m * (1e6 / job.interval_us))
        walks.write_parquet(file)
        walk_count = walks["walk"].n_unique()
        return ChunkCounts(
            points=len(trip),
            matched_points=int(points.matched.sum()),
            walks=walk_count,
            steps=walks.height,
            short_stretches=int(points.begins.sum()) - walk_count,
            breaks=count_breaks(trip, time_us, points.matched, points.begins, max_gap_s=job.options.max_gap_s),
            distances=count_distances(points.distance_m[points.matched]),
            visited=[walks[_place_column(table)].unique().to_numpy() for table in range(len(found))],
        )


def _walks(ticks: Ticks, points: pl.DataFrame, places: list[Indices], speed_m_s: Floats) -> pl.DataFrame:
    """Return the rows of the walks of at least two steps, numbered from 0, with a column of places for each table."""
    keep = np.flatnonzero(np.bincount(ticks.stretch, minlength=1)[ticks.stretch] >= 2)
    first = ticks.begins[keep]
    walk = np.cumsum(first) - 1
    point = ticks.before[keep]
    return pl.DataFrame(
        {
            "walk": walk,
            "vehicle": points["vehicle"].gather(point),
            "trip": points["trip"].gather(point),
            "step": (np.arange(len(walk)) - np.flatnonzero(first)[walk]).astype(np.int32),
            "time": pl.Series(ticks.time_us[keep]).cast(WALKS_SCHEMA["time"]),
            **{_place_column(table): place[keep] for table, place in enumerate(places)},
            "speed_m_s": pl.Series(speed_m_s[keep].astype(np.float32), nan_to_null=True),
        },
        schema_overrides={name: kind for name, kind in WALKS_SCHEMA.items() if name != "place"},
    )


@lru_cache(maxsize=1)
def _chunk_matcher(job: _Job) -> _ChunkMatcher:
    return _ChunkMatcher(job)


def _match_chunk(task: tuple[_Job, tuple[int, int], Path]) -> ChunkCounts:
    """Match one chunk; a process loads traces and roads only for its first."""
    job, rows, file = task
    return _chunk_matcher(job).run(rows, file)


@dataclass(frozen=True, eq=False)
class SnappedPoints:
    """The place of each point, in the order of the points given."""

    place: Indices
    """Nearest place of each point, also if it is unmatched."""
    distance_m: Floats
    """Metres from the point to its place."""
    matched: Bools
    """Whether the place is near enough."""
    begins: Bools
    """Whether a stretch begins at the point. A stretch is a run of matched points of one trip without a long gap."""


def snap_points(
    places: Places,
    trip: Ints,
    time_us: Ints,
    lat: Floats,
    lon: Floats,
    *,
    snap_m: float,
    max_gap_s: float,
) -> SnappedPoints:
    """Snap the points of one or many trips to places.

    Parameters
    ----------
    trip, time_us, lat, lon
        As in `MapMatcher.match`.
    snap_m
        A point farther than this from every place is unmatched, metres.
    max_gap_s
        A longer time without a matched point ends a stretch, seconds.
    """
    place, distance_m = places.nearest(lat, lon)
    matched = distance_m <= snap_m
    begins = np.zeros(len(trip), dtype=bool)
    begins[matched] = begins_by_gap(trip[matched], time_us[matched], max_gap_s=max_gap_s)
    return SnappedPoints(place, distance_m, matched, begins)


@dataclass(frozen=True, eq=False)
class Ticks:
    """The clock times within stretches, and the points around each; stretch after stretch."""

    stretch: Ints
    """Stretch of each tick, numbered from 0 in order, shape (T,)."""
    time_us: Ints
    """Time of each tick, microseconds, shape (T,)."""
    before: Ints
    """The last point at or before each tick, shape (T,)."""
    after: Ints
    """The next point of the stretch, or `before` itself if the tick is on that point, shape (T,)."""
    part: Floats
    """The share of the time from `before` to `after` that has passed at each tick, from 0 to below 1, shape (T,)."""

    @property
    def begins(self) -> Bools:
        """Whether each tick is the first of its stretch."""
        return np.append(True, self.stretch[1:] != self.stretch[:-1])[: len(self.stretch)]


def clock_ticks(
    trip: Ints,
    time_us: Ints,
    *,
    matched: Bools,
    begins: Bools,
    interval_us: int,
) -> Ticks:
    """Start a clock at the first matched point of each trip, and return its ticks within stretches.

    Parameters
    ----------
    trip, time_us
        Trip and time of each point.
    matched
        Which points count.
    begins
        Which of the matched points begin a stretch.
    """
    # `zero`: the first matched time of each point's trip, where its clock starts.
    point = np.flatnonzero(matched)
    trip, time_us = trip[point], time_us[point]
    new_trip = np.diff(trip, prepend=trip[:1] - 1) != 0
    zero = time_us[new_trip][np.cumsum(new_trip) - 1]
    first = np.flatnonzero(begins[point])
    last = np.append(first, len(point))[1:] - 1
    start, end, zero = time_us[first], time_us[last], zero[first]
    # The ticks within each stretch, numbered from the start of the trip's clock; the first is rounded up.
    first_tick, last_tick = -((zero - start) // interval_us), (end - zero) // interval_us
    count = np.maximum(last_tick - first_tick + 1, 0)
    stretch = np.repeat(np.arange(len(first)), count)
    number = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + first_tick[stretch]
    tick_us = zero[stretch] + number * interval_us
    # All stretches laid end to end give one growing axis, on which one search finds every tick.
    shift = np.cumsum(end - start + 1) - end - 1
    axis = time_us + np.repeat(shift, last - first + 1)
    before = np.searchsorted(axis, tick_us + shift[stretch], side="right") - 1
    after = np.where(time_us[before] == tick_us, before, before + 1)
    waited = np.maximum(time_us[after] - time_us[before], 1)
    return Ticks(stretch, tick_us, point[before], point[after], (tick_us - time_us[before]) / waited)


def positions_between(ticks: Ticks, lat: Floats, lon: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each tick's position on the straight line between points, and the metres since the tick before.

    Returns
    -------
    lat, lon, moved_m
        Degrees, and straight metres from the previous tick; NaN at the first tick of a stretch.
    """
    at_lat = lat[ticks.before] + ticks.part * (lat[ticks.after] - lat[ticks.before])
    at_lon = lon[ticks.before] + ticks.part * (lon[ticks.after] - lon[ticks.before])
    moved = np.full(len(at_lat), np.nan)
    moved[1:] = haversine_m(at_lat[:-1], at_lon[:-1], at_lat[1:], at_lon[1:])
    moved[ticks.begins] = np.nan
    return at_lat, at_lon, moved


def positions_on_roads(ticks: Ticks, points: MatchedPoints, matcher: MapMatcher) -> tuple[Floats, Floats, Floats]:
    """Return each tick's position on the matched route, and the metres along it since the tick before.

    Returns
    -------
    lat, lon, moved_m
        Degrees, and metres along the route from the previous tick; NaN at the first tick of a stretch.
    """
    before, after = ticks.before, ticks.after
    # Ticks between two points have travelled their share of the route in time.
    on_point = before == after
    step = np.where(on_point, 0.0, ticks.part * points.route_m[after])
    edge, offset = points.edge[before].copy(), points.offset_m[before].copy()
    moving = np.flatnonzero(~on_point)
    edge[moving], offset[moving] = matcher.positions_on_route(
        points, before[moving], after[moving], travelled_m=step[moving]
    )
    travelled = np.cumsum(np.nan_to_num(points.route_m))
    moved = np.diff(travelled[before] + step, prepend=np.nan)
    moved[ticks.begins] = np.nan
    return *matcher.index.lines.locate(edge, offset), moved


@dataclass(frozen=True)
class MatchSummary:
    """Counts of the points that were matched and of the walks that they make."""

    trips: int
    """Trips in the traces."""
    points: int
    """Points in the traces."""
    matched_points: int
    """Points that were matched."""
    walks: int
    """Walks written."""
    steps: int
    """Steps of all walks."""
    short_stretches: int
    """Matched stretches left out because they have fewer than two steps."""
    breaks: dict[str, int]
    """Breaks within trips, by reason: `gap` (no points for too long), `off_road` (for too long only points far from any
    road or place), `no_route` (no route fits the time)."""
    median_distance_m: float
    """Median distance of a matched point from its position on the road (hmm) or its place (nearest), metres."""
    places: int
    """Places on the roads."""
    places_visited: int
    """Places that some walk visits."""

    @property
    def matched_share(self) -> float:
        """Share of the points that were matched."""
        return self.matched_points / self.points

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**asdict(self), "matched_share": self.matched_share}


@dataclass(frozen=True, eq=False)
class ChunkCounts:
    """The counts of one chunk."""

    points: int
    matched_points: int
    walks: int
    steps: int
    short_stretches: int
    breaks: dict[str, int]
    distances: Ints
    visited: list[Indices]
    """The places of each table."""


def count_breaks(
    trip: Ints,
    time_us: Ints,
    matched: Bools,
    begins: Bools,
    *,
    max_gap_s: float,
) -> dict[str, int]:
    """Count the breaks within trips by reason."""
    point = np.flatnonzero(matched)
    broken = begins[point][1:] & (np.diff(trip[point]) == 0)
    late = np.diff(time_us[point]) > 1e6 * max_gap_s
    skipped = np.diff(point) > 1
    return {
        "gap": int((broken & late & ~skipped).sum()),
        "off_road": int((broken & late & skipped).sum()),
        "no_route": int((broken & ~late).sum()),
    }


def summarise_chunks(chunks: list[ChunkCounts], table: int, *, trips: int, places: int) -> MatchSummary:
    """Add up the counts of all chunks, for one table."""
    distances = np.zeros(max(len(chunk.distances) for chunk in chunks), np.int64)
    visited = np.zeros(places, dtype=bool)
    for chunk in chunks:
        distances[: len(chunk.distances)] += chunk.distances
        visited[chunk.visited[table]] = True
    middle = int(np.searchsorted(np.cumsum(distances), distances.sum() / 2))
    return MatchSummary(
        trips=trips,
        points=sum(chunk.points for chunk in chunks),
        matched_points=sum(chunk.matched_points for chunk in chunks),
        walks=sum(chunk.walks for chunk in chunks),
        steps=sum(chunk.steps for chunk in chunks),
        short_stretches=sum(chunk.short_stretches for chunk in chunks),
        breaks={reason: sum(chunk.breaks[reason] for chunk in chunks) for reason in chunks[0].breaks},
        median_distance_m=round((middle + 0.5) * _BIN_M, 3),
        places=places,
        places_visited=int(visited.sum()),
    )


def count_distances(distance_m: Floats) -> Ints:
    """Count distances by bin."""
    return np.bincount((distance_m / _BIN_M).astype(np.int64), minlength=1).astype(np.int64)
