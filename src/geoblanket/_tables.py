"""Parquet tables that say what they are: a kind, a version, and how they were made.

A table may be damaged, or made to do harm: its layout is checked first (`check_parquet`). Other damage shows
where a lazy table is collected. So collect it within `reading_parquet`, or by `table_batches`.

Geometries are GeoParquet 1.1, for GeoPandas, QGIS, DuckDB and others: well-known binary (WKB) with longitude before
latitude, degrees WGS84 (OGC:CRS84, the default of the format).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.io.plugins import register_io_source

from geoblanket._arrays import Floats, Ints
from geoblanket._files import advice, atomic_output, found_in_words, kind_of_file
from geoblanket._training import training_of
from geoblanket._untrusted import check_parquet, read_object
from geoblanket.errors import InputError

_Schema = Mapping[str, pl.DataType]
_KEY = "geoblanket"
_DAMAGED = "cannot be read as Parquet: it is damaged"
_DAMAGE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, MemoryError)
"""What Polars raises at a damaged file; a panic is no `Exception`, and would end a program that catches those."""

GEOMETRY: Final = "geometry"
"""The name of the column."""

_POINT: Final = np.dtype([("order", "u1"), ("kind", "<u4"), ("lon", "<f8"), ("lat", "<f8")])
_LITTLE_ENDIAN: Final = 1
_KINDS: Final = {"Point": 1, "LineString": 2}

_MOST_LISTED: Final = 20
_NAME: Final = re.compile(r"[^\W\d][\w .:/-]{0,39}")
_DATUM: Final = re.compile(r"\d\.\d|\d{5}")
"""Not part of a name: fractions and long numbers."""


def write_table(
    frame: pl.LazyFrame | pl.DataFrame,
    path: str | Path,
    *,
    kind: str,
    about: Mapping[str, Any],
    private: bool = True,
    points: bool = False,
) -> None:
    """Write a table as Parquet, streaming, wholly or not at all.

    Parameters
    ----------
    kind
        What the table is ("traces", "walks"); `scan_table` asks for it.
    about
        How it was made: JSON values, kept in the file.
    private
        Nobody but the user may read it: it holds true locations, or what was found in them.
    points
        Write GeoParquet: `lat` and `lon` of each row as a geometry, too.
    """
    if points:
        frame = with_points(frame.lazy())
    text = json.dumps({"kind": kind, "version": 1, **about}, allow_nan=False, sort_keys=True)
    with atomic_output(path, private=private) as temporary:
        # Level 2 takes a third less time than the default and makes traces only 5 % larger.
        metadata = {_KEY: text} | (geo_metadata("Point") if points else {})
        frame.lazy().sink_parquet(temporary, compression_level=2, metadata=metadata, engine="streaming")


def lazy_batches(batches: Iterator[pl.DataFrame], *, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Wrap a generator of frames for `write_table`, which then takes them one by one; it can be read only once."""

    def source(*_: object) -> Iterator[pl.DataFrame]:
        # What Polars would push down (columns, a filter, a limit) does not occur in a plain write.
        return batches

    return register_io_source(source, schema=pl.Schema(schema))


@contextmanager
def reading_parquet(path: str | Path, problem: str = _DAMAGED) -> Iterator[None]:
    """Raise InputError for any error of Polars within the block: the Parquet file at `path` is damaged."""
    try:
        yield
    except _DAMAGE:
        # The message of the parser may quote a cell.
        raise InputError(problem, path=path, hint="Make it again") from None


def table_batches(
    frame: pl.LazyFrame, *, path: str | Path, rows: int, streaming: bool = False, problem: str = _DAMAGED
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table in order, at most `rows` at a time.

    Parameters
    ----------
    path
        The file they come from: it is named if it turns out to be damaged.
    problem
        What is said of it then.
    """
    with reading_parquet(path, problem):
        batches = frame.collect_batches(chunk_size=rows, lazy=streaming, engine="streaming" if streaming else "auto")
    while True:
        with reading_parquet(path, problem):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def scan_table(
    path: str | Path, *, kind: str, schema: _Schema, optional: _Schema | None = None, needs: Collection[str] = ()
) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table written by `write_table`: its rows, lazily, and how it was made.

    Parameters
    ----------
    optional
        Columns that the table may have besides those of the schema.
    needs
        What the description of the table must tell; it may tell more. A statement of what it was learned from
        (`training`) must be possible.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("is a folder, not a file" if path.is_dir() else "no such file", path=path)
    if (found := kind_of_file(path)) not in {None, "parquet", kind}:
        raise _other_kind(path, str(found), kind)
    no_table = f"cannot be read as Parquet, so it is not a table of {kind}"
    check_parquet(path, no_table)
    with reading_parquet(path, no_table):
        text = pl.read_parquet_metadata(path).get(_KEY)
        written_schema = dict(pl.read_parquet_schema(path))
        frame = pl.scan_parquet(path)
    if written_schema.get(GEOMETRY) == pl.Binary:  # for other readers: it says what lat and lon say
        del written_schema[GEOMETRY]
        frame = frame.drop(GEOMETRY)
    expected = {**schema, **{name: dtype for name, dtype in (optional or {}).items() if name in written_schema}}
    about = _described(text)
    if "kind" not in about:
        raise _other_kind(path, "parquet", kind)
    if about.get("kind") != kind or about.get("version") != 1 or written_schema != expected:
        raise InputError(
            f"is a Parquet file, but not a table of {kind} written by this version of geoblanket",
            path=path,
            hint="Make it again",
        )
    for name in needs:
        if name not in about:
            raise InputError(f"is a table of {kind} that does not tell its '{name}'", path=path, hint="Make it again")
    try:
        training_of(about)
    except ValueError as error:
        raise InputError(f"was changed after it was written: {error}", path=path, hint="Make it again") from error
    return frame, about


def _other_kind(path: Path, found: str, wanted: str) -> InputError:
    """Return the error for a file that is something else: says what, and what to do with it."""
    return InputError(
        f"is not a table of {wanted} written by geoblanket: it is {found_in_words(found)}",
        path=path,
        hint=advice(found, wanted, path) or "Make it again",
    )


def _described(text: str | None) -> dict[str, Any]:
    """Return what a table says of itself; nothing if it is not as we write it."""
    try:
        return {} if text is None else read_object(text.encode())
    except ValueError:
        return {}


def geo_metadata(kind: Literal["Point", "LineString"], bbox: list[float] | None = None) -> dict[str, str]:
    """Return what a Parquet file says of its geometries.

    Parameters
    ----------
    kind
        What all of them are.
    bbox
        West, south, east and north of all of them, degrees, if known.
    """
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": [kind]} | ({} if bbox is None else {"bbox": bbox})
    return {"geo": json.dumps({"version": "1.1.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})}


def wkb_points(lon: npt.ArrayLike, lat: npt.ArrayLike) -> pl.Series:
    """Return points, degrees, as geometries."""
    lon = np.asarray(lon, np.float64)
    points = np.empty(lon.shape, _POINT)
    points["order"], points["kind"], points["lon"], points["lat"] = _LITTLE_ENDIAN, _KINDS["Point"], lon, lat
    return pl.Series(GEOMETRY, points.view(f"V{_POINT.itemsize}").tolist(), pl.Binary)


def wkb_lines(offsets: Ints, lon: Floats, lat: Floats) -> pl.Series:
    """Return lines as geometries.

    Parameters
    ----------
    offsets
        Line n has the points from `offsets[n]` to before `offsets[n + 1]`.
    lon, lat
        Of all points, degrees.
    """
    points = np.column_stack([lon, lat]).astype("<f8")
    lines = (points[start:end] for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    header = struct.Struct("<BII")
    return pl.Series(
        GEOMETRY,
        [header.pack(_LITTLE_ENDIAN, _KINDS["LineString"], len(line)) + line.tobytes() for line in lines],
        pl.Binary,
    )


def with_points(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the points of the columns `lon` and `lat` as geometries, a batch at a time."""
    points = pl.struct("lon", "lat").map_batches(
        lambda both: wkb_points(both.struct.field("lon").to_numpy(), both.struct.field("lat").to_numpy()),
        return_dtype=pl.Binary(),
        is_elementwise=True,
    )
    return frame.with_columns(points.alias(GEOMETRY))


def listed_columns(columns: Sequence[str]) -> str | None:
    """Return the columns as a list in words; None unless all of them look like names.

    In a file without a header, the first row is one of data, and must not be shown.
    """
    if not columns or not all(_NAME.fullmatch(column) and not _DATUM.search(column) for column in columns):
        return None
    more = f" and {len(columns) - _MOST_LISTED:,} more" if len(columns) > _MOST_LISTED else ""
    return f"{', '.join(columns[:_MOST_LISTED])}{more}"


def missing_column(
    name: str, columns: Sequence[str], *, path: str | Path, row: int | None = None, hint: str
) -> InputError:
    """Return the error for a table without a column; it lists the columns that exist."""
    listed = listed_columns(columns)
    if listed is not None:
        hint = f"The file has: {listed}. {hint}"
    return InputError(f"column {name} is missing", path=path, row=row, hint=hint)
