"""Small files in the formats of the loaders."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket.traces.importing import Reading, import_traces
from geoblanket.traces.summary import ImportSummary
from geoblanket.traces.table import scan_traces

PORTO_HEADER = "TRIP_ID,CALL_TYPE,ORIGIN_CALL,ORIGIN_STAND,TAXI_ID,TIMESTAMP,DAY_TYPE,MISSING_DATA,POLYLINE"
START_S = 1_372_636_853

REAL_DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def line(points: int, *, lon: float = -8.61, lat: float = 41.14, step: float = 0.0005) -> list[list[float]]:
    """A straight, slow polyline."""
    return [[round(lon + step * k, 6), round(lat + step * k, 6)] for k in range(points)]


def porto_row(
    polyline: Sequence[Sequence[float]] | str,
    *,
    taxi: str = "20000589",
    start: int | str = START_S,
    missing: str = "False",
) -> str:
    """One row as in the original file: every cell quoted."""
    text = polyline if isinstance(polyline, str) else json.dumps(polyline, separators=(",", ":"))
    cells = [f"{start}{taxi}", "C", "", "", taxi, str(start), "A", missing, text]
    return ",".join(f'"{cell}"' for cell in cells)


def porto_file(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("\n".join([PORTO_HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def table_file(path: Path, rows: Sequence[str], *, header: str = "vehicle,time,lat,lon") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def steady(points: int, *, vehicle: str = "a", start_s: int = START_S, step_s: int = 10) -> list[str]:
    """Rows of a table: a vehicle that moves slowly."""
    return [f"{vehicle},{start_s + step_s * k},{41.9 + 0.0005 * k:.4f},12.5" for k in range(points)]


def gzipped(path: Path) -> Path:
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def cab_archive(path: Path, files: dict[str, bytes], *, form: int = tarfile.PAX_FORMAT) -> Path:
    """Write a tar archive, packed as its name says."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=form) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1.5  # a fraction needs a header of its own
            tar.addfile(entry, io.BytesIO(data))
    pack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    path.write_bytes(pack.get(path.suffix, bytes)(content.getvalue()))
    return path


def imported(folder: Path, *files: Path, **options: Any) -> tuple[pl.DataFrame, ImportSummary]:
    """Import files and read the table back."""
    out = folder / "traces.parquet"
    reading = {name: options.pop(name) for name in asdict(Reading()) if name in options}
    summary = import_traces(files, out, reading=Reading(**reading), **options)
    return scan_traces(out).collect(), summary


def dropped(summary: ImportSummary) -> dict[str, int]:
    """The rules that dropped something, with the number of rows they touched."""
    counts: dict[str, int] = summary.to_json()["dropped"]
    return {rule: count for rule, count in counts.items() if count}
