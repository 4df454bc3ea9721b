"""`geoblanket model`, `learn`, `sample` and `track`: how vehicles move, and where they are by their reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_result, print_table, progress_bars, say
from geoblanket.cli._settings import Chosen, Settings
from geoblanket.errors import MismatchError, ParameterError

if TYPE_CHECKING:
    from geoblanket._display import Progress
    from geoblanket.learning.spending import TrainingLedger
    from geoblanket.mechanism.bundle.storage import Bundle
    from geoblanket.roads.places import Places
    from geoblanket.tracking.learning import BlanketOrders
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.tracker import Tracker

NOT_IN_TABLE = ("learned", "training", "ledger")
"""Facts of a model that are for scripts."""
_SPACING_M = 250.0
_COARSE = 3.0
"""At this spacing times ε, estimates are about as far off as reports: in Porto 131 against 125 m, with places 250 m
apart at ε = 16; with 100 m, 100 m."""
_MIB = 1 << 20
_FOR_WALKS = ("--epsilon-train", "delta", "unit", "units", "total_epsilon", "raise_total", "ledger")
_FOR_RELEASED = ("--bundle", "--start", "rounds", "spacing_m", "workers")

OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The model to write.", show_default=False)]


@dataclass(frozen=True)
class _ModelSettings:
    """Settings of `model` besides those of `learn_motion`."""

    spacing_m: float | None = None
    """Least distance between places, metres: by default that of the walks, or 250."""
    epsilon: float | None = None
    """Instead of spacing_m, without walks: ε of the reports to track. Places are then 1/ε km apart, 100 to 250 m."""
    predictor: Path | None = None
    """A predictor of blankets, from `geoblanket blanket train`, instead of order."""
    zones: Path | None = None
    """The zones of the findings or the predictor, if they were made for zones."""


_MODEL = Settings(_ModelSettings, "geoblanket.tracking.learning:learn_motion", without=("walks", "part", "split"))


def model(
    *,
    roads: options.Roads,
    out: OutOption,
    walks: Annotated[
        Path | None,
        typer.Option(
            help="Also learn from these walks, from `geoblanket match`. The model then discloses something about them.",
            show_default="the roads alone",
        ),
    ] = None,
    findings: Annotated[
        Path | None,
        typer.Option(help="Remember as many places as these blankets, from `geoblanket blanket discover`."),
    ] = None,
    set_: Annotated[list[str] | None, _MODEL.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Learn how vehicles move, from a map and optionally from walks, for `geoblanket track`.

    A model from the map alone is public knowledge: an attacker can make the same. It does not change what reports
    disclose.
    """
    from geoblanket.mechanism.costs import check_epsilon
    from geoblanket.mobility.walks import scan_walks
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.tracking.learning import DEFAULT_INTERVAL_S, learn_motion
    from geoblanket.tracking.motion_model import spacing_for

    settings = _MODEL.read(set_)
    chosen = _ModelSettings(**settings.of(_ModelSettings))
    if ("order" in settings) + (findings is not None) + (chosen.predictor is not None) > 1:
        raise ParameterError("Give only one of order, --findings and predictor.")
    interval_s = settings.get("interval_s", DEFAULT_INTERVAL_S)
    if not 1 <= interval_s <= 3600:
        raise ParameterError(f"interval_s must be 1 to 3,600 seconds. Got {interval_s:g} instead.")
    if chosen.epsilon is not None and (walks is not None or chosen.spacing_m is not None):
        raise ParameterError("epsilon chooses the spacing of places. Leave it out with walks or spacing_m.")
    options.check_outputs(out, overwrite=overwrite)
    about = {} if walks is None else scan_walks(walks)[1]
    if chosen.epsilon is not None:
        check_epsilon(chosen.epsilon)
        about = {"spacing_m": spacing_for(chosen.epsilon)}
    graph = RoadGraph.load(roads)
    places = choose_places(graph, spacing_m=_spacing_m(chosen.spacing_m, about))
    by_blanket = _by_blanket(places, float(about.get("interval_s", interval_s)), findings, chosen)
    if by_blanket is not None:
        settings["order"] = by_blanket
    with progress_bars() as progress:
        learned = learn_motion(graph, places, walks=walks, progress=progress, **settings.of(learn_motion))
    learned.save(out)
    _tell_model(learned, out, json=json)


def _spacing_m(spacing_m: float | None, about: dict[str, Any]) -> float:
    """Return the spacing that is asked for, or that of the walks."""
    if spacing_m is None:
        return float(about.get("spacing_m", _SPACING_M))
    if about and spacing_m != about["spacing_m"]:
        raise MismatchError(
            f"The walks have places {about['spacing_m']:g} m apart. Got spacing_m={spacing_m:g} instead: leave it out, "
            "or match again with that spacing."
        )
    return spacing_m


def _by_blanket(
    places: Places, interval_s: float, findings: Path | None, chosen: _ModelSettings
) -> BlanketOrders | None:
    if findings is None and chosen.predictor is None:
        if chosen.zones is not None:
            raise ParameterError("zones need --findings or predictor. Give one of these, or leave zones out.")
        return None
    from geoblanket.roads.zones import read_zones
    from geoblanket.tracking.learning import read_orders

    zones = None if chosen.zones is None else read_zones(chosen.zones, places)
    return read_orders(places, interval_s=interval_s, findings=findings, predictor=chosen.predictor, zones=zones)


def _tell_model(learned: MotionModel, out: Path, *, json: bool, **more: Any) -> None:
    facts = model_facts(learned, out)
    print_result("Motion model", facts | more, json=json, without=NOT_IN_TABLE)
    say(f"Model written to {out}: {facts['words']}.")


def model_facts(learned: MotionModel, file: Path) -> dict[str, Any]:
    """Return the figures of a motion model as JSON values."""
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


@dataclass(frozen=True)
class _LearnSettings:
    """Settings of `learn` besides those of the functions that learn."""

    delta: float = 1e-6
    """With --walks: the probability that ε does not hold."""
    ledger: Path | None = None
    """With --walks: the ledger that counts what learning from them costs. By default WALKS.spent.json."""
    spacing_m: float = _SPACING_M
    """With --released and --roads: least distance between places, metres."""


_LEARN = Settings(
    _LearnSettings,
    "geoblanket.learning.private:learn_privately",
    "geoblanket.learning.noise:TrainingBudget.of",
    "geoblanket.learning.spending:TrainingLedger",
    "geoblanket.learning.from_released:learn_from_released",
)


def learn(
    *,
    out: OutOption,
    walks: options.MaybeWalks = None,
    roads: options.MaybeRoads = None,
    epsilon_train: Annotated[
        float | None,
        typer.Option(help="With --walks: ε that learning may cost each vehicle or trip, a pure number, not per km."),
    ] = None,
    released: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Learn from reports of `geoblanket perturb` instead of walks, at no further cost."
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
    set_: Annotated[list[str] | None, _LEARN.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Learn how vehicles move, with differential privacy for the drivers (extra `private`).

    From walks: discrete Gaussian noise hides whole vehicles, with (ε, δ). Models from the same walks add up: a ledger
    beside the walks counts them and refuses to exceed a total. Interrupted learning counts, too.

    From released reports: learning sees no true place and spends nothing more. The model names the ε of the reports.
    """
    settings = _LEARN.read(set_)
    if (walks is None) == (released is None):
        raise ParameterError("Give either --walks or --released.")
    given = {"--epsilon-train": epsilon_train, "--bundle": bundle, "--start": start} | settings
    for name in _FOR_RELEASED if released is None else _FOR_WALKS:
        if given.get(name) is not None:
            other = "--released" if released is None else "--walks"
            raise ParameterError(f"{name} needs {other}. Leave it out.")
    options.check_outputs(out, overwrite=overwrite)
    if walks is not None:
        if roads is None or epsilon_train is None:
            raise ParameterError("Learning from walks needs --roads and --epsilon-train.")
        _learn_from_walks(walks, roads, out, epsilon_train, settings, json=json)
        return
    if released is None or bundle is None or (roads is None) == (start is None):
        raise ParameterError("Learning from released reports needs --bundle, and either --start or --roads.")
    if start is not None and ("spacing_m" in settings or "order" in settings):
        raise ParameterError("spacing_m and order need --roads. The model of --start has its own.")
    from geoblanket.learning.from_released import learn_from_released
    from geoblanket.mechanism.bundle.storage import load_bundle

    made_by = load_bundle(bundle)
    with progress_bars() as progress:
        first = _first_model(start, roads, made_by, settings, progress=progress)
        learned = learn_from_released(released, made_by, first, progress=progress, **settings.of(learn_from_released))
    learned.save(out)
    _tell_model(learned, out, json=json)


def _learn_from_walks(walks: Path, roads: Path, out: Path, epsilon: float, settings: Chosen, *, json: bool) -> None:
    from geoblanket._training import PART_COLUMNS
    from geoblanket.learning.noise import TrainingBudget
    from geoblanket.learning.private import learn_privately
    from geoblanket.learning.spending import TrainingLedger
    from geoblanket.mobility.walks import MatchedWalks

    chosen = _LearnSettings(**settings.of(_LearnSettings))
    total = settings.of(TrainingLedger)
    ledger = TrainingLedger(chosen.ledger or TrainingLedger.beside(walks).path, **total)
    budget = TrainingBudget.of(epsilon, chosen.delta, **settings.of(TrainingBudget.of))
    matched = MatchedWalks.open(walks, roads)
    how = {name: settings[name] for name in ("order", "seed") if name in settings}
    with _counted(ledger), progress_bars() as progress:
        learned = learn_privately(
            matched.graph, matched.places, walks, budget=budget, ledger=ledger, progress=progress, **how
        )
        learned.save(out)
    promise, account = learned.training.promise, ledger.account()
    _tell_model(learned, out, json=json, ledger=_ledger_facts(ledger))
    if promise is not None:
        if not json:
            print_table("What was counted, and the noise that was added", promise.rows(), header=PART_COLUMNS)
        say(promise.proof())
    counted = "" if account is None else f" {account.in_words()}"
    say(f"In one sentence: the model was {learned.training.in_words()}.{counted}")


@contextmanager
def _counted(ledger: TrainingLedger) -> Iterator[None]:
    """If learning ends early, say so where it had already been counted."""
    before = ledger.account()
    try:
        yield
    except BaseException:
        after = ledger.account()
        if after is not None and after != before:
            say(f"No model was written, but the learning that had begun counts. {after.in_words()}")
        raise


def _ledger_facts(ledger: TrainingLedger) -> dict[str, Any] | None:
    if (account := ledger.account()) is None:
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
    start: Path | None, roads: Path | None, bundle: Bundle, settings: Chosen, *, progress: Progress
) -> MotionModel:
    """Return the model that learning from released reports starts from."""
    if start is not None:
        from geoblanket.tracking.motion_model import MotionModel

        return MotionModel.load(start)
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places
    from geoblanket.tracking.learning import learn_motion

    graph = RoadGraph.load(str(roads))
    places = choose_places(graph, spacing_m=settings.get("spacing_m", _SPACING_M))
    interval_s = bundle.needed_clock().interval_s  # a step from one report to the next
    return learn_motion(graph, places, interval_s=interval_s, progress=progress, **settings.of(learn_motion))


_SAMPLE = Settings("geoblanket.tracking.synthetic_walks:draw_walks")


def sample(
    *,
    model: Annotated[Path, typer.Option(metavar="FILE", help="A motion model of these roads.", show_default=False)],
    roads: options.Roads,
    out: Annotated[Path, typer.Option(help="The walks to write (Parquet).", show_default=False)],
    set_: Annotated[list[str] | None, _SAMPLE.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Draw synthetic walks from a motion model, for `build`, `plan`, `evaluate` and `blanket discover`.

    They disclose no more than the model: its promise to the drivers holds for them too.
    """
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.synthetic_walks import draw_walks, places_of_model

    settings = _SAMPLE.read(set_)
    options.check_outputs(out, overwrite=overwrite)
    learned = MotionModel.load(model)
    places = places_of_model(learned, RoadGraph.load(roads))
    with progress_bars() as progress:
        drawn = draw_walks(learned, places, out, progress=progress, **settings)
    facts = asdict(drawn) | {"interval_s": learned.interval_s, "spacing_m": places.spacing_m}
    print_result("Synthetic walks", facts, json=json)
    say(f"Walks written to {out}: drawn from a motion model that was learned {learned.in_words()}.")


@dataclass(frozen=True)
class _TrackSettings:
    """Settings of `track`."""

    smoothed: bool = False
    """With a table: use later reports too, for trips that are over."""
    ahead_s: float = 0.0
    """Estimate the position this many seconds after each report: a whole number of intervals."""
    late_slots: int = 2
    """With --stream: the most slots by which a report may be late."""
    memory_mib: int = 1024
    """With --stream: memory for beliefs, MiB. Vehicles that were silent longest are forgotten first."""


_TRACK = Settings(_TrackSettings)


def track(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The bundle that the reports were made with.")],
    released: Annotated[
        Path | None, typer.Argument(metavar="[RELEASED]", help="Reports, from `geoblanket perturb`.")
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="With a table: the estimates to write (Parquet).")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="How vehicles move, from `geoblanket model`.",
            show_default="near places are more probable than far ones",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read reports as JSON lines on stdin instead, and write estimates to stdout."),
    ] = False,
    fences: options.FencesFile = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACES", help="True locations, to measure the errors of reports and estimates in a table."
        ),
    ] = None,
    set_: Annotated[list[str] | None, _TRACK.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Estimate where vehicles are from their reports, each with a circle that contains the vehicle 90 % of the time.

    This costs no privacy: it uses only released reports and public knowledge, so every recipient can do the same.
    """
    from geoblanket.mechanism.bundle.storage import load_bundle
    from geoblanket.tracking.motion_model import MotionModel

    chosen = _TrackSettings(**_TRACK.read(set_))
    if stream == (released is not None):
        raise ParameterError("Give either a table of reports or --stream.")
    if stream and (out is not None or chosen.smoothed or truth is not None):
        raise ParameterError("--out, --truth and smoothed are for tables. Leave them out with --stream.")
    if not stream and out is None:
        raise ParameterError("A table needs --out.")
    options.check_outputs(out, overwrite=overwrite)
    bundle, hidden = load_bundle(file), options.read_fences(fences)
    learned = None if model is None else MotionModel.load(model)
    _warn_of_coarse_places(bundle, learned)
    if released is not None and out is not None:
        from geoblanket.tracking.table import track_table

        with progress_bars() as progress:
            summary = track_table(
                released,
                out,
                bundle=bundle,
                model=learned,
                smoothed=chosen.smoothed,
                ahead_s=chosen.ahead_s,
                fences=hidden,
                progress=progress,
            )
        more = {}
        if truth is not None:
            from geoblanket.tracking.table import compare_with_truth

            more = {"accuracy": compare_with_truth(out, truth).as_dict()}
        print_result("Estimates", summary, json=json, more=more)
        say(f"Estimates written to {out}. They cost no privacy: every recipient of the reports can make them.")
        return
    from geoblanket.tracking.tracker import Tracker

    tracker = Tracker(
        bundle, learned, fences=hidden, late_slots=chosen.late_slots, memory_bytes=chosen.memory_mib * _MIB
    )
    _stream(tracker, ahead_s=chosen.ahead_s)


def _warn_of_coarse_places(bundle: Bundle, model: MotionModel | None) -> None:
    """Say so if the places of a model are so far apart that its estimates may be no nearer than reports."""
    from geoblanket.mechanism.bundle.storage import LatticeBundle
    from geoblanket.tracking.motion_model import spacing_for

    spacing_m = None if model is None else model.learned.get("spacing_m")
    if not isinstance(spacing_m, int | float) or not isinstance(bundle, LatticeBundle):
        return  # what a model says of itself may be anything
    epsilon = bundle.lattice.epsilon
    if spacing_m / 1000 * epsilon >= _COARSE:
        say(
            f"Estimates may be no nearer than reports, which are {2000 / epsilon:,.0f} m off: places of the model are "
            f"{spacing_m:,.0f} m apart. Make a model with places {spacing_for(epsilon):.0f} m apart "
            "(`geoblanket model --set spacing_m=...`, with walks `geoblanket match --spacing ...`)."
        )


def _stream(tracker: Tracker, *, ahead_s: float) -> None:
    import json
    import sys

    from geoblanket.tracking.tracker import answers

    said = 0
    for some in answers(tracker, sys.stdin.buffer, ahead=tracker.slots_in(ahead_s)):
        sys.stdout.write("".join(f"{json.dumps(answer)}\n" for answer in some))
        sys.stdout.flush()
        if tracker.dropped > 2 * said:
            said = _say_dropped(tracker)
    if tracker.dropped > said:
        _say_dropped(tracker)


def _say_dropped(tracker: Tracker) -> int:
    say(
        f"Memory is full with {tracker.vehicles:,} vehicles. {tracker.dropped:,} that were silent longest were "
        "forgotten so far. Allow more with --set memory_mib."
    )
    return tracker.dropped
