"""`geoblanket model` and `geoblanket sample`: how vehicles move, and synthetic walks drawn from that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.roads.places import Places
    from geoblanket.tracking.learning import BlanketOrders
    from geoblanket.tracking.motion_model import MotionModel

__all__ = ["model", "model_facts", "model_rows", "sample"]

_SPACING_M = 250.0
_ORDER = 2


def model(
    *,
    roads: options.Roads,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model to write.", show_default=False)],
    spacing: Annotated[
        float | None,
        typer.Option(help="Least distance between places, metres.", show_default="as the walks have it, or 250"),
    ] = None,
    walks: Annotated[
        Path | None,
        typer.Option(
            help="Also learn from these walks, from `geoblanket match`. The model then tells something of them.",
            show_default="the roads alone",
        ),
    ] = None,
    order: Annotated[
        int | None, typer.Option(min=1, max=3, help="How many of the last places matter.", show_default="2")
    ] = None,
    findings: Annotated[
        Path | None,
        typer.Option(help="Instead of --order: by the blankets found there, from `geoblanket blanket discover`."),
    ] = None,
    predictor: Annotated[
        Path | None,
        typer.Option(help="Instead of --order: by predicted blankets, from `geoblanket blanket train`."),
    ] = None,
    zones: Annotated[
        Path | None,
        typer.Option(help="With --findings or --predictor: the zones that they are for, if they are for zones."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Without walks: seconds of a step; it must fit into the interval of reports.", show_default="30"
        ),
    ] = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Learn how vehicles move from a map, and from walks if there are any: what `geoblanket track` can make use of.

    The model is public knowledge: an attacker can make the same. It changes nothing about what reports give away.
    """
    from geoblanket.errors import ParameterError
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.tracking.learning import DEFAULT_INTERVAL_S, learn_motion

    if (order is not None) + (findings is not None) + (predictor is not None) > 1:
        raise ParameterError("--order, --findings and --predictor contradict each other. Give one of them.")
    if interval is not None and not 1 <= interval <= 3600:
        raise ParameterError(f"--interval must be 1 to 3,600 seconds. Got {interval:g} instead.")
    options.check_outputs(out, overwrite=overwrite)
    about = _about(walks)
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=_spacing_m(spacing, about))
    interval_s = float(about.get("interval_s", DEFAULT_INTERVAL_S if interval is None else interval))
    by_blanket = _by_blanket(places, interval_s, findings, predictor, zones)
    with progress_bars() as progress:
        learned = learn_motion(
            graph,
            places,
            walks=walks,
            order=by_blanket or order or _ORDER,
            interval_s=interval,
            seed=seed,
            progress=progress,
        )
    learned.save(out)
    facts = model_facts(learned, out)
    if json:
        print_json(facts)
    else:
        print_table("Motion model", model_rows(facts))
    say(f"Model written to {out}: {facts['words']}.")


def _about(walks: Path | None) -> dict[str, Any]:
    """Return what walks say of themselves; nothing without walks."""
    if walks is None:
        return {}
    from geoblanket.mobility.walks import scan_walks

    return scan_walks(walks)[1]


def _spacing_m(spacing: float | None, about: dict[str, Any]) -> float:
    """Return the spacing that is asked for, or that of the walks."""
    from geoblanket.errors import MismatchError

    if spacing is None:
        return float(about.get("spacing_m", _SPACING_M))
    if about and spacing != about["spacing_m"]:
        raise MismatchError(
            f"The walks have places {about['spacing_m']:g} m apart. Got --spacing {spacing:g} instead: leave it out, "
            "or match again with that spacing."
        )
    return spacing


def _by_blanket(
    places: Places, interval_s: float, findings: Path | None, predictor: Path | None, zones: Path | None
) -> BlanketOrders | None:
    from geoblanket.errors import ParameterError

    if findings is None and predictor is None:
        if zones is not None:
            raise ParameterError("--zones is for --findings or --predictor. Give one of these, or leave it out.")
        return None
    from geoblanket.roads.zones import read_zones
    from geoblanket.tracking.learning import read_orders

    regions = None if zones is None else read_zones(zones, places)
    return read_orders(places, interval_s=interval_s, findings=findings, predictor=predictor, zones=regions)


def model_facts(learned: MotionModel, file: Path) -> dict[str, Any]:
    """Return what is told of a motion model, as JSON values."""
    import numpy as np

    orders = np.bincount((learned.states >= 0).sum(axis=1), minlength=4)[1:].tolist()
    return {
        "places": learned.place_count,
        "spacing_m": learned.learned.get("spacing_m"),
        "interval_s": learned.interval_s,
        "states": len(learned),
        "states_by_order": {str(order): count for order, count in enumerate(orders, 1)},
        "moves": len(learned.targets),
        "bytes": file.stat().st_size,
        "identity": learned.identity,
        "learned": dict(learned.learned),
        "training": learned.training.as_json(),
        "words": learned.in_words(),
    }


def model_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts as lines of a table."""
    return [
        ("places", f"{facts['places']:,}"),
        ("a step takes", f"{facts['interval_s']:g} s"),
        ("states", f"{facts['states']:,}"),
        *(
            (f"  that know {order} place(s)", f"{count:,}")
            for order, count in facts["states_by_order"].items()
            if count
        ),
        ("moves", f"{facts['moves']:,}"),
        ("learned", facts["words"]),
        ("size of the model", f"{facts['bytes']:,} bytes"),
    ]


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
    """Draw synthetic walks from a motion model, for `build`, `plan`, `evaluate` and `blanket discover`.

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
        print_table("Synthetic walks", [*rows, ("a step takes", f"{learned.interval_s:g} s")])
    say(f"Walks written to {out}: drawn from a motion model that was learned {learned.in_words()}.")
