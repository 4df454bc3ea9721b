"""`geoblanket blanket study`: the empirical study of blankets, with figures and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

__all__ = ["study"]


def study(
    *,
    walks: Annotated[Path, typer.Option(help="Walks, from `geoblanket match`.", show_default=False)],
    roads: Annotated[Path, typer.Option(help="The roads they were matched to.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.", show_default=False)],
    traces: Annotated[
        Path | None,
        typer.Option(help="Traces, whose points' density is measured.", show_default="the density of the walks' steps"),
    ] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="REGIONS",
            help="porto or rome (the paper's grids), zones:FILE (from `geoblanket roads zones`), or "
            "grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS in degrees.",
            show_default="4 × 4 cells over the box of the roads",
        ),
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="CITY",
            help="Compare with a city of the paper: rome or porto.",
            show_default="as the regions, if named so",
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Markov blankets",
    time_zone: Annotated[
        str, typer.Option(metavar="NAME", help="The time zone of the hours, for example Europe/Lisbon.")
    ] = "UTC",
    largest: Annotated[int, typer.Option(min=1, max=20, help="The largest blanket to test.")] = 5,
    alpha: Annotated[float, typer.Option(help="Reject a hypothesis if p is at most this.")] = 0.05,
    test: Annotated[str, typer.Option(help="The test: analytic, or scetbon (the paper's, slow).")] = "analytic",
    smallest_group: Annotated[int, typer.Option(min=1, help="Groups with fewer samples are not tested.")] = 200,
    largest_sample: Annotated[int, typer.Option(min=1, help="Samples drawn of larger groups.")] = 2000,
    permutations: Annotated[int, typer.Option(min=19, help="Shuffles of each classifier test.")] = 199,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other draws.")] = 0,
    workers: Annotated[
        int | None, typer.Option(help="Processes; the result does not depend on it.", show_default="all cores")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Test on a Dask cluster: the address of its scheduler.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Study how blankets go with speed, place and hour: figures, tables and one report.

    Every order is tested in groups by hour, by speed, by region and by their combinations. An interrupted study goes on
    where it was when started again with the same inputs and options.
    """
    from geoblanket.errors import ParameterError
    from geoblanket.study.blankets.report import write_report
    from geoblanket.study.blankets.running import run_study
    from geoblanket.study.paper import PAPER

    if paper is not None and paper not in PAPER:
        raise ParameterError(f"The paper's cities are {', '.join(PAPER)}. Got '{paper}' instead.")
    with progress_bars() as progress:
        result = run_study(
            walks,
            roads,
            out,
            regions=regions,
            traces=traces,
            time_zone=time_zone,
            largest=largest,
            alpha=alpha,
            test=test,
            smallest_group=smallest_group,
            largest_sample=largest_sample,
            permutations=permutations,
            seed=seed,
            workers=workers,
            cluster=cluster,
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
