"""`geoblanket doctor`: whether this machine has what geoblanket needs, and what could be installed besides."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from geoblanket import __version__
from geoblanket._lazy import MODULES_OF_EXTRA
from geoblanket.cli._output import JsonOption, print_json, print_table
from geoblanket.errors import GeoblanketError, LedgerError

_BASE: Final = ("numpy", "typer", "rich")
_YEARS: Final = range(2025, 2100)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    state: Literal["ok", "not installed", "broken"] = "ok"
    advice: str = ""


def doctor(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[FOLDER]", help="The folder for a ledger. A test ledger is made there and removed."),
    ] = Path(),
    *,
    json: JsonOption = False,
) -> None:
    """Check this machine: versions, extras, a ledger on this disk, the clock. Exit with 1 if something is broken."""
    checks = [*_versions(), *_extras(), *_disk(folder), _clock()]
    broken = [check.name for check in checks if check.state == "broken"]
    absent = [check.name.removeprefix("extra ") for check in checks if check.state == "not installed"]
    verdict = "OK: everything that geoblanket needs works here." + (
        f" Not installed: {', '.join(absent)}." if absent else ""
    )
    if broken:
        verdict = f"NOT OK: {', '.join(broken)}. What to do is written above."
    if json:
        print_json({"ok": not broken, "verdict": verdict, "checks": [asdict(check) for check in checks]})
    else:
        rows = [(check.name, check.found, check.state) for check in checks]
        print_table("This machine", rows, header=("what", "found", "state"))
        for check in checks:
            if check.advice:
                typer.echo(f"{check.name}: {check.advice}")
        typer.echo(verdict)
    if broken:
        raise typer.Exit(1)


def _versions() -> Iterator[Check]:
    yield Check("geoblanket", __version__)
    yield Check("Python", platform.python_version())
    yield from (Check(name, metadata.version(name)) for name in _BASE)


def _extras() -> Iterator[Check]:
    for extra, modules in MODULES_OF_EXTRA.items():
        missing = [module for module in modules if not _is_there(module)]
        if missing:
            found, install = f"without {', '.join(missing)}", f"pip install 'geoblanket[{extra}]'"
            yield Check(f"extra {extra}", found, "not installed", install)
        else:
            yield Check(f"extra {extra}", "installed")


def _is_there(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _disk(folder: Path) -> Iterator[Check]:
    """Try what a ledger needs, in a folder that is removed again."""
    advice = "Name a folder on a local disk that you may write to: geoblanket doctor FOLDER"
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".geoblanket-doctor.") as name:
            _try_ledger(Path(name))
    except (OSError, GeoblanketError) as error:  # whose message would name a temporary file
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        yield Check("ledger, locked", reason, "broken", advice)
    else:
        yield Check("ledger, locked", "works, and only one process can open it")


def _try_ledger(folder: Path) -> None:
    """Make a ledger as a device does, and try to open it twice."""
    from geoblanket.release.budget import Budget
    from geoblanket.release.ledger import Ledger

    opened = partial(Ledger.open, folder / "a.ledger", device_key=bytes(16))
    Ledger.create(folder / "a.ledger", budget=Budget(epsilon=1, window_s=60), device_key=bytes(16))
    ledger = opened()
    try:
        opened().close()
    except LedgerError:
        return
    finally:
        ledger.close()
    raise LedgerError("Two processes could use one ledger here.")


def _clock() -> Check:
    now = datetime.now(UTC)
    found = f"{now:%Y-%m-%d %H:%M} UTC"
    if now.year in _YEARS:
        return Check("clock", found)
    return Check("clock", found, "broken", "Set the clock: reports and budgets use it.")
