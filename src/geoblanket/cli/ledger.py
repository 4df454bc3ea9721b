"""`geoblanket ledger` and `geoblanket fence`: the durable budget of a device, and the places that it hides for good."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from geoblanket.release.fence import Fence
    from geoblanket.release.ledger import Ledger

__all__ = ["CounterOption", "KeyOption", "app", "device_key", "fence_app"]

app = typer.Typer(help="The durable budget of a device.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger.")]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--device-key",
        metavar="FILE",
        help="The file of the key that seals the ledger, 16 bytes or more.",
        show_default="the key of this device",
    ),
]
CounterOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file of its counter.", show_default="FILE.count")
]

fence_app = typer.Typer(help="Hide a home, or any other place, for good.", no_args_is_help=True)

LedgerOption = Annotated[Path, typer.Option(metavar="FILE", help="The ledger of the device.", show_default=False)]
VehicleOption = Annotated[str, typer.Option(help="The vehicle, in a ledger of several.", show_default="the only one")]


def device_key(file: Path | None) -> bytes | None:
    """Return the key in a file, as it is; None without one: the key of this device."""
    from geoblanket.release.device_key import read_key_file

    return None if file is None else read_key_file(file)


@app.command()
def create(
    file: FileArgument,
    *,
    budget: Annotated[float, typer.Option(help="What may be spent in a window, ε per km.", show_default=False)],
    window: Annotated[float, typer.Option(help="Length of the window, seconds.", show_default=False)],
    key: KeyOption = None,
    counter: CounterOption = None,
) -> None:
    """Make a ledger, with nothing spent. Once per device."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.ledger import Ledger

    Ledger.create(file, budget=Budget(budget, window), device_key=device_key(key), counter=counter)
    say(f"Ledger {file} made: {budget:g} per km in any {window:g} s. Keep it: nothing is released without it.")


@app.command()
def show(file: FileArgument, *, key: KeyOption = None, counter: CounterOption = None, json: JsonOption = False) -> None:
    """Show what was spent, and what is left."""
    from geoblanket.release.ledger import Ledger

    ledger = Ledger.open(file, device_key=device_key(key), counter=counter)
    summary = ledger.summary()
    ledger.close()
    if json:
        print_json(summary)
    else:
        print_table(f"Ledger {file}", _rows(summary))


@app.command()
def verify(file: FileArgument, *, key: KeyOption = None, counter: CounterOption = None) -> None:
    """Check that a ledger was not changed, truncated or rolled back; exit with 1 otherwise."""
    from geoblanket.release.ledger import Ledger

    ledger = Ledger.open(file, device_key=device_key(key), counter=counter)
    ledger.check_storage()
    ledger.close()
    say(f"Ledger {file} is whole: {ledger.commits - 1:,} transaction(s), each sealed, none rolled back.")


@app.command("add-key")
def add_key(file: FileArgument, *, key: KeyOption = None, counter: CounterOption = None) -> None:
    """Seal a ledger of version 0.1 that has no key. Only if nobody else could write to it."""
    from geoblanket.release.ledger import Ledger

    Ledger.add_key(file, device_key=device_key(key), counter=counter)
    say(f"Ledger {file} keeps what was spent, and opens with its key only from now on.")


_SEALED_BY = {"device": "the key of this device", "given": "the key that was given"}


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("budget", f"{summary['budget']:g} per km in any {summary['window_s']:g} s"),
        ("vehicles", f"{summary['vehicles']:,}"),
        ("reports", f"{summary['reports']:,}"),
        ("spent in all", f"{summary['spent']:,g} per km"),
        ("last report", summary["last_report"] or "none"),
        ("spent in the window of the last report, at most", f"{summary['spent_in_window']:g} per km"),
        ("transactions", f"{summary['transactions']:,}"),
        ("bundles that this software verified", f"{summary['verified_bundles']:,}"),
        (
            "versions of bundles, one for each domain",
            ", ".join(map(str, summary["bundle_versions"].values())) or "none",
        ),
        ("sealed by", _SEALED_BY[summary["sealed_by"]]),
        ("counts", "replays, in the caller's time only" if summary["replay"] else "reports in real time"),
    ]


@fence_app.command()
def add(
    *,
    ledger: LedgerOption,
    radius_km: Annotated[
        float, typer.Option(help="How far the centre may lie from the place, km, .1 to 10.", show_default=False)
    ],
    margin_m: Annotated[float, typer.Option(help="What belongs to the place, metres around it.")] = 300.0,
    name: Annotated[str, typer.Option(help="How you tell it from others.")] = "home",
    vehicle: VehicleOption = "",
    key: KeyOption = None,
    counter: CounterOption = None,
) -> None:
    """Draw a fence around a place, once. The place is asked for, or read from standard input, and not kept.

    Give the latitude and the longitude in degrees, with a comma or a space between them.
    """
    place = _asked_place()
    with _opened(ledger, key, counter) as opened:
        known = len(opened.fences_of(vehicle))
        fence = opened.add_fence(*place, radius_km=radius_km, margin_m=margin_m, name=name, vehicle=vehicle)
        del place
        if len(opened.fences_of(vehicle)) == known:
            say(f"This place had the fence '{fence.name}', which is in use again, with its own centre and radius.")
    say(_fence_promise(fence))
    say("Fences stay with the ledger. Keep a copy too: `geoblanket fence export`.")


@fence_app.command("list")
def list_fences(
    *,
    ledger: LedgerOption,
    vehicle: VehicleOption = "",
    key: KeyOption = None,
    counter: CounterOption = None,
    json: JsonOption = False,
) -> None:
    """List the fences of a ledger."""
    with _opened(ledger, key, counter) as opened:
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
    key: KeyOption = None,
    counter: CounterOption = None,
) -> None:
    """Stop using a fence. Its centre is kept: a later fence for the same place must be the same."""
    with _opened(ledger, key, counter) as opened:
        opened.set_fences(opened.fences_of(vehicle).without(name), vehicle)
    say(f"The fence '{name}' is not in use any more: reports tell about that place again.")


@fence_app.command()
def export(
    *,
    ledger: LedgerOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.", show_default=False)],
    vehicle: VehicleOption = "",
    key: KeyOption = None,
    counter: CounterOption = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the fences to a file: a copy to keep, and what another device of the same person needs."""
    from geoblanket._files import atomic_output

    options.check_outputs(out, overwrite=overwrite)
    with _opened(ledger, key, counter) as opened:
        fences = opened.fences_of(vehicle)
    with atomic_output(out, private=True) as file:
        file.write_text(fences.as_json())
    say(f"{len(fences)} fence(s) written to {out}.")


@fence_app.command("import")
def import_fences(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `fence export`.")],
    *,
    ledger: LedgerOption,
    vehicle: VehicleOption = "",
    key: KeyOption = None,
    counter: CounterOption = None,
) -> None:
    """Take over the fences of another device."""
    from geoblanket.release.fence import read_fences

    fences = read_fences(file)
    with _opened(ledger, key, counter) as opened:
        merged = opened.fences_of(vehicle).with_all(fences)
        opened.set_fences(merged, vehicle)
    say(f"{len(fences)} fence(s) read. The ledger has {len(merged)}.")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _asked_place() -> tuple[float, float]:
    """Return latitude and longitude from a prompt, or from standard input; they never are arguments of a process."""
    from geoblanket.errors import ParameterError

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
def _opened(path: Path, key: Path | None, counter: Path | None) -> Iterator[Ledger]:
    from geoblanket.release.ledger import Ledger

    ledger = Ledger.open(path, device_key=device_key(key), counter=counter)
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
    from geoblanket.mechanism.meaning import fenced_in_words

    return (
        f"Fence '{fence.name}': every position within {fence.radius_m:,} m of its centre counts as the centre from now "
        f"on. {fenced_in_words(fence.reach_m / 1000, fence.delta(0.1))}"
    )
