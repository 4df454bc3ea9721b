"""The shared parts of the loaders: their options and results, and the checks that every source needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._display import options_repr
from geoblanket._tables import missing_column
from geoblanket.errors import InputError, ParameterError
from geoblanket.traces._text import Block, Cells, peek, read_blocks, read_cells
from geoblanket.traces._times import BAD_TIME, TIME_OUT_OF_RANGE, TimeUnit, check_time_zone, time_in_range
from geoblanket.traces.cleaning import Points
from geoblanket.traces.summary import Tally, file_row

ROLES = ("vehicle", "trip", "time", "lat", "lon")
"""The roles of columns. Vehicle and trip may be absent."""
LATITUDES = {"lat", "latitude", "y"}
LONGITUDES = {"lon", "lng", "long", "longitude", "x"}

EMPTY_CELL = "a cell that is needed is empty"
BAD_COORDINATE = "a coordinate is not a number (with a point as decimal mark)"

Batch = TypeVar("Batch")
Content_co = TypeVar("Content_co", covariant=True)


class Box(NamedTuple):
    """A box in degrees."""

    south: float
    west: float
    north: float
    east: float


@checked
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How to read files of points, where the files do not show it.

    Attributes
    ----------
    columns
        For the format "table": names of the columns, by role (vehicle, trip, time, lat, lon). A role that is not given
        has the column of its own name. Without a vehicle column each trip is a vehicle; without both each file is one.
    delimiter
        Separator of cells; None: a comma, a semicolon for "rome", or a space for "cabspotting".
    time_unit
        The unit of numeric times since 1970; None: it is detected ("table"), or seconds ("porto", "cabspotting").
    time_zone
        The zone of times that have no UTC offset, such as "Europe/Rome".

    Examples
    --------
    >>> from geoblanket import Reading, import_traces
    >>> reading = Reading(columns={"vehicle": "TAXI_ID"}, time_zone="Europe/Lisbon")
    >>> reading.columns["vehicle"]
    'TAXI_ID'
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    time_unit: TimeUnit | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        _check_columns(self.columns)
        mark = self.delimiter
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0'):
            raise ParameterError(f"delimiter must be a single character, such as ';'. Got {mark!r} instead.")
        if self.time_zone is not None:
            check_time_zone(self.time_zone)

    @property
    def names(self) -> dict[str, str]:
        """The name of the column of each role; by default the role itself."""
        return {role: self.columns.get(role, role) for role in ROLES}

    def __repr__(self) -> str:
        return options_repr(self)


def _check_columns(columns: Mapping[str, str]) -> None:
    for role, name in columns.items():
        if role not in ROLES or type(name) is not str or not name:
            raise ParameterError(f"columns must give names of columns for some of {', '.join(ROLES)}.")
    if columns.get("lat", "").lower() in LONGITUDES and columns.get("lon", "").lower() in LATITUDES:
        raise ParameterError(
            f"latitude and longitude look exchanged: lat is column '{columns['lat']}' and lon is column "
            f"'{columns['lon']}'. Exchange them."
        )


@dataclass(frozen=True)
class Streams:
    """Points by stream, and the vehicle of each stream."""

    points: Points
    vehicles: pl.Series


@dataclass(frozen=True)
class Parsed(Generic[Content_co]):
    """The content of a batch of a file.

    Attributes
    ----------
    content
        The points.
    file
        The number of the file among those of the import.
    rows, points
        The number of rows in the batch, and of points in these rows.
    malformed
        Row number and reason for each row that cannot be read.
    tally
        Counts of what the loader itself dropped.
    """

    content: Content_co
    file: int
    rows: int
    points: int
    malformed: list[tuple[int, str]]
    tally: Tally = field(default_factory=Tally)


class Source(Protocol[Batch, Content_co]):
    """A file that is read batch by batch; batches may be parsed by several threads at once."""

    path: Path

    @property
    def size(self) -> int:
        """The amount to read: bytes of a text file, or rows."""
        ...

    def batches(self) -> Iterator[tuple[Batch, int]]:
        """Yield the batches, in order, each with the amount read so far."""
        ...

    def parse(self, batch: Batch) -> Parsed[Content_co]:
        """Read the points of a batch."""
        ...


class TextSource:
    """A text file, plain or gzip, that is read in blocks of rows.

    Parameters
    ----------
    file
        The number of the file among those imported together.
    delimiter, width
        The separator of cells, and the number of cells in a row.
    columns
        Positions of the columns to read, by role.
    header
        Whether the first row names the columns.
    """

    def __init__(
        self, path: Path, file: int, *, delimiter: str, width: int, columns: dict[str, int], header: bool
    ) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file = file
        self._delimiter, self._width, self._columns, self._header = delimiter, width, columns, header

    def batches(self) -> Iterator[tuple[Block, int]]:
        """Yield blocks of rows, each with the number of bytes read so far."""
        for block in read_blocks(self.path, header=self._header):
            yield block, block.position

    def is_first(self, block: Block) -> bool:
        """Whether a block is the first of the file."""
        return block.first_row == 1 + self._header

    def first_times(self) -> pl.Series:
        """Return the column of times of the first rows, as text."""
        return self.cells(peek(self.path, header=self._header)).frame.get_column("time")

    def cells(self, block: Block) -> Cells:
        """Split a block into cells."""
        return read_cells(block, width=self._width, wanted=self._columns, delimiter=self._delimiter)


def set_aside(frame: pl.DataFrame, problems: Mapping[str, pl.Expr]) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Remove the rows for which one of the expressions is true; the first true one gives the reason."""
    reasons = frame.select(
        "row", reason=pl.coalesce(pl.when(problem).then(pl.lit(reason)) for reason, problem in problems.items())
    )
    good = reasons.get_column("reason").is_null()
    if good.all():
        return frame, []
    return frame.filter(good), reasons.filter(~good).rows()


def check_first(path: Path, rows: int, malformed: list[tuple[int, str]], *, expected: str) -> None:
    """Refuse a file if no row of its first batch can be read: it has another format."""
    if rows and len(malformed) == rows:
        row, reason = malformed[0]
        raise InputError(f"{reason}, and the same goes for the rows after it", path=path, row=row, hint=expected)


def check_coordinates(frame: pl.DataFrame, *, path: Path, home: Box | None = None) -> None:
    """Refuse a file whose latitudes and longitudes are exchanged.

    They are if most points are impossible, or outside the file's `home`, but not once they are exchanged. Without a
    home, points that are possible either way cannot show it.
    """

    def share(lat: str, lon: str, box: Box) -> float:
        inside = pl.col(lat).is_between(box.south, box.north) & pl.col(lon).is_between(box.west, box.east)
        return float(frame.select(inside.mean()).item() or 0.0)

    for box in (Box(-90, -180, 90, 180), home):
        if box is not None and share("lat", "lon", box) < 0.5 < share("lon", "lat", box):
            raise InputError(
                "latitude and longitude look exchanged: most points make sense only the other way round",
                path=path,
                hint="Exchange them in the file, or in --columns",
            )


def find_columns(
    header: list[str],
    names: Mapping[str, str],
    *,
    optional: set[str],
    path: Path,
    delimiter: str | None,
    hint: str,
) -> dict[str, int]:
    """Return the position of each wanted column; `names` gives its name in the header.

    Parameters
    ----------
    delimiter
        The separator of cells in a text file; None for a table with named columns.
    hint
        What to do if a column is missing.
    """
    row = None if delimiter is None else 1
    positions = {}
    for role, name in names.items():
        if header.count(name) > 1:
            raise InputError(f"has more than one column '{name}'", path=path, row=row)
        if name in header:
            positions[role] = header.index(name)
        elif role not in optional:
            why = None if delimiter is None else _why_no_column(header, delimiter)
            raise missing_column(f"'{name}'", () if why else header, path=path, row=row, hint=why or hint)
    return positions


def _why_no_column(header: list[str], delimiter: str) -> str | None:
    """Return why the first row is not a header; None if it may be one."""
    if len(header) == 1:
        for candidate in ",;\t|":
            if candidate != delimiter and candidate in header[0]:
                name = "tab" if candidate == "\t" else f"'{candidate}'"
                return f"The first row is a single cell that contains the delimiter {name}; give --set delimiter=..."
    if any(_is_number(name) for name in header):
        return "The first row holds numbers, so the file seems to have no header; add one"
    return None


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def read_points(
    frame: pl.DataFrame,
    malformed: list[tuple[int, str]],
    *,
    time: pl.Expr,
    path: Path,
    file: int,
    first: bool,
    expected: str,
    home: Box | None = None,
) -> Parsed[pl.DataFrame]:
    """Read the points of a batch.

    Parameters
    ----------
    frame
        Columns row, vehicle, perhaps trip, time, lat, lon, perhaps occupied, as in the file.
    malformed
        The rows that could not be split into these columns, and why.
    time
        Expression for microseconds since 1970 UTC, from column "time".
    first
        Whether this is the first batch of the file, which is checked for the right format.
    expected, home
        A hint on the form of rows, and the box of the points.
    """
    rows = frame.height + len(malformed)
    names = [name for name in ("vehicle", "trip", "occupied") if name in frame.columns]
    frame = frame.with_columns(
        pl.col(names).cast(pl.String).str.strip_chars().replace("", None),
        pl.col("lat", "lon").cast(pl.Float64, strict=False).name.suffix("_number"),
        microseconds=time,
    )
    frame, unreadable = set_aside(
        frame,
        {
            EMPTY_CELL: pl.any_horizontal(pl.col(*names, "time", "lat", "lon").is_null()),
            BAD_TIME: pl.col("microseconds").is_null(),
            TIME_OUT_OF_RANGE: ~time_in_range(pl.col("microseconds")),
            BAD_COORDINATE: pl.any_horizontal(pl.col("lat_number", "lon_number").is_null()),
        },
    )
    malformed = sorted(malformed + unreadable)
    frame = frame.select(
        *names, pl.col("row") + file_row(file, 0), time="microseconds", lat="lat_number", lon="lon_number"
    )
    if first:
        check_first(path, rows, malformed, expected=expected)
        check_coordinates(frame, path=path, home=home)
    return Parsed(frame, file, rows, frame.height, malformed)
