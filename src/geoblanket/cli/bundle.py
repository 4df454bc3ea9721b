"""`geoblanket show`: what is in a bundle or a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli.lattice import lattice_facts, lattice_rows
from geoblanket.cli.model import model_facts, model_rows
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.storage import Bundle

__all__ = ["FileArgument", "bundle_facts", "is_model", "show"]

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A bundle of mechanisms, or a motion model.", show_default=False)
]


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
        _print_facts(bundle_facts(bundle, file), file)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.mechanism.bundle.picture import draw_bundle, draw_lattice

        save_figure(draw_bundle(bundle) if bundle.lattice is None else draw_lattice(bundle.lattice), picture)
        say(f"Picture written to {picture}.")


def is_model(file: Path) -> bool:
    """Return whether a file starts as motion models do."""
    from geoblanket._file_kinds import kind_of_file

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
