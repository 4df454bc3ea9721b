"""The three public sets of taxi traces, each in its own format.

Porto: the taxi trips of the ECML/PKDD 2015 challenge, one row a trip (`train.csv`). Columns TRIP_ID, CALL_TYPE,
ORIGIN_CALL, ORIGIN_STAND, TAXI_ID, TIMESTAMP (start of the trip, epoch seconds), DAY_TYPE, MISSING_DATA, POLYLINE (JSON
[[lon, lat], ...], a point every 15 s).

Rome: taxi positions of CRAWDAD roma/taxi, one row a point (`taxi_february.txt`). Rows `id;2014-02-01
00:00:00.739166+01;POINT(lat lon)` without a header; latitude comes first.

San Francisco: the cabs of CRAWDAD epfl/mobility, one file `new_NAME.txt` a cab, in a folder or an archive. Rows `lat
lon occupied time` without a header: whether a passenger is on board (0 or 1), and epoch seconds; the newest come first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from geoblanket.errors import InputError
from geoblanket.traces._archives import read_members
from geoblanket.traces._text import Block, blocks_of, read_cells, read_header
from geoblanket.traces._times import BAD_TIME, TIME_OUT_OF_RANGE, TimeFormat, find_time_format, time_in_range
from geoblanket.traces.cleaning import Points
from geoblanket.traces.source import (
    EMPTY_CELL,
    Box,
    Parsed,
    Reading,
    Streams,
    TextSource,
    check_coordinates,
    check_first,
    find_columns,
    read_points,
    set_aside,
)
from geoblanket.traces.summary import Tally, file_row

STEP_US = 15_000_000
BAD_POLYLINE = "POLYLINE is not a JSON list of [longitude, latitude]"

_PORTO_COLUMNS = {"vehicle": "TAXI_ID", "time": "TIMESTAMP", "missing": "MISSING_DATA", "polyline": "POLYLINE"}
_OTHER_TABLE = "If it is another table, give --format table"
_PORTUGAL = Box(36.8, -9.7, 42.3, -6.0)
_NUMBER = r"-?[0-9]{1,3}(?:\.[0-9]+)?"
_POINT = rf"\[{_NUMBER}, ?{_NUMBER}\]"
_USUAL_POLYLINE = rf"^\[(?:{_POINT}(?:, ?{_POINT})*)?\]$"

_ROME_COLUMNS = {"vehicle": 0, "time": 1, "point": 2}
_CENTRAL_ITALY = Box(40.5, 10.5, 43.5, 15.0)

_CAB_COLUMNS = {"lat": 0, "lon": 1, "occupied": 2, "time": 3}
BAD_OCCUPANCY = "occupied is neither 0 nor 1"
CabBlock = tuple[str, int, Block]
"""The name of a cab, the number of its file, and rows of it."""
_CAB_NAME = re.compile(r"new_([\w-]{1,60})\.txt(?:\.gz)?", re.ASCII)


class PortoFile(TextSource):
    """One file in Porto's format; `file` is its number among the imported files."""

    def __init__(self, path: Path, file: int, reading: Reading, *, drop_missing_data: bool) -> None:
        delimiter = reading.delimiter or ","
        self._drop_missing_data = drop_missing_data
        header = read_header(path, delimiter=delimiter)
        columns = find_columns(
            header, _PORTO_COLUMNS, optional={"missing"}, path=path, delimiter=delimiter, hint=_OTHER_TABLE
        )
        super().__init__(path, file, delimiter=delimiter, width=len(header), columns=columns, header=True)
        self._time = find_time_format(self.first_times(), path=path, unit=reading.time_unit or "s", zone=None)

    def parse(self, block: Block) -> Parsed[Streams]:
        """Read the points of a block; each row is a stream."""
        cells = self.cells(block)
        frame, malformed = cells.frame, cells.malformed
        rows = frame.height + len(malformed)
        frame, unreadable = set_aside(
            frame.with_columns(start=self._time.microseconds("time")),
            {
                EMPTY_CELL: pl.any_horizontal(pl.col("vehicle", "time", "polyline").is_null()),
                BAD_TIME: pl.col("start").is_null(),
                TIME_OUT_OF_RANGE: ~time_in_range(pl.col("start")),
            },
        )
        frame, bad_polylines = _usual_polylines(frame)
        malformed = sorted(malformed + unreadable + bad_polylines)
        first = self.is_first(block)
        if first:
            check_first(self.path, rows, malformed, expected="Check that the file has the format of Porto's train.csv")
        frame = frame.with_columns(pl.col("row") + file_row(self._file, 0), pl.col("vehicle").str.strip_chars())
        tally = Tally()
        if self._drop_missing_data and "missing" in frame.columns:
            frame = _drop_missing_data(frame, tally)
        empty = frame.get_column("polyline") == "[]"
        tally.count("too_short", frame.filter(empty)["row"].to_numpy(), points=0)
        streams = _explode(frame.filter(~empty))
        points = streams.points.row.size + sum(count.points for count in tally.values())
        if first:
            coordinates = pl.DataFrame({"lat": streams.points.lat, "lon": streams.points.lon})
            check_coordinates(coordinates, path=self.path, home=_PORTUGAL)
        return Parsed(streams, self._file, rows, points, malformed, tally)


def _drop_missing_data(frame: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    missing = (frame.get_column("missing").str.to_lowercase() == "true").fill_null(value=False)
    dropped = frame.filter(missing)
    points = dropped.get_column("polyline").str.count_matches("[", literal=True) - 1
    tally.count("missing_data", dropped.get_column("row").to_numpy(), points=int(points.sum()))
    return frame.filter(~missing)


def _usual_polylines(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Write all polylines without spaces, and set aside those that are not lists of points."""
    polyline = pl.col("polyline")
    unusual = frame.filter(~polyline.str.contains(_USUAL_POLYLINE))
    if not unusual.is_empty():
        rewritten = pl.Series([_rewrite(text) for text in unusual["polyline"]], dtype=pl.String)
        frame = frame.update(unusual.select("row", polyline=rewritten), on="row", include_nulls=True)
    if frame.get_column("polyline").str.contains(" ", literal=True).any():
        frame = frame.with_columns(polyline.str.replace_all(" ", "", literal=True))
    return set_aside(frame, {BAD_POLYLINE: polyline.is_null()})


def _rewrite(text: str) -> str | None:
    """Write a polyline without white space; None if it is not a list of points."""
    try:
        points = json.loads(text)
        if not (isinstance(points, list) and all(isinstance(point, list) for point in points)):
            return None
        pairs = [(float(lon), float(lat)) for lon, lat in points if not {type(lon), type(lat)} - {int, float}]
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return "[" + ",".join(f"[{lon!r},{lat!r}]" for lon, lat in pairs) + "]" if len(pairs) == len(points) else None


def _explode(frame: pl.DataFrame) -> Streams:
    """Turn rows with a polyline, none of them empty, into points."""
    polyline = frame.get_column("polyline")
    texts = polyline.str.strip_chars("[]").str.replace_all("],[", ",", literal=True).str.split(",")
    numbers = texts.explode().cast(pl.Float64).to_numpy()
    sizes = texts.list.len().to_numpy().astype(np.int64) // 2
    stream = np.repeat(np.arange(frame.height), sizes)
    step = np.arange(stream.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    points = Points(
        stream=stream,
        row=frame["row"].to_numpy()[stream],
        time_us=frame["start"].to_numpy()[stream] + step * STEP_US,
        lat=np.ascontiguousarray(numbers[1::2]),
        lon=np.ascontiguousarray(numbers[0::2]),
    )
    return Streams(points, frame["vehicle"])


class RomeFile(TextSource):
    """One file in Rome's format; `file` is its number among the imported files."""

    def __init__(self, path: Path, file: int, reading: Reading) -> None:
        width = len(_ROME_COLUMNS)
        delimiter = reading.delimiter or ";"
        super().__init__(path, file, delimiter=delimiter, width=width, columns=_ROME_COLUMNS, header=False)
        form = find_time_format(self.first_times(), path=path, unit=None, zone=reading.time_zone)
        self._time = form.microseconds("time")

    def parse(self, block: Block) -> Parsed[pl.DataFrame]:
        """Read the points of a block."""
        cells = self.cells(block)
        inside = pl.col("point").str.strip_prefix("POINT").str.strip_chars(" ").str.strip_prefix("(")
        lat_lon = inside.str.strip_suffix(")").str.strip_chars(" ").str.splitn(" ", 2)
        return read_points(
            cells.frame.with_columns(lat=lat_lon.struct[0], lon=lat_lon.struct[1]),
            cells.malformed,
            time=self._time,
            path=self.path,
            file=self._file,
            first=self.is_first(block),
            expected="Rows have to read id;time+offset;POINT(lat lon)",
            home=_CENTRAL_ITALY,
        )


class CabFiles:
    """The files of San Francisco's cabs: a folder or an archive of them, or a single one.

    Parameters
    ----------
    file
        The number of `path` among the imported files.
    files
        The imported files, to which those inside the folder or the archive are added as they are found.
    """

    def __init__(self, path: Path, file: int, files: list[Path], reading: Reading) -> None:
        self.path = path
        self.size = sum(each.stat().st_size for each in (path.iterdir() if path.is_dir() else [path]))
        self._file, self._files = file, files
        self._delimiter = reading.delimiter or " "
        self._time = TimeFormat(reading.time_unit or "s").microseconds("time")

    def batches(self) -> Iterator[tuple[CabBlock, int]]:
        """Yield blocks of rows, each with the number of bytes read so far; files of other names are passed over."""
        found = False
        for path, stream, position in read_members(self.path):
            name = _CAB_NAME.fullmatch(path.name)
            if name is None:
                continue
            found, file = True, self._file
            if path != self.path:
                file = len(self._files)
                self._files.append(path)
            for block in blocks_of(path, stream):
                yield (name[1], file, block), position
        if not found:
            raise InputError(
                "has no file of a cab",
                path=self.path,
                hint="Give the folder or the archive of files new_NAME.txt, or some of these files",
            )

    def parse(self, block: CabBlock) -> Parsed[pl.DataFrame]:
        """Read the points of a block, the oldest first."""
        vehicle, file, rows = block
        cells = read_cells(rows, width=len(_CAB_COLUMNS), wanted=_CAB_COLUMNS, delimiter=self._delimiter)
        frame, bad = set_aside(cells.frame, {BAD_OCCUPANCY: ~pl.col("occupied").is_in(["0", "1"])})
        parsed = read_points(
            frame.with_columns(vehicle=pl.lit(vehicle)),
            cells.malformed + bad,
            time=self._time,
            path=self._files[file],
            file=file,
            first=rows.first_row == 1,
            expected="Rows have to read lat lon occupied time",
        )
        content, time = parsed.content.with_columns(pl.col("occupied") == "1"), parsed.content["time"]
        newest_first = len(time) > 1 and time[0] > time[-1]
        return replace(parsed, content=content.reverse() if newest_first else content)
