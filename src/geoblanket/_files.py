"""Files: which kind one is, by its first bytes; and writing one wholly or not at all.

A map that is given for imported roads, or a CSV file for traces: every reader says what the file is and which command
to run. Nothing of a file's content is told but its kind.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import re
import secrets
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from geoblanket.errors import GeoblanketError, OutputError

_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700
_OS_ERROR = re.compile(r"\(os error (\d{1,4})\)")  # as Rust's libraries end their messages

MAGIC: Final = {
    "roads": b"GBROADS1",
    "bundle": b"GBBUNDL2",
    "model": b"GBMOTION",
    "predictor": b"GBPREDI1",
    "counter": b"GBCOUNT1",
    "part": b"GBPARTS1",
}
"""The first 8 bytes of our own files."""

_OTHER_MAGIC: Final = {
    b"PAR1": "parquet",
    b"SQLite format 3\0": "ledger",
    b"PK\x03\x04": "zip",
    b"\x89PNG": "picture",
    b"%PDF": "picture",
    b"-----BEGIN ": "key",
}
_TABLES: Final = {
    "points": "a table of GPS points",
    "traces": "a table of traces",
    "walks": "a table of walks",
    "zones": "a table of zones",
    "findings": "a table of findings",
    "released locations": "a table of released locations",
    "released cells": "a table of released cells",
    "tracked locations": "a table of tracked locations",
    "tracked cells": "a table of tracked cells",
    "results": "a table of results",
}
"""Our own Parquet tables, by the kind that their description tells."""
_WORDS: Final = _TABLES | {
    "roads": "a road graph",
    "bundle": "a bundle of mechanisms",
    "model": "a motion model",
    "predictor": "a predictor of blankets",
    "counter": "the counter of a ledger",
    "part": "a part of an unfinished run",
    "parquet": "a Parquet table that geoblanket did not write",
    "ledger": "a ledger, or another SQLite file",
    "zip": "a ZIP archive",
    "picture": "a picture",
    "key": "a key or certificate (PEM)",
    "osm": "an OpenStreetMap file",
    "graphml": "a GraphML file",
    "road table": "a CSV table of roads",
    "porto": "a CSV table of trips as those of Porto",
    "csv": "a text table (CSV)",
    "json": "a JSON file",
    "folder": "a folder",
    "empty": "empty",
}

_IMPORT_ROADS: Final = "geoblanket roads import {file} --out city.roads"
_IMPORT_POINTS: Final = "geoblanket traces import --format table {file} --out traces.parquet"
_IMPORT_TABLE: Final = _IMPORT_POINTS.replace("{file}", "--columns time=…,lat=…,lon=… {file}")
_IMPORT_PORTO: Final = "geoblanket traces import --format porto {file} --out traces.parquet"
_MATCH: Final = "geoblanket match --traces {file} --roads city.roads --out walks.parquet"
_PERTURB: Final = "geoblanket perturb city.bundle --{found} {file} --out released.parquet"
_COMMANDS: Final = {
    ("osm", "roads"): _IMPORT_ROADS,
    ("graphml", "roads"): _IMPORT_ROADS,
    ("road table", "roads"): "geoblanket roads import nodes.csv edges.csv --out city.roads",
    ("porto", "traces"): _IMPORT_PORTO,
    ("csv", "traces"): _IMPORT_TABLE,
    ("parquet", "traces"): _IMPORT_TABLE,
    ("points", "traces"): _IMPORT_POINTS,
    ("points", "walks"): _IMPORT_POINTS,
    ("porto", "walks"): _IMPORT_PORTO,
    ("csv", "walks"): _IMPORT_TABLE,
    ("parquet", "walks"): _IMPORT_TABLE,
    ("traces", "walks"): _MATCH,
    ("model", "walks"): "geoblanket sample --model {file} --roads city.roads --out walks.parquet",
    ("roads", "bundle"): "geoblanket lattice --roads {file} --epsilon … --out city.bundle",
    ("walks", "bundle"): "geoblanket build --roads city.roads --walks {file} --epsilon … --out city.bundle",
    ("roads", "model"): "geoblanket model --roads {file} --out city.model",
    ("walks", "model"): "geoblanket model --roads city.roads --walks {file} --out city.model",
    ("findings", "predictor"): "geoblanket blanket train --findings {file} --out city.blanket",
    ("walks", "findings"): "geoblanket blanket discover --walks {file} --roads city.roads --out findings.parquet",
    ("roads", "zones"): "geoblanket roads zones {file} --out zones.parquet",
    ("traces", "released locations"): _PERTURB,
    ("walks", "released locations"): _PERTURB,
    ("traces", "released cells"): _PERTURB,
    ("walks", "released cells"): _PERTURB,
}
"""The command that turns the kind of file that was found into the kind that was wanted, or the first step to it."""
_MADE_BY: Final = {
    "roads": "geoblanket roads import",
    "traces": "geoblanket traces import",
    "walks": "geoblanket match",
    "bundle": "geoblanket lattice` or `geoblanket build",
    "model": "geoblanket model",
    "predictor": "geoblanket blanket train",
    "findings": "geoblanket blanket discover",
    "zones": "geoblanket roads zones",
    "released locations": "geoblanket perturb",
    "released cells": "geoblanket perturb",
}

_SNIFFED: Final = 4096  # bytes of the beginning
_LARGEST_FOOTER: Final = 1 << 20  # bytes of a Parquet file's end that are searched
_DESCRIBED: Final = re.compile(rb'"kind": "([a-z ]{1,40})"')
_ROAD_COLUMNS: Final = ({b"osmid", b"y", b"x"}, {b"u", b"v", b"length"})


@contextmanager
def atomic_output(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` when the block ends without an exception.

    The file and its folder are synced to disk around the rename, so after a crash `path` holds either
    the old content or the whole new one. After an exception (Ctrl-C too) the temporary file is removed.

    Parameters
    ----------
    private
        Nobody but the user may read the file, at any moment (mode 0600), whatever the umask is: for true locations and
        what is made of them.
    """
    path = Path(path)
    check_output(path)
    # The ending is kept, because writers choose a format by it.
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(6)}.partial{path.suffix}")
    try:
        with writing(path):
            if private:
                # Writers open what is there, and keep its mode.
                os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE))
            yield temporary
            sync_to_disk(temporary)
            temporary.replace(path)
            sync_to_disk(path.parent)
    finally:
        with suppress(OSError):  # where nothing can be removed, nothing could be written
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raise OutputError, of `path`, if the block fails because a disk is full or read-only.

    The block may write to temporary files, which are nobody's business. Libraries tell of some failures in words only.
    """
    try:
        yield
    except GeoblanketError:
        raise
    except Exception as error:
        reason = _os_reason(error)
        if reason is None:
            raise
        raise OutputError(f"{path}: cannot be written ({reason}).") from error


@contextmanager
def temporary_folder(path: str | Path) -> Iterator[Path]:
    """Give a folder for temporary files beside `path`, and remove it in the end; errors in it name `path`."""
    path = Path(path)
    with (
        writing(path),
        TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}.", suffix=".partial") as folder,
    ):
        try:
            yield Path(folder)
        except OutputError as error:
            told = re.sub(rf"{re.escape(folder)}[^:]*", lambda _: f"{path}", f"{error}")
            raise OutputError(told) from error


def _os_reason(error: Exception) -> str | None:
    """Return what the operating system said, without any path; None if the error is not about files."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if (told := _OS_ERROR.search(f"{error}")) is not None:
        return os.strerror(int(told[1]))
    return type(error).__name__ if isinstance(error, OSError) else None


def make_folder(path: str | Path) -> Path:
    """Make a folder, with those above it, where it does not exist; return it."""
    if Path(path).is_file():
        raise OutputError(f"{path}: is a file. Give the name of a folder.")
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror or error}).") from error
    return Path(path)


def open_private(path: Path) -> IO[bytes]:
    """Open a file to append to it, which nobody but the user may read (mode 0600), from the moment it is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
    file = os.fdopen(descriptor, "ab")
    os.fchmod(descriptor, _PRIVATE_FILE)  # it may have been there before
    return file


def private_folder(path: Path) -> None:
    """Make a folder, if it is absent, and let nobody but the user into it (mode 0700)."""
    path.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    path.chmod(_PRIVATE_FOLDER)


def check_output(path: str | Path) -> None:
    """Raise at once, before long work, if a file could not be written at `path`."""
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path}: is a folder. Give the name of the file to write.")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: the folder {path.parent} does not exist. Create it first.")


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kind_of_file(path: str | Path) -> str | None:
    """Return what a file is, as a key of the tables here; None if that cannot be told."""
    try:
        with Path(path).open("rb") as file:
            return kind_of_content(file)
    except IsADirectoryError:
        return "folder"
    except OSError:
        return None


def kind_of_content(file: IO[bytes]) -> str | None:
    """Return the same of an open file, or of bytes that were read already."""
    try:
        return _of_content(file)
    except (OSError, EOFError, zlib.error):  # packed, and damaged
        return None


def found_in_words(kind: str) -> str:
    """Return what a file is, with its article."""
    return _WORDS[kind]


def advice(found: str, wanted: str, path: str | Path) -> str | None:
    """Return what to do with a file of one kind where one of another is wanted, as a sentence without a full stop."""
    if (command := _COMMANDS.get((found, wanted))) is not None:
        return f"First run `{command.format(file=shlex.quote(str(path)), found=found)}`"
    if found == "zip":
        return "Unpack it, and give what was in it"
    return f"Give {_WORDS[wanted]}, from `{_MADE_BY[wanted]}`" if wanted in _MADE_BY else None


def _of_content(file: IO[bytes]) -> str | None:
    head = file.read(_SNIFFED)
    if not head:
        return "empty"
    for kind, magic in MAGIC.items():
        if head.startswith(magic):
            return kind
    for magic, kind in _OTHER_MAGIC.items():
        if head.startswith(magic):
            return _of_parquet(file) if kind == "parquet" else kind
    if head[:2] == b"\x1f\x8b":
        file.seek(0)
        return _of_text(gzip.GzipFile(fileobj=file).read(_SNIFFED))
    if head[:3] == b"BZh":
        file.seek(0)
        return _of_text(bz2.BZ2File(file).read(_SNIFFED))
    return _of_text(head)


def _of_parquet(file: IO[bytes]) -> str:
    """Return the kind that a table of ours tells in its footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LARGEST_FOOTER))
    kinds = {match.decode("ascii") for match in _DESCRIBED.findall(file.read())}
    return kinds.pop() if len(kinds) == 1 and kinds <= _TABLES.keys() else "parquet"


def _of_text(head: bytes) -> str | None:
    if b"OSMHeader" in head[:64]:
        return "osm"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        return "graphml" if b"<graphml" in text else "osm" if b"<osm" in text else None
    if text.startswith((b"{", b"[")):
        return "json"
    line, ended, _ = text.partition(b"\n")
    if b"\0" in head or not ended or not any(mark in line for mark in (b",", b";", b"\t", b"|")):
        return None
    cells = {cell.strip(b' "\r') for cell in line.split(b",")}
    if b"POLYLINE" in cells:
        return "porto"
    return "road table" if any(columns <= cells for columns in _ROAD_COLUMNS) else "csv"
