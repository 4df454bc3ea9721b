"""Any table of points, CSV or Parquet, by a mapping of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from geoblanket._frames import AnyFrame, to_polars
from geoblanket._tables import reading_parquet, table_batches
from geoblanket._untrusted import check_parquet
from geoblanket.errors import InputError, ParameterError
from geoblanket.traces._source import Parsed, ReadingOptions, find_columns, read_points
from geoblanket.traces._text import Block, peek, read_blocks, read_cells, read_header
from geoblanket.traces._times import find_time_format, in_utc, naive_times

__all__ = ["ROLES", "CsvTable", "FrameTable", "ParquetTable", "check_columns", "open_table"]

ROLES = ("vehicle", "trip", "time", "lat", "lon")
"""What a column can be. Vehicle and trip may be absent."""

_OPTIONAL = {"vehicle", "trip"}
_LATITUDES = {"lat", "latitude", "y"}
_LONGITUDES = {"lon", "lng", "long", "longitude", "x"}
_TIMES = {"time", "timestamp", "ts", "datetime", "date_time", "utc"}
_ROWS_AT_A_TIME = 500_000
_EXPECTED = "Check the mapping of the columns, the delimiter and the times"


def check_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Check a mapping from roles to column names and complete it: a missing role is a column of its own name."""
    for role, name in columns.items():
        if role not in ROLES:
            raise ParameterError(f"columns maps {', '.join(ROLES)} to names of columns. Got {role!r} instead.")
        if not name:
            raise ParameterError(f"columns must give a name for {role}. Got an empty one instead.")
    if columns.get("lat", "").lower() in _LONGITUDES and columns.get("lon", "").lower() in _LATITUDES:
        raise ParameterError(
            f"latitude and longitude look exchanged: lat is column '{columns['lat']}' and lon is column "
            f"'{columns['lon']}'. Exchange them."
        )
    return {role: columns.get(role, role) for role in ROLES}


def open_table(path: Path, file: int, reading: ReadingOptions) -> CsvTable | ParquetTable:
    """Open a table, which is Parquet if it begins as one; `file` is its number among those imported together."""
    try:
        with path.open("rb") as raw:
            is_parquet = raw.read(4) == b"PAR1"
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    return ParquetTable(path, file, reading) if is_parquet else CsvTable(path, file, reading)


class CsvTable:
    """A delimited text file with a header, plain or gzip."""

    def __init__(self, path: Path, file: int, reading: ReadingOptions) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file = file
        self._delimiter = reading.delimiter
        header = read_header(path, delimiter=reading.delimiter)
        self._width = len(header)
        self._columns = _find_roles(header, reading, path)
        sample = self._cells(peek(path, header=True))[0].get_column("time")
        form = find_time_format(sample, path=path, unit=reading.time_unit, zone=reading.time_zone)
        self._time = form.microseconds("time")

    def batches(self) -> Iterator[tuple[Block, int]]:
        """Yield blocks of rows."""
        for block in read_blocks(self.path, header=True):
            yield block, block.position

    def parse(self, block: Block) -> Parsed[pl.DataFrame]:
        """Read the points of a block."""
        frame, malformed = self._cells(block)
        return read_points(
            _with_vehicle(frame, self.path),
            malformed,
            time=self._time,
            path=self.path,
            file=self._file,
            first=block.first_row == 2,
            expected=_EXPECTED,
        )

    def _cells(self, block: Block) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
        cells = read_cells(block, width=self._width, wanted=self._columns, delimiter=self._delimiter)
        return cells.frame, cells.malformed


class _TypedTable:
    """Rows whose columns have types, numbered from 1."""

    def __init__(self, rows: pl.LazyFrame, path: Path, file: int, reading: ReadingOptions, *, problem: str) -> None:
        self.path = path
        self._file, self._problem = file, problem
        names = check_columns(reading.columns)
        with reading_parquet(path, problem):
            schema = rows.collect_schema()
            roles = _find_roles(list(schema), reading, path, named=True)
            self._rows = rows.select(**{role: pl.col(names[role]) for role in roles})
            sample = self._rows.select(pl.col("time").head(1000)).collect().to_series()
        for role in ("lat", "lon"):
            if not (schema[names[role]].is_numeric() or schema[names[role]] == pl.String):
                raise InputError(f"column '{names[role]}' must hold numbers", path=path)
        self._time = _time_of(sample, reading, path)
        with reading_parquet(path, problem):
            self._total = int(self._rows.select(pl.len()).collect().item())

    @property
    def size(self) -> int:
        """Its rows."""
        return self._total

    def batches(self) -> Iterator[tuple[tuple[pl.DataFrame, int], int]]:
        """Yield batches of rows, each with the number of its first row."""
        first_row = 1
        for frame in table_batches(
            self._rows, path=self.path, rows=_ROWS_AT_A_TIME, streaming=True, problem=self._problem
        ):
            yield (frame, first_row), first_row - 1 + frame.height
            first_row += frame.height

    def parse(self, batch: tuple[pl.DataFrame, int]) -> Parsed[pl.DataFrame]:
        """Read the points of a batch."""
        frame, first_row = batch
        row = pl.int_range(first_row, first_row + frame.height, dtype=pl.Int64)
        return read_points(
            _with_vehicle(frame.with_columns(row=row), self.path),
            [],
            time=self._time,
            path=self.path,
            file=self._file,
            first=first_row == 1,
            expected=_EXPECTED,
        )


class ParquetTable(_TypedTable):
    """A Parquet file."""

    def __init__(self, path: Path, file: int, reading: ReadingOptions) -> None:
        check_parquet(path)
        damaged = "cannot be read as Parquet: it is damaged"
        with reading_parquet(path, damaged):
            rows = pl.scan_parquet(path)
        super().__init__(rows, path, file, reading, problem=damaged)


class FrameTable(_TypedTable):
    """A data frame; `name` stands for it in messages."""

    def __init__(self, frame: AnyFrame, name: Path, file: int, reading: ReadingOptions) -> None:
        rows = to_polars(frame, set(check_columns(reading.columns).values()))
        super().__init__(rows, name, file, reading, problem="cannot be computed")


def _find_roles(header: list[str], reading: ReadingOptions, path: Path, *, named: bool = False) -> dict[str, int]:
    return find_columns(
        header,
        check_columns(reading.columns),
        optional=_OPTIONAL - set(reading.columns),
        path=path,
        delimiter=None if named else reading.delimiter,
        hint=_how_to_map(header, reading.columns),
    )


def _how_to_map(header: list[str], given: Mapping[str, str]) -> str:
    """Return how to say which column is which, by the names that columns usually have."""
    if "POLYLINE" in header:
        return "Trips as those of Porto are read with --format porto"
    usual = {"time": _TIMES, "lat": _LATITUDES, "lon": _LONGITUDES}
    known = {role: next((name for name in header if name.lower() in names), "…") for role, names in usual.items()}
    chosen = {role: given[role] if given.get(role) in header else name for role, name in known.items()}
    return f"Say which is which: --columns {','.join(f'{role}={name}' for role, name in chosen.items())}"


def _with_vehicle(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Fill in the vehicle where there is no such column: by the trip, else by the name of the file."""
    if "vehicle" in frame.columns:
        return frame
    if "trip" in frame.columns:
        return frame.rename({"trip": "vehicle"})
    return frame.with_columns(vehicle=pl.lit(path.name.removesuffix(".gz").rpartition(".")[0] or path.name))


def _time_of(sample: pl.Series, reading: ReadingOptions, path: Path) -> pl.Expr:
    """Return the expression that reads column "time" of a table with types."""
    dtype = sample.dtype
    if isinstance(dtype, pl.Datetime):
        moment = pl.col("time")
        if dtype.time_zone is None:
            if reading.time_zone is None:
                raise naive_times(path)
            moment = in_utc(moment, reading.time_zone)
        return moment.dt.convert_time_zone("UTC").dt.cast_time_unit("us").to_physical()
    if not (dtype.is_numeric() or dtype == pl.String):
        raise InputError("the column of times must hold times, numbers or text", path=path)
    return find_time_format(sample, path=path, unit=reading.time_unit, zone=reading.time_zone).microseconds("time")
