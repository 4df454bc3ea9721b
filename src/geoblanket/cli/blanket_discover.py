"""`geoblanket blanket discover`: the Markov blanket of each group of samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery

__all__ = ["discover"]


def discover(
    *,
    walks: Annotated[Path, typer.Option(help="Walks, from `geoblanket match`.", show_default=False)],
    roads: Annotated[Path, typer.Option(help="The roads they were matched to.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The findings to write (Parquet).", show_default=False)],
    by: Annotated[
        list[str],
        typer.Option(
            metavar="FEATURE,...",
            help="What defines a group: a combination of hour, speed and region, or all for a single group. "
            "Give it several times for several groupings.",
        ),
    ] = ["hour,speed,region"],  # noqa: B006 - Typer reads it, and nothing changes it
    regions: Annotated[
        str | None,
        typer.Option(
            metavar="REGIONS",
            help="porto or rome (the paper's grids), zones:FILE (from `geoblanket roads zones`), or "
            "grid:SOUTH,NORTH,WEST,EAST,ROWS,COLUMNS in degrees.",
            show_default="4 × 4 cells over the box of the roads",
        ),
    ] = None,
    time_zone: Annotated[
        str, typer.Option(metavar="NAME", help="The time zone of the hours, for example Europe/Lisbon.")
    ] = "UTC",
    largest: Annotated[int, typer.Option(min=1, max=20, help="The largest blanket to test.")] = 5,
    alpha: Annotated[float, typer.Option(help="Reject a hypothesis if p is at most this.")] = 0.05,
    test: Annotated[str, typer.Option(help="The test: analytic, or scetbon (the paper's, slow).")] = "analytic",
    all_orders: Annotated[
        bool, typer.Option("--all-orders", help="Test every order, also above one that was not rejected.")
    ] = False,
    block: Annotated[
        bool, typer.Option("--block", help="Test against all older locations at once: sees memory that skips a lag.")
    ] = False,
    smallest_group: Annotated[int, typer.Option(min=1, help="Groups with fewer samples are not tested.")] = 200,
    largest_sample: Annotated[int, typer.Option(min=1, help="Samples drawn of larger groups.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other draws.")] = 0,
    workers: Annotated[
        int | None, typer.Option(help="Processes; the result does not depend on it.", show_default="all cores")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Test on a Dask cluster: the address of its scheduler.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run with the same inputs and options.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find the Markov blanket of each group: how many past places the next one depends on.

    Samples are grouped by hour of the day, speed (bins of 5 mph) and region. In each group the hypothesis that the past
    beyond the last m places does not matter is tested for m = 1, 2, ... until it is not rejected.

    What is finished is kept beside the output until all is; an interrupted run goes on with --resume.
    """
    from geoblanket._unfinished import unfinished_path
    from geoblanket.blanket.discovery import discover as discover_blankets
    from geoblanket.blanket.options import DiscoveryOptions

    try:
        with progress_bars() as progress:
            found = discover_blankets(
                walks,
                roads,
                DiscoveryOptions(
                    by=[_features(one) for one in by],
                    regions=regions,
                    time_zone=time_zone,
                    largest=largest,
                    alpha=alpha,
                    test=test,
                    stop_early=not all_orders,
                    block=block,
                    smallest_group=smallest_group,
                    largest_sample=largest_sample,
                    seed=seed,
                ),
                workers=workers,
                cluster=cluster,
                out=out,
                resume=resume,
                progress=progress,
            )
    except KeyboardInterrupt:
        if unfinished_path(out).exists():
            say(f"What is finished is kept in {unfinished_path(out)}; go on with --resume.")
        raise
    facts = _facts(found)
    if json:
        print_json(facts)
    else:
        _print_facts(facts)
    _note(found, regions)
    say(f"Findings written to {out}.")


def _features(text: str) -> list[str]:
    return [] if text == "all" else [name.strip() for name in text.split(",")]


def _facts(found: Discovery) -> dict[str, Any]:
    kept = ("time_zone", "interval_s", "largest", "alpha", "test", "seed", "regions", "counts", "outside")
    return {"groupings": found.summary(), **{key: found.about[key] for key in kept}}


def _print_facts(facts: dict[str, Any]) -> None:
    counts = facts["counts"]
    print_table(
        "Samples",
        [
            ("walks", f"{counts['walks']:,}"),
            ("  left out: repeat another one", f"{counts['repeated_walks']:,}"),
            ("steps", f"{counts['steps']:,}"),
            ("vehicles", f"{counts['vehicles']:,}"),
            *((f"outside all groups by {by}", f"{number:,}") for by, number in facts["outside"].items()),
            ("hours in the time zone", facts["time_zone"]),
        ],
    )
    for by, count in facts["groupings"].items():
        sizes = [
            (
                f"blanket of {size}" + (" or more" if int(size) == facts["largest"] else ""),
                f"{number:,}",
                f"{number / count['tested']:.1%}",
            )
            for size, number in count["sizes"].items()
        ]
        print_table(
            f"Groups by {by}",
            [
                ("groups", f"{count['groups']:,}", ""),
                ("  empty", f"{count['empty']:,}", ""),
                ("  too few samples", f"{count['too_few']:,}", ""),
                ("  hardly any movement", f"{count['constant']:,}", ""),
                ("  not resolved", f"{count['unresolved']:,}", ""),
                ("  tested", f"{count['tested']:,}", ""),
                ("tests", f"{count['tests']:,}", ""),
                *sizes,
                ("  of them the least that it can be", f"{count['capped']:,}", ""),
                ("    because the next order was not resolved", f"{count['unresolved_later']:,}", ""),
            ],
        )


def _note(found: Discovery, regions: str | None) -> None:
    """Say what a reader should know about the samples."""
    if found.about["regions"] is not None:
        if regions is None:
            say("Regions are 4 × 4 cells over the box of the roads; choose others with --regions.")
        used = found.findings.filter(found.findings["available"] > 0)["region"].drop_nulls()
        if used.n_unique() == 1:
            say("All samples lie in one region: grouping by region makes no difference.")
    if found.about["counts"]["vehicles"] == 1:
        say("There is one vehicle only: the findings are about its habits.")
    if not any(count["tested"] for count in found.summary().values()):
        say("No group has enough samples to be tested. Group by fewer features, or bring more walks.")
