"""Import traces: any number of files of one format become one clean table, in bounded memory."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import polars as pl

from geoblanket._arguments import checked, wrong_type
from geoblanket._display import Progress, silent
from geoblanket._files import MAGIC, found_in_words, kind_of_file, temporary_folder
from geoblanket._frames import FRAME, AnyFrame, is_frame, is_path
from geoblanket._tables import lazy_batches, write_table
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.traces.cleaning import Cleaning, Points, clean
from geoblanket.traces.columns import FrameTable, open_table
from geoblanket.traces.source import Parsed, Reading, Source, Streams
from geoblanket.traces.summary import ImportSummary, Tally, file_row
from geoblanket.traces.table import OCCUPIED, TRACES_SCHEMA
from geoblanket.traces.taxi_files import CabFiles, PortoFile, RomeFile

__all__ = ["Reading", "TraceFormat", "gather_by_vehicle", "import_traces", "to_streams"]

TraceFormat = Literal["porto", "rome", "cabspotting", "table"]

_MAPS = frozenset({"osm", "graphml"})
_NO_POINTS = _MAPS | MAGIC.keys() | {"ledger"}
_WORKERS = min(4, pl.thread_pool_size())  # threads

Content = TypeVar("Content")
Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_ROWS = 3_000_000
"""The largest number of points in memory at once (one vehicle may have more)."""

_PARTS = 32  # number of ranges of vehicles that a split makes


@checked
def import_traces(
    files: str | Path | AnyFrame | Sequence[str | Path | AnyFrame],
    out: str | Path,
    *,
    format: TraceFormat = "table",  # noqa: A002  # the word that users know
    reading: Reading | None = None,
    cleaning: Cleaning | None = None,
    strict: bool = False,
    progress: Progress = silent,
) -> ImportSummary:
    """Import files of one format as one table of traces.

    Files may be larger than memory. The result is written completely or not at all, and is reproducible.

    Parameters
    ----------
    files
        The file to read, or a list of files; text files may be compressed by gzip. With the format "cabspotting",
        folders and tar archives may stand for the files in them. With the format "table", data frames may stand for
        files: of Polars or pandas, or with the Arrow stream interface.
    out
        The table to write (Parquet): see `geoblanket.traces.table`. Trips are in the order of the file (Porto), or
        by vehicle and time.
    format
        "porto" (train.csv), "rome" (taxi_february.txt), "cabspotting" (San Francisco's new_NAME.txt), or "table" (any
        CSV or Parquet file with a header, or a data frame).
    reading
        Names of columns, the delimiter, and the meaning of times; see `Reading`.
    cleaning
        The cleaning rules; by default all of them, see `Cleaning`.
    strict
        Raise an error for the first row that cannot be read, instead of counting such rows.
    progress
        Called as the work goes on.

    Returns
    -------
    ImportSummary
        What was read, kept, changed and dropped.

    Raises
    ------
    InputError
        If a file cannot be used, or no point is left after cleaning.
    ParameterError
        If options are out of range or contradict each other.
    OutputError
        If the table cannot be written.

    Examples
    --------
    >>> from geoblanket import import_traces
    >>> summary = import_traces(["city/porto.csv"], "traces.parquet", format="porto")
    >>> summary.rows_read
    150
    """
    given: Any = [files] if is_path(files) or is_frame(files) else files
    if not isinstance(given, Sequence) or not all(is_path(file) or is_frame(file) for file in given):
        raise wrong_type(import_traces, "files", files, ["path", "data frame", "list of them"])
    paths = _names(given)
    out = Path(out)
    _check_files([Path(file) for file in given if is_path(file)], out, count=len(given), format=format)
    reading, cleaning = reading or Reading(), cleaning or Cleaning()
    _check_options(format, reading)
    if format != "table" and any(map(is_frame, given)):
        raise ParameterError(f"A data frame has the format 'table'. Got '{format}' instead.")
    summary = ImportSummary(list(paths))
    with (
        temporary_folder(out) as workspace,
        ThreadPoolExecutor(_WORKERS) as pool,
        ThreadPoolExecutor(1) as writer,
    ):
        importer = _Importer(summary, cleaning, pool, strict=strict, progress=progress)
        if format == "porto":
            drop = cleaning.drop_missing_data
            trips = importer.from_trips(
                [PortoFile(path, file, reading, drop_missing_data=drop) for file, path in enumerate(paths)]
            )
        elif format == "cabspotting":
            cabs = [CabFiles(path, file, summary.files, reading) for file, path in enumerate(paths)]
            trips = importer.from_points(cabs, workspace)
        else:
            trips = importer.from_points(list(_sources(given, paths, reading, rome=format == "rome")), workspace)
        about = {
            "format": format,
            "files": [path.name for path in paths],
            "reading": asdict(reading),
            "cleaning": asdict(cleaning),
        }
        # This thread only waits: Python hands signals to the main thread, which must not be inside Polars for minutes.
        frame = lazy_batches(trips, schema=TRACES_SCHEMA | (OCCUPIED if format == "cabspotting" else {}))
        written = writer.submit(write_table, frame, out, kind="traces", about=about)
        try:
            written.result()
        finally:
            importer.stop()
    return summary


def _names(given: Sequence[str | Path | AnyFrame]) -> list[Path]:
    """Return the name of each file or frame for messages."""
    frames = sum(map(is_frame, given))
    numbers = iter(range(1, frames + 1))
    return [
        Path(file) if is_path(file) else FRAME if frames == 1 else Path(f"{FRAME} {next(numbers)}") for file in given
    ]


def _sources(
    given: Sequence[str | Path | AnyFrame], paths: Sequence[Path], reading: Reading, *, rome: bool
) -> Iterator[Source[Any, pl.DataFrame]]:
    open_file = RomeFile if rome else open_table
    for number, (file, path) in enumerate(zip(given, paths, strict=True)):
        yield FrameTable(file, path, number, reading) if is_frame(file) else open_file(path, number, reading)


def _check_files(paths: list[Path], out: Path, *, count: int, format: TraceFormat) -> None:  # noqa: A002
    if not count:
        raise ParameterError("at least one file is needed. Got none.")
    for path in paths:
        if not (path.is_file() or (path.is_dir() and format == "cabspotting")):
            raise InputError("is a folder" if path.is_dir() else "no such file", path=path)
        if (found := kind_of_file(path)) in _NO_POINTS:
            raise InputError(
                f"is not a table of GPS points: it is {found_in_words(str(found))}",
                path=path,
                hint="Maps are imported with `geoblanket roads import`" if found in _MAPS else None,
            )
        if out.exists() and path.samefile(out):
            raise ParameterError(f"{path} is both read and written. Choose another name for the result.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise ParameterError("a file is given twice. Give each file once.")
    if not out.parent.is_dir():
        raise OutputError(f"{out}: the folder {out.parent} does not exist. Create it first.")


def _check_options(trace_format: str, reading: Reading) -> None:
    formats = get_args(TraceFormat)
    if trace_format not in formats:
        raise ParameterError(f"format must be one of {', '.join(formats)}. Got {trace_format!r} instead.")
    if reading.columns and trace_format != "table":
        raise ParameterError(f"columns are for the format 'table'. Got them with '{trace_format}' instead.")


class _Cleaned(NamedTuple):
    """Points with trips numbered from 0, their vehicles, and counts for each rule."""

    frame: pl.DataFrame
    vehicles: pl.Series
    tally: Tally


class _Importer:
    """The work of one import: generators that read, clean and count."""

    def __init__(
        self,
        summary: ImportSummary,
        cleaning: Cleaning,
        pool: ThreadPoolExecutor,
        *,
        strict: bool,
        progress: Progress,
    ) -> None:
        self._summary = summary
        self._cleaning = cleaning
        self._pool = pool
        self._strict = strict
        self._progress = progress
        self._vehicles: set[str] = set()
        self._stopped = Event()

    def stop(self) -> None:
        """Make all threads end soon."""
        self._stopped.set()

    def from_trips(self, sources: Sequence[Source[Any, Streams]]) -> Iterator[pl.DataFrame]:
        """Yield the table from files whose rows are whole trips, which can be cleaned as they come."""

        def read(source: Source[Any, Streams], batch: object) -> Parsed[_Cleaned]:
            parsed = source.parse(batch)
            cleaned = self._clean(parsed.content)
            return Parsed(cleaned, parsed.file, parsed.rows, parsed.points, parsed.malformed, parsed.tally)

        yield from self._number(self._read(sources, read))

    def from_points(self, sources: Sequence[Source[Any, pl.DataFrame]], workspace: Path) -> Iterator[pl.DataFrame]:
        """Yield the table from files whose rows are points; the points of each vehicle are gathered first."""

        def read(source: Source[Any, pl.DataFrame], batch: object) -> Parsed[pl.DataFrame]:
            return source.parse(batch)

        frames = gather_by_vehicle(self._read(sources, read), workspace=workspace)
        yield from self._number(self._in_order(lambda frame: self._clean(to_streams(frame)), self._reporting(frames)))

    def _reporting(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in frames:
            done += frame.height
            yield frame
            self._progress("Cleaning", done, self._summary.points_read)

    def _read(
        self, sources: Sequence[Source[Any, Content]], read: Callable[[Source[Any, Content], Any], Parsed[Result]]
    ) -> Iterator[Result]:
        """Yield the contents of all batches of all files, in order, and count them."""
        sizes = [source.size for source in sources]

        def batches() -> Iterator[tuple[Source[Any, Content], Any, int]]:
            for number, source in enumerate(sources):
                for batch, position in source.batches():
                    yield source, batch, sum(sizes[:number]) + position

        def parse(item: tuple[Source[Any, Content], Any, int]) -> tuple[Parsed[Result], int]:
            source, batch, position = item
            return read(source, batch), position

        for parsed, position in self._in_order(parse, batches()):
            self._count(parsed)
            self._progress("Reading", position, sum(sizes))
            yield parsed.content
        if self._summary.rows_read == 0:
            raise InputError("has a header but no rows", path=sources[-1].path)

    def _count(self, parsed: Parsed[Any]) -> None:
        summary, file = self._summary, parsed.file
        if parsed.malformed and self._strict:
            row, reason = parsed.malformed[0]
            raise InputError(
                reason, path=summary.files[file], row=row, hint="Mend the row, or leave strict out to skip such rows"
            )
        summary.rows_read += parsed.rows
        summary.points_read += parsed.points
        summary.rules.merge(parsed.tally)
        summary.rules.count(
            "malformed", np.array([file_row(file, row) for row, _ in parsed.malformed], np.int64), points=0
        )
        summary.malformed.update(reason for _, reason in parsed.malformed)

    def _clean(self, streams: Streams) -> _Cleaned:
        points, trip, tally = clean(streams.points, self._cleaning)
        frame = pl.DataFrame(
            {
                "vehicle": streams.vehicles.gather(points.stream),
                "trip": trip,
                "time": pl.Series(points.time_us).cast(TRACES_SCHEMA["time"]),
                "lat": points.lat,
                "lon": points.lon,
            },
            schema=TRACES_SCHEMA,
        )
        if points.occupied is not None:
            frame = frame.with_columns(occupied=points.occupied)
        kept = streams.vehicles.gather(points.stream[np.flatnonzero(np.diff(points.stream, prepend=-1))])
        return _Cleaned(frame, kept, tally)

    def _number(self, cleaned: Iterable[_Cleaned]) -> Iterator[pl.DataFrame]:
        """Yield frames with trips numbered across all frames, and count what is kept."""
        summary = self._summary
        for frame, vehicles, tally in cleaned:
            summary.rules.merge(tally)
            if frame.is_empty():
                continue
            numbered = frame.with_columns(pl.col("trip") + summary.trips)
            summary.trips = int(numbered.item(-1, "trip")) + 1
            summary.points += frame.height
            self._vehicles.update(vehicles)
            summary.vehicles = len(self._vehicles)
            yield numbered
        if summary.points == 0:
            rules = ", ".join(f"{rule} {count.rows}" for rule, count in summary.rules.items())
            raise InputError(
                f"nothing is left of {summary.rows_read} rows (rows dropped: {rules})", path=summary.files[0]
            )

    def _in_order(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Apply a function in the pool's threads, a few items ahead; yield the results in order."""
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(self._pool.submit(function, item))
            if len(pending) > _WORKERS:
                yield self._result(pending.popleft())
        while pending:
            yield self._result(pending.popleft())

    def _result(self, future: Future[Result]) -> Result:
        result = future.result()
        if self._stopped.is_set():
            raise CancelledError
        return result


def gather_by_vehicle(
    batches: Iterable[pl.DataFrame], *, workspace: Path, max_rows: int | None = None
) -> Iterator[pl.DataFrame]:
    """Rearrange points so that each frame has all points of its vehicles, in the order of the vehicles' names.

    If points do not fit in memory, they go to files in `workspace`, split into ranges of vehicles. A range that is
    still too large is split again. The points of a vehicle keep their order.
    """
    max_rows = max_rows or MAX_ROWS
    batches = iter(batches)
    held, rows = [], 0
    for batch in batches:
        held.append(batch)
        rows += batch.height
        if rows > max_rows:
            break
    else:
        if held:
            yield pl.concat(held, how="diagonal")
        return
    parts = _spill(chain(held, batches), _bounds(held), Path(tempfile.mkdtemp(dir=workspace)), max_rows)
    held.clear()
    for files in parts:
        contents = (_take(file) for file in files)
        if len(parts) == 1:  # a single vehicle, which cannot be split
            yield pl.concat(contents, how="diagonal")
        else:
            yield from gather_by_vehicle(contents, workspace=workspace, max_rows=max_rows)


def _bounds(frames: list[pl.DataFrame]) -> pl.Series:
    """Return up to 32 vehicles, in order, that divide the points about equally."""
    counts = pl.concat([frame.select("vehicle") for frame in frames]).group_by("vehicle").len().sort("vehicle")
    share = pl.col("len").cum_sum() / pl.col("len").sum()
    part = (share * _PARTS).ceil()
    return counts.filter(part != part.shift(-1, fill_value=_PARTS + 1)).get_column("vehicle")


def _spill(frames: Iterator[pl.DataFrame], bounds: pl.Series, folder: Path, max_rows: int) -> list[list[Path]]:
    """Write frames to files by range of vehicles; return the files of each range, in order."""
    parts: dict[int, list[Path]] = {}
    for number, frame in enumerate(_merge(frames, max_rows)):
        vehicle = frame.get_column("vehicle")
        # Odd numbers are the vehicles at the bounds, even ones the ranges between them. So a bound is a part of its
        # own, and every split makes progress.
        part = bounds.search_sorted(vehicle, side="left") + bounds.search_sorted(vehicle, side="right")
        pieces = frame.with_columns(part=part).partition_by("part", as_dict=True, include_key=False)
        for (key,), piece in pieces.items():
            path = folder / f"{key:02}-{number:06}.parquet"
            piece.write_parquet(path, compression="lz4")
            parts.setdefault(int(key), []).append(path)
    return [parts[key] for key in sorted(parts)]


def _merge(frames: Iterator[pl.DataFrame], max_rows: int) -> Iterator[pl.DataFrame]:
    """Join small frames, so that files do not become tiny."""
    held, rows = [], 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows > max_rows // 2:
            yield pl.concat(held, how="diagonal")
            held, rows = [], 0
    if held:
        yield pl.concat(held, how="diagonal")


def _take(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path, memory_map=False)
    path.unlink()
    return frame


def to_streams(frame: pl.DataFrame) -> Streams:
    """Sort points by stream (vehicle, or trip of a vehicle), and streams by vehicle, then start."""
    keys = [name for name in ("vehicle", "trip") if name in frame.columns]
    streams = (
        frame.group_by(keys).agg(start=pl.col("time").min()).sort("vehicle", "start", *keys).with_row_index("stream")
    )
    points = frame.join(streams.drop("start"), on=keys, how="left", nulls_equal=True, maintain_order="left")
    points = points.sort("stream", maintain_order=True)
    return Streams(
        Points(
            stream=points["stream"].to_numpy().astype(np.int64),
            row=points["row"].to_numpy(),
            time_us=points["time"].to_numpy(),
            lat=points["lat"].to_numpy(),
            lon=points["lon"].to_numpy(),
            occupied=points["occupied"].to_numpy() if "occupied" in points.columns else None,
        ),
        streams["vehicle"],
    )
