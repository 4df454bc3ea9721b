"""`geoblanket match`: traces onto roads, as walks on a fixed clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.mobility.matching import MatchSummary

__all__ = ["match"]


def match(
    *,
    traces: Annotated[Path, typer.Option(help="Traces, from `geoblanket traces import`.", show_default=False)],
    roads: options.Roads,
    out: Annotated[Path, typer.Option(help="The walks to write (Parquet).", show_default=False)],
    interval: Annotated[float, typer.Option(help="Time between two steps of a walk, seconds.")] = 30.0,
    method: Annotated[
        Literal["hmm", "nearest"],
        typer.Option(help="hmm: the most probable route on the roads; nearest: the nearest place, whatever the roads."),
    ] = "hmm",
    spacing: options.Spacing = 0.0,
    max_gap: Annotated[float, typer.Option(help="Seconds without a matched point that end a walk.")] = 180.0,
    workers: options.Workers = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Match traces to roads: a place at every tick of a fixed clock."""
    from geoblanket.mobility.map_matcher import MatchOptions
    from geoblanket.mobility.matching import match_traces

    options.check_outputs(out, picture=picture, overwrite=overwrite)
    options.warn_of_many_places(roads, spacing)
    with progress_bars() as progress:
        summary = match_traces(
            traces,
            roads,
            out,
            interval_s=interval,
            method=method,
            spacing_m=spacing,
            options=MatchOptions(max_gap_s=max_gap),
            workers=workers,
            progress=progress,
        )
    if json:
        print_json(summary.as_dict())
    else:
        _print_summary(summary, method=method, interval=interval)
    say(f"Walks written to {out}.")
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.mobility.picture import draw_walks

        save_figure(draw_walks(out, roads), picture, private=True)
        say(f"Picture written to {picture}.")


def _print_summary(summary: MatchSummary, *, method: str, interval: float) -> None:
    target = "road" if method == "hmm" else "place"
    print_table(
        f"Walks: one step every {interval:g} s",
        [
            ("walks", f"{summary.walks:,}"),
            ("steps", f"{summary.steps:,}"),
            ("trips read", f"{summary.trips:,}"),
            ("points read", f"{summary.points:,}"),
            ("points matched", f"{summary.matched_share:.1%}"),
            (f"median distance from point to {target}", f"{summary.median_distance_m:.1f} m"),
            ("places visited", f"{summary.places_visited:,} of {summary.places:,}"),
            ("breaks: no points for too long", f"{summary.breaks['gap']:,}"),
            (f"breaks: too far from any {target} for too long", f"{summary.breaks['off_road']:,}"),
            ("breaks: no route fits the time", f"{summary.breaks['no_route']:,}"),
            ("stretches left out (fewer than two steps)", f"{summary.short_stretches:,}"),
        ],
    )
