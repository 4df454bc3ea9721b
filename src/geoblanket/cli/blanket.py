"""`geoblanket blanket`: how much of a vehicle's past its next place depends on; discover, train, predict and study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery
    from geoblanket.blanket.predictor import Predictor
    from geoblanket.blanket.training import ModelEvaluation, TrainResult

__all__ = ["app"]

app = typer.Typer(
    help="Find Markov blankets: how much of a vehicle's past its next place depends on.", no_args_is_help=True
)


_ENOUGH_GROUPS = 20
_MEASURES = {
    "bce": "BCE",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "negative_precision": "neg. precision",
    "negative_recall": "neg. recall",
    "negative_f1": "neg. F1",
    "calibration_error": "ECE, 10 bins",
}


@app.command()
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
    facts = _discovery_facts(discovery)
    if json:
        print_json(facts)
    else:
        _print_discovery(facts)
    _say_about_samples(discovery, regions)
    say(f"Findings written to {out}.")


def _features(text: str) -> list[str]:
    return [] if text == "all" else [name.strip() for name in text.split(",")]


def _discovery_facts(discovery: Discovery) -> dict[str, Any]:
    kept = ("time_zone", "interval_s", "largest", "alpha", "test", "seed", "regions", "counts", "outside")
    return {"groupings": discovery.summary(), **{key: discovery.about[key] for key in kept}}


def _print_discovery(facts: dict[str, Any]) -> None:
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


def _say_about_samples(discovery: Discovery, regions: str | None) -> None:
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


@app.command()
def train(
    *,
    findings: Annotated[
        Path, typer.Option(metavar="FILE", help="Findings, from `geoblanket blanket discover`.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The predictor to write.", show_default=False)],
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FEATURE+...",
            help="Which grouping to use if the findings have several, for example hour+speed.",
            show_default="the one with the most features",
        ),
    ] = None,
    tested_only: Annotated[
        bool, typer.Option("--tested-only", help="Train on decisions of tests only, not on imputed ones.")
    ] = False,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of Adam. The paper's is 1e-5.")] = 1e-3,
    patience: Annotated[
        int,
        typer.Option(min=1, help="Stop after this many epochs without a smaller validation loss. The paper's is 400."),
    ] = 50,
    most_epochs: Annotated[int, typer.Option(min=1, help="The most epochs.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the split of the groups.")] = 0,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Train the predictor of blankets, and compare it with baselines on held-out groups.

    Of the groups of the findings, 60 % are for training, 20 % for early stopping and 20 % for testing.
    """
    from geoblanket.blanket.predictor_file import save_predictor
    from geoblanket.blanket.training import train as train_predictor

    options.check_outputs(out, overwrite=overwrite)
    with progress_bars() as progress:
        result = train_predictor(
            findings,
            by=by,
            labels="tested" if tested_only else "all",
            learning_rate=learning_rate,
            patience=patience,
            most_epochs=most_epochs,
            seed=seed,
            progress=progress,
        )
    save_predictor(result.predictor, out)
    if json:
        print_json(_training_facts(result))
    else:
        _print_training(result)
    _say_worth(result)
    say(f"Predictor written to {out}.")


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A predictor, from `geoblanket blanket train`.", show_default=False)
    ],
    *,
    hour: Annotated[
        int | None, typer.Option(min=0, max=23, help="Hour of the day, in the predictor's time zone.")
    ] = None,
    speed_mph: Annotated[
        float | None, typer.Option(help="Speed over the last interval, mph; above 120 it counts as 120.")
    ] = None,
    region: Annotated[
        int | None, typer.Option(help="Number of the region; an unknown one counts as the mean of all.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the lengths for the whole grid instead (CSV).")
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Predict the length of the blanket from hour, speed and region, or write the whole table."""
    from geoblanket.blanket.predictor_file import load_predictor

    options.check_outputs(table, overwrite=overwrite)
    predictor = load_predictor(model)
    if table is not None:
        _write_grid(predictor, table)
        say(f"Table of {predictor.table.size:,} cells written to {table}.")
        return
    length = predictor.length(hour=hour, speed_mph=speed_mph, region=region)
    probability = predictor.probabilities(hour=hour, speed_mph=speed_mph, region=region).tolist()
    if json:
        print_json({
            "length": length,
            "fail_to_reject": {str(m): p for m, p in enumerate(probability, start=1)},
            **asdict(predictor.origin),
            "training": predictor.origin.training.as_json(),
        })  # fmt: skip
    else:
        print_table(
            f"Blanket of {length}",
            [(f"m = {m}", f"{p:.4f}", "fail to reject" if p > 0.5 else "reject") for m, p in enumerate(probability, 1)],
            header=("hypothesis", "P(fail to reject)", "prediction"),
        )
    if predictor.encoding.regions and region not in predictor.encoding.regions:
        say("The predictor does not know this region; it took the mean of those it knows.")


def _write_grid(predictor: Predictor, path: Path) -> None:
    import csv

    from geoblanket._files import atomic_output

    with atomic_output(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hour", "speed_mph", "region", "length"])
        writer.writerows(predictor.grid())


def _training_facts(result: TrainResult) -> dict[str, Any]:
    return {
        "groups": dict(result.groups),
        "hypotheses": dict(result.hypotheses),
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "evaluations": [asdict(evaluation) for evaluation in result.evaluations],
        "lengths": {
            "cells": _named(result.length_by_cell),
            "samples": _named(result.length_by_sample),
            "samples_found": _named(result.found_by_sample),
        },
        **asdict(result.predictor.origin),
        "training": result.predictor.origin.training.as_json(),
    }


def _named(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(length): count for length, count in counts.items()}


def _print_training(result: TrainResult) -> None:
    groups, hypotheses = result.groups, result.hypotheses
    print_table(
        "Training",
        [
            ("groups for training, early stopping, testing", " / ".join(f"{count:,}" for count in groups.values())),
            ("hypotheses tested", f"{hypotheses['tested']:,}"),
            ("hypotheses imputed as not rejected", f"{hypotheses['imputed']:,}"),
            ("hypotheses without a decision, left out", f"{hypotheses['undecided']:,}"),
            ("epochs (best)", f"{result.epochs:,} ({result.best_epoch:,})"),
        ],
    )
    if hypotheses["imputed"]:
        _print_scores("On tested labels of held-out groups", result.evaluations, "tested")
        _print_scores("On tested and imputed labels of held-out groups", result.evaluations, "all")
    else:
        _print_scores(
            "On held-out groups",
            [evaluation for evaluation in result.evaluations if evaluation.trained_on == "all"],
            "all",
        )
    _print_lengths(result)


def _print_scores(title: str, evaluations: Sequence[ModelEvaluation], judged: Literal["all", "tested"]) -> None:
    scores = [evaluation.scores[judged] for evaluation in evaluations]
    rows = [(label, *(_number(getattr(score, name)) for score in scores)) for name, label in _MEASURES.items()]
    print_table(
        f"{title}: {scores[0].n:,}, {scores[0].kept:.1%} of them “fail to reject”",
        [*rows, ("right length", *(_number(evaluation.right_length) for evaluation in evaluations))],
        header=("trained on", *(f"{evaluation.model}\n{evaluation.trained_on}" for evaluation in evaluations)),
    )


def _print_lengths(result: TrainResult) -> None:
    columns = (result.length_by_cell, result.length_by_sample, result.found_by_sample)
    lengths = sorted(set().union(*columns))
    print_table(
        "Lengths of blankets",
        [
            (f"{length}", *(f"{counts.get(length, 0) / max(sum(counts.values()), 1):.1%}" for counts in columns))
            for length in lengths
        ],
        header=("length", "cells of the grid", "samples", "samples, as discovered"),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _say_worth(result: TrainResult) -> None:
    """Say whether the network is worth more than m alone, whose rates need no network."""
    if result.best_epoch == 0:
        say("The predictor uses m alone: its rates did at least as well as any network in early stopping.")
        return
    network = result.evaluation("network", trained_on=result.predictor.origin.labels)
    gain = f"{network.gain:+.4f} ± {network.gain_error:.4f} nats a tested hypothesis"
    if result.groups["test"] < _ENOUGH_GROUPS:
        say(f"There are only {result.groups['test']} groups for testing, too few to judge the network.")
    elif network.gain > 2 * network.gain_error:
        say(f"The network knows more than m alone ({gain}).")
    else:
        say(f"The network is no better than m alone ({gain}): hour, speed and region tell nothing more here.")


@app.command()
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
