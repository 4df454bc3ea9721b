"""`geoblanket perturb`: walks, traces or a stream of locations, reported by the mechanisms of a bundle."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say
from geoblanket.cli.ledger import CounterOption, KeyOption, device_key

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.policy import Policy
    from geoblanket.mechanism.bundle.storage import Bundle
    from geoblanket.release.bulk import PerturbSummary
    from geoblanket.release.device import Device
    from geoblanket.release.fence import Fences
    from geoblanket.release.lattice_bulk import LatticeSummary

__all__ = ["perturb"]


class _Method(StrEnum):
    HMM = "hmm"
    NEAREST = "nearest"


def perturb(
    file: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle, from `geoblanket build` or `geoblanket lattice`.")
    ],
    *,
    walks: Annotated[Path | None, typer.Option(help="Walks, from `geoblanket match`.")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Or traces, from `geoblanket traces import`; for zones they are matched first."),
    ] = None,
    roads: Annotated[
        Path | None, typer.Option(help="With walks, or with traces and zones: the roads of the bundle or walks.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With walks or traces: the reports to write (Parquet).")] = None,
    spacing: Annotated[float, typer.Option(help="With traces: spacing of the bundle's places, metres.")] = 0.0,
    method: Annotated[_Method, typer.Option(help="With traces: how they are matched.")] = _Method.HMM,
    workers: Annotated[
        int | None, typer.Option(help="With traces: processes for matching.", show_default="all cores")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Or one vehicle's locations: JSON lines on stdin, reports on stdout.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="With --stream: the durable budget, from `geoblanket ledger create`.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="With --stream and no ledger: a budget for this run, ε per km.")
    ] = None,
    window: Annotated[float, typer.Option(help="With --budget: length of its window, seconds.")] = 3600.0,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="With --stream: for simulations and tests. Old times are accepted, and the budget is counted in the "
            "times of the lines only, however quickly they come.",
        ),
    ] = False,
    fences: options.FencesFile = None,
    hold_in_memory: Annotated[
        bool,
        typer.Option(
            "--hold-in-memory",
            help="With --stream: keep the point of the last draw in memory only. After a restart a report is drawn "
            "again, at its cost.",
        ),
    ] = False,
    key: KeyOption = None,
    counter: CounterOption = None,
    policy: options.PolicyFile = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Perturb walks or traces in bulk, or locations as they come: a report for each. Every report spends budget."""
    from geoblanket.errors import ParameterError

    if (walks is not None) + (traces is not None) + stream != 1:
        raise ParameterError("Give either --walks or --traces or --stream.")
    if stream:
        from geoblanket.release.budget import Budget
        from geoblanket.release.device import Device

        with Device.open(
            file,
            ledger=ledger,
            budget=None if budget is None or ledger is not None else Budget(budget, window),
            device_key=device_key(key),
            counter=counter,
            policy=options.read_policy(policy),
            replay=replay,
            fences=options.read_fences(fences),
            hold_in_memory=hold_in_memory,
        ) as device:
            _answer_lines(device)
        return
    if out is None:
        raise ParameterError("Walks and traces need --out; with zones they need --roads and --out.")
    from geoblanket.mechanism.bundle.storage import load_bundle

    options.check_outputs(out, overwrite=overwrite)
    bundle, least, hidden = load_bundle(file), options.read_policy(policy), options.read_fences(fences)
    if bundle.lattice is not None:
        by_lattice = _by_lattice(bundle, walks, traces, roads, out, fences=hidden, policy=least)
        _warn_of_points_outside(by_lattice, bundle.lattice.spec.plane.where)
        _tell_lattice(by_lattice, out, json=json)
        return
    if roads is None:
        raise ParameterError("The bundle has zones: walks and traces need --roads and --out.")
    from geoblanket.release.bulk import perturb_traces, perturb_walks

    with progress_bars() as progress:
        if walks is not None:
            summary = perturb_walks(walks, roads, out, bundle=bundle, fences=hidden, policy=least, progress=progress)
        elif traces is not None:
            summary = perturb_traces(
                traces,
                roads,
                out,
                bundle=bundle,
                spacing_m=spacing,
                method=method.value,
                workers=workers,
                fences=hidden,
                policy=least,
                progress=progress,
            )
    _tell_zones(summary, out, json=json)


def _by_lattice(
    bundle: Bundle,
    walks: Path | None,
    traces: Path | None,
    roads: Path | None,
    out: Path,
    *,
    fences: Fences,
    policy: Policy,
) -> LatticeSummary:
    from geoblanket.errors import ParameterError
    from geoblanket.release.lattice_bulk import perturb_points, perturb_walk_points

    with progress_bars() as progress:
        if traces is not None:
            return perturb_points(traces, out, bundle=bundle, fences=fences, policy=policy, progress=progress)
        if walks is not None and roads is not None:
            return perturb_walk_points(
                walks, roads, out, bundle=bundle, fences=fences, policy=policy, progress=progress
            )
    raise ParameterError("Walks need --roads, which say where their places are. Traces need none.")


def _warn_of_points_outside(summary: LatticeSummary, where: str) -> None:
    """Say how many reports were made from outside the frame, and none of the places."""
    if summary.points_outside:
        say(
            f"Warning: {summary.points_outside:,} of {summary.reports:,} reports were made outside the bundle's frame, "
            f"from {where}. Each counts as the nearest point of its edge."
        )
    if summary.points_exchanged:
        say(
            f"Warning: latitude and longitude seem to be exchanged in {summary.points_exchanged:,} of them. The "
            "latitude comes first."
        )


def _tell_zones(summary: PerturbSummary, out: Path, *, json: bool) -> None:
    if json:
        print_json(summary.as_dict())
    else:
        _print_summary(summary)
    if summary.places_outside:
        say(
            f"Warning: {summary.places_outside:,} of {summary.reports:,} reports were made at places in no zone. Each "
            "counts as the nearest place in a zone."
        )
    say(f"Reports written to {out}.")
    say(
        f"Every report spent budget: a location pays up to {summary.epsilon_per_location:g} per km for one, "
        f"as present and as past, and an hour of them, one every {summary.interval_s:g} s, adds up to "
        f"{summary.epsilon_per_hour:,g} per km. "
        f"The vehicle with the most reports ({summary.most_reports:,}) spent {summary.epsilon_spent:,g} per km. "
        f"{_AGAIN}"
    )


def _tell_lattice(summary: LatticeSummary, out: Path, *, json: bool) -> None:
    if json:
        print_json(summary.as_dict())
    else:
        _print_lattice_summary(summary)
    say(f"Reports written to {out}.")
    held = summary.reports - summary.draws
    rest = f"{held:,} of {summary.reports:,} reports were made at rest and repeat an earlier one, at no cost. "
    say(
        f"Every draw spent budget: one costs {summary.epsilon_per_report:g} per km, and an hour on the road, one "
        f"every {summary.interval_s:g} s, adds up to {summary.epsilon_per_hour:,g} per km. {rest if held else ''}"
        f"The vehicle with the most draws ({summary.most_draws:,}) spent {summary.epsilon_spent:,g} per km. {_AGAIN}"
    )


_AGAIN = "Perturbing the same data again spends it again."


def _answer_lines(device: Device) -> None:
    import json
    import sys
    from collections import Counter

    from geoblanket.release.device import answers

    warnings: Counter[str] = Counter()

    def warn(warning: str) -> None:
        warnings[warning] += 1
        if warnings[warning] == 1:  # at once, for a stream may never end; how many there were is told at its end
            say(f"Warning: {warning}")

    try:
        for answer in answers(device, sys.stdin.buffer, on_warning=warn):
            typer.echo(json.dumps(answer))
            sys.stdout.flush()
    finally:
        for warning, count in warnings.items():
            say(f"Warning, for {count:,} {'report' if count == 1 else 'reports'} in all: {warning}")


def _print_summary(summary: PerturbSummary) -> None:
    print_table(
        "Reports",
        [
            ("reports", f"{summary.reports:,}"),
            ("  without history (first of a walk)", f"{summary.reports_without_history:,}"),
            ("  from places in no zone, taken as the nearest in one", f"{summary.places_outside:,}"),
            ("vehicles", f"{summary.vehicles:,}"),
            ("one report every", f"{summary.interval_s:g} s"),
            ("budget for one report, at most", f"{summary.epsilon_per_location:g} per km"),
            ("budget for an hour of reports", f"{summary.epsilon_per_hour:,g} per km"),
        ],
    )


def _print_lattice_summary(summary: LatticeSummary) -> None:
    rows = [
        ("points", f"{summary.points:,}"),
        ("reports, one for each vehicle and slot", f"{summary.reports:,}"),
        ("  drawn; the others were held at rest", f"{summary.draws:,}"),
        ("  from outside the frame, taken as its nearest point", f"{summary.points_outside:,}"),
        ("vehicles", f"{summary.vehicles:,}"),
        ("at most one report every", f"{summary.interval_s:g} s"),
        ("one draw costs", f"{summary.epsilon_per_report:g} per km"),
        ("an hour on the road costs, at most", f"{summary.epsilon_per_hour:,g} per km"),
    ]
    print_table("Reports", rows)
