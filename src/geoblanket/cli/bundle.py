"""`geoblanket verify` and `geoblanket show`: whether a bundle or a model keeps its promise, and what is in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli._policy import PolicyOption, read_policy
from geoblanket.cli.lattice import lattice_facts, lattice_rows
from geoblanket.cli.model import model_facts, model_rows
from geoblanket.errors import GeoblanketError, ParameterError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism

__all__ = ["show", "verify"]

_MOST_ROWS = 500  # looking for broken triangles takes the third power of the rows

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A bundle of mechanisms, or a motion model.", show_default=False)
]


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
    policy: PolicyOption = None,
    json: JsonOption = False,
) -> None:
    """Verify a bundle in exact arithmetic; exit with 0 only if all mechanisms keep promises that meet the policy.

    Of a motion model, what it says of those who were learned from: that its ε follows from the noise that it names.
    """
    if _is_model(file):
        if public_key is not None or domain is not None or minimum_version or policy is not None:
            raise ParameterError("Keys, domains, versions and policies are for bundles. Leave them out for a model.")
        _verify_model(file, json=json)
        return
    from geoblanket.mechanism.bundle.storage import load_bundle
    from geoblanket.mechanism.bundle.trust import Trust

    least = read_policy(policy)
    trust = Trust(public_key=public_key, allow_unsigned=allow_unsigned, domain=domain, minimum_version=minimum_version)
    try:
        bundle = load_bundle(file, trust=trust)
        lattice = bundle.lattice
        if lattice is not None:
            least.check((), bundle.places_e7, bundle.clock, lattice=lattice.spec, anchor=lattice.anchor)
        elif bundle.located:
            least.check(bundle, bundle.places_e7, bundle.clock)
    except GeoblanketError as error:
        if json:
            print_json({"holds": False, "problem": str(error)})
        raise
    if json:
        print_json({"holds": True, "guarantee": bundle.guarantee.split("\n"), **_facts(bundle, file)})
    else:
        typer.echo(bundle.guarantee)
    if lattice is None and not bundle.located:
        say("It has no coordinates: no device accepts it.")
        for bundled in bundle:
            _warn(bundled)
    if public_key is not None:
        say("The signature is valid." if bundle.signed else "There is no valid signature.")


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
    if _is_model(file):
        _show_model(file, picture, json=json)
        return
    from geoblanket.mechanism.bundle.storage import load_bundle

    options.check_outputs(picture=picture, overwrite=overwrite)
    bundle = load_bundle(file)
    if json:
        print_json(_facts(bundle, file))
    elif bundle.lattice is not None:
        facts = _facts(bundle, file)
        print_table(f"Lattice {file}", [*lattice_rows(facts["lattice"]), _learned_row(facts)])
    else:
        _print_facts(_facts(bundle, file), file)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.mechanism.bundle.picture import draw_bundle
        from geoblanket.mechanism.lattice.picture import draw_lattice

        save_figure(draw_bundle(bundle) if bundle.lattice is None else draw_lattice(bundle.lattice), picture)
        say(f"Picture written to {picture}.")


def _is_model(file: Path) -> bool:
    """Return whether a file starts as motion models do."""
    from geoblanket.tracking.motion_model import MAGIC

    try:
        with file.open("rb") as content:
            return content.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _show_model(file: Path, picture: Path | None, *, json: bool) -> None:
    from geoblanket.tracking.motion_model import MotionModel

    if picture is not None:
        raise ParameterError("There is no picture of a motion model. Leave out --picture.")
    facts = model_facts(MotionModel.load(file), file)
    if json:
        print_json(facts)
    else:
        print_table(f"Motion model {file}", model_rows(facts))


def _verify_model(file: Path, *, json: bool) -> None:
    from rich.markup import escape

    from geoblanket._training import NOBODY, PART_COLUMNS
    from geoblanket.tracking.motion_model import MotionModel

    try:
        model = MotionModel.load(file)
    except GeoblanketError as error:
        if json:
            print_json({"holds": False, "problem": str(error)})
        raise
    training = model.training
    learned = "nothing was learned from anyone" if training == NOBODY else f"the model was {training.in_words()}"
    lines = [] if training.promise is None else [training.promise.proof()]
    lines.append(f"In one sentence: a model changes nothing about what reports give away, and {learned}.")
    if json:
        rho = {} if training.promise is None else {"rho": [part.rho for part in training.promise.parts]}
        print_json({"holds": True, "guarantee": lines, **rho, **model_facts(model, file)})
        return
    if training.promise is not None:
        rows = [(escape(name), *numbers) for name, *numbers in training.promise.rows()]
        print_table("What was counted, and the noise that was added", rows, header=PART_COLUMNS)
    typer.echo(f"The model comes {model.in_words()}.")
    for line in lines:
        typer.echo(line)


def _warn(bundled: BundledMechanism) -> None:
    from geoblanket.mechanism.bundle.domain import triangle_breaks

    mechanism = bundled.mechanism
    if mechanism.row_count <= _MOST_ROWS and (pairs := triangle_breaks(mechanism.distance_mm)):
        say(
            f"Note on the zone '{bundled.zone}', regime '{bundled.regime}': {pairs:,} pair(s) of rows are further "
            "apart than by way of a third row. The promise was verified pair by pair and does not need this."
        )


_PRINTED = (
    "version", "bytes", "sha256", "signed", "domain", "disclosed", "snapping_radius_m", "places", "clock", "training",
    "training_in_words",
)  # fmt: skip
_NOT_PRINTED = ("epsilon_per_location_per_km", "inequalities")


def _facts(bundle: Bundle, file: Path) -> dict[str, Any]:
    """Return the facts of a bundle that these commands print, as JSON values."""
    from geoblanket.mechanism.bundle.facts import BundleFacts, MechanismFacts

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
    mechanisms = [asdict(MechanismFacts.of(bundled, bundle)) for bundled in bundle]
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


def _print_facts(facts: dict[str, Any], file: Path) -> None:
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
