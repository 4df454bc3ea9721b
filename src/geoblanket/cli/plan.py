"""`geoblanket plan`: which ε, how often and which fence, for what an hour, a report and a home may tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.cli._settings import Settings
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.planning.search import Plan, Rated

__all__ = ["plan"]

_PLAN = Settings(
    "geoblanket.planning.search:make_plan",
    "geoblanket.planning.on_the_road:Judges.of_roads",
    without=("home_m", "walks"),
)


def plan(
    *,
    hour: Annotated[
        float | None, typer.Option(help="What an hour on the road may cost, ε per km.", show_default="no limit")
    ] = None,
    report: Annotated[
        float | None, typer.Option(help="What one report may cost, ε per km.", show_default="no limit")
    ] = None,
    home: Annotated[
        float,
        typer.Option(
            "--home",
            "--home-m",
            help="How far off an attacker who sees nights only must stay of a home after a month of them, metres.",
        ),
    ] = 570.0,
    roads: options.MaybeRoads = None,
    walks: options.MaybeWalks = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="Or a motion model, instead of roads.")] = None,
    set_: Annotated[list[str] | None, _PLAN.option] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Choose how a vehicle should report: which ε, how often, and which fence around a home.

    Give what an hour on the road or one report may cost at most. Schedules within these budgets are tried on trips, and
    a tracker follows the reports: all figures are estimates by simulation.
    """
    from geoblanket.planning.on_the_road import Judges
    from geoblanket.planning.schedules import Budgets, fence_km
    from geoblanket.planning.search import commands, in_words, make_plan, plan_facts

    settings = _PLAN.read(set_)
    options.check_outputs(picture=picture, overwrite=overwrite)
    if (roads is None) == (model is None):
        raise ParameterError("Give either --roads or --model.")
    if model is not None and (walks is not None or "spacing_m" in settings):
        raise ParameterError("--walks and spacing_m need --roads: a motion model has its own places.")
    budgets = Budgets(hour=hour, report=report)
    fence_km(home)  # refused before the work, not after it
    with progress_bars() as progress:
        if roads is not None:
            judges = Judges.of_roads(roads, walks=walks, progress=progress, **settings.of(Judges.of_roads))
        elif model is not None:
            judges = Judges.of_model(model, **settings.of(Judges.of_model))
        made = make_plan(judges, budgets, home_m=home, progress=progress, **settings.of(make_plan))
    road_file, program = None if roads is None else str(roads), _program()
    if json:
        print_json(plan_facts(made, roads=road_file, program=program, folder=Path()))
    else:
        for sentence in in_words(made):
            typer.echo(sentence)
        _print_tables(made)
        typer.echo("To do so:")
        for command in commands(made, roads=road_file, program=program, folder=Path()):
            typer.echo(f"  {command}")
    say(f"Estimates, by simulation. {made.judged_by}")
    if picture is not None:
        from geoblanket.planning.picture import plan_figure

        options.save_picture(plan_figure(made), picture)


def _program() -> str:
    """Return how this program is called in this shell."""
    import shlex
    import shutil
    import sys

    return "geoblanket" if shutil.which("geoblanket") else f"{shlex.quote(sys.executable)} -m geoblanket"


def _print_tables(made: Plan) -> None:
    from geoblanket.planning.on_the_road import RADII_M
    from geoblanket.planning.schedules import every
    from geoblanket.planning.search import radius_in_words

    print_table(
        "The best within the budgets",
        [_candidate(rated, tied=len(made.tied) > 1 and rated in made.tied) for rated in made.candidates],
        header=("ε", "every", "error on the road", "a report", "an hour"),
    )
    columns = (made.recommended.road.within, made.no_report_road.within)
    print_table(
        "How often a recipient is within, on the road",
        [(radius_in_words(radius), *(f"{within[radius]:.0%}" for within in columns)) for radius in RADII_M],
        header=("", "with the plan", "no report at all"),
    )
    if not made.grid:
        return
    intervals = sorted({rated.schedule.interval_s for rated in made.grid})
    cells = {(rated.schedule.epsilon, rated.schedule.interval_s): rated for rated in made.grid}
    print_table(
        "Error on the road, and what an hour costs",
        [
            (
                f"ε = {epsilon:g}",
                *(f"{cells[epsilon, each].road.error_m:,.0f} m ({cells[epsilon, each].schedule.hour:g})"
                  for each in intervals),
            )
            for epsilon in sorted({rated.schedule.epsilon for rated in made.grid})
        ],
        header=("", *(f"every {every(each)}" for each in intervals)),
    )  # fmt: skip


def _candidate(rated: Rated, *, tied: bool) -> tuple[str, ...]:
    from geoblanket.planning.schedules import every

    schedule, road = rated.schedule, rated.road
    return (
        f"{schedule.epsilon:g}",
        every(schedule.interval_s),
        f"{'tied: ' if tied else ''}{road.error_m:,.0f} ± {road.standard_error_m:.0f} m",
        f"{schedule.report:g}",
        f"{schedule.hour:g}",
    )
