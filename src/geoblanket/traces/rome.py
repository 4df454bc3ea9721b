"""Rome: taxi positions of CRAWDAD roma/taxi, one row a point (`taxi_february.txt`).

Rows `id;2014-02-01 00:00:00.739166+01;POINT(lat lon)` without a header; latitude comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from geoblanket.traces._points import read_points
from geoblanket.traces._source import Box, Parsed, ReadingOptions
from geoblanket.traces._text import Block, peek, read_blocks, read_cells
from geoblanket.traces._times import find_time_format

__all__ = ["RomeFile"]

_COLUMNS = {"vehicle": 0, "time": 1, "point": 2}
_CENTRAL_ITALY = Box(40.5, 10.5, 43.5, 15.0)


class RomeFile:
    """One file in Rome's format; `file` is its number among the imported files."""

    def __init__(self, path: Path, file: int, reading: ReadingOptions) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file = file
        self._delimiter = reading.delimiter
        sample = self._cells(peek(path, header=False))[0].get_column("time")
        self._time = find_time_format(sample, path=path, unit=None, zone=reading.time_zone).microseconds("time")

    def batches(self) -> Iterator[tuple[Block, int]]:
        """Yield blocks of rows."""
        for block in read_blocks(self.path, header=False):
            yield block, block.position

    def parse(self, block: Block) -> Parsed[pl.DataFrame]:
        """Read the points of a block."""
        frame, malformed = self._cells(block)
        inside = pl.col("point").str.strip_prefix("POINT").str.strip_chars(" ").str.strip_prefix("(")
        lat_lon = inside.str.strip_suffix(")").str.strip_chars(" ").str.splitn(" ", 2)
        return read_points(
            frame.with_columns(lat=lat_lon.struct[0], lon=lat_lon.struct[1]),
            malformed,
            time=self._time,
            path=self.path,
            file=self._file,
            first=block.first_row == 1,
            expected="Rows have to read id;time+offset;POINT(lat lon)",
            home=_CENTRAL_ITALY,
        )

    def _cells(self, block: Block) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
        cells = read_cells(block, width=len(_COLUMNS), wanted=_COLUMNS, delimiter=self._delimiter)
        return cells.frame, cells.malformed
