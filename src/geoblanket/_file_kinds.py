"""What a file is, by its first bytes, and which command makes of it what was wanted.

Who gives a map where imported roads are expected, or a CSV file where traces are, is told what the file is and what to
run, by every reader alike. Nothing of a file's content is told but its kind.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import shlex
import zlib
from pathlib import Path
from typing import IO, Final

__all__ = ["MAGIC", "advice", "found_in_words", "kind_of_content", "kind_of_file"]

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
"""What makes of a file that was found the one that was wanted, or the first step to it."""
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
