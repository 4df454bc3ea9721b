"""`geoblanket learn`: a motion model with a promise to those it was learned from, or from released reports alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.cli.model import model_facts, model_rows

if TYPE_CHECKING:
    from geoblanket._display import Progress
    from geoblanket._training import Unit
    from geoblanket.learning.spending import TrainingAccount, TrainingLedger
    from geoblanket.mechanism.bundle.storage import Bundle
    from geoblanket.tracking.motion_model import MotionModel

__all__ = ["learn"]

_DELTA = 1e-6
_ORDER = 2
_ROUNDS = 8
_SPACING_M = 250.0


def learn(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model to write.", show_default=False)],
    walks: options.MaybeWalks = None,
    roads: options.MaybeRoads = None,
    epsilon_train: Annotated[
        float | None,
        typer.Option(help="With --walks: what learning may cost each vehicle or trip: a pure number ε, not per km."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="With --walks: the probability with which ε may fail to hold.", show_default="1e-6"),
    ] = None,
    unit: Annotated[
        Literal["vehicle", "trip"] | None,
        typer.Option(
            help="With --walks: who is hidden, a vehicle with all its trips or a single trip.", show_default="vehicle"
        ),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(
            help="With --walks: how many vehicles (or trips) there are, if that is public; it is published as given.",
            show_default="counted with noise",
        ),
    ] = None,
    total_epsilon: Annotated[
        float | None,
        typer.Option(
            help="With --walks: what all learnings from them may cost together.", show_default="as stated before, or 8"
        ),
    ] = None,
    raise_total: Annotated[
        bool,
        typer.Option("--raise-total", help="Allow a larger --total-epsilon than before: an earlier promise is broken."),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --walks: where it is counted what they cost.", show_default="WALKS.spent.json"
        ),
    ] = None,
    released: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead of walks: reports from `geoblanket perturb`. They cost nothing more."
        ),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --released: the bundle that the reports were made with.")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --released: the model to start from.", show_default="one of the roads alone"
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="With --released: how often it is learned anew.", show_default=str(_ROUNDS)),
    ] = None,
    spacing: Annotated[
        float | None,
        typer.Option(
            help="With --released and --roads: least distance between places, metres.", show_default=f"{_SPACING_M:g}"
        ),
    ] = None,
    order: Annotated[
        int | None, typer.Option(min=1, max=3, help="How many of the last places matter.", show_default=str(_ORDER))
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the trips driven over the roads; noise has no seed.")] = 0,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Learn how vehicles move, with differential privacy for those who drove (extra `private`).

    From walks: discrete Gaussian noise hides whole vehicles, with (ε, δ). What is learned from the same walks adds up:
    a ledger beside them counts it and refuses to go beyond a total. Learning that is interrupted counts, too.

    From released reports: no true place is seen, and nothing more is spent. The model names the ε of the reports.
    """
    from geoblanket.errors import ParameterError

    for_walks = {
        "--epsilon-train": epsilon_train, "--delta": delta, "--unit": unit, "--units": units,
        "--total-epsilon": total_epsilon, "--raise-total": raise_total or None, "--ledger": ledger,
    }  # fmt: skip
    for_released = {"--bundle": bundle, "--start": start, "--rounds": rounds, "--spacing": spacing}
    if (walks is None) == (released is None):
        raise ParameterError("Give either --walks or --released.")
    _refuse(for_walks if walks is None else for_released, "--walks" if walks is None else "--released")
    options.check_outputs(out, overwrite=overwrite)
    if walks is not None:
        if roads is None or epsilon_train is None:
            raise ParameterError("Learning from walks needs --roads and --epsilon-train.")
        from geoblanket.learning.spending import TrainingLedger

        file = TrainingLedger.beside(walks).path if ledger is None else ledger
        kept = TrainingLedger(file, total_epsilon=total_epsilon, raise_total=raise_total)
        budget = epsilon_train, _DELTA if delta is None else delta
        _learn_from_walks(
            walks, roads, out, budget=budget, unit=unit or "vehicle", units=units, order=order or _ORDER, ledger=kept,
            seed=seed, json=json,
        )  # fmt: skip
        return
    if released is None or bundle is None or (roads is None) == (start is None):
        raise ParameterError("Learning from released reports needs --bundle, and either --start or --roads.")
    if start is not None and (spacing is not None or order is not None):
        raise ParameterError("--spacing and --order are for a start from --roads. A model has its own.")
    from geoblanket.learning.from_released import learn_from_released
    from geoblanket.mechanism.bundle.storage import load_bundle

    made_by = load_bundle(bundle)
    with progress_bars() as progress:
        first = _first_model(
            start, roads, made_by, spacing=spacing, order=order or _ORDER, seed=seed, progress=progress
        )
        learned = learn_from_released(released, made_by, first, rounds=rounds or _ROUNDS, progress=progress)
    learned.save(out)
    facts = model_facts(learned, out)
    if json:
        print_json(facts)
    else:
        print_table("Motion model", model_rows(facts))
    say(f"Model written to {out}: {facts['words']}.")


def _refuse(given: dict[str, Any], belongs_to: str) -> None:
    from geoblanket.errors import ParameterError

    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise ParameterError(f"{wrong[0]} is for learning with {belongs_to}. Leave it out.")


def _learn_from_walks(
    walks: Path,
    roads: Path,
    out: Path,
    *,
    budget: tuple[float, float],
    unit: Unit,
    units: int | None,
    order: int,
    ledger: TrainingLedger,
    seed: int,
    json: bool,
) -> None:
    from geoblanket.learning.noise import TrainingBudget
    from geoblanket.learning.private import learn_privately
    from geoblanket.mobility.walks import scan_walks
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places

    allowed = TrainingBudget.of(*budget)
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=float(scan_walks(walks)[1]["spacing_m"]))
    with _counted(ledger), progress_bars() as progress:
        learned = learn_privately(
            graph,
            places,
            walks,
            budget=allowed,
            unit=unit,
            units=units,
            order=order,
            ledger=ledger,
            seed=seed,
            progress=progress,
        )
        learned.save(out)
    _tell(learned, out, ledger, json=json)


@contextmanager
def _counted(ledger: TrainingLedger) -> Iterator[None]:
    """If learning ends early, say so where it had already been counted."""
    before = ledger.account()
    try:
        yield
    except BaseException:
        after = ledger.account()
        if after is not None and after != before:
            say(f"Nothing was written, but learning had begun, and counts. {after.in_words()}")
        raise


def _tell(learned: MotionModel, out: Path, ledger: TrainingLedger, *, json: bool) -> None:
    from geoblanket._training import PART_COLUMNS

    facts, promise, account = model_facts(learned, out), learned.training.promise, ledger.account()
    if json:
        print_json(facts | {"ledger": _ledger_facts(ledger, account)})
    else:
        print_table("Motion model", model_rows(facts))
        if promise is not None:
            print_table("What was counted, and the noise that was added", promise.rows(), header=PART_COLUMNS)
    say(f"Model written to {out}.")
    if promise is not None:
        say(promise.proof())
    counted = "" if account is None else f" {account.in_words()}"
    say(f"In one sentence: the model was {learned.training.in_words()}.{counted}")


def _ledger_facts(ledger: TrainingLedger, account: TrainingAccount | None) -> dict[str, Any] | None:
    if account is None:
        return None
    return {
        "file": str(ledger.path),
        "learnings": len(account.learnings),
        "delta": account.delta,
        "total_epsilon": account.total_epsilon,
        "spent_epsilon": account.epsilon("trip"),
        "left_epsilon": account.left_epsilon(),
        "vehicles_have_a_promise": account.vehicles_have_a_promise,
    }


def _first_model(
    start: Path | None,
    roads: Path | None,
    bundle: Bundle,
    *,
    spacing: float | None,
    order: int,
    seed: int,
    progress: Progress,
) -> MotionModel:
    """Return the model that learning from released reports starts from."""
    if start is not None:
        from geoblanket.tracking.motion_model import MotionModel

        return MotionModel.load(start)
    if roads is None:
        raise ValueError("there are neither roads nor a model")
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.tracking.learning import learn_motion

    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=_SPACING_M if spacing is None else spacing)
    interval_s = bundle.needed_clock().interval_s  # a step from one report to the next
    return learn_motion(graph, places, order=order, interval_s=interval_s, seed=seed, progress=progress)
