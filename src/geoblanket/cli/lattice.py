"""`geoblanket lattice`: a mechanism for a whole city, from a map or a bounding box, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.mechanism.lattice.lattice import Lattice

__all__ = ["lattice", "lattice_facts", "lattice_rows"]


def lattice(
    *,
    epsilon: Annotated[
        float, typer.Option(help="ε of a report, per kilometre. There is no default: choose it.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The bundle to write.", show_default=False)],
    roads: Annotated[
        Path | None, typer.Option(help="The area: that of these roads, from `geoblanket roads import`.")
    ] = None,
    area: Annotated[str | None, typer.Option(metavar="SOUTH,WEST,NORTH,EAST", help="Or this area, degrees.")] = None,
    center: Annotated[str | None, typer.Option(metavar="LAT,LON", help="Or around this point, degrees.")] = None,
    radius_km: Annotated[float, typer.Option(help="With --center: how far, kilometres.")] = 15.0,
    interval: Annotated[float, typer.Option(help="Seconds from one report to the next.")] = 30.0,
    hold_m: Annotated[
        float,
        typer.Option(help="Metres from the last draw within which its report is repeated at no cost; 0: never."),
    ] = 50.0,
    cell_m: Annotated[
        float | None, typer.Option("--cell-m", help="Metres from edge to edge of a cell.", show_default="200/ε")
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--bundle-version",
            min=0,
            help="The publisher's number, which only grows.",
            show_default="1, or one more than that of the bundle that it replaces",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Make a mechanism for a whole city, from a map alone: planar Laplace noise, exact, between any two coordinates.

    No traces, no solver, no zones: a report discloses nothing besides its time.
    """
    from geoblanket.build.city_lattice import make_lattice

    options.check_outputs(out, overwrite=overwrite)
    where = _area(roads, area, center)
    with progress_bars() as progress:
        made = make_lattice(
            where,
            out,
            epsilon=epsilon,
            radius_km=radius_km,
            interval_s=interval,
            hold_m=hold_m,
            cell_m=cell_m,
            version=version,
            progress=progress,
        )
    facts = lattice_facts(cast("Lattice", made.lattice), interval, out, roads=roads)
    if json:
        print_json(facts)
    else:
        print_table("Lattice", lattice_rows(facts))
        for sentence in facts["meaning"]:
            say(sentence)
    if roads is None:
        say(f"The frame lies from {facts['where']}. Latitudes come first: check that your vehicles drive there.")
    _warn_of_refusal(cast("Lattice", made.lattice))
    say(f"Bundle written to {out}, version {made.header.version}.")


def _warn_of_refusal(lattice: Lattice) -> None:
    """Say which policy a device needs for a lattice that the default one refuses."""
    import numpy as np

    from geoblanket.errors import PolicyError
    from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY

    try:
        DEFAULT_POLICY.check((), np.empty((0, 2), np.int32), None, lattice=lattice.spec)
    except PolicyError as error:
        say(f"Devices refuse this bundle by default. {error}")


def _area(roads: Path | None, area: str | None, center: str | None) -> Path | list[float]:
    from geoblanket.errors import ParameterError

    if sum(each is not None for each in (roads, area, center)) != 1:
        raise ParameterError("Give one of --roads, --area and --center.")
    if area is not None:
        return _degrees(area, 4, "--area", "SOUTH,WEST,NORTH,EAST")
    if center is not None:
        return _degrees(center, 2, "--center", "LAT,LON")
    return Path(str(roads))


def _degrees(text: str, count: int, option: str, form: str) -> list[float]:
    from geoblanket.errors import ParameterError

    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count:
        raise ParameterError(f"{option} must be {form}: {count} numbers of degrees with commas between them.")
    return values


def lattice_facts(lattice: Lattice, interval_s: float, file: Path, *, roads: Path | None = None) -> dict[str, Any]:
    """Return what is told of a lattice, as JSON values; with `roads`, the name of the file that it was made for."""
    from geoblanket.mechanism.meaning import laplace_errors, lattice_in_words

    errors = laplace_errors(lattice.epsilon)
    return {
        "epsilon_per_km": lattice.epsilon,
        "epsilon_effective_per_km": lattice.certificate.epsilon_effective,
        "cells": lattice.cells,
        "cell_m": lattice.cell_m,
        "frame_km": lattice.spec.plane.side * lattice.spec.plane.unit_mm / 10**6,
        "rounding_m": lattice.certificate.rounding_mm / 1000,
        "hold_m": lattice.hold_m,
        "interval_s": interval_s,
        "area": dict(zip(("south", "west", "north", "east"), lattice.spec.plane.corners, strict=True)),
        "where": lattice.spec.plane.where,
        "roads": None if roads is None else roads.name,
        "error_km": {"mean": errors.mean_km, "median": errors.median_km, "95 %": errors.most_km},
        "bytes": file.stat().st_size,
        "meaning": lattice_in_words(lattice, interval_s),
        "guarantee": lattice.guarantee.split("\n"),
    }


def lattice_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts as lines of a table."""
    error = facts["error_km"]
    rest = f"the last one, within {facts['hold_m']:g} m of its draw" if facts["hold_m"] else "a new one each time"
    return [
        *([] if facts["roads"] is None else [("made for the roads in", facts["roads"])]),
        ("frame, with its margin", f"{facts['frame_km']:.1f} km × {facts['frame_km']:.1f} km"),
        ("  from its south-western corner", facts["where"].partition(" to ")[0]),
        ("  to its north-eastern corner", facts["where"].partition(" to ")[2]),
        ("one report every", f"{facts['interval_s']:g} s"),
        ("cells", f"{facts['cells']:,} of {facts['cell_m']:g} m"),
        ("ε of a report", f"{facts['epsilon_per_km']:g} per km"),
        ("ε needed, verified exactly", f"{facts['epsilon_effective_per_km']:.6g} per km"),
        ("report at rest", rest),
        ("a report is off by, median and 95 %", f"{error['median']:.2f} km, {error['95 %']:.2f} km"),
        ("size of the bundle", f"{facts['bytes']:,} bytes"),
    ]
