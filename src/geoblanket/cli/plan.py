"""`geoblanket plan`: which ε, how often and which fence, for wishes in metres and chances."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.cli._settings import Settings
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.planning.plan import Plan, Rated
    from geoblanket.planning.schedules import Schedule

_PLAN = Settings(
    "geoblanket.planning.wishes:Wishes",
    "geoblanket.planning.search:make_plan",
    "geoblanket.planning.on_the_road:Judges.of_roads",
    without=("home_m", "apart_m", "sure", "for_s", "road_m", "wishes", "walks"),
)


_METRES = partial(typer.Option, metavar="METRES")
_Home = Annotated[
    str | None,
    _METRES(
        help="The least error of an attacker who looks for a home, after a month of nights: 350m/month.",
        show_default="570m",
    ),
]
_Apart = Annotated[str | None, _METRES(help="Distance between the two places of --sure.", show_default="100m")]
_Sure = Annotated[
    str | None, typer.Option(metavar="SHARE", help="How often the best guess between two places may be right: 70%.")
]
_For = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="TIME", help="Length of the trip that the guess of --sure sees: 15min, 8h.", show_default="1h"
    ),
]
_Road = Annotated[str | None, _METRES(help="The largest mean error of a recipient on the road: 500m.")]


def plan(
    *,
    home: _Home = None,
    apart: _Apart = None,
    sure: _Sure = None,
    for_: _For = None,
    road: _Road = None,
    roads: options.MaybeRoads = None,
    walks: options.MaybeWalks = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="A motion model, instead of --roads.")] = None,
    set_: Annotated[list[str] | None, _PLAN.option] = None,
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Choose how a vehicle should report: which ε, how often, and which fence around a home.

    Give wishes: the error of an attacker who looks for a home, how often a guess between two places may be right (70 %
    if there is no wish for the road), and the error of a recipient on the road. First figures come at once. Then the
    plan tries schedules on trips, with a tracker that follows the reports.
    """
    from geoblanket.mechanism.lattice.making import Area
    from geoblanket.planning.on_the_road import Judges
    from geoblanket.planning.plan import commands, in_words, plan_facts
    from geoblanket.planning.schedules import every
    from geoblanket.planning.search import make_plan
    from geoblanket.planning.wishes import Wishes
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.tracking.motion_model import MotionModel

    settings = _PLAN.read(set_)
    options.check_outputs(picture=picture, overwrite=overwrite)
    if (roads is None) == (model is None):
        raise ParameterError("Give either --roads or --model.")
    if model is not None and (walks is not None or "spacing_m" in settings):
        raise ParameterError("--walks and spacing_m need --roads: a motion model has its own places.")
    wishes = Wishes.read(home=home, apart=apart, sure=sure, for_=for_, road=road, more=settings.of(Wishes))
    city: RoadGraph | MotionModel = MotionModel.load(model) if model is not None else RoadGraph.load(str(roads))
    corners = (city.lat.min(), city.lon.min(), city.lat.max(), city.lon.max())
    first = make_plan(Area(*map(float, corners)), wishes)
    guess = f"Two places {wishes.apart_m:,g} m apart are told apart {_right(first, first.schedule)} times in 100"
    say(f"First figures: {first.headline} {guess} after {every(wishes.for_s)} on the road.")
    say("Now the error on the road is simulated. It decides how often to report.\n")
    with progress_bars() as progress:
        if isinstance(city, RoadGraph):
            judges = Judges.of_roads(city, walks=walks, progress=progress, **settings.of(Judges.of_roads))
        else:
            judges = Judges.of_model(city, **settings.of(Judges.of_model))
        made = make_plan(judges, wishes, progress=progress, **settings.of(make_plan))
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
    say(f"Errors on the road are estimates from a simulation. {made.judged_by}")
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
    from geoblanket.planning.plan import radius_in_words
    from geoblanket.planning.schedules import every

    if made.outcomes:
        print_table(
            "Your wishes",
            [(each.asked_in_words, each.got_in_words, "yes" if each.kept else "no") for each in made.outcomes],
            header=("asked", "this plan", "kept"),
        )
    print_table(
        "Schedules that were tried",
        [_candidate(made, rated) for rated in made.candidates],
        header=("ε", "every", "error on the road", "guess right", "an hour"),
    )
    columns = [each.within for each in (made.road, made.no_report_road) if each is not None]
    print_table(
        "How often a recipient is this near, on the road",
        [(radius_in_words(radius), *(f"{within[radius]:.0%}" for within in columns)) for radius in RADII_M],
        header=("", "with the plan", "no report at all"),
    )
    if not made.grid:
        return
    intervals = sorted({rated.schedule.interval_s for rated in made.grid})
    cells = {(rated.schedule.epsilon, rated.schedule.interval_s): rated for rated in made.grid}
    print_table(
        "Error on the road, and how often a guess is right in 100",
        [
            (
                f"ε = {epsilon:g}",
                *(f"{cells[epsilon, each].road.error_m:,.0f} m ({_right(made, cells[epsilon, each].schedule)})"
                  for each in intervals),
            )
            for epsilon in sorted({rated.schedule.epsilon for rated in made.grid})
        ],
        header=("", *(f"every {every(each)}" for each in intervals)),
    )  # fmt: skip


def _right(made: Plan, schedule: Schedule) -> int:
    from geoblanket.mechanism.certainty import times_in_100

    return times_in_100(made.right_with(schedule))


def _candidate(made: Plan, rated: Rated) -> tuple[str, ...]:
    from geoblanket.planning.schedules import every

    schedule, road = rated.schedule, rated.road
    tied = len(made.tied) > 1 and rated in made.tied
    return (
        f"{schedule.epsilon:g}",
        every(schedule.interval_s),
        f"{'tied: ' if tied else ''}{road.error_m:,.0f} ± {road.standard_error_m:.0f} m",
        f"{_right(made, schedule)} in 100",
        f"{schedule.hour:g} per km",
    )
