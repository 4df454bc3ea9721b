"""`geoblanket sample`: walks that nobody drove, from a motion model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

__all__ = ["sample"]


def sample(
    *,
    model: Annotated[Path, typer.Option(metavar="FILE", help="A motion model of these roads.", show_default=False)],
    roads: options.Roads,
    out: Annotated[Path, typer.Option(help="The walks to write (Parquet).", show_default=False)],
    trips: Annotated[
        int | None,
        typer.Option(min=1, help="How many trips.", show_default="100 for each place, from 20,000 to 200,000"),
    ] = None,
    vehicles: Annotated[int, typer.Option(min=1, help="By how many vehicles; each makes as many trips.")] = 200,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Draw walks that nobody drove from a motion model, for `build`, `plan`, `evaluate` and `blanket discover`.

    They tell no more than the model does: what it promises to those it was learned from holds for them too.
    """
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.synthetic_walks import draw_walks, places_of_model

    options.check_outputs(out, overwrite=overwrite)
    learned = MotionModel.load(model)
    places = places_of_model(learned, RoadGraph.load(roads))
    with progress_bars() as progress:
        drawn = draw_walks(learned, places, out, trips=trips, vehicles=vehicles, seed=seed, progress=progress)
    if json:
        print_json(drawn.as_dict() | {"interval_s": learned.interval_s, "spacing_m": places.spacing_m})
    else:
        rows = [(name, f"{count:,}") for name, count in drawn.as_dict().items()]
        print_table("Walks that nobody drove", [*rows, ("a step takes", f"{learned.interval_s:g} s")])
    say(f"Walks written to {out}: drawn from a motion model that was learned {learned.in_words()}.")
