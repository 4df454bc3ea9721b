"""`geoblanket verify` and `geoblanket show`: whether a bundle keeps its promise, and what is in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli._policy import PolicyOption, read_policy
from geoblanket.errors import GeoblanketError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.clock import Clock
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism

__all__ = ["show", "verify"]

_MOST_ROWS = 500  # looking for broken triangles takes the third power of the rows

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A bundle of mechanisms.", show_default=False)]


def verify(
    file: FileArgument,
    *,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Demand a signature (FILE.sig) by this Ed25519 key (PEM).")
    ] = None,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="With a key: only say whether the signature is right.")
    ] = False,
    domain: Annotated[str | None, typer.Option(metavar="SHA256", help="Refuse a bundle of another domain.")] = None,
    minimum_version: Annotated[int, typer.Option(min=0, help="Refuse an older bundle.")] = 0,
    policy: PolicyOption = None,
    json: JsonOption = False,
) -> None:
    """Verify a bundle in exact arithmetic; exit with 0 only if every mechanism keeps its promise, and it is enough."""
    from geoblanket.mechanism.bundle.storage import load_bundle

    least = read_policy(policy)
    try:
        bundle = load_bundle(
            file,
            public_key=public_key,
            allow_unsigned=allow_unsigned,
            domain=domain,
            minimum_version=minimum_version,
        )
        if bundle.located:
            least.check(bundle, bundle.places_e7, bundle.clock)
    except GeoblanketError as error:
        if json:
            print_json({"holds": False, "problem": str(error)})
        raise
    if json:
        print_json({"holds": True, "guarantee": bundle.guarantee.split("\n"), **_facts(bundle, file)})
    else:
        typer.echo(bundle.guarantee)
    if not bundle.located:
        say("It has no coordinates: no device accepts it.")
        for one in bundle:
            _warn(one)
    if public_key is not None:
        say("The signature is right." if bundle.signed else "There is no right signature.")


def show(
    file: FileArgument,
    *,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw how often outputs are given (.png, .svg or .pdf).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what is in a bundle: zones and regimes, rows, outputs, ε and η; it is verified on the way."""
    from geoblanket.mechanism.bundle.storage import load_bundle

    if picture is not None:
        from geoblanket._picture import check_picture

        check_picture(picture)
    bundle = load_bundle(file)
    if json:
        print_json(_facts(bundle, file))
    else:
        _print_facts(_facts(bundle, file), file)
    if picture is not None:
        from geoblanket._picture import save_figure
        from geoblanket.mechanism.bundle.picture import draw_bundle

        save_figure(draw_bundle(bundle), picture)
        say(f"Picture written to {picture}.")


def _warn(one: BundledMechanism) -> None:
    from geoblanket.mechanism.bundle.domain import triangle_breaks

    if one.mechanism.row_count <= _MOST_ROWS and (pairs := triangle_breaks(one.mechanism.distance_mm)):
        say(
            f"Note on the zone '{one.zone}', regime '{one.regime}': {pairs:,} pair(s) of rows are further apart than "
            "by way of a third row. The promise was verified pair by pair and does not need this."
        )


def _facts(bundle: Bundle, file: Path) -> dict[str, Any]:
    return {
        "version": bundle.version,
        "bytes": file.stat().st_size,
        "sha256": bundle.sha256,
        "signed": bundle.signed,
        "domain": bundle.domain,
        "disclosed": bundle.disclosed,
        "snapping_radius_m": None if bundle.snapping_radius_m is None else round(bundle.snapping_radius_m, 1),
        "places": len(bundle.places_e7),
        "zones": [asdict(zone) for zone in bundle.zone_facts],
        "clock": None if bundle.clock is None else _clock_facts(bundle.clock),
        "mechanisms": [_mechanism_facts(one) for one in bundle],
    }


def _clock_facts(clock: Clock) -> dict[str, Any]:
    return {
        "interval_s": clock.interval_s,
        "time_zone": clock.time_zone,
        "regimes": {name: list(hours) for name, hours in clock.regimes},
        "start": clock.start,
    }


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


def _mechanism_facts(one: BundledMechanism) -> dict[str, Any]:
    from geoblanket.mechanism.problem import INFINITE_ETA_MM, NEVER_MM

    mechanism, found = one.mechanism, one.mechanism.certificate
    return {
        "zone": one.zone,
        "regime": one.regime,
        "rows": mechanism.row_count,
        "outputs": one.output_count,
        "outputs_used": len(one.outputs),
        "epsilon_per_km": mechanism.epsilon,
        "epsilon_effective_per_km": found.epsilon_effective,
        "eta_km": None if mechanism.eta_mm == INFINITE_ETA_MM else mechanism.eta_km,
        # None stands for infinity: JSON has none.
        "history_weights": [None if weight == NEVER_MM else weight / 10**6 for weight in one.history_weights_micro],
        "pairs": found.pairs,
        "pairs_beyond_eta": found.pairs_beyond,
        "parts": found.components,
    }


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
            *_clock_rows(facts["clock"]),
            ("domain", facts["domain"][:16]),
            ("SHA-256", facts["sha256"][:16]),
        ],
    )
    print_table(
        "Mechanisms, each verified exactly",
        [
            (
                escape(one["zone"]),
                escape(one["regime"]),
                f"{one['rows']:,}",
                f"{one['outputs_used']:,} of {one['outputs']:,}",
                f"{one['epsilon_per_km']:g}",
                "∞" if one["eta_km"] is None else f"{one['eta_km']:g}",
                ", ".join("∞" if weight is None else f"{weight:g}" for weight in one["history_weights"]) or "–",
            )
            for one in facts["mechanisms"]
        ],
        header=("zone", "regime", "rows", "outputs used", "ε /km", "η km", "w"),
    )
