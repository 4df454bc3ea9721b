"""From a table of traces to a table of walks, trip by trip, in bounded memory and on all cores."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from geoblanket._files import check_output
from geoblanket._processes import count_workers, map_in_order
from geoblanket._progress import Progress, silent
from geoblanket._tables import write_table
from geoblanket.errors import InputError, ParameterError
from geoblanket.mobility.map_matcher import MapMatcher, MatchOptions
from geoblanket.mobility.resampling import clock_ticks, positions_between, positions_on_roads
from geoblanket.mobility.walks import WALKS_SCHEMA
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places
from geoblanket.traces.table import scan_traces

__all__ = ["MatchSummary", "Method", "match_traces"]

Method = Literal["hmm", "nearest"]
"""`hmm`: a hidden Markov model finds the route; `nearest`: each position goes to the nearest place, roads unseen."""

_CHUNK_POINTS = 250_000
"""Points matched at once: about 300 MB of memory in a process."""
_SECONDS_PER_POINT: dict[Method, float] = {"hmm": 2e-5, "nearest": 2e-6}
"""What matching takes, by estimate, to judge whether more processes pay."""
_BIN_M = 0.05
"""Distances are counted in bins of this width, for a median over any number of points."""


@dataclass(frozen=True)
class MatchSummary:
    """What became of the traces."""

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
    """Matched stretches left out because they hold fewer than two steps."""
    breaks: dict[str, int]
    """Breaks within trips, by reason: `gap` (no points for too long), `off_road` (points, but far from any road or
    place, for too long), `no_route` (no route that fits the time)."""
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


def match_traces(
    traces: str | Path,
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
        A table written by `geoblanket traces import`.
    roads
        A road graph written by `geoblanket roads import`.
    out
        The Parquet file to write.
    interval_s
        Time between two steps, seconds.
    spacing_m
        Spacing of the places, metres; 0 takes every node.
    snap_m
        Farther than this from every place, a point is unmatched by `nearest`, metres; 200 plus the spacing if None.
    options
        Parameters of the hidden Markov model; `max_gap_s` holds for both methods.
    workers
        Processes; as many as there are cores if None. The result does not depend on it.
    """
    if method not in get_args(Method):
        raise ParameterError(
            f"The 'method' option must be one of {', '.join(get_args(Method))}. Got '{method}' instead."
        )
    if not (np.isfinite(interval_s) and interval_s >= 1e-3):
        raise ParameterError(f"The 'interval_s' option must be at least 0.001 seconds. Got {interval_s} instead.")
    check_output(out)
    frame = scan_traces(traces)
    graph = RoadGraph.load(roads)
    job = _Job(
        traces=Path(traces),
        roads=Path(roads),
        roads_identity=graph.identity,
        interval_us=round(interval_s * 1e6),
        method=method,
        spacing_m=spacing_m,
        snap_m=200.0 + spacing_m if snap_m is None else snap_m,
        options=options or MatchOptions(),
    )
    trips = frame.group_by("trip").len().sort("trip").collect(engine="streaming")
    points = int(trips["len"].sum())
    if points == 0:
        raise InputError("has no points", path=traces, hint="Check the summary of the import")
    chunks = _cut(trips["len"].to_numpy().astype(np.int64))
    tally = _Tally(choose_places(graph, spacing_m=spacing_m).nodes.size)
    with tempfile.TemporaryDirectory(dir=Path(out).parent, prefix=f".{Path(out).stem}.") as folder:
        parts: list[pl.LazyFrame] = []
        progress("matching", 0, points)
        files = [Path(folder) / f"{number}.parquet" for number in range(len(chunks))]
        tasks = ((job, rows, file) for rows, file in zip(chunks, files, strict=True))
        count = count_workers(workers, tasks=len(chunks), seconds=points * _SECONDS_PER_POINT[method])
        for file, counts in zip(files, map_in_order(_match_chunk, tasks, workers=count), strict=True):
            parts.append(pl.scan_parquet(file).with_columns(pl.col("walk") + tally.walks))
            tally.add(counts)
            progress("matching", tally.points, points)
        if tally.matched == 0:
            raise InputError(
                f"none of its {points} points lies within {job.reach}",
                path=traces,
                hint="Check that traces and roads cover the same area, and that latitude and longitude are not swapped",
            )
        summary = tally.summary(trips=trips.height)
        write_table(pl.concat(parts), out, kind="walks", about=job.about() | {"counts": summary.as_dict()})
    _chunk_matcher.cache_clear()
    return summary


@dataclass(frozen=True)
class _Job:
    """What a process needs to know to match any chunk."""

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
        """How near a point must be."""
        return f"{self.options.radius_m:g} m of a road" if self.method == "hmm" else f"{self.snap_m:g} m of a place"

    def about(self) -> dict[str, Any]:
        return {
            "roads": self.roads_identity,
            "spacing_m": self.spacing_m,
            "interval_s": self.interval_us / 1e6,
            "method": self.method,
            "snap_m": self.snap_m,
            "options": asdict(self.options),
        }


@dataclass(frozen=True, eq=False)
class _Counts:
    """What one chunk adds to the summary."""

    points: int
    matched: int
    walks: int
    steps: int
    short: int
    breaks: dict[str, int]
    distances: npt.NDArray[np.int64]
    visited: npt.NDArray[np.int32]


class _Tally:
    """Adds up the counts of chunks."""

    def __init__(self, places: int) -> None:
        self.points = self.matched = self.walks = self.steps = self.short = 0
        self.breaks = {"gap": 0, "off_road": 0, "no_route": 0}
        self.distances = np.zeros(0, np.int64)
        self.visited = np.zeros(places, dtype=bool)

    def add(self, counts: _Counts) -> None:
        for name in ("points", "matched", "walks", "steps", "short"):
            setattr(self, name, getattr(self, name) + getattr(counts, name))
        for reason, number in counts.breaks.items():
            self.breaks[reason] += number
        longer, shorter = sorted((self.distances, counts.distances), key=len, reverse=True)
        self.distances = longer.copy()
        self.distances[: len(shorter)] += shorter
        self.visited[counts.visited] = True

    def summary(self, *, trips: int) -> MatchSummary:
        middle = int(np.searchsorted(np.cumsum(self.distances), self.matched / 2))
        return MatchSummary(
            trips=trips,
            points=self.points,
            matched_points=self.matched,
            walks=self.walks,
            steps=self.steps,
            short_stretches=self.short,
            breaks=self.breaks,
            median_distance_m=round((middle + 0.5) * _BIN_M, 3),
            places=len(self.visited),
            places_visited=int(self.visited.sum()),
        )


class _ChunkMatcher:
    """Matches chunks in one process; the graph is mapped from its file, so processes share it."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._frame = scan_traces(job.traces)
        graph = RoadGraph.load(job.roads)
        self._places = choose_places(graph, spacing_m=job.spacing_m)
        self._matcher = MapMatcher(graph, job.options) if job.method == "hmm" else None

    def run(self, rows: tuple[int, int], part: Path) -> _Counts:
        """Match the rows (start, count) and write their walks, numbered from 0, to `part`."""
        frame = self._frame.slice(*rows).collect()
        trip, time_us = frame["trip"].to_numpy(), frame["time"].to_physical().to_numpy()
        lat, lon = frame["lat"].to_numpy(), frame["lon"].to_numpy()
        step = np.diff(trip)
        if (step < 0).any() or (np.diff(time_us)[step == 0] < 0).any():
            raise InputError("is not sorted by trip and time", path=self._job.traces, hint="Import the traces again")
        if self._matcher is not None:
            points = self._matcher.match(trip, time_us, lat, lon)
            matched, begins, distance = points.matched, points.begins, points.distance_m
            ticks = clock_ticks(trip, time_us, matched=matched, begins=begins, interval_us=self._job.interval_us)
            at_lat, at_lon, moved = positions_on_roads(ticks, points, self._matcher)
        else:
            matched, begins, distance = self._snap(trip, time_us, lat, lon)
            ticks = clock_ticks(trip, time_us, matched=matched, begins=begins, interval_us=self._job.interval_us)
            at_lat, at_lon, moved = positions_between(ticks, lat, lon)
        place, _ = self._places.nearest(at_lat, at_lon)
        length = np.bincount(ticks.stretch, minlength=int(begins.sum()))
        keep = length[ticks.stretch] >= 2
        first = ticks.begins[keep]
        start = np.flatnonzero(first)
        walk = np.cumsum(first) - 1
        walks = pl.DataFrame(
            {
                "walk": walk,
                "vehicle": frame["vehicle"].gather(ticks.before[keep]),
                "trip": trip[ticks.before[keep]],
                "step": (np.arange(len(walk)) - start[walk]).astype(np.int32),
                "time": pl.Series(ticks.time_us[keep]).cast(WALKS_SCHEMA["time"]),
                "place": place[keep].astype(np.int32),
                "speed_m_s": pl.Series(
                    (moved[keep] * (1e6 / self._job.interval_us)).astype(np.float32), nan_to_null=True
                ),
            },
            schema=WALKS_SCHEMA,
        )
        walks.write_parquet(part)
        return _Counts(
            points=len(trip),
            matched=int(matched.sum()),
            walks=len(start),
            steps=walks.height,
            short=int((length < 2).sum()),
            breaks=_break_reasons(trip, time_us, matched, begins, self._job.options.max_gap_s),
            distances=np.bincount((distance[matched] / _BIN_M).astype(np.int64)),
            visited=np.unique(place[keep]),
        )

    def _snap(
        self,
        trip: npt.NDArray[np.int64],
        time_us: npt.NDArray[np.int64],
        lat: npt.NDArray[np.float64],
        lon: npt.NDArray[np.float64],
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Return which points have a place within the radius, which begin a stretch, and how far their place is."""
        _, distance = self._places.nearest(lat, lon)
        matched = distance <= self._job.snap_m
        point = np.flatnonzero(matched)
        begins = np.zeros(len(trip), dtype=bool)
        late = np.diff(time_us[point]) > 1e6 * self._job.options.max_gap_s
        begins[point] = np.append(True, (np.diff(trip[point]) != 0) | late)[: len(point)]
        return matched, begins, distance


def _break_reasons(
    trip: npt.NDArray[np.int64],
    time_us: npt.NDArray[np.int64],
    matched: npt.NDArray[np.bool_],
    begins: npt.NDArray[np.bool_],
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


def _cut(lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut rows into chunks (start, count) of about `_CHUNK_POINTS` that hold whole trips of the given lengths."""
    ends = np.cumsum(lengths)
    chunks, start = [], 0
    while start < ends[-1]:
        end = int(
            ends[
                max(
                    np.searchsorted(ends, start + _CHUNK_POINTS, side="right") - 1,
                    np.searchsorted(ends, start, side="right"),
                )
            ]
        )
        chunks.append((start, end - start))
        start = end
    return chunks


@lru_cache(maxsize=1)
def _chunk_matcher(job: _Job) -> _ChunkMatcher:
    return _ChunkMatcher(job)


def _match_chunk(job: _Job, rows: tuple[int, int], part: Path) -> _Counts:
    """Match one chunk in whatever process this is; a process prepares itself once."""
    return _chunk_matcher(job).run(rows, part)
