"""`geoblanket blanket study`: the empirical study of blankets, with figures and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

__all__ = ["study"]


def study(
    *,
    walks: options.Walks,
    roads: options.Roads,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.", show_default=False)],
    traces: Annotated[
        Path | None,
        typer.Option(help="Traces, to measure the density of points.", show_default="the density of the walks' steps"),
    ] = None,
    regions: options.Regions = None,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="CITY",
            help="Compare with a city of the paper: rome or porto.",
            show_default="that of the regions, if any",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Markov blankets",
    time_zone: options.TimeZone = "UTC",
    largest: options.LargestBlanket = 5,
    alpha: options.Alpha = 0.05,
    test: options.Test = "analytic",
    smallest_group: options.SmallestGroup = 200,
    largest_sample: options.LargestSample = 2000,
    permutations: Annotated[int, typer.Option(min=19, help="Permutations of each classifier test.")] = 199,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Study how blankets depend on speed, place and hour: figures, tables and a report.

    Every order is tested in groups by hour, by speed, by region and by their combinations. An interrupted study
    continues when it is started again with the same inputs and options.
    """
    from geoblanket.blanket.discovery import DiscoveryOptions
    from geoblanket.errors import ParameterError
    from geoblanket.study.blankets.report import write_report
    from geoblanket.study.blankets.running import run_study
    from geoblanket.study.paper import PAPER

    if paper is not None and paper not in PAPER:
        raise ParameterError(f"The paper's cities are {', '.join(PAPER)}. Got '{paper}' instead.")
    options.check_folder(out, "report.html", overwrite=overwrite)
    with progress_bars() as progress:
        result = run_study(
            walks,
            roads,
            out,
            DiscoveryOptions(
                regions=regions,
                time_zone=time_zone,
                largest=largest,
                alpha=alpha,
                test=test,
                smallest_group=smallest_group,
                largest_sample=largest_sample,
                seed=seed,
            ),
            traces=traces,
            permutations=permutations,
            workers=workers,
            cluster=cluster,
            overwrite=overwrite,
            progress=progress,
        )
        summary = write_report(
            result,
            out,
            roads=roads,
            regions=regions,
            paper=paper or (regions if regions in PAPER else None),
            title=title,
            progress=progress,
        )
    if json:
        print_json(summary)
    else:
        print_table("The paper's claims", [(claim["topic"], claim["verdict"]) for claim in summary["claims"]])
        for sentence in summary["summary"]:
            typer.echo(f"- {sentence}")
    say(f"Report written to {out / 'report.html'}.")
