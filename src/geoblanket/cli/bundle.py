"""`geoblanket verify`, `show`, `certainty` and `report`: what is in a bundle or a model, and what it promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, figure, print_json, print_result, print_table, say
from geoblanket.cli._settings import Settings
from geoblanket.cli.build import NOT_IN_TABLE, lattice_facts
from geoblanket.cli.motion import NOT_IN_TABLE as NOT_IN_MODEL_TABLE
from geoblanket.cli.motion import model_facts
from geoblanket.errors import InputError, MechanismError, MismatchError, ParameterError, PolicyError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.storage import Bundle

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A bundle of mechanisms, or a motion model.", show_default=False)
]

_MOST_NOTES = 5


def show(
    file: FileArgument,
    *,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw its zones or lattice (.png, .svg or .pdf)."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Verify a bundle and show what is in it: zones, regimes, rows, outputs, ε and η, or its lattice.

    For a motion model, show its places, states and moves, and what it was learned from.
    """
    options.check_outputs(picture=picture, overwrite=overwrite)
    if _is_model(file):
        from geoblanket.tracking.motion_model import MotionModel

        if picture is not None:
            raise ParameterError("There is no picture of a motion model. Leave out --picture.")
        print_result(
            f"Motion model {file}", model_facts(MotionModel.load(file), file), json=json, without=NOT_IN_MODEL_TABLE
        )
        return
    from geoblanket.mechanism.bundle.storage import load_bundle

    bundle = load_bundle(file)
    facts = _bundle_facts(bundle, file)
    if not json:
        typer.echo(bundle.promise.certain)
    print_result(f"Bundle {file}", facts, json=json, without=_SAID)
    if not json and "lattice" in facts:
        print_result("Lattice", facts["lattice"], json=False, without=NOT_IN_TABLE)
    elif not json:
        _print_mechanisms(facts["mechanisms"])
    if picture is not None:
        from geoblanket._picture import new_figure

        drawn = new_figure(width_in=6.4, height_in=5.6)
        bundle.plot(ax=drawn.add_subplot())
        options.save_picture(drawn, picture)


def _is_model(file: Path) -> bool:
    """Return whether a file starts as motion models do."""
    from geoblanket._files import kind_of_file

    return kind_of_file(file) == "model"


_FOR_SCRIPTS = (
    "version", "bytes", "sha256", "signed", "domain", "disclosed", "snapping_radius_m", "places", "clock", "training",
    "training_in_words",
)  # fmt: skip
_NOT_FOR_SCRIPTS = ("epsilon_per_location_per_km", "inequalities")
_SAID = ("training", "learned", "zones", "mechanisms", "lattice")
"""Facts that tables leave out, because they are long or have a table of their own."""


def _bundle_facts(bundle: Bundle, file: Path) -> dict[str, Any]:
    """Return the facts of a bundle that these commands print, as JSON values."""
    from geoblanket.mechanism.bundle.facts import BundleFacts, MechanismFacts
    from geoblanket.mechanism.bundle.storage import LatticeBundle
    from geoblanket.mechanism.bundle.zones import zone_order

    if isinstance(bundle, LatticeBundle):
        whole = ("version", "sha256", "signed", "domain", "disclosed")
        facts = lattice_facts(bundle, file)
        return {
            **{name: getattr(bundle, name) for name in whole},
            "training": bundle.training.as_json(),
            "training_in_words": bundle.training.in_words(),
            "lattice": facts,
        }
    facts = asdict(BundleFacts.of(bundle, name=file.name, size=file.stat().st_size))
    radius = facts["snapping_radius_m"]
    in_order = sorted(bundle, key=lambda bundled: (zone_order(bundled.zone), bundled.regime))
    mechanisms = [asdict(MechanismFacts.of(bundled, bundle)) for bundled in in_order]
    return {
        **{name: facts[name] for name in _FOR_SCRIPTS},
        "snapping_radius_m": None if radius is None else round(radius, 1),
        "zones": [asdict(zone) for zone in bundle.zone_facts],
        "mechanisms": [
            {name: value for name, value in mechanism.items() if name not in _NOT_FOR_SCRIPTS}
            for mechanism in mechanisms
        ],
    }


def _print_mechanisms(mechanisms: Sequence[dict[str, Any]]) -> None:
    print_table(
        "Mechanisms, each verified exactly",
        [
            (
                f"{each['zone']}, {each['regime']}",
                figure(each["rows"]),
                f"{each['outputs_used']:,} of {each['outputs']:,}",
                figure(each["epsilon_per_km"]),
                "∞" if each["eta_km"] is None else figure(each["eta_km"]),
                ", ".join("∞" if weight is None else figure(weight) for weight in each["history_weights"]) or "–",
            )
            for each in mechanisms
        ],
        header=("zone, regime", "rows", "outputs used", "ε /km", "η km", "w"),
    )


_VERIFY = Settings("geoblanket.mechanism.bundle.trust:Trust", without=("public_key",))


def verify(
    file: FileArgument,
    *,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require a signature (FILE.sig) by this Ed25519 key (PEM).")
    ] = None,
    set_: Annotated[list[str] | None, _VERIFY.option] = None,
    policy: options.PolicyFile = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also explain how it was verified, and all that is not covered."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Verify a bundle or a model in exact arithmetic: `OK` and exit code 0, or `NOT OK` and 1.

    A bundle is OK if all its mechanisms keep their promises, and these meet the policy. A motion model is OK if the
    ε that it promises to drivers follows from the noise that it names.
    """
    if _is_model(file):
        if public_key is not None or set_ or policy is not None:
            raise ParameterError("Keys, settings and policies are for bundles. Leave them out for a model.")
        _verify_model(file, verbose=verbose, json=json)
        return
    from geoblanket.mechanism.bundle.storage import LatticeBundle, load_bundle
    from geoblanket.mechanism.bundle.trust import Trust

    least = options.read_policy(policy)
    trust = Trust(public_key=public_key, **_VERIFY.read(set_))
    with _judging(file, json=json):
        bundle = load_bundle(file, trust=trust)
        if isinstance(bundle, LatticeBundle) or bundle.located:
            least.check(bundle)
    notes = bundle.promise.caveats
    if public_key is not None:
        notes.insert(0, "The signature is valid." if bundle.signed else "There is no valid signature.")
    where = ""
    if isinstance(bundle, LatticeBundle):
        where = f"Its frame lies from {bundle.lattice.spec.plane.where}. "
    told = " ".join((bundle.promise.certain, *bundle.promise.limit, bundle.promise.in_one_sentence))
    verdict = f"OK: {file}: {_size(bundle)}, verified exactly. {where}{told}"
    if json:
        words = {"guarantee": str(bundle.promise).split("\n"), "notes": notes}
        print_json({"ok": True, "holds": True, "verdict": verdict, **words, **_bundle_facts(bundle, file)})
        return
    if verbose:
        guarantee = str(bundle.promise).removesuffix(bundle.promise.in_one_sentence).rstrip()
        for line in (guarantee, *(note for note in notes if note not in guarantee)):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def _size(bundle: Bundle) -> str:
    """Return what a bundle consists of, in words."""
    from geoblanket.mechanism.bundle.storage import LatticeBundle

    if isinstance(bundle, LatticeBundle):
        return f"1 mechanism, a lattice of {bundle.lattice.cells:,} cells"
    zones = len({bundled.zone for bundled in bundle})
    return f"{len(bundle):,} mechanism{'s' * (len(bundle) != 1)} in {zones:,} zone{'s' * (zones != 1)}"


@contextmanager
def _judging(file: Path, *, json: bool) -> Iterator[None]:
    """Turn an error about the file into the verdict, and exit with 1."""
    try:
        yield
    except (InputError, MechanismError, MismatchError, PolicyError) as error:
        problem = f"{error}"
        named = problem if problem.startswith(f"{file}") else f"{file}: {problem[0].lower()}{problem[1:]}"
        verdict = f"NOT OK: {named}"
        if json:
            print_json({"ok": False, "holds": False, "verdict": verdict, "problem": problem})
            say(verdict)
        else:
            typer.echo(verdict)
        raise typer.Exit(1) from error


def _print_verdict(verdict: str, notes: Sequence[str], *, verbose: bool) -> None:
    """End with the verdict and a few notes, so that neither scrolls away."""
    typer.echo(verdict)
    shown = list(notes)
    if len(shown) > _MOST_NOTES:
        where = "above" if verbose else "shown with --verbose"
        shown[_MOST_NOTES - 1 :] = [f"{len(shown) - _MOST_NOTES + 1} more notes are {where}."]
    for note in shown:
        typer.echo(f"Note: {note}")


def _verify_model(file: Path, *, verbose: bool, json: bool) -> None:
    from geoblanket._training import NOBODY, PART_COLUMNS
    from geoblanket.tracking.motion_model import MotionModel

    with _judging(file, json=json):
        model = MotionModel.load(file)
    training, promise = model.training, model.training.promise
    learned = "nothing was learned from anyone" if training == NOBODY else f"the model was {training.in_words()}"
    sentence = f"In one sentence: a model does not change what reports disclose, and {learned}."
    proof = [] if promise is None else [promise.proof()]
    checked = "its file is whole" if promise is None else "its ε follows from the noise that it names"
    verdict = f"OK: {file}: a motion model of {model.place_count:,} places, {checked}. {sentence}"
    notes = [] if (caveat := training.caveat()) is None else [caveat]
    if json:
        rho = {} if promise is None else {"rho": [part.rho for part in promise.parts]}
        told = {"guarantee": [*proof, sentence], "notes": notes, **rho}
        print_json({"ok": True, "holds": True, "verdict": verdict, **told, **model_facts(model, file)})
        return
    if verbose:
        if promise is not None:
            print_table("What was counted, and the noise that was added", promise.rows(), header=PART_COLUMNS)
        for line in (f"The model comes {model.in_words()}.", *proof):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def certainty(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle of mechanisms.", show_default=False)],
    *,
    apart: Annotated[
        str, typer.Option(metavar="METRES", help="Distance between the two alternatives: 100m, 0.5km.")
    ] = "100m",
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long they differ: 15min, 8h, 30d.")] = "1h",
    trip: Annotated[
        bool, typer.Option("--trip", help="Compare two routes, instead of two places that are visited anew each day.")
    ] = False,
    fence: Annotated[float, typer.Option(help="Radius of a fence around the place, km.", min=0.1, max=10)] = 1.0,
    json: JsonOption = False,
) -> None:
    """Bound how often anyone who sees all reports can tell which of two alternatives is true.

    The attacker considers both equally probable and has unlimited computing power. The bound is tight; 50 of 100
    guesses are right by chance.
    """
    from geoblanket.mechanism import certainty as sure
    from geoblanket.mechanism.bundle.storage import load_bundle
    from geoblanket.planning.wishes import metres_of, seconds_of
    from geoblanket.release.fence import fenced_right

    apart_m, seconds, bundle = metres_of("apart", apart), seconds_of("for", for_), load_bundle(file)
    # A stay that is held is one draw, and every day is a return.
    held = bundle.holds and not trip
    draws = -int(-seconds // (seconds_of("for", "1d") if held else bundle.needed_clock().interval_s))
    found = sure.certainty(bundle, apart_m=apart_m, reports=draws)
    added_up = bundle.costs.in_a_row_per_km(draws)
    fenced = None if trip else fenced_right(apart_m, fence)
    if json:
        facts = {
            "apart_m": apart_m,
            "reports": draws,
            "held": held,
            "right": found.right,
            "right_inside_a_fence": fenced,
        }
        epsilon = found.epsilon(1e-6) if found.error < 1e-6 else None
        print_json({**facts, "epsilon_at_delta_1e-6": epsilon, "added_up_per_km": added_up})
        return
    where = "on the road" if trip else "at one of two places"
    drawn = f"{draws:,} report{'s' * (draws != 1)}{' (one a day: a stay is held)' * held}"
    typer.echo(f"{found.in_words()}, after {for_} {where}: {drawn}.")
    typer.echo(f"The reports add up to ε = {added_up:,g} per km, {added_up * apart_m / 1000:,.3g} for {apart_m:g} m.")
    if fenced is not None:
        typer.echo(f"Inside a fence of {fence:g} km: right {sure.times_in_100(fenced)} times in 100, once for life.")


_REPORT = Settings("geoblanket.planning.handout:write_handout", without=("fence_km", "budget"))


def report(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle. That of zones needs its record beside it.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.", show_default=False)],
    roads: Annotated[Path | None, typer.Option(help="The roads of the bundle; a lattice needs none.")] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="READER", help="Write one sheet of paper for a reader instead: drivers or officer."
        ),
    ] = None,
    fence: Annotated[
        float | None, typer.Option(help="Radius of the fences around homes, km, for --for.", min=0.1, max=10)
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="A ledger, whose budget --for states.", show_default=False)
    ] = None,
    set_: Annotated[list[str] | None, _REPORT.option] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Verify a bundle and write a page about it: map, losses, sizes, and the promise in plain words.

    With --for, the page fits on a sheet of A4. It is also written as PDF if Chromium is installed.
    """
    from geoblanket.build.report import write_build_report, write_lattice_report
    from geoblanket.mechanism.bundle.storage import LatticeBundle, load_bundle

    if for_ is None and (fence is not None or ledger is not None or set_):
        raise ParameterError("--fence, --ledger and --set need --for drivers or --for officer.")
    options.check_folder(out, "report.html" if for_ is None else f"{for_}.html", overwrite=overwrite)
    bundle = load_bundle(file)
    if for_ is not None:
        from geoblanket.planning.handout import write_handout
        from geoblanket.release.ledger import Ledger

        budget = None
        if ledger is not None:
            with closing(Ledger.open(ledger, **options.sealing())) as opened:
                budget = opened.budget
        settings = _REPORT.read(set_)
        files = write_handout(bundle, out, reader=for_, fence_km=fence, budget=budget, **settings)  # type: ignore[arg-type]  # checked there
        say(f"Written: {', '.join(map(str, files))}.{' No PDF, because Chromium was not found.' * (len(files) == 1)}")
        return
    if isinstance(bundle, LatticeBundle):
        page = write_lattice_report(bundle, out, title=file.name, roads=roads)
    elif roads is not None:
        page = write_build_report(file, roads, out)
    else:
        raise typer.BadParameter("A bundle of zones needs --roads.")
    say(f"Report written to {page}.")
