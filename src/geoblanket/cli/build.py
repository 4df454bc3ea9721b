"""`geoblanket build`: from roads and walks to a bundle of verified mechanisms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.build.measures import Measured
    from geoblanket.build.record import BuildRecord, ZoneRecord

__all__ = ["ConfiguredCommand", "build"]

_MAX_ZONES_SHOWN = 40
_DRAWN_WALKS = "walks.parquet"


class ConfiguredCommand(TyperCommand):
    """Takes help and defaults of its options from `BuildConfig`, which is imported only when they are needed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, described."""
        from geoblanket.build.config import BuildConfig, as_toml

        for option in self.params:
            field = BuildConfig.model_fields.get(option.name or "")
            if isinstance(option, TyperOption) and field is not None:
                option.help = field.description
                if field.default is not None and not field.is_required():
                    option.show_default = as_toml(field.default).strip('"[]').replace(" ", "")
        return super().get_params(ctx)


def build(
    *,
    roads: options.MaybeRoads = None,
    walks: options.MaybeWalks = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --walks: a motion model of these roads, from which synthetic walks are drawn.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The bundle to write.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Parameters, as TOML; flags override them.")
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a file with all parameters, explained, and exit.")
    ] = None,
    epsilon: float | None = None,
    eta_km: float | None = None,
    history_weights: Annotated[str | None, typer.Option(metavar="W,...")] = None,
    context: str | None = None,
    predictor: options.MaybeFile = None,
    findings: options.MaybeFile = None,
    order: int | None = None,
    refine: int | None = None,
    loss: str | None = None,
    gap: float | None = None,
    time_limit_s: float | None = None,
    zones: options.MaybeFile = None,
    max_places: int | None = None,
    max_rows: int | None = None,
    regimes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=HOURS;...",
            help="Hours that have mechanisms of their own, such as day=6-21;night=22-23,0-5.",
            show_default="one for all hours",
        ),
    ] = None,
    time_zone: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    compare: Annotated[bool | None, typer.Option("--compare")] = None,
    version: Annotated[int | None, typer.Option("--bundle-version")] = None,
    workers: options.Workers = None,
    cluster: options.Cluster = None,
    resume: options.Resume = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write a report: a page with figures, and the record.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Build the mechanisms of all zones: rows, optimum with a proven gap, exact repair and verification, one bundle.

    Finished zones are kept beside the output; an interrupted build continues with --resume.
    """
    from geoblanket.build.config import example_config, read_config

    if init is not None:
        from geoblanket._files import atomic_output

        options.check_outputs(init, overwrite=overwrite)
        with atomic_output(init) as temporary:
            temporary.write_text(example_config(), encoding="utf-8")
        say(f"Written to {init}.")
        return
    if walks is None and model is not None:
        roads, out = options.require(roads=roads, out=out)
    else:
        roads, walks, out = options.require(**{"roads": roads, "walks or --model": walks, "out": out})
        if model is not None:
            raise ParameterError("--walks and --model contradict each other. Give one of them.")
    parameters = read_config(
        config,
        epsilon=epsilon,
        eta_km=eta_km,
        history_weights=None if history_weights is None else _numbers(history_weights),
        context=context,
        predictor=predictor,
        findings=findings,
        order=order,
        refine=refine,
        loss=loss,
        gap=gap,
        time_limit_s=time_limit_s,
        zones=zones,
        max_places=max_places,
        max_rows=max_rows,
        hours=None if regimes is None else _hours(regimes),
        time_zone=time_zone,
        compare=compare,
        version=version,
    )
    from geoblanket._unfinished import unfinished_path
    from geoblanket.build.building import build_bundle
    from geoblanket.build.inputs import training_of_build
    from geoblanket.build.record import record_path
    from geoblanket.build.report_words import learned_in_words
    from geoblanket.mechanism.bundle.file import next_version
    from geoblanket.mechanism.meaning import odds_in_words
    from geoblanket.mobility.walks import scan_walks

    unfinished = unfinished_path(out)
    replace = overwrite or (resume and unfinished.exists())
    options.check_outputs(out, record_path(out), overwrite=replace)
    options.check_folder(report, "report.html", overwrite=replace)
    next_version(out, parameters.version)  # a wrong one is refused before the work begins
    say(odds_in_words(parameters.epsilon, between="history"))
    say(
        "Every report also discloses the zone that the vehicle is in. For a whole city with no zone disclosed, see "
        "`geoblanket lattice`."
    )
    with (
        options.offer_resume(unfinished),
        nullcontext(walks) if walks is not None else _drawn_walks(str(model), roads, out) as used,
    ):
        training, why = training_of_build(used, parameters)
        say(learned_in_words(training))
        if why is not None:
            say(why)
        options.warn_of_many_places(roads, scan_walks(used)[1]["spacing_m"])
        with progress_bars() as progress:
            record = build_bundle(
                roads, used, out, config=parameters, workers=workers, cluster=cluster, resume=resume, progress=progress
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


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ParameterError("--history-weights must be numbers with commas between them, such as 1,0.5.") from None


def _hours(text: str) -> dict[str, tuple[int, ...]]:
    result: dict[str, tuple[int, ...]] = {}
    try:
        for regime in text.split(";"):
            name, _, spans = regime.partition("=")
            ends = [[int(end) for end in span.split("-")] for span in spans.split(",")]
            result[name.strip()] = tuple(hour for span in ends for hour in range(span[0], span[-1] + 1))
    except ValueError:
        raise ParameterError("--regimes must be names with hours, such as day=6-21;night=22-23,0-5.") from None
    return result


def _print_record(record: BuildRecord) -> None:
    from geoblanket.build.report_words import about_drawn_walks

    totals, unit = record.totals, record.unit
    rows = [
        ("blanket", record.blanket),
        ("mechanisms (zones × regimes)", f"{totals.mechanisms:,}"),
        ("rows", f"{totals.rows:,}"),
        ("  variables, and without reduction", f"{totals.variables:,}, {totals.variables_before:,}"),
        ("  constraints, and without reduction", f"{totals.constraints:,}, {totals.constraints_before:.3g}"),
        (f"expected loss ({record.loss}), in design", f"{totals.loss:.4g} {unit}"),
        ("  proven to be at most above the optimum", f"{totals.gap:.2%}"),
        ("  the worst of a zone and regime", f"{totals.largest_gap:.2%}"),
        ("  on walks held out", _measured(totals.held_out, unit)),
    ]
    if totals.context_free_loss is not None:
        rows += [
            ("without context, in design", f"{totals.context_free_loss:.4g} {unit}"),
            ("  on walks held out", _measured(totals.context_free_held_out, unit)),
            ("context gains, in design", _share(totals.gain)),
            ("  on walks held out", _gain(record)),
        ]
    if (refined := record.refinement) is not None:
        rows += [
            ("the second stage gains, in design", f"{refined.gain:.2%}"),
            ("  the same rows without a first stage", f"{refined.least_gain:.2%}"),
        ]
    rows += [
        ("size of the bundle", f"{record.bundle_bytes:,} bytes"),
        ("time", f"{record.seconds:.0f} s"),
        ("memory of a process, at most", f"{_memory_mb(record):,.0f} MB"),
    ]
    print_table(f"Bundle {record.bundle}", rows)
    if len(record.zones) <= _MAX_ZONES_SHOWN:
        print_table(
            "Zones and regimes",
            [_zone_row(zone) for zone in record.zones_in_order],
            header=("zone", "regime", "places", "rows", f"loss, {unit}", "gap", "held out", "outputs"),
        )
    if (caution := about_drawn_walks(record)) is not None:
        say(caution)
    for zone in record.zones_in_order:
        for note in zone.notes:
            say(f"{zone.where}: {note}.")


def _zone_row(zone: ZoneRecord) -> tuple[str, ...]:
    return (
        str(zone.number),
        zone.regime,
        f"{zone.rows.places:,}",
        f"{zone.rows.rows:,}",
        f"{zone.loss:.4g}",
        f"{zone.gap:.2%}",
        "–" if zone.held_out is None else f"{zone.held_out.loss:.4g}",
        f"{zone.outputs_used:,}",
    )


def _measured(loss: Measured | None, unit: str) -> str:
    return "–" if loss is None else f"{loss.loss:.4g} {unit} ({loss.low:.4g} to {loss.high:.4g})"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _gain(record: BuildRecord) -> str:
    totals = record.totals
    if totals.held_out_gain is None:
        return "–"
    return f"{totals.held_out_gain:.1%} ({_share(totals.held_out_gain_low)} to {_share(totals.held_out_gain_high)})"


def _memory_mb(record: BuildRecord) -> float:
    return max(record.peak_memory_mb, *(zone.peak_memory_mb for zone in record.zones))
