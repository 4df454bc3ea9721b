"""From a table of traces to a table of walks, trip by trip, in bounded memory and on all cores."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket._files import check_output, temporary_folder
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._tables import reading_parquet, write_table
from geoblanket._workers import count_workers, run_tasks
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.map_matcher import MapMatcher, MatchedPoints, MatchOptions
from geoblanket.mobility.resampling import Ticks, clock_ticks, positions_between, positions_on_roads
from geoblanket.mobility.snapping import SnappedPoints, snap_points
from geoblanket.mobility.stretches import count_breaks
from geoblanket.mobility.summary import ChunkCounts, MatchSummary, count_distances, summarise_chunks
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.traces.table import check_points, scan_traces, write_traces

__all__ = ["Method", "match_traces"]

Method = Literal["hmm", "nearest"]
"""`hmm`: a hidden Markov model finds the route; `nearest`: each position goes to the nearest place, roads unseen."""

_CHUNK_POINTS = 250_000
"""Points matched at once, in whole trips."""
_SECONDS_PER_POINT: dict[Method, float] = {"hmm": 2e-5, "nearest": 2e-6}
"""What matching takes, by estimate, to judge whether more processes pay."""
_SNAP_M = 200.0  # metres, beside the spacing of the places


@checked
@takes_frames(traces=write_traces)
def match_traces(
    traces: str | Path | AnyFrame,
    roads: str | Path,
    out: str | Path,
    *,
    interval_s: float = 30.0,
    method: Method = "hmm",
    spacing_m: float = 0.0,
    snap_m: float | None = None,
    options: MatchOptions | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> MatchSummary:
    """Match traces to roads and write the walks.

    A trip's clock starts at its first matched point. A walk goes on as long as the matching does; the position between
    two points is interpolated by time, along the route (hmm) or the straight line (nearest).

    Parameters
    ----------
    traces
        A table written by `geoblanket traces import`, or a data frame with its columns (`TRACES_SCHEMA`).
    roads
        A road graph written by `geoblanket roads import`.
    out
        The table of walks to write (`WALKS_SCHEMA`), wholly or not at all.
    interval_s
        Time between two steps, seconds.
    method
        `hmm` or `nearest`.
    spacing_m
        Spacing of the places, metres; 0 takes every node.
    snap_m
        Farther than this from every place, a point is unmatched by `nearest`, metres; 200 plus the spacing if None.
    options
        Parameters of the hidden Markov model; `max_gap_s` holds for both methods.
    workers
        Processes; as many as pay if None. The result does not depend on it.

    Raises
    ------
    InputError
        If the traces have no points, or none of them is near the roads.
    WorkerError
        If a process died more than once at the same trips.

    Examples
    --------
    >>> from geoblanket import match_traces
    >>> summary = match_traces("traces.parquet", "city.roads", "walks.parquet", interval_s=30, spacing_m=500)
    >>> summary.trips, summary.walks
    (150, 151)
    """
    if method not in get_args(Method):
        choices = ", ".join(get_args(Method))
        raise ParameterError(f"The 'method' option must be one of {choices}. Got '{method}' instead.")
    if not (np.isfinite(interval_s) and interval_s >= 1e-3):
        raise ParameterError(f"The 'interval_s' option must be at least 0.001 seconds. Got {interval_s} instead.")
    if snap_m is not None and not snap_m > 0:
        raise ParameterError(f"The 'snap_m' option must be a positive number of metres. Got {snap_m} instead.")
    check_output(out)
    frame = scan_traces(traces)
    graph = RoadGraph.load(roads)
    with reading_parquet(traces):
        trips = frame.group_by("trip").len().sort("trip").collect(engine="streaming")
    chunks = _cut(trips["len"].to_numpy().astype(np.int64))
    if not chunks:
        raise InputError("has no points", path=traces, hint="Look at the summary of their import")
    points = sum(count for _, count in chunks)
    with temporary_folder(out) as folder:
        job = _Job(
            folder=folder,
            traces=Path(traces),
            roads=Path(roads),
            roads_identity=graph.identity,
            interval_us=round(interval_s * 1e6),
            method=method,
            spacing_m=spacing_m,
            snap_m=_SNAP_M + spacing_m if snap_m is None else snap_m,
            options=options or MatchOptions(),
        )
        processes = count_workers(workers, tasks=len(chunks), seconds=points * _SECONDS_PER_POINT[method])
        counts = _match_chunks(job, chunks, processes=processes, progress=progress)
        if not any(chunk.matched_points for chunk in counts):
            raise InputError(
                f"none of its {points} points lies within {job.reach}",
                path=traces,
                hint="Check that traces and roads cover the same area, and that latitude and longitude are not swapped",
            )
        summary = summarise_chunks(counts, trips=trips.height, places=len(choose_places(graph, spacing_m=spacing_m)))
        write_table(_join(job, counts), out, kind="walks", about=job.about() | {"counts": summary.as_dict()})
    return summary


@dataclass(frozen=True)
class _Job:
    """What a process needs to know to match any chunk."""

    folder: Path
    """Of the chunks' walks; another one for each run, so that a process prepares itself anew for each."""
    traces: Path
    roads: Path
    roads_identity: str
    interval_us: int
    method: Method
    spacing_m: float
    snap_m: float
    options: MatchOptions

    @property
    def reach(self) -> str:
        """How near a point must be to be matched."""
        return f"{self.options.radius_m:g} m of a road" if self.method == "hmm" else f"{self.snap_m:g} m of a place"

    def file(self, chunk: int) -> Path:
        """Return where the walks of a chunk go."""
        return self.folder / f"{chunk}.parquet"

    def about(self) -> dict[str, Any]:
        """Return how the walks were made, as JSON values."""
        return {
            "roads": self.roads_identity,
            "spacing_m": self.spacing_m,
            "interval_s": self.interval_us / 1e6,
            "method": self.method,
            "snap_m": self.snap_m,
            "options": asdict(self.options),
        }


def _cut(lengths: Ints) -> list[tuple[int, int]]:
    """Cut rows into chunks (start, count) of about `_CHUNK_POINTS` that hold whole trips of the given lengths."""
    ends = np.cumsum(lengths)
    chunks, start, trip = [], 0, 0
    while trip < len(ends):
        trip = max(trip + 1, int(np.searchsorted(ends, start + _CHUNK_POINTS, side="right")))
        chunks.append((start, int(ends[trip - 1]) - start))
        start = int(ends[trip - 1])
    return chunks


def _match_chunks(job: _Job, chunks: list[tuple[int, int]], *, processes: int, progress: Progress) -> list[ChunkCounts]:
    """Match all chunks, write each one's walks to its file, and return their counts in order."""
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


def _join(job: _Job, counts: list[ChunkCounts]) -> pl.LazyFrame:
    """Return the walks of all chunks, numbered on."""
    first = np.cumsum([0, *(chunk.walks for chunk in counts)])
    return pl.concat(
        pl.scan_parquet(job.file(number)).with_columns(pl.col("walk") + int(first[number]))
        for number in range(len(counts))
    )


class _ChunkMatcher:
    """Matches chunks in one process."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._frame = scan_traces(job.traces)
        graph = RoadGraph.load(job.roads)
        self._places = choose_places(graph, spacing_m=job.spacing_m)
        self._matcher = MapMatcher(graph, job.options) if job.method == "hmm" else None

    def run(self, rows: tuple[int, int], file: Path) -> ChunkCounts:
        """Match the rows (start, count) and write their walks, numbered from 0."""
        with reading_parquet(self._job.traces):
            frame = self._frame.slice(*rows).collect()
        trip, time_us = frame["trip"].to_numpy(), frame["time"].to_physical().to_numpy()
        lat, lon = frame["lat"].to_numpy(), frame["lon"].to_numpy()
        if (np.diff(trip) < 0).any() or (np.diff(time_us)[np.diff(trip) == 0] < 0).any():
            raise InputError("is not sorted by trip and time", path=self._job.traces, hint="Import the traces again")
        check_points(frame, path=self._job.traces)
        points: MatchedPoints | SnappedPoints
        if self._matcher is None:
            points = self._snap(trip, time_us, lat, lon)
            ticks = self._ticks(points, trip, time_us)
            at_lat, at_lon, moved_m = positions_between(ticks, lat, lon)
        else:
            points = self._matcher.match(trip, time_us, lat, lon)
            ticks = self._ticks(points, trip, time_us)
            at_lat, at_lon, moved_m = positions_on_roads(ticks, points, self._matcher)
        place, _ = self._places.nearest(at_lat, at_lon)
        walks = _walks(ticks, frame, place, moved_m * (1e6 / self._job.interval_us))
        walks.write_parquet(file)
        walk_count = walks["walk"].n_unique()
        return ChunkCounts(
            points=len(trip),
            matched_points=int(points.matched.sum()),
            walks=walk_count,
            steps=walks.height,
            short_stretches=int(points.begins.sum()) - walk_count,
            breaks=count_breaks(trip, time_us, points.matched, points.begins, max_gap_s=self._job.options.max_gap_s),
            distances=count_distances(points.distance_m[points.matched]),
            visited=walks["place"].unique().to_numpy(),
        )

    def _snap(self, trip: Ints, time_us: Ints, lat: Floats, lon: Floats) -> SnappedPoints:
        job = self._job
        return snap_points(self._places, trip, time_us, lat, lon, snap_m=job.snap_m, max_gap_s=job.options.max_gap_s)

    def _ticks(self, points: MatchedPoints | SnappedPoints, trip: Ints, time_us: Ints) -> Ticks:
        return clock_ticks(
            trip, time_us, matched=points.matched, begins=points.begins, interval_us=self._job.interval_us
        )


def _walks(ticks: Ticks, points: pl.DataFrame, place: Indices, speed_m_s: Floats) -> pl.DataFrame:
    """Return the rows of the walks of at least two steps, numbered from 0."""
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
            "place": place[keep],
            "speed_m_s": pl.Series(speed_m_s[keep].astype(np.float32), nan_to_null=True),
        },
        schema=WALKS_SCHEMA,
    )


@lru_cache(maxsize=1)
def _chunk_matcher(job: _Job) -> _ChunkMatcher:
    return _ChunkMatcher(job)


def _match_chunk(task: tuple[_Job, tuple[int, int], Path]) -> ChunkCounts:
    """Match one chunk; a process loads traces and roads only for its first."""
    job, rows, file = task
    return _chunk_matcher(job).run(rows, file)
