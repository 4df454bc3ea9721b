"""`geoblanket show`, `verify` and `report`: what is in a bundle or a model, and whether it keeps its promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli.lattice import lattice_facts, lattice_rows
from geoblanket.cli.model import model_facts, model_rows
from geoblanket.errors import InputError, MechanismError, MismatchError, ParameterError, PolicyError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism

__all__ = ["FileArgument", "bundle_facts", "is_model", "report", "show", "verify"]

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A bundle of mechanisms, or a motion model.", show_default=False)
]

_MOST_NOTES = 5
_MOST_ROWS = 500  # looking for broken triangles takes the third power of the rows


def show(
    file: FileArgument,
    *,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw how often outputs are given (.png, .svg or .pdf).")
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Show what is in a bundle: its zones, regimes, rows, outputs, ε and η, or its lattice; it is verified first.

    Of a motion model, from `geoblanket model`: its places, states and moves, and what it was learned from.
    """
    if is_model(file):
        _show_model(file, picture, json=json)
        return
    from geoblanket.mechanism.bundle.storage import load_bundle

    options.check_outputs(picture=picture, overwrite=overwrite)
    bundle = load_bundle(file)
    if json:
        print_json(bundle_facts(bundle, file))
    elif bundle.lattice is not None:
        facts = bundle_facts(bundle, file)
        print_table(f"Lattice {file}", [*lattice_rows(facts["lattice"]), _learned_row(facts)])
    else:
        _print_bundle(bundle_facts(bundle, file), file)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.mechanism.bundle.picture import draw_bundle, draw_lattice

        save_figure(draw_bundle(bundle) if bundle.lattice is None else draw_lattice(bundle.lattice), picture)
        say(f"Picture written to {picture}.")


def is_model(file: Path) -> bool:
    """Return whether a file starts as motion models do."""
    from geoblanket._files import kind_of_file

    return kind_of_file(file) == "model"


def _show_model(file: Path, picture: Path | None, *, json: bool) -> None:
    from geoblanket.tracking.motion_model import MotionModel

    if picture is not None:
        raise ParameterError("There is no picture of a motion model. Leave out --picture.")
    facts = model_facts(MotionModel.load(file), file)
    if json:
        print_json(facts)
    else:
        print_table(f"Motion model {file}", model_rows(facts))


_PRINTED = (
    "version", "bytes", "sha256", "signed", "domain", "disclosed", "snapping_radius_m", "places", "clock", "training",
    "training_in_words",
)  # fmt: skip
_NOT_PRINTED = ("epsilon_per_location_per_km", "inequalities")


def bundle_facts(bundle: Bundle, file: Path) -> dict[str, Any]:
    """Return the facts of a bundle that these commands print, as JSON values."""
    from geoblanket.mechanism.bundle.facts import BundleFacts, MechanismFacts
    from geoblanket.mechanism.bundle.zones import zone_order

    if bundle.lattice is not None:
        whole = ("version", "sha256", "signed", "domain", "disclosed")
        facts = lattice_facts(bundle.lattice, bundle.needed_clock().interval_s, file)
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
        **{name: facts[name] for name in _PRINTED},
        "snapping_radius_m": None if radius is None else round(radius, 1),
        "zones": [asdict(zone) for zone in bundle.zone_facts],
        "mechanisms": [
            {name: value for name, value in mechanism.items() if name not in _NOT_PRINTED} for mechanism in mechanisms
        ],
    }


def _learned_row(facts: dict[str, Any]) -> tuple[str, str]:
    return "learned", facts["training_in_words"].removeprefix("learned ")


def _clock_rows(clock: dict[str, Any] | None) -> list[tuple[str, str]]:
    from rich.markup import escape

    if clock is None:
        return []
    hours = [(f"  {escape(name)}", ", ".join(map(str, listed))) for name, listed in clock["regimes"].items()]
    return [
        ("a place of the history every", f"{clock['interval_s']:g} s"),
        ("hours of the regimes, in the time zone", escape(clock["time_zone"])),
        *hours,
        ("regime without history", escape(clock["start"])),
    ]


def _print_bundle(facts: dict[str, Any], file: Path) -> None:
    from rich.markup import escape

    print_table(
        f"Bundle {file}",
        [
            ("version", f"{facts['version']}"),
            ("size", f"{facts['bytes']:,} bytes"),
            ("places with coordinates", f"{facts['places']:,}"),
            (
                "snapping radius",
                "not known" if facts["snapping_radius_m"] is None else f"{facts['snapping_radius_m']:,} m",
            ),
            ("disclosed", facts["disclosed"]),
            _learned_row(facts),
            *_clock_rows(facts["clock"]),
            ("domain", facts["domain"][:16]),
            ("SHA-256", facts["sha256"][:16]),
        ],
    )
    print_table(
        "Mechanisms, each verified exactly",
        [
            (
                escape(mechanism["zone"]),
                escape(mechanism["regime"]),
                f"{mechanism['rows']:,}",
                f"{mechanism['outputs_used']:,} of {mechanism['outputs']:,}",
                f"{mechanism['epsilon_per_km']:g}",
                "∞" if mechanism["eta_km"] is None else f"{mechanism['eta_km']:g}",
                ", ".join("∞" if weight is None else f"{weight:g}" for weight in mechanism["history_weights"]) or "–",
            )
            for mechanism in facts["mechanisms"]
        ],
        header=("zone", "regime", "rows", "outputs used", "ε /km", "η km", "w"),
    )


def verify(
    file: FileArgument,
    *,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Demand a signature (FILE.sig) by this Ed25519 key (PEM).")
    ] = None,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="With a key: only say whether the signature is valid.")
    ] = False,
    domain: Annotated[str | None, typer.Option(metavar="SHA256", help="Refuse a bundle of another domain.")] = None,
    minimum_version: Annotated[int, typer.Option(min=0, help="Refuse an older bundle.")] = 0,
    policy: options.PolicyFile = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="First tell how it was verified, and all that is not covered.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Verify a bundle or a model in exact arithmetic: `OK` and exit code 0, or `NOT OK` and 1.

    A bundle is OK if all its mechanisms keep promises that meet the policy. Of a motion model it is verified what it
    says of those who were learned from: that its ε follows from the noise that it names.
    """
    if is_model(file):
        if public_key is not None or domain is not None or minimum_version or policy is not None:
            raise ParameterError("Keys, domains, versions and policies are for bundles. Leave them out for a model.")
        _verify_model(file, verbose=verbose, json=json)
        return
    from geoblanket.mechanism.bundle.storage import load_bundle
    from geoblanket.mechanism.bundle.trust import Trust

    least = options.read_policy(policy)
    trust = Trust(public_key=public_key, allow_unsigned=allow_unsigned, domain=domain, minimum_version=minimum_version)
    with _judging(file, json=json):
        bundle = load_bundle(file, trust=trust)
        lattice = bundle.lattice
        if lattice is not None:
            least.check((), bundle.places_e7, bundle.clock, lattice=lattice.spec)
        elif bundle.located:
            least.check(bundle, bundle.places_e7, bundle.clock)
    notes = list(bundle.caveats)
    if public_key is not None:
        notes.insert(0, "The signature is valid." if bundle.signed else "There is no valid signature.")
    if lattice is None and not bundle.located:
        notes += [note for bundled in bundle for note in _broken_triangles(bundled)]
    where = "" if lattice is None else f"Its frame lies from {lattice.spec.plane.where}. "
    verdict = f"OK: {file}: {_size(bundle)}, verified exactly. {where}{bundle.in_one_sentence}"
    if json:
        told = {"guarantee": bundle.guarantee.split("\n"), "notes": notes}
        print_json({"ok": True, "holds": True, "verdict": verdict, **told, **bundle_facts(bundle, file)})
        return
    if verbose:
        guarantee = bundle.guarantee.removesuffix(bundle.in_one_sentence).rstrip()
        for line in (guarantee, *(note for note in notes if note not in guarantee)):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def _size(bundle: Bundle) -> str:
    """Return what a bundle consists of, in words."""
    if bundle.lattice is not None:
        return f"1 mechanism, a lattice of {bundle.lattice.cells:,} cells"
    zones = len({bundled.zone for bundled in bundle})
    return f"{len(bundle):,} mechanism{'s' * (len(bundle) != 1)} in {zones:,} zone{'s' * (zones != 1)}"


@contextmanager
def _judging(file: Path, *, json: bool) -> Iterator[None]:
    """Turn what is wrong with a file into the verdict, and exit with 1."""
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
        where = "above" if verbose else "told with --verbose"
        shown[_MOST_NOTES - 1 :] = [f"{len(shown) - _MOST_NOTES + 1} more notes are {where}."]
    for note in shown:
        typer.echo(f"Note: {note}")


def _verify_model(file: Path, *, verbose: bool, json: bool) -> None:
    from rich.markup import escape

    from geoblanket._training import NOBODY, PART_COLUMNS
    from geoblanket.tracking.motion_model import MotionModel

    with _judging(file, json=json):
        model = MotionModel.load(file)
    training, promise = model.training, model.training.promise
    learned = "nothing was learned from anyone" if training == NOBODY else f"the model was {training.in_words()}"
    sentence = f"In one sentence: a model changes nothing about what reports give away, and {learned}."
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
            rows = [(escape(name), *numbers) for name, *numbers in promise.rows()]
            print_table("What was counted, and the noise that was added", rows, header=PART_COLUMNS)
        for line in (f"The model comes {model.in_words()}.", *proof):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def _broken_triangles(bundled: BundledMechanism) -> Iterator[str]:
    from geoblanket.mechanism.bundle.domain import triangle_breaks

    mechanism = bundled.mechanism
    if mechanism.row_count <= _MOST_ROWS and (pairs := triangle_breaks(mechanism.distance_mm)):
        yield (
            f"In {bundled.header().where}: {pairs:,} pair(s) of rows are further apart than by way of a third row. The "
            "promise was verified pair by pair and does not need this."
        )


def report(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, with its record beside it.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.", show_default=False)],
    roads: Annotated[Path | None, typer.Option(help="The roads that it was built with; a lattice needs none.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default="the bundle's name")] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Report on a bundle: maps, losses, sizes, and the promise in plain words; the bundle is verified on the way."""
    from geoblanket.build.report import write_build_report, write_lattice_report
    from geoblanket.mechanism.bundle.storage import load_bundle

    options.check_folder(out, "report.html", overwrite=overwrite)
    bundle = load_bundle(file)
    if bundle.lattice is not None:
        page = write_lattice_report(bundle, out, title=title or file.name, roads=roads)
    elif roads is not None:
        page = write_build_report(file, roads, out, title=title)
    else:
        raise typer.BadParameter("--roads must be given: only a lattice needs none.")
    say(f"Report written to {page}.")
