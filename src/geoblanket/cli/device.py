"""`geoblanket perturb`, `ledger` and `fence`: what a device does with a bundle, its durable budget, its fences."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket._display import counted
from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_result, print_table, progress_bars, say
from geoblanket.cli._settings import Chosen, Settings
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.release.bulk import LatticeSummary, PerturbSummary
    from geoblanket.release.device import Device
    from geoblanket.release.fence import Fence
    from geoblanket.release.ledger import Ledger

ledger_app = typer.Typer(
    help="""The durable budget of a device.

    Two environment variables set what seals a ledger, also for `fence`, `perturb` and `serve`. GEOBLANKET_LEDGER_KEY is
    a file with a key of 16 bytes or more, instead of the device's own. GEOBLANKET_LEDGER_COUNTER is the file of the
    counter, by default LEDGER.count.""",
    no_args_is_help=True,
)
fence_app = typer.Typer(help="Hide a home, or any other place, for good.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger.")]
LedgerOption = Annotated[Path, typer.Option(metavar="FILE", help="The ledger of the device.", show_default=False)]
VehicleOption = Annotated[
    str, typer.Option(help="The vehicle, if the ledger has several.", show_default="the only one")
]


@dataclass(frozen=True)
class _Stream:
    """Settings of `perturb --stream`."""

    budget: float | None = None
    """With --stream and no ledger: a budget for this run, ε per km."""
    window_s: float = 3600.0
    """Length of the window of that budget, seconds."""
    replay: bool = False
    """With --stream, for simulations and tests: accept old times, and count the budget in the times of the input."""
    hold_in_memory: bool = False
    """With --stream: keep the point of the last draw in memory only. After a restart the next report is a new draw."""


_PERTURB = Settings(
    _Stream,
    "geoblanket.mobility.matching:match_traces",
    "geoblanket.mobility.map_matcher:MatchOptions",
    without=("interval_s", "options"),
)


def perturb(
    file: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle, from `geoblanket build` or `geoblanket lattice`.")
    ],
    *,
    walks: Annotated[Path | None, typer.Option(help="Walks, from `geoblanket match`.")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            help="Traces, from `geoblanket traces import`, instead of walks. For zones they are matched first."
        ),
    ] = None,
    roads: Annotated[
        Path | None, typer.Option(help="The roads, for --walks, and for --traces with a bundle of zones.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The reports to write (Parquet), for --walks and --traces.")] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Read one vehicle's locations as JSON lines on stdin, and write reports to stdout."
        ),
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="With --stream: the durable budget, from `geoblanket ledger create`.")
    ] = None,
    fences: options.FencesFile = None,
    set_: Annotated[list[str] | None, _PERTURB.option] = None,
    policy: options.PolicyFile = None,
    overwrite: options.Overwrite = False,
    json: JsonOption = False,
) -> None:
    """Perturb walks or traces in bulk, or locations as they come. Every report spends budget."""
    settings = _PERTURB.read(set_)
    if (walks is not None) + (traces is not None) + stream != 1:
        raise ParameterError("Give either --walks or --traces or --stream.")
    least, hidden = options.read_policy(policy), options.read_fences(fences)
    if stream:
        from geoblanket.release.budget import Budget
        from geoblanket.release.device import Device

        chosen = _Stream(**settings.of(_Stream))
        with Device.open(
            file,
            ledger=ledger,
            budget=None if chosen.budget is None or ledger is not None else Budget(chosen.budget, chosen.window_s),
            policy=least,
            replay=chosen.replay,
            fences=hidden,
            hold_in_memory=chosen.hold_in_memory,
            **options.sealing(),
        ) as device:
            _answer_lines(device)
        return
    if out is None:
        raise ParameterError("--walks and --traces need --out, and --roads if the bundle has zones.")
    from geoblanket.mechanism.bundle.storage import LatticeBundle, load_bundle

    options.check_outputs(out, overwrite=overwrite)
    bundle = load_bundle(file)
    with progress_bars() as progress:
        shared = {"bundle": bundle, "fences": hidden, "policy": least, "progress": progress}
        summary = _perturb_table(walks, traces, roads=roads, out=out, settings=settings, shared=shared)
    print_result("Reports", summary, json=json)
    say(f"Reports written to {out}.")
    if isinstance(bundle, LatticeBundle):
        _tell_of_lattice(summary, bundle.lattice.spec.plane.where)
    else:
        _tell_of_zones(summary)


def _perturb_table(
    walks: Path | None,
    traces: Path | None,
    *,
    roads: Path | None,
    out: Path,
    settings: Chosen,
    shared: dict[str, Any],
) -> Any:
    """Perturb walks or traces by zones or by a lattice, and return the summary."""
    from geoblanket.mechanism.bundle.storage import LatticeBundle

    if isinstance(shared["bundle"], LatticeBundle):
        from geoblanket.release.bulk import perturb_points, perturb_walk_points

        if traces is not None:
            return perturb_points(traces, out, **shared)
        if walks is None or roads is None:
            raise ParameterError("--walks needs --roads, which says where places are. --traces does not.")
        return perturb_walk_points(walks, roads, out, **shared)
    from geoblanket.mobility.map_matcher import MatchOptions
    from geoblanket.release.bulk import perturb_traces, perturb_walks

    if roads is None:
        raise ParameterError("The bundle has zones, so --walks and --traces need --roads.")
    if traces is not None:
        matching = MatchOptions(**settings.of(MatchOptions))
        chosen = {name: settings[name] for name in ("spacing_m", "workers") if name in settings}
        return perturb_traces(traces, roads, out, options=matching, **shared, **chosen)
    return perturb_walks(str(walks), roads, out, **shared)


def _tell_of_zones(summary: PerturbSummary) -> None:
    """Say what was spent, and how many reports were made in no zone."""
    from geoblanket.mechanism.promise import hour_in_words

    if summary.places_outside:
        say(
            f"Warning: {summary.places_outside:,} of {summary.reports:,} reports were made at places in no zone. Each "
            "counts as the nearest place in a zone."
        )
    unit, hour = summary.unit, hour_in_words(summary.epsilon_per_hour, summary.interval_s, summary.unit)
    say(
        f"Every report spent budget: up to {summary.epsilon_per_location:g} per {unit} for each location, as present "
        f"and as past. {hour} The vehicle with the most reports ({summary.most_reports:,}) spent "
        f"{summary.epsilon_spent:,g} per {unit}. {_AGAIN}"
    )


def _tell_of_lattice(summary: LatticeSummary, frame: str) -> None:
    """Say what was spent, and how many reports were made outside the frame; never where."""
    from geoblanket.mechanism.promise import hour_in_words

    if summary.points_outside:
        say(
            f"Warning: {summary.points_outside:,} of {summary.reports:,} reports were made outside the bundle's frame, "
            f"from {frame}. Each counts as the nearest point of its edge."
        )
    if summary.points_exchanged:
        say(
            f"Warning: latitude and longitude seem to be exchanged in {summary.points_exchanged:,} of them. The "
            "latitude comes first."
        )
    held = summary.reports - summary.draws
    rest = f"{held:,} of {summary.reports:,} reports were made at rest and repeat an earlier one, at no cost. "
    say(
        f"Every draw spent {summary.epsilon_per_report:g} per km of the budget. "
        f"{hour_in_words(summary.epsilon_per_hour, summary.interval_s)} {rest if held else ''}"
        f"The vehicle with the most draws ({summary.most_draws:,}) spent {summary.epsilon_spent:,g} per km. {_AGAIN}"
    )


_AGAIN = "Perturbing the same data again spends as much again."


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
            say(f"Warning for {counted(count, 'report')} in total: {warning}")


@ledger_app.command()
def create(
    file: FileArgument,
    *,
    budget: Annotated[float, typer.Option(help="The most that a window may spend, ε per km.", show_default=False)],
    window: Annotated[float, typer.Option(help="Length of the window, seconds.", show_default=False)],
) -> None:
    """Make the ledger of a device, with nothing spent."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.ledger import Ledger

    Ledger.create(file, budget=Budget(budget, window), **options.sealing())
    say(f"Ledger {file} made: at most {budget:g} per km in any {window:g} s. Keep it: nothing is released without it.")


@ledger_app.command()
def show(file: FileArgument, *, json: JsonOption = False) -> None:
    """Show what was spent, and what is left."""
    with _opened(file) as ledger:
        summary = ledger.summary()
    print_result(f"Ledger {file}", summary, json=json)


@ledger_app.command()
def verify(file: FileArgument) -> None:
    """Check that a ledger was not changed, truncated or rolled back; exit with 1 otherwise."""
    with _opened(file) as ledger:
        ledger.check_storage()
    say(f"Ledger {file} is intact: {counted(ledger.commits - 1, 'transaction')}, all sealed, none rolled back.")


@fence_app.command()
def add(
    *,
    ledger: LedgerOption,
    radius_km: Annotated[
        float, typer.Option(help="Largest distance of the centre from the place, km: 0.1 to 10.", show_default=False)
    ],
    margin_m: Annotated[
        float, typer.Option(help="Positions up to this far from the place are hidden too, metres.")
    ] = 300.0,
    name: Annotated[str, typer.Option(help="A name for the fence.")] = "home",
    vehicle: VehicleOption = "",
) -> None:
    """Draw a fence around a place. The command asks for the place, or reads it from stdin, and does not keep it.

    Give the latitude and the longitude in degrees, with a comma or a space between them.
    """
    place = _asked_place()
    with _opened(ledger) as opened:
        known = len(opened.fences_of(vehicle))
        fence = opened.add_fence(*place, radius_km=radius_km, margin_m=margin_m, name=name, vehicle=vehicle)
        del place
        if len(opened.fences_of(vehicle)) == known:
            say(f"This place already had the fence '{fence.name}'. It is in use again, with its old centre and radius.")
    say(_fence_promise(fence))
    say("The ledger keeps the fence. Keep a copy, too: `geoblanket fence export`.")


@fence_app.command("list")
def list_fences(
    *,
    ledger: LedgerOption,
    vehicle: VehicleOption = "",
    json: JsonOption = False,
) -> None:
    """List the fences of a ledger."""
    with _opened(ledger) as opened:
        fences = opened.fences_of(vehicle)
    if json:
        print_json({"fences": [_fence_facts(number, fence) for number, fence in enumerate(fences, 1)]})
        return
    rows = [
        (
            f"{number} {fence.name}",
            f"centre {fence.lat_e7 / 1e7:.5f}, {fence.lon_e7 / 1e7:.5f}, radius {fence.radius_m:,} m"
            f"{'' if fence.active else ', not in use'}",
        )
        for number, fence in enumerate(fences, 1)
    ]
    print_table(f"Fences of {ledger}", rows or [("none", "make one with `geoblanket fence add`")])


@fence_app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The name of the fence.")],
    *,
    ledger: LedgerOption,
    vehicle: VehicleOption = "",
) -> None:
    """Stop using a fence. The ledger keeps its centre, which a later fence for the same place gets back."""
    with _opened(ledger) as opened:
        opened.set_fences(opened.fences_of(vehicle).without(name), vehicle)
    say(f"The fence '{name}' is no longer in use: reports now disclose something about that place.")


@fence_app.command()
def export(
    *,
    ledger: LedgerOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.", show_default=False)],
    vehicle: VehicleOption = "",
    overwrite: options.Overwrite = False,
) -> None:
    """Write the fences to a file, as a copy or for another device of the same person."""
    from geoblanket._files import atomic_output

    options.check_outputs(out, overwrite=overwrite)
    with _opened(ledger) as opened:
        fences = opened.fences_of(vehicle)
    with atomic_output(out, private=True) as file:
        file.write_text(fences.as_json())
    say(f"{counted(len(fences), 'fence')} written to {out}.")


@fence_app.command("import")
def import_fences(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `fence export`.")],
    *,
    ledger: LedgerOption,
    vehicle: VehicleOption = "",
) -> None:
    """Import the fences of another device."""
    from geoblanket.release.fence import read_fences

    fences = read_fences(file)
    with _opened(ledger) as opened:
        merged = opened.fences_of(vehicle).with_all(fences)
        opened.set_fences(merged, vehicle)
    say(f"{counted(len(fences), 'fence')} imported. The ledger now has {counted(len(merged), 'fence')}.")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _asked_place() -> tuple[float, float]:
    """Return latitude and longitude from a prompt, or from standard input; they never are arguments of a process."""
    if _is_terminal():
        text = typer.prompt("Latitude and longitude of the place, degrees (not kept)", err=True)
    else:
        text = sys.stdin.readline(200)
    try:
        lat, lon = (float(part) for part in text.replace(",", " ").split())
    except ValueError:
        raise ParameterError(
            "The place must be a latitude and a longitude in degrees, as in 45.001, -30.002."
        ) from None
    return lat, lon


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    from geoblanket.release.ledger import Ledger

    ledger = Ledger.open(path, **options.sealing())
    try:
        yield ledger
    finally:
        ledger.close()


def _fence_facts(number: int, fence: Fence) -> dict[str, object]:
    return {
        "number": number,
        "name": fence.name,
        "lat": fence.lat_e7 / 1e7,
        "lon": fence.lon_e7 / 1e7,
        "radius_m": fence.radius_m,
        "in_use": fence.active,
    }


def _fence_promise(fence: Fence) -> str:
    from geoblanket.mechanism.promise import fenced_in_words

    return (
        f"Fence '{fence.name}': every position within {fence.radius_m:,} m of its centre counts as the centre from now "
        f"on. {fenced_in_words(fence.reach_m / 1000, fence.delta(0.1))}"
    )
