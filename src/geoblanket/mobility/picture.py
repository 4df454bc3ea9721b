"""A picture of walks: how often each place is visited, and a few whole walks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from geoblanket._arrays import Indices
from geoblanket._tables import reading_parquet
from geoblanket.errors import InputError
from geoblanket.mobility.walks import MatchedWalks
from geoblanket.roads.picture import draw_heat, map_figure

_WALK_COLOURS = ("#2f4b9b", "#8c2f63", "#1d6f54", "#3c4048")


def draw_walks(walks: str | Path, roads: str | Path) -> Figure:
    """Draw a table of walks on its roads.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`.
    roads
        The road graph of the walks.
    """
    matched = MatchedWalks.open(walks, roads)
    frame, places = matched.frame, matched.places
    figure, axes = map_figure(matched.graph, colour="#d5d7db", long_side_in=9.0)
    with reading_parquet(walks):
        visits = frame.group_by("place").len().sort("len", "place").collect(engine="streaming")
        walk_count = frame.select(pl.col("walk").n_unique()).collect(engine="streaming").item()
        typical = _typical_walks(frame)
    if visits.is_empty() or not visits["place"].is_between(0, len(places) - 1).fill_null(value=False).all():
        raise InputError("has no steps, or places that the roads do not have", path=walks, hint="Match again")
    place, count = visits["place"].to_numpy(), visits["len"].to_numpy()
    limits = int(count.min()), int(count.max()) + 1
    draw_heat(axes, places.lat[place], places.lon[place], count, label="steps at the place", limits=limits)
    for colour, place in zip(_WALK_COLOURS, typical, strict=False):
        line = np.column_stack([places.lon[place], places.lat[place]])
        axes.add_collection(
            LineCollection([line], colors=colour, linewidths=1.6, alpha=0.85, capstyle="round", zorder=3), autolim=False
        )
        axes.scatter(line[:1, 0], line[:1, 1], s=42, color=colour, edgecolor="white", zorder=4)
        axes.scatter(line[-1:, 0], line[-1:, 1], s=36, color=colour, marker="s", edgecolor="white", zorder=4)
    axes.set_title(
        f"{walk_count:,} walks, {visits['len'].sum():,} steps of {matched.interval_s:g} s; "
        "lines: some walks, from ● to ■",
        loc="left",
        fontsize=9,
    )
    return figure


def _typical_walks(frame: pl.LazyFrame) -> list[Indices]:
    """Return the places of some walks, spread evenly over those of about the median number of steps."""
    lengths = frame.group_by("walk").len().collect(engine="streaming")
    typical = lengths.filter(pl.col("len").is_between(pl.col("len").median(), 1.5 * pl.col("len").median()))[
        "walk"
    ].sort()
    chosen = typical.gather(np.linspace(0, len(typical) - 1, min(len(_WALK_COLOURS), len(typical))).astype(np.int64))
    steps = frame.filter(pl.col("walk").is_in(chosen.implode())).sort("walk", "step").collect(engine="streaming")
    return [walk["place"].to_numpy() for walk in steps.partition_by("walk", maintain_order=True)]
