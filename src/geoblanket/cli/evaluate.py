"""`geoblanket evaluate` and `reproduce`: which mechanism serves a city best, and what an attacker wins."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, duration, print_json, print_table, progress_bars, say
from geoblanket.cli._settings import Chosen, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from geoblanket.lab.evaluate.city_data import CityFiles
    from geoblanket.lab.evaluate.experiment import Experiment

evaluate_app = typer.Typer(
    help="Compare mechanisms: utility, leakage and attacks.",
    invoke_without_command=True,
    add_completion=False,
)

_BEGAN = time.monotonic()
"""When the command began: it loads this module."""
_QUICK_POINTS = 500_000
"""Points of the traces with --quick, at most: more than the samples of Porto and Rome have."""
_MethodOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="Also compare a mechanism of your own: a function from a Problem to a table of probabilities, which is "
        "repaired and verified exactly. May be given several times.",
    ),
]
_QuickOption = Annotated[
    bool, typer.Option("--quick", help="Fewer zones, rows and values of ε, and wider gaps: minutes, not an hour.")
]


@dataclass(frozen=True)
class _EvaluateSettings:
    """Settings of `evaluate` besides those of the work."""

    city: str = "city"
    """The city's name in the results."""
    report: bool = True
    """Whether to write a report too: a page with figures, in FOLDER/report."""


@dataclass(frozen=True)
class _ReproduceSettings:
    """Settings of `reproduce` besides those of the work."""

    study: bool = True
    """Whether to test blankets in every group, too, as `blanket study`; not with --quick, unless it is asked for."""
    report: bool = True
    """Whether to write a report too: a page with figures, in FOLDER/report."""


_EVALUATE = Settings(
    _EvaluateSettings,
    "geoblanket.lab.evaluate.city_data:CityFiles",
    "geoblanket.lab.evaluate.running:evaluate_cities",
    without=("predictor", "findings", "raw", "resume", "tell"),
)
_REPRODUCE = Settings(_ReproduceSettings, "geoblanket.lab.evaluate.running:evaluate_cities", without=("resume", "tell"))


@evaluate_app.callback()
def evaluate(
    *,
    context: typer.Context,
    roads: options.MaybeRoads = None,
    walks: options.MaybeWalks = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FOLDER", help="The folder for the results.", show_default=False),
    ] = None,
    experiment: Annotated[
        list[str],
        typer.Option(
            metavar="NAME|FILE.toml", help="What to compare; can be given several times. `help` lists the names."
        ),
    ] = ["quick"],  # noqa: B006 - Typer reads it, and nothing changes it
    method: _MethodOption = None,
    predictor: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Predicted blankets, from `geoblanket blanket train`: for LP+C-mDP."),
    ] = None,
    findings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Discovered blankets, from `geoblanket blanket discover`: for LP+TrueMB."),
    ] = None,
    quick: _QuickOption = False,
    set_: Annotated[list[str] | None, _EVALUATE.option] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Compare mechanisms in a city, each verified exactly: loss on held-out walks, leakage, attacks, time and size.

    Results are one table, results.parquet and results.csv, written after each experiment. Methods that need a predictor
    or findings are skipped without them. If a result contradicts what must hold, the command says so and exits with 3.
    """
    if context.invoked_subcommand is not None:
        return
    from geoblanket.lab.evaluate.city_data import CityFiles
    from geoblanket.lab.evaluate.experiment import read_experiment, shipped_experiments

    if "help" in experiment:
        print_table("Experiments", list(shipped_experiments().items()))
        return
    if roads is None or walks is None or out is None:
        raise typer.BadParameter("--roads, --walks and --out must be given.")
    _check_folder(out, resume=resume, overwrite=overwrite)
    settings = _EVALUATE.read(set_)
    files = CityFiles(
        name=_EvaluateSettings(**settings.of(_EvaluateSettings)).city,
        roads=roads,
        walks=walks,
        predictor=predictor,
        findings=findings,
        **settings.of(CityFiles),
    )
    for option, file, label in (("--predictor", predictor, "LP+C-mDP"), ("--findings", findings, "LP+TrueMB")):
        if file is None:
            say(f"Without {option}, {label} is left out.")
    chosen = [read_experiment(name, quick=quick).with_methods(method or ()) for name in experiment]
    _run([files], chosen, out, settings, resume=resume)
    _finish(out, settings, json=json)


@evaluate_app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with results.", show_default=False)],
) -> None:
    """Write the report of finished results again: FOLDER/report/report.html and its figures."""
    _write_report(folder)


def reproduce(
    *,
    city: Annotated[
        Literal["porto", "rome", "sanfrancisco"], typer.Argument(metavar="CITY", help="porto, rome or sanfrancisco.")
    ],
    data: Annotated[
        Path, typer.Option(metavar="DATA", help="Raw data: a folder with a folder for each city.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder for all files.", show_default=False)
    ],
    quick: _QuickOption = False,
    setting: Annotated[
        Literal["ours", "published"],
        typer.Option(help="published: that of the paper. There, vehicles are tracked only with --set tracking=true."),
    ] = "ours",
    experiment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="Run these instead, as `geoblanket evaluate` knows them. May be given several times.",
            show_default="tracked, small_zones, paper; only paper with --quick; published",
        ),
    ] = None,
    method: _MethodOption = None,
    set_: Annotated[list[str] | None, _REPRODUCE.option] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Reproduce the paper's tables in a city, from the raw public files, with our numbers beside them.

    Roads and traces are imported and matched, blankets discovered and their predictor trained. Then methods are
    compared, and blankets studied. Losses are told as they come. results.json has a row for each method, to publish;
    claims.csv has the paper's claims; report/report.html shows all. An interrupted run continues with --resume.
    """
    from geoblanket.lab.evaluate.experiment import read_experiment
    from geoblanket.lab.study.cities import CITY_SOURCES, SETTINGS, prepare_city, study_city

    settings = _REPRODUCE.read(set_)
    published = setting == "published"
    settings.setdefault("tracking", not published)
    usual = ["published"] if published else ["paper"] if quick else ["tracked", "small_zones", "paper"]
    source, chosen = CITY_SOURCES[city], SETTINGS[setting]
    experiments = [read_experiment(name, quick=quick).with_methods(method or ()) for name in experiment or usual]
    experiments = [each if each.zones else each.replaced(zones=source.zones) for each in experiments]
    if quick:
        chosen = replace(chosen, max_points=_QUICK_POINTS)
    _check_folder(out, resume=resume, overwrite=overwrite)
    workers = settings.get("workers")
    with progress_bars() as progress:
        files = prepare_city(source, data, out / city, setting=chosen, workers=workers, progress=progress)
    _run([files], experiments, out, settings, resume=resume)
    if settings.get("study", not quick):
        with progress_bars() as progress:
            study_city(source, out / city, setting=chosen, workers=workers, progress=progress)
    _finish(out, settings, json=json)


def _write_report(folder: Path) -> None:
    from geoblanket.lab.evaluate.report import answers, write_report
    from geoblanket.lab.evaluate.results import read_results
    from geoblanket.lab.study.paper_chapter import check_paper, paper_chapter, read_facts, write_claims

    results, about = read_results(folder)
    claims = check_paper(results, read_facts(folder, about.get("cities", {})))
    if claims:
        write_claims(claims, folder / "claims.csv")
        say(f"The paper's claims with our numbers written to {folder / 'claims.csv'}.")
    with progress_bars() as progress:
        chapters = [paper_chapter(claims)]
        page = write_report(results, folder / "report", about=about, chapters=chapters, progress=progress)
    for question, cities in answers(results, about).items():
        say(typer.style(f"\n{question}", bold=True))
        for city, line in cities.items():
            say(line if len(cities) == 1 else f"- {city}: {line}")
    say(f"\nReport written to {page}.")


def _check_folder(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to replace results, unless they are those of the run to resume, which are read."""
    from geoblanket.lab.evaluate.running import unfinished_folder

    known = unfinished_folder(out).exists() or (out / "results.parquet").exists()
    files = ("results.parquet", "results.csv", "results.json", "report/report.html")
    options.check_folder(out, *files, overwrite=overwrite or (resume and known))


def _run(
    cities: Sequence[CityFiles], experiments: Sequence[Experiment], out: Path, settings: Chosen, *, resume: bool
) -> None:
    """Run experiments, and tell losses as they come, each with the time since the command began."""
    from geoblanket.lab.evaluate.running import evaluate_cities, unfinished_folder

    def tell(line: str) -> None:
        say(f"[{duration(time.monotonic() - _BEGAN)}] {line}")

    with options.offer_resume(unfinished_folder(out)), progress_bars() as progress:
        evaluate_cities(
            cities, experiments, out, resume=resume, progress=progress, tell=tell, **settings.of(evaluate_cities)
        )


def _finish(out: Path, settings: Chosen, *, json: bool) -> None:
    """Print the results and write the report; exit with 3 if a result contradicts what must hold."""
    from geoblanket.lab.evaluate.results import read_results

    results, about = read_results(out)
    if json:
        print_json({"results": results.height, "notes": about["notes"], "violations": about["violations"]})
    else:
        _print_results(results)
    for note in about["notes"]:
        say(note)
    say(f"Results written to {out / 'results.parquet'}, results.csv and, to publish, results.json.")
    if settings.get("report", True):
        _write_report(out)
    for violation in about["violations"]:
        typer.secho("{check}: {where}: {detail}".format(**violation), err=True, fg="red")
    if about["violations"]:
        raise typer.Exit(3)


def _print_results(results: pl.DataFrame) -> None:
    """Print the held-out losses, a table for each experiment, city and loss: of all zones together, and without any."""
    import polars as pl

    from geoblanket.lab.evaluate.methods import METHODS
    from geoblanket.lab.evaluate.results import ALL_ZONES, WHOLE_CITY

    together = results.filter(
        pl.col("zone").is_in([ALL_ZONES, WHOLE_CITY])
        & (pl.col("measure") == "held_out_loss")
        & (pl.col("variant") == "")
    )
    columns = ("experiment", "city", "loss_case", "zone")
    for (name, city, loss_case, zone), part in together.group_by(columns, maintain_order=True):
        table = part.pivot("epsilon", index="method", values="value", aggregate_function="first", sort_columns=False)
        rows = [
            (METHODS[row[0]].label, *("–" if value is None else f"{value:.4f}" for value in row[1:]))
            for row in table.iter_rows()
        ]
        header = ("", *(f"ε = {float(value):g}" for value in table.columns[1:]))
        where = f"{city}, {name}" + (", whole city, no zone disclosed" if zone == WHOLE_CITY else "")
        print_table(f"{where}: loss on held-out walks ({loss_case}, {part['unit'][0]})", rows, header=header)
