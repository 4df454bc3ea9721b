"""`geoblanket blanket discover`: the Markov blanket of each group of samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery

__all__ = ["discover"]


def discover(
    *,
    walks: options.Walks,
    roads: options.Roads,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The findings to write (Parquet).", show_default=False)],
    by: Annotated[
        list[str],
        typer.Option(
            metavar="FEATURE,...",
            help="Features that define a group: a combination of hour, speed and region, or all for a single group. "
            "May be given several times.",
        ),
    ] = ["hour,speed,region"],  # noqa: B006 - Typer reads it, and nothing changes it
    regions: options.Regions = None,
    time_zone: options.TimeZone = "UTC",
    largest: options.LargestBlanket = 5,
    alpha: options.Alpha = 0.05,
    test: options.Test = "analytic",
    all_orders: Annotated[
        bool, typer.Option("--all-orders", help="Test every order, also above one that was not rejected.")
    ] = False,
    block: Annotated[
        bool,
        typer.Option("--block", help="Test against all older locations jointly, which finds memory that skips a lag."),
    ] = False,
    smallest_group: options.SmallestGroup = 200,
    largest_sample: options.LargestSample = 2000,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Find the Markov blanket of each group: how many past places the next one depends on.

    Samples are grouped by hour of the day, speed (bins of 5 mph) and region. In each group the hypothesis that the past
    beyond the last m places does not matter is tested for m = 1, 2, ... until it is not rejected.

    Finished tests are kept beside the output; an interrupted run continues with --resume.
    """
    from geoblanket._unfinished import unfinished_path
    from geoblanket.blanket.discovery import DiscoveryOptions
    from geoblanket.blanket.discovery import discover as discover_blankets

    unfinished = unfinished_path(out)
    options.check_outputs(out, overwrite=overwrite or (resume and unfinished.exists()))
    with options.offer_resume(unfinished), progress_bars() as progress:
        discovery = discover_blankets(
            walks,
            roads,
            DiscoveryOptions(
                by=[_features(grouping) for grouping in by],
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
    facts = _facts(discovery)
    if json:
        print_json(facts)
    else:
        _print_facts(facts)
    _note(discovery, regions)
    say(f"Findings written to {out}.")


def _features(text: str) -> list[str]:
    return [] if text == "all" else [name.strip() for name in text.split(",")]


def _facts(discovery: Discovery) -> dict[str, Any]:
    kept = ("time_zone", "interval_s", "largest", "alpha", "test", "seed", "regions", "counts", "outside")
    return {"groupings": discovery.summary(), **{key: discovery.about[key] for key in kept}}


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
                ("  lower bounds only", f"{count['capped']:,}", ""),
                ("    because the next order was not resolved", f"{count['unresolved_later']:,}", ""),
            ],
        )


def _note(discovery: Discovery, regions: str | None) -> None:
    """Say what a reader should know about the samples."""
    if discovery.about["regions"] is not None:
        if regions is None:
            say("Regions are 4 × 4 cells over the bounding box of the roads; choose others with --regions.")
        used = discovery.findings.filter(discovery.findings["available"] > 0)["region"].drop_nulls()
        if used.n_unique() == 1:
            say("All samples lie in one region: grouping by region makes no difference.")
    if discovery.about["counts"]["vehicles"] == 1:
        say("There is one vehicle only: the findings are about its habits.")
    if not any(count["tested"] for count in discovery.summary().values()):
        say("No group has enough samples to be tested. Group by fewer features, or bring more walks.")
