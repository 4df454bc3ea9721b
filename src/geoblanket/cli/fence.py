"""`geoblanket fence`: places that stay hidden for good."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli.ledger import CounterOption, KeyOption, device_key

if TYPE_CHECKING:
    from geoblanket.release.fence import Fence
    from geoblanket.release.ledger import Ledger

__all__ = ["app"]

app = typer.Typer(help="Hide a home, or any other place, for good.", no_args_is_help=True)

LedgerOption = Annotated[Path, typer.Option(metavar="FILE", help="The ledger of the device.", show_default=False)]
VehicleOption = Annotated[str, typer.Option(help="The vehicle, in a ledger of several.", show_default="the only one")]


@app.command()
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
    say(_promise(fence))
    say("Fences stay with the ledger. Keep a copy too: `geoblanket fence export`.")


@app.command("list")
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
        print_json({"fences": [_facts(number, fence) for number, fence in enumerate(fences, 1)]})
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


@app.command()
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


@app.command()
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


@app.command("import")
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


def _facts(number: int, fence: Fence) -> dict[str, object]:
    return {
        "number": number,
        "name": fence.name,
        "lat": fence.lat_e7 / 1e7,
        "lon": fence.lon_e7 / 1e7,
        "radius_m": fence.radius_m,
        "in_use": fence.active,
    }


def _promise(fence: Fence) -> str:
    from geoblanket.mechanism.meaning import fenced_in_words

    return (
        f"Fence '{fence.name}': every position within {fence.radius_m:,} m of its centre counts as the centre from now "
        f"on. {fenced_in_words(fence.reach_m / 1000, fence.delta(0.1))}"
    )
