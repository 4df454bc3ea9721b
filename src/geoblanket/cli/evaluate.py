"""`geoblanket evaluate`: which mechanism serves a city best, what privacy costs, and what an attacker wins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.cli._settings import Chosen, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from geoblanket.lab.evaluate.city_data import CityFiles
    from geoblanket.lab.evaluate.experiment import Experiment

evaluate_app = typer.Typer(
    help="Compare mechanisms: utility, leakage and attacks; the paper's experiments.",
    invoke_without_command=True,
    add_completion=False,
)

_NOT_BEYOND_PAPER = ("paper", "published", "quick", "citywide")
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
class _PaperSettings:
    """Settings of `evaluate paper` besides those of the work."""

    city: Literal["porto", "rome", "both", "sanfrancisco"] = "both"
    """Which city; both are the paper's."""
    report: bool = True
    """Whether to write a report too: a page with figures, in FOLDER/report."""


_EVALUATE = Settings(
    _EvaluateSettings,
    "geoblanket.lab.evaluate.city_data:CityFiles",
    "geoblanket.lab.evaluate.running:evaluate_cities",
    without=("predictor", "findings", "resume", "tell"),
)
_PAPER = Settings(_PaperSettings, "geoblanket.lab.evaluate.running:evaluate_cities", without=("resume", "tell"))


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
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="Also compare a mechanism of your own: a function from a Problem to a table of probabilities, which "
            "is repaired and verified exactly. May be given several times.",
        ),
    ] = None,
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
    _run([files], chosen, out, settings, resume=resume, json=json)


@evaluate_app.command()
def paper(
    *,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="Raw data, a folder for each city.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder for all files.", show_default=False)
    ],
    setting: Annotated[
        Literal["ours", "published"],
        typer.Option(help="published: that of the paper. There, vehicles are tracked only with --set tracking=true."),
    ] = "ours",
    quick: _QuickOption = False,
    set_: Annotated[list[str] | None, _PAPER.option] = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Run the paper's experiments, and those beyond it, on Porto and Rome, from raw data to results.

    Roads and traces are imported and matched, blankets discovered and their predictor trained; then all experiments run
    (with --quick, only the main one). Finished work is kept, and an interrupted run continues with --resume. The
    paper's claims are written beside the results, with our numbers: claims.csv.
    """
    from geoblanket.lab.evaluate.experiment import read_experiment, shipped_experiments
    from geoblanket.lab.study.cities import CITY_SOURCES, SETTINGS, prepare_city

    settings = _PAPER.read(set_)
    published = setting == "published"
    settings.setdefault("tracking", not published)
    beyond = [] if quick or published else [name for name in shipped_experiments() if name not in _NOT_BEYOND_PAPER]
    experiments = [read_experiment(name, quick=quick) for name in ("published" if published else "paper", *beyond)]
    _check_folder(out, resume=resume, overwrite=overwrite)
    city = settings.get("city", "both")
    names = ["porto", "rome"] if city == "both" else [city]
    with progress_bars() as progress:
        cities = [
            prepare_city(
                CITY_SOURCES[name],
                data,
                out / name,
                setting=SETTINGS[setting],
                workers=settings.get("workers"),
                progress=progress,
            )
            for name in names
        ]
    _run(cities, experiments, out, settings, resume=resume, json=json)


@evaluate_app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with results.", show_default=False)],
) -> None:
    """Write the report of finished results again: FOLDER/report/report.html and its figures."""
    _write_report(folder)


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
    """Refuse to replace results, unless they are those of the interrupted run, which writes some before its end."""
    from geoblanket.lab.evaluate.running import unfinished_folder

    replace = overwrite or (resume and unfinished_folder(out).exists())
    options.check_folder(out, "results.parquet", "results.csv", "report/report.html", overwrite=replace)


def _run(
    cities: Sequence[CityFiles],
    experiments: Sequence[Experiment],
    out: Path,
    settings: Chosen,
    *,
    resume: bool,
    json: bool,
) -> None:
    from geoblanket.lab.evaluate.running import evaluate_cities, unfinished_folder

    with options.offer_resume(unfinished_folder(out)), progress_bars() as progress:
        evaluation = evaluate_cities(
            cities, experiments, out, resume=resume, progress=progress, tell=say, **settings.of(evaluate_cities)
        )
    if json:
        violations = [asdict(violation) for violation in evaluation.violations]
        print_json({"results": evaluation.results.height, "notes": list(evaluation.notes), "violations": violations})
    else:
        _print_results(evaluation.results)
    for note in evaluation.notes:
        say(note)
    say(f"Results written to {out / 'results.parquet'} and {out / 'results.csv'}.")
    if settings.get("report", True):
        _write_report(out)
    for violation in evaluation.violations:
        typer.secho(f"{violation.check}: {violation.where}: {violation.detail}", err=True, fg="red")
    if evaluation.violations:
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
