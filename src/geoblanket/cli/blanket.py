"""`geoblanket blanket`: how much of a vehicle's past its next place depends on; discover, train, predict and study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, figure, print_result, print_table, progress_bars, say
from geoblanket.cli._settings import Settings

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery
    from geoblanket.blanket.training import TrainResult

blanket_app = typer.Typer(
    help="Find Markov blankets: how much of a vehicle's past its next place depends on.", no_args_is_help=True
)


_DISCOVER = Settings(
    "geoblanket.blanket.discovery:DiscoveryOptions",
    "geoblanket.blanket.discovery:discover",
    without=("by", "regions", "options", "out", "resume"),
)
_TRAIN = Settings(
    "geoblanket.blanket.training:train",
    "geoblanket.blanket.models:NetworkOptions",
    without=("about", "network", "hidden"),
)
_STUDY = Settings(
    "geoblanket.blanket.discovery:DiscoveryOptions",
    "geoblanket.lab.study.running:StudyOptions",
    "geoblanket.lab.study.running:run_study",
    "geoblanket.lab.study.report:write_report",
    without=("by", "regions", "stop_early", "block", "discovery", "options", "overwrite", "roads"),
)

_ENOUGH_GROUPS = 20


@blanket_app.command()
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
    set_: Annotated[list[str] | None, _DISCOVER.option] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Find the Markov blanket of each group: how many past places the next one depends on.

    Samples are grouped by hour of the day, speed (bins of 5 mph) and region. Each group is tested for m = 1, 2, ...
    until the hypothesis is not rejected that places before the last m do not matter.

    Finished tests are kept beside the output. Continue an interrupted run with --resume.
    """
    from geoblanket._unfinished import unfinished_path
    from geoblanket.blanket.discovery import DiscoveryOptions
    from geoblanket.blanket.discovery import discover as discover_blankets

    settings = _DISCOVER.read(set_)
    unfinished = unfinished_path(out)
    options.check_outputs(out, overwrite=overwrite or (resume and unfinished.exists()))
    with options.offer_resume(unfinished), progress_bars() as progress:
        discovery = discover_blankets(
            walks,
            roads,
            DiscoveryOptions(
                by=[_features(grouping) for grouping in by], regions=regions, **settings.of(DiscoveryOptions)
            ),
            out=out,
            resume=resume,
            progress=progress,
            **settings.of(discover_blankets),
        )
    kept = ("time_zone", "interval_s", "largest", "alpha", "test", "seed", "regions", "counts", "outside")
    facts = {"groupings": discovery.summary(), **{key: discovery.about[key] for key in kept}}
    print_result("Markov blankets", facts, json=json, without=("regions",))
    _say_about_samples(discovery, regions)
    say(f"Findings written to {out}.")


def _features(text: str) -> list[str]:
    return [] if text == "all" else [name.strip() for name in text.split(",")]


def _say_about_samples(discovery: Discovery, regions: str | None) -> None:
    """Say what a reader should know about the samples."""
    if discovery.about["regions"] is not None:
        if regions is None:
            say("Regions are 4 × 4 cells over the bounding box of the roads. Choose others with --regions.")
        used = discovery.findings.filter(discovery.findings["available"] > 0)["region"].drop_nulls()
        if used.n_unique() == 1:
            say("All samples lie in one region, so grouping by region changes nothing.")
    if discovery.about["counts"]["vehicles"] == 1:
        say("There is only one vehicle: the findings describe its habits.")
    if not any(count["tested"] for count in discovery.summary().values()):
        say("No group has enough samples for a test. Group by fewer features, or add walks.")


@blanket_app.command()
def train(
    *,
    findings: Annotated[
        Path, typer.Option(metavar="FILE", help="Findings, from `geoblanket blanket discover`.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The predictor to write.", show_default=False)],
    set_: Annotated[list[str] | None, _TRAIN.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Train a predictor of blankets, and compare it with baselines on held-out groups.

    60 % of the groups are for training, 20 % for early stopping and 20 % for testing.
    """
    from geoblanket.blanket.models import NetworkOptions
    from geoblanket.blanket.predictor import save_predictor
    from geoblanket.blanket.training import train as train_predictor

    settings = _TRAIN.read(set_)
    options.check_outputs(out, overwrite=overwrite)
    with progress_bars() as progress:
        network = NetworkOptions(**settings.of(NetworkOptions))
        result = train_predictor(findings, network=network, progress=progress, **settings.of(train_predictor))
    save_predictor(result.predictor, out)
    facts = _training_facts(result)
    print_result("Training", facts, json=json, without=("evaluations", "training"))
    if not json:
        for judged in ("tested", "all") if result.hypotheses["imputed"] else ("tested",):
            _print_scores(result, judged)
    _say_worth(result)
    say(f"Predictor written to {out}.")


@blanket_app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A predictor, from `geoblanket blanket train`.", show_default=False)
    ],
    *,
    hour: Annotated[
        int | None, typer.Option(min=0, max=23, help="Hour of the day, in the predictor's time zone.")
    ] = None,
    speed_mph: Annotated[
        float | None, typer.Option(help="Speed over the last interval, mph; more than 120 counts as 120.")
    ] = None,
    region: Annotated[
        int | None, typer.Option(help="Number of the region; an unknown one counts as the mean of all.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Predict the length of the blanket from hour, speed and region."""
    from geoblanket.blanket.predictor import load_predictor

    predictor = load_predictor(model)
    length = predictor.length(hour=hour, speed_mph=speed_mph, region=region)
    probability = predictor.probabilities(hour=hour, speed_mph=speed_mph, region=region).tolist()
    facts = {
        "length": length,
        "fail_to_reject": {str(m): p for m, p in enumerate(probability, start=1)},
        **asdict(predictor.origin),
        "training": predictor.origin.training.as_json(),
    }
    print_result(f"Blanket of {length}", facts, json=json, without=("training",))
    if predictor.encoding.regions and region not in predictor.encoding.regions:
        say("The predictor does not know this region. It used the mean of the regions that it knows.")


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


def _print_scores(result: TrainResult, judged: Literal["all", "tested"]) -> None:
    labels = "tested labels" if judged == "tested" else "tested and imputed labels"
    scores = [evaluation.scores[judged] for evaluation in result.evaluations]
    measures = [(field.name, [getattr(score, field.name) for score in scores]) for field in fields(scores[0])]
    measures.append(("right_length", [evaluation.right_length for evaluation in result.evaluations]))
    print_table(
        f"Models, on {labels} of held-out groups",
        [(name.replace("_", " "), *map(figure, values)) for name, values in measures],
        header=("trained on", *(f"{each.model}\n{each.trained_on}" for each in result.evaluations)),
    )


def _say_worth(result: TrainResult) -> None:
    """Say whether the network is worth more than m alone, whose rates need no network."""
    if result.best_epoch == 0:
        say("The predictor uses m alone: no network did better in early stopping.")
        return
    network = result.evaluation("network", trained_on=result.predictor.origin.labels)
    gain = f"{network.gain:+.4f} ± {network.gain_error:.4f} nats per tested hypothesis"
    if result.groups["test"] < _ENOUGH_GROUPS:
        say(f"Only {result.groups['test']} groups are left for testing, too few to judge the network.")
    elif network.gain > 2 * network.gain_error:
        say(f"The network predicts better than m alone ({gain}).")
    else:
        say(f"The network predicts no better than m alone ({gain}): hour, speed and region do not help here.")


@blanket_app.command()
def study(
    *,
    walks: options.Walks,
    roads: options.Roads,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.", show_default=False)],
    regions: options.Regions = None,
    set_: Annotated[list[str] | None, _STUDY.option] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Study how blankets depend on speed, place and hour: figures, tables and a report.

    Every order is tested in groups by hour, by speed, by region and by their combinations. Start an
    interrupted study again with the same inputs and options to continue it.
    """
    from geoblanket.blanket.discovery import DiscoveryOptions
    from geoblanket.errors import ParameterError
    from geoblanket.lab.study.paper import COMPARED
    from geoblanket.lab.study.report import write_report
    from geoblanket.lab.study.running import StudyOptions, run_study

    settings = _STUDY.read(set_)
    settings.setdefault("paper", regions if regions in COMPARED else None)
    if settings["paper"] not in (None, *COMPARED):
        raise ParameterError(f"The cities to compare are {', '.join(COMPARED)}. Got '{settings['paper']}' instead.")
    options.check_folder(out, "report.html", overwrite=overwrite)
    choice = DiscoveryOptions(regions=regions, **settings.of(DiscoveryOptions))
    with progress_bars() as progress:
        result = run_study(
            walks,
            roads,
            out,
            StudyOptions(choice, **settings.of(StudyOptions)),
            overwrite=overwrite,
            progress=progress,
            **settings.of(run_study),
        )
        summary = write_report(
            result, out, roads=roads, regions=regions, progress=progress, **settings.of(write_report)
        )
    print_table("The paper's claims", [(claim["topic"], claim["verdict"]) for claim in summary["claims"]])
    for sentence in summary["summary"]:
        typer.echo(f"- {sentence}")
    say(f"Report written to {out / 'report.html'}, its figures as JSON to {out / 'study.json'}.")
