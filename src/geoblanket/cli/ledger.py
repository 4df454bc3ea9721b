"""`geoblanket ledger`: the durable budget of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, say

__all__ = ["CounterOption", "KeyOption", "app", "device_key"]

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
