"""Read any table of points (CSV, Parquet or a data frame) by a mapping of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from geoblanket._frames import AnyFrame, to_polars
from geoblanket._tables import reading_parquet, table_batches
from geoblanket._untrusted import check_parquet
from geoblanket.errors import InputError
from geoblanket.traces._text import Block, read_header
from geoblanket.traces._times import find_time_format, in_utc, naive_times
from geoblanket.traces.source import LATITUDES, LONGITUDES, Parsed, Reading, TextSource, find_columns, read_points

_OPTIONAL = {"vehicle", "trip"}
_TIMES = {"time", "timestamp", "ts", "datetime", "date_time", "utc"}
_ROWS_AT_A_TIME = 500_000
_EXPECTED = "Check the mapping of the columns, the delimiter and the times"


def open_table(path: Path, file: int, reading: Reading) -> CsvTable | ParquetTable:
    """Open a Parquet table (recognised by its first bytes) or a CSV table; `file` is its number among the files."""
    try:
        with path.open("rb") as raw:
            is_parquet = raw.read(4) == b"PAR1"
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    return ParquetTable(path, file, reading) if is_parquet else CsvTable(path, file, reading)


class CsvTable(TextSource):
    """A delimited text file with a header, plain or gzip."""

    def __init__(self, path: Path, file: int, reading: Reading) -> None:
        delimiter = reading.delimiter or ","
        header = read_header(path, delimiter=delimiter)
        columns = _find_roles(header, reading, path)
        super().__init__(path, file, delimiter=delimiter, width=len(header), columns=columns, header=True)
        form = find_time_format(self.first_times(), path=path, unit=reading.time_unit, zone=reading.time_zone)
        self._time = form.microseconds("time")

    def parse(self, block: Block) -> Parsed[pl.DataFrame]:
        """Read the points of a block."""
        cells = self.cells(block)
        return read_points(
            _with_vehicle(cells.frame, self.path),
            cells.malformed,
            time=self._time,
            path=self.path,
            file=self._file,
            first=self.is_first(block),
            expected=_EXPECTED,
        )


class _TypedTable:
    """Rows whose columns have types, numbered from 1."""

    def __init__(self, rows: pl.LazyFrame, path: Path, file: int, reading: Reading, *, problem: str) -> None:
        self.path = path
        self._file, self._problem = file, problem
        names = reading.names
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
        """The number of rows."""
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

    def __init__(self, path: Path, file: int, reading: Reading) -> None:
        check_parquet(path)
        damaged = "cannot be read as Parquet: it is damaged"
        with reading_parquet(path, damaged):
            rows = pl.scan_parquet(path)
        super().__init__(rows, path, file, reading, problem=damaged)


class FrameTable(_TypedTable):
    """A data frame; `name` stands for it in messages."""

    def __init__(self, frame: AnyFrame, name: Path, file: int, reading: Reading) -> None:
        rows = to_polars(frame, set(reading.names.values()))
        super().__init__(rows, name, file, reading, problem="cannot be computed")


def _find_roles(header: list[str], reading: Reading, path: Path, *, named: bool = False) -> dict[str, int]:
    return find_columns(
        header,
        reading.names,
        optional=_OPTIONAL - set(reading.columns),
        path=path,
        delimiter=None if named else reading.delimiter or ",",
        hint=_how_to_map(header, reading.columns),
    )


def _how_to_map(header: list[str], given: Mapping[str, str]) -> str:
    """Return a hint on how to map columns, by their usual names."""
    if "POLYLINE" in header:
        return "Trips as those of Porto are read with --format porto"
    usual = {"time": _TIMES, "lat": LATITUDES, "lon": LONGITUDES}
    known = {role: next((name for name in header if name.lower() in names), "…") for role, names in usual.items()}
    chosen = {role: given[role] if given.get(role) in header else name for role, name in known.items()}
    return f"Say which is which: --columns {','.join(f'{role}={name}' for role, name in chosen.items())}"


def _with_vehicle(frame: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Add a missing column of vehicles: the trip, or the name of the file."""
    if "vehicle" in frame.columns:
        return frame
    if "trip" in frame.columns:
        return frame.rename({"trip": "vehicle"})
    return frame.with_columns(vehicle=pl.lit(path.name.removesuffix(".gz").rpartition(".")[0] or path.name))


def _time_of(sample: pl.Series, reading: Reading, path: Path) -> pl.Expr:
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
