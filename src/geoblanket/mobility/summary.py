"""What became of the traces: counts of every chunk, added up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from geoblanket._arrays import Floats, Indices, Ints

__all__ = ["ChunkCounts", "MatchSummary", "count_distances", "summarise_chunks"]

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


@dataclass(frozen=True, eq=False)
class ChunkCounts:
    """What one chunk adds to the summary."""

    points: int
    matched_points: int
    walks: int
    steps: int
    short_stretches: int
    breaks: dict[str, int]
    distances: Ints
    visited: Indices


def summarise_chunks(chunks: list[ChunkCounts], *, trips: int, places: int) -> MatchSummary:
    """Add up the counts of all chunks."""
    distances = np.zeros(max(len(chunk.distances) for chunk in chunks), np.int64)
    visited = np.zeros(places, dtype=bool)
    for chunk in chunks:
        distances[: len(chunk.distances)] += chunk.distances
        visited[chunk.visited] = True
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
