"""`geoblanket track`: where vehicles are, from what they released, for a table or a stream of reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.table import Accuracy, TrackSummary
    from geoblanket.tracking.tracker import Tracker

__all__ = ["track"]

_MIB = 1 << 20


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
    smooth: Annotated[
        bool,
        typer.Option("--smooth", help="With a table: also use the reports that came later, for trips that are over."),
    ] = False,
    ahead: Annotated[float, typer.Option(help="Estimate the position this many seconds after each report.")] = 0.0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Instead of a table: reports as JSON lines on stdin, estimates on stdout.")
    ] = False,
    late: Annotated[
        int, typer.Option(min=0, max=120, help="With --stream: how many slots late a report may come.")
    ] = 2,
    memory: Annotated[
        int,
        typer.Option(min=1, help="With --stream: MiB for beliefs; vehicles silent for longest are forgotten first."),
    ] = 1024,
    fences: options.FencesFile = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACES", help="With a table: true locations, to say how far off reports and estimates are."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Estimate where vehicles are from what they released, each with a circle that holds it at 90 %.

    This costs no privacy: it uses released reports and public knowledge only. Whoever has the reports can do the same.
    """
    from geoblanket.errors import ParameterError
    from geoblanket.mechanism.bundle.storage import load_bundle

    if stream == (released is not None):
        raise ParameterError("Give either a table of reports or --stream.")
    if stream and (out is not None or smooth or truth is not None):
        raise ParameterError("--out, --smooth and --truth are for tables. Leave them out with --stream.")
    if not stream and out is None:
        raise ParameterError("A table needs --out.")
    options.check_outputs(out, overwrite=overwrite)
    bundle, learned, hidden = load_bundle(file), _model(model), options.read_fences(fences)
    if released is not None and out is not None:
        from geoblanket.tracking.table import track_table

        with progress_bars() as progress:
            summary = track_table(
                released,
                out,
                bundle=bundle,
                model=learned,
                smoothed=smooth,
                ahead_s=ahead,
                fences=hidden,
                progress=progress,
            )
        accuracy = None
        if truth is not None:
            from geoblanket.tracking.table import compare_with_truth

            accuracy = compare_with_truth(out, truth)
        _tell(summary, accuracy, out, json=json)
        return
    from geoblanket.tracking.tracker import Tracker

    _stream(Tracker(bundle, learned, fences=hidden, late_slots=late, memory_bytes=memory * _MIB), ahead_s=ahead)


def _model(file: Path | None) -> MotionModel | None:
    if file is None:
        return None
    from geoblanket.tracking.motion_model import MotionModel

    return MotionModel.load(file)


def _tell(summary: TrackSummary, accuracy: Accuracy | None, out: Path, *, json: bool) -> None:
    if json:
        print_json(summary.as_dict() | ({} if accuracy is None else {"accuracy": accuracy.as_dict()}))
    else:
        used = "earlier and later" if summary.smoothed else "up to its own"
        rows = [
            ("reports", f"{summary.reports:,}"),
            ("  in a slot that had one, left out", f"{summary.repeated:,}"),
            ("  that no place explains, left out", f"{summary.impossible:,}"),
            ("vehicles", f"{summary.vehicles:,}"),
            ("reports that an estimate uses", used),
            ("time ahead", f"{summary.ahead_s:g} s"),
            ("circle that holds 90 %, median", f"{summary.median_radius_m:,.0f} m"),
        ]
        print_table("Estimates", rows)
        if accuracy is not None:
            _tell_accuracy(accuracy)
    say(f"Motion model {summary.model}.")
    say(f"Estimates written to {out}. They cost no privacy: whoever has the reports can make them.")


def _tell_accuracy(accuracy: Accuracy) -> None:
    rows = [
        ("without any report", f"{accuracy.without_reports_m:,.0f} m"),
        ("the reports themselves", f"{accuracy.reports_m:,.0f} m"),
        ("estimates", f"{accuracy.tracked_m:,.0f} m"),
        ("circles that hold the vehicle", f"{accuracy.within_radius:.0%}"),
    ]
    print_table(f"How far off, on average ({accuracy.compared:,} reports)", rows)


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
        f"Memory is full with {tracker.vehicles:,} vehicles: {tracker.dropped:,} that were silent for longest were "
        "forgotten so far. Give more with --memory."
    )
    return tracker.dropped
