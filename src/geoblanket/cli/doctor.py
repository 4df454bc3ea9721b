"""`geoblanket doctor`: whether this machine has what geoblanket needs, and what could be installed besides."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
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
from geoblanket.errors import GeoblanketError

__all__ = ["doctor"]

State = Literal["ok", "not installed", "note", "broken"]

_BASE: Final = ("numpy", "typer", "rich")
_DISTRIBUTIONS: Final = {"PIL": "pillow", "sklearn": "scikit-learn", "paho": "paho-mqtt"}
"""The names that modules are installed by, where they differ."""
_FIRST_YEAR, _LAST_YEAR = 2025, 2099
_LEAST_FREE_BYTES: Final = 100 << 20
_CLOCK_S: Final = 0.05
_WAIT_S: Final = 3.0
_CONNECT: Final = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"
"""MQTT 3.1.1: a clean session of nobody."""
_REFUSED_CODES: Final = (4, 5)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    state: State = "ok"
    advice: str = ""


def doctor(
    *,
    ledger_folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where a ledger is to live: one is made there, tried and removed.")
    ] = Path(),
    broker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Also ask whether an MQTT broker answers there.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check this machine: versions, extras, disk, ledger, clock, permissions and browser.

    Exit with 1 if something that is needed is broken. Nothing is sent anywhere, but to a broker if one is named.
    """
    checks = [
        *_versions(),
        *_extras(),
        *_folder(ledger_folder),
        *_clock(),
        _permissions(),
        _randomness(),
        _browser(),
        *(() if broker is None else (_broker(broker),)),
    ]
    broken = [check.name for check in checks if check.state == "broken"]
    absent = [check.name.removeprefix("extra ") for check in checks if check.state == "not installed"]
    if broken:
        verdict = f"NOT OK: {', '.join(broken)}: see above what to do."
    else:
        verdict = "OK: what geoblanket needs works here." + (f" Not installed: {', '.join(absent)}." if absent else "")
    if json:
        print_json({"ok": not broken, "verdict": verdict, "checks": [asdict(check) for check in checks]})
    else:
        print_table(
            "This machine",
            [(check.name, check.found, check.state) for check in checks],
            header=("what", "found", "state"),
        )
        for check in checks:
            if check.advice:
                typer.echo(f"{check.name}: {check.advice}")
        typer.echo(verdict)
    if broken:
        raise typer.Exit(1)


def _versions() -> Iterator[Check]:
    yield Check("geoblanket", __version__)
    yield Check("Python", platform.python_version())
    for name in _BASE:
        found = _version(name)
        if found is None:
            yield Check(name, "missing", "broken", "Install geoblanket again: pip install geoblanket")
        else:
            yield Check(name, found)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> Iterator[Check]:
    for extra, modules in MODULES_OF_EXTRA.items():
        missing = [module for module in modules if not _is_there(module)]
        install = f"pip install 'geoblanket[{extra}]'"
        if not missing:
            names = [_DISTRIBUTIONS.get(module, module) for module in modules]
            versions = [f"{name} {_version(name) or 'of some version'}" for name in names]
            yield Check(f"extra {extra}", ", ".join(versions))
        elif len(missing) == len(modules):
            yield Check(f"extra {extra}", "–", "not installed", install)
        else:
            yield Check(f"extra {extra}", f"without {', '.join(missing)}", "not installed", install)


def _is_there(module: str) -> bool:
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _folder(folder: Path) -> Iterator[Check]:
    """Try what a ledger needs, in a folder that is removed again."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Check("ledger folder", _reason(error), "broken", "Name a folder that exists with --ledger-folder.")
        return
    enough = free >= _LEAST_FREE_BYTES
    room = "Make room: a ledger that cannot be written refuses to report."
    yield Check("free disk", f"{free / 1e9:,.1f} GB", "ok" if enough else "note", "" if enough else room)
    elsewhere = "Choose a folder on a local disk that you may write to, with --ledger-folder."
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".geoblanket-doctor.") as name:
            for what, check in (("writing and fsync", _sync), ("ledger, locked", _ledger)):
                try:
                    yield Check(what, check(Path(name)))
                except (OSError, GeoblanketError) as error:
                    yield Check(what, _reason(error), "broken", elsewhere)
    except OSError as error:
        yield Check("ledger folder", _reason(error), "broken", elsewhere)


def _reason(error: Exception) -> str:
    """Return what went wrong, without the names of temporary files."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _sync(folder: Path) -> str:
    from geoblanket._files import atomic_output

    started = time.perf_counter()
    with atomic_output(folder / "file") as temporary:
        temporary.write_bytes(bytes(4096))
    return f"works, {1000 * (time.perf_counter() - started):.1f} ms"


def _ledger(folder: Path) -> str:
    """Make a ledger as a device does, and try to open it twice."""
    from geoblanket.errors import LedgerError
    from geoblanket.release.budget import Budget
    from geoblanket.release.ledger import Ledger

    opened = partial(Ledger.open, folder / "a.ledger", device_key=bytes(16))
    Ledger.create(folder / "a.ledger", budget=Budget(epsilon=1, window_s=60), device_key=bytes(16))
    ledger = opened()
    try:
        opened().close()
    except LedgerError:
        return "works, and opens once only"
    finally:
        ledger.close()
    raise LedgerError("Two processes could use one ledger here.")


def _clock() -> Iterator[Check]:
    now = datetime.now(UTC)
    right = _FIRST_YEAR <= now.year <= _LAST_YEAR
    yield Check(
        "clock",
        f"{now:%Y-%m-%d %H:%M} UTC",
        "ok" if right else "broken",
        "" if right else "Set the clock: reports carry its time, and budgets count it.",
    )
    wall, steady = time.time(), time.monotonic()
    time.sleep(_CLOCK_S)
    jump_s = abs((time.time() - wall) - (time.monotonic() - steady))
    runs = jump_s < _CLOCK_S
    yield Check(
        "clock, against the steady one",
        f"{1000 * jump_s:.1f} ms apart",
        "ok" if runs else "note",
        "" if runs else "The clock was set just now, or runs unevenly: until it is steady, budgets free up later.",
    )
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo("Europe/Lisbon")
    except ZoneInfoNotFoundError:
        yield Check("time zones", "missing", "broken", "Install the time zone database: pip install tzdata")
    else:
        yield Check("time zones", "known")


def _permissions() -> Check:
    umask = os.umask(0o077)
    os.umask(umask)
    writable = not umask & 0o002
    advice = "Others may change new files: set umask 022. Ledgers and true locations are private in any case."
    return Check("umask", f"{umask:03o}", "note" if writable else "ok", advice if writable else "")


def _randomness() -> Check:
    try:
        os.urandom(32)
    except (OSError, NotImplementedError):
        return Check("randomness", "none", "broken", "The operating system gives no randomness: nothing can be drawn.")
    return Check("randomness", "of the operating system")


def _browser() -> Check:
    import webbrowser

    try:
        found = webbrowser.get().name
    except webbrowser.Error:
        tunnel = "Open the page of `geoblanket serve` from elsewhere, through a tunnel: ssh -L 8642:localhost:8642 HOST"
        return Check("browser", "none", "note", tunnel)
    return Check("browser", found)


def _broker(address: str) -> Check:
    """Ask an MQTT broker for a session."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise typer.BadParameter("--broker must be HOST:PORT, such as localhost:1883.")
    name = f"broker {address}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT_S) as connection:
            connection.sendall(_CONNECT)
            answer = connection.recv(4)
    except OSError as error:
        return Check(name, _reason(error), "broken", "Start the broker, or check host, port and firewall.")
    if len(answer) < 4 or answer[:2] != b"\x20\x02":
        return Check(name, "answers, but not in MQTT", "broken", "Check the port: it may be one with TLS.")
    if answer[3] in _REFUSED_CODES:
        return Check(name, "answers, and asks who you are")
    return Check(name, "answers" if answer[3] == 0 else f"refuses with code {answer[3]}", "note" if answer[3] else "ok")
