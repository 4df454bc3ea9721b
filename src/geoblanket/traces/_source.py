"""What the loaders share: the form of what they read, and the checks that every source needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl

from geoblanket._tables import missing_column
from geoblanket.errors import InputError
from geoblanket.traces._times import BAD_TIME, TIME_OUT_OF_RANGE, TimeUnit, time_in_range
from geoblanket.traces.cleaning import Points
from geoblanket.traces.summary import Tally, file_row

__all__ = [
    "EMPTY_CELL",
    "Box",
    "Parsed",
    "ReadingOptions",
    "Source",
    "Streams",
    "check_coordinates",
    "check_first",
    "find_columns",
    "read_points",
    "set_aside",
]

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


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How the user says files are to be read.

    Attributes
    ----------
    delimiter
        Between the cells of text files.
    columns
        Names of a table's columns by role, for the roles whose columns have another name.
    time_unit
        The unit of times that are numbers; None for what the format says, or to find out.
    time_zone
        The zone of times that have no offset.
    drop_missing_data
        Drop trips that their source marks as incomplete.
    """

    delimiter: str
    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: TimeUnit | None = None
    time_zone: str | None = None
    drop_missing_data: bool = True


@dataclass(frozen=True)
class Streams:
    """Points by stream, and the vehicle of each stream."""

    points: Points
    vehicles: pl.Series


@dataclass(frozen=True)
class Parsed(Generic[Content_co]):
    """What a batch of a file holds.

    Attributes
    ----------
    content
        The points.
    rows, points
        How many rows the batch has, and how many points they hold.
    malformed
        Row number and reason of the rows that cannot be read.
    tally
        What the loader itself dropped.
    """

    content: Content_co
    rows: int
    points: int
    malformed: list[tuple[int, str]]
    tally: Tally = field(default_factory=Tally)


class Source(Protocol[Batch, Content_co]):
    """A file that is read batch by batch; batches may be parsed by several threads at once."""

    path: Path

    @property
    def size(self) -> int:
        """How much there is to read: bytes of a text file, or rows."""
        ...

    def batches(self) -> Iterator[tuple[Batch, int]]:
        """Yield the batches, in order, each with how much has been read so far."""
        ...

    def parse(self, batch: Batch) -> Parsed[Content_co]:
        """Read the points of a batch."""
        ...


def set_aside(frame: pl.DataFrame, problems: Mapping[str, pl.Expr]) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Take out the rows for which one of the expressions is true; the first that is gives the reason."""
    reasons = frame.select(
        "row", reason=pl.coalesce(pl.when(problem).then(pl.lit(reason)) for reason, problem in problems.items())
    )
    good = reasons.get_column("reason").is_null()
    if good.all():
        return frame, []
    return frame.filter(good), reasons.filter(~good).rows()


def check_first(path: Path, rows: int, malformed: list[tuple[int, str]], *, expected: str) -> None:
    """Refuse a file of whose first batch not a single row can be read: it is not what it was taken for."""
    if rows and len(malformed) == rows:
        row, reason = malformed[0]
        raise InputError(f"{reason}, and the same goes for the rows after it", path=path, row=row, hint=expected)


def check_coordinates(frame: pl.DataFrame, *, path: Path, home: Box | None = None) -> None:
    """Refuse a file whose latitudes and longitudes are exchanged.

    That shows where most points are impossible, or away from where the file's points must lie, but possible or at
    home once exchanged. Points that could be anywhere on Earth cannot tell.
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
        Between the cells of a text file; None for a table whose columns have names.
    hint
        What to do where one is missing.
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
    """Return why the first row is no header; None if it may be one."""
    if len(header) == 1:
        for candidate in ",;\t|":
            if candidate != delimiter and candidate in header[0]:
                name = "tab" if candidate == "\t" else f"'{candidate}'"
                return f"The first row is a single cell that contains the delimiter {name}; give --delimiter"
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
        Columns row, vehicle, perhaps trip, time, lat, lon, as they are in the file.
    malformed
        The rows that could not be split into these columns, and why.
    time
        Microseconds since 1970 UTC, from column "time".
    first
        Whether this is the first batch of the file, from which it shows whether the file is what it should be.
    expected, home
        What rows should look like, and where points should lie.
    """
    rows = frame.height + len(malformed)
    names = [name for name in ("vehicle", "trip") if name in frame.columns]
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
    return Parsed(frame, rows, frame.height, malformed)
