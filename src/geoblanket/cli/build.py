"""`geoblanket build` and `lattice`: bundles of verified mechanisms, for zones from walks or for a city from a map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, figure, print_json, print_result, print_table, progress_bars, say
from geoblanket.cli._settings import Settings
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.build.record import BuildRecord
    from geoblanket.mechanism.bundle.storage import LatticeBundle

_MAX_ZONES_SHOWN = 40
_RADIUS_KM = 15.0
NOT_IN_TABLE = ("area", "meaning", "guarantee")
"""Facts of a lattice that are for scripts, or told in sentences."""
_DRAWN_WALKS = "walks.parquet"
_BUILD = Settings(
    "geoblanket.build.config:BuildConfig",
    "geoblanket.build.building:build_bundle",
    without=("resume",),
    example="geoblanket.build.config:example_config",
)


def build(
    *,
    roads: options.Roads,
    walks: options.MaybeWalks = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw synthetic walks from this motion model of the roads, instead of --walks.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The bundle to write.", show_default=False)],
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε per kilometre; smaller is more private. Required here or in the configuration."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings (TOML). Start one with: geoblanket build --set help > FILE"),
    ] = None,
    set_: Annotated[list[str] | None, _BUILD.option] = None,
    resume: options.Resume = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write a report: a page with figures, and the record.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Build and verify the mechanisms of all zones, each near the optimum by a proven gap, and write one bundle.

    Finished zones are kept beside the output. Continue an interrupted build with --resume.
    """
    from geoblanket.build.config import BuildConfig, read_config

    if (walks is None) == (model is None):
        raise ParameterError("Give either --walks or --model.")
    settings = _BUILD.read(set_)
    parameters = read_config(config, epsilon=epsilon, **settings.of(BuildConfig))
    from geoblanket._unfinished import unfinished_path
    from geoblanket.build.building import build_bundle
    from geoblanket.build.inputs import training_of_build
    from geoblanket.build.record import record_path
    from geoblanket.mechanism.bundle.storage import next_version
    from geoblanket.mechanism.place_metric import unit_of
    from geoblanket.mechanism.promise import learned_in_words, odds_in_words
    from geoblanket.mobility.walks import scan_walks

    unfinished = unfinished_path(out)
    replace = overwrite or (resume and unfinished.exists())
    options.check_outputs(out, record_path(out), overwrite=replace)
    options.check_folder(report, "report.html", overwrite=replace)
    next_version(out, parameters.version)  # a wrong one is refused before the work begins
    largest = max([parameters.epsilon, *parameters.zone_epsilon.values()])
    say(odds_in_words(largest, between="history", unit=unit_of(parameters.metric)))
    say(
        "Every report also discloses the zone of the vehicle. `geoblanket lattice` covers a whole city and "
        "discloses no zone."
    )
    with (
        options.offer_resume(unfinished),
        nullcontext(walks) if walks is not None else _drawn_walks(str(model), roads, out) as used,
    ):
        training, why = training_of_build(used, parameters)
        say(learned_in_words(training)[0])
        if why is not None:
            say(why)
        options.warn_of_many_places(roads, scan_walks(used)[1]["spacing_m"])
        with progress_bars() as progress:
            record = build_bundle(
                roads, used, out, config=parameters, resume=resume, progress=progress, **settings.of(build_bundle)
            )
    if json:
        print_json({**record.as_dict(), "blanket": record.blanket})
    else:
        _print_record(record)
    say(f"Bundle written to {out}, version {record.config['bundle']['version']}, its record to {out}.build.json.")
    if report is not None:
        from geoblanket.build.report import write_build_report

        say(f"Report written to {write_build_report(out, roads, report)}.")


@contextmanager
def _drawn_walks(model: str, roads: Path, out: Path) -> Iterator[Path]:
    """Draw walks from a motion model into the folder of the unfinished build, where they stay as long as it does."""
    import shutil

    from geoblanket._files import make_folder
    from geoblanket._unfinished import unfinished_path
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.synthetic_walks import draw_walks, places_of_model

    learned = MotionModel.load(model)
    places = places_of_model(learned, RoadGraph.load(roads))
    folder = make_folder(unfinished_path(out))
    try:
        # The same model gives the same walks: whoever resumes draws them again.
        with progress_bars() as progress:
            draw_walks(learned, places, folder / _DRAWN_WALKS, progress=progress)
        yield folder / _DRAWN_WALKS
    finally:
        if {path.name for path in folder.glob("*")} <= {_DRAWN_WALKS}:
            shutil.rmtree(folder, ignore_errors=True)


def _print_record(record: BuildRecord) -> None:
    facts = {
        "blanket": record.blanket,
        "loss_is": f"{record.loss}, {record.unit}",
        **asdict(record.totals),
        "bundle_bytes": record.bundle_bytes,
        "seconds": round(record.seconds),
        "memory_of_a_process_mb": max(record.peak_memory_mb, *(zone.peak_memory_mb for zone in record.zones)),
    }
    print_result(f"Bundle {record.bundle}", facts, json=False)
    if len(record.zones) <= _MAX_ZONES_SHOWN:
        print_table(
            "Zones and regimes",
            [
                (
                    f"{zone.number}, {zone.regime}",
                    figure(zone.rows.places),
                    zone.rows.by_lag,
                    figure(zone.loss),
                    f"{zone.gap:.2%}",
                    figure(None if zone.held_out is None else zone.held_out.loss),
                    figure(zone.outputs_used),
                )
                for zone in record.zones_in_order
            ],
            header=("zone, regime", "places", "rows by lag", f"loss, {record.unit}", "gap", "held out", "outputs"),
        )
    if (caution := record.caution) is not None:
        say(caution)
    for zone in record.zones_in_order:
        for note in zone.notes:
            say(f"{zone.where}: {note}.")


_LATTICE = Settings("geoblanket.build.city_lattice:make_lattice", without=("interval_s",))


def lattice(
    *,
    epsilon: Annotated[
        float,
        typer.Option(
            help="ε of a report, per kilometre; smaller is more private. It has no default.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The bundle to write.", show_default=False)],
    roads: Annotated[
        Path | None, typer.Option(help="Cover the area of these roads, from `geoblanket roads import`.")
    ] = None,
    area: Annotated[
        str | None, typer.Option(metavar="SOUTH,WEST,NORTH,EAST", help="Or cover this area, degrees.")
    ] = None,
    center: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON[,KM]", help="Or cover a circle: its centre in degrees, and its radius (15 km)."),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds from one report to the next.")] = 30.0,
    set_: Annotated[list[str] | None, _LATTICE.option] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Make a mechanism for a whole city from a map alone: exact planar Laplace noise between any two coordinates.

    It needs no traces, no solver and no zones. A report discloses its time, and with hold when the vehicle rests.
    """
    from geoblanket.build.city_lattice import make_lattice

    options.check_outputs(out, overwrite=overwrite)
    settings = _LATTICE.read(set_)
    with progress_bars() as progress:
        made = make_lattice(
            _area(roads, area, center), out, epsilon=epsilon, interval_s=interval, progress=progress, **settings
        )
    facts = lattice_facts(made, out, roads=roads)
    print_result("Lattice", facts, json=json, without=NOT_IN_TABLE)
    if not json:
        for sentence in facts["meaning"]:
            say(sentence)
    if roads is None:
        say(f"The frame lies from {facts['where']} (latitude first). Check that your vehicles drive there.")
    _warn_of_refusal(made)
    say(f"Bundle written to {out}, version {made.header.version}.")


def _warn_of_refusal(bundle: LatticeBundle) -> None:
    """Say which policy a device needs for a lattice that the default one refuses."""
    from geoblanket.errors import PolicyError
    from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY

    try:
        DEFAULT_POLICY.check(bundle)
    except PolicyError as error:
        say(f"Devices refuse this bundle by default. {error}")


def _area(roads: Path | None, area: str | None, center: str | None) -> Path | list[float]:
    """Return what the area is given by, as `make_lattice` takes it."""
    if sum(each is not None for each in (roads, area, center)) != 1:
        raise ParameterError("Give one of --roads, --area and --center.")
    if area is not None:
        return _numbers(area, "--area", "SOUTH,WEST,NORTH,EAST", (4,))
    if center is not None:
        given = _numbers(center, "--center", "LAT,LON or LAT,LON,KM", (2, 3))
        return given if len(given) == 3 else [*given, _RADIUS_KM]
    return Path(str(roads))


def _numbers(text: str, option: str, form: str, counts: tuple[int, ...]) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in counts:
        raise ParameterError(f"{option} must be {form}, numbers separated by commas.")
    return values


def lattice_facts(bundle: LatticeBundle, file: Path, *, roads: Path | None = None) -> dict[str, Any]:
    """Return the figures of a lattice as JSON values; `roads` is the file that it was made for."""
    from geoblanket.mechanism.promise import laplace_errors

    lattice, interval_s = bundle.lattice, bundle.needed_clock().interval_s
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
        "error_km": {"mean": lattice.mean_error_km, "median": errors.median_km, "95 %": errors.most_km},
        "bytes": file.stat().st_size,
        "meaning": bundle.promise.meaning,
        "guarantee": str(bundle.promise).split("\n"),
    }
