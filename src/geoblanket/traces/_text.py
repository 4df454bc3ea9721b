"""Read text files of any size, plain or gzip, in blocks of whole rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from geoblanket._untrusted import UNPACKED_BY_POLARS, Unpacked
from geoblanket.errors import InputError

BLOCK_BYTES = 4 << 20
MAX_ROW_BYTES = 64 << 20
MAX_COLUMNS = 10_000
MAX_ROW_LINES = 64
"""A quoted cell may contain line breaks; a cell with more lines than this was never closed."""

WRONG_COLUMNS = "wrong number of columns"
NOT_UTF8 = "not UTF-8 text"

_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"PAR1": "a Parquet file",
}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Block:
    """Whole rows of a file.

    Attributes
    ----------
    text
        The bytes of the rows.
    first_row
        The number of the first row; the first row of the file is 1.
    position
        Bytes of the file, as it is on disk, that have been read so far.
    """

    text: bytes
    first_row: int
    position: int


@dataclass(frozen=True)
class Cells:
    """The cells of a block.

    Attributes
    ----------
    frame
        One row for each record: `row` (its number in the file) and the wanted columns as text, null where empty.
    malformed
        Row number and reason for each record that is not in `frame`.
    """

    frame: pl.DataFrame
    malformed: list[tuple[int, str]]


def read_blocks(path: Path, *, header: bool, block_bytes: int | None = None) -> Iterator[Block]:
    """Yield a file, plain or gzip, in blocks of whole rows, in bounded memory; a header is left out."""
    try:
        with path.open("rb") as raw:
            is_packed = _refuse_what_is_not_text(path, raw).startswith(b"\x1f\x8b")
            stream: IO[bytes] = io.BufferedReader(Unpacked(path, raw)) if is_packed else raw
            for block in blocks_of(path, stream, raw.tell, block_bytes=block_bytes):
                yield _without_first_row(block) if header and block.first_row == 1 else block
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error


def _without_first_row(block: Block) -> Block:
    return Block(block.text.partition(b"\n")[2], 2, block.position)


def _refuse_what_is_not_text(path: Path, raw: io.BufferedReader) -> bytes:
    """Return the first bytes, unless they are those of something else."""
    head = raw.read(8)
    raw.seek(0)
    if not head:
        raise InputError("is empty", path=path)
    for magic, name in _ARCHIVES.items():
        if head.startswith(magic):
            raise InputError(f"is {name}, not text", path=path, hint="Unpack it, or choose another --format")
    if head.startswith(_WIDE_TEXT):
        raise InputError("is UTF-16 text", path=path, hint="Save it as UTF-8")
    return head


def blocks_of(
    path: Path, stream: IO[bytes], tell: Callable[[], int] = lambda: 0, *, block_bytes: int | None = None
) -> Iterator[Block]:
    """Yield a text in blocks of whole rows; `tell` says how much of the file has been read."""
    first_row = 1
    pending = stream.read(len(_BYTE_ORDER_MARK)).removeprefix(_BYTE_ORDER_MARK)
    while chunk := stream.read(block_bytes or BLOCK_BYTES):
        pending += chunk
        end = _end_of_rows(pending)
        if end == 0:
            if len(pending) > MAX_ROW_BYTES:
                raise InputError(
                    f"the row is longer than {MAX_ROW_BYTES >> 20} MiB",
                    path=path,
                    row=first_row,
                    hint="Check that this is the right file, and that its rows end in a line feed",
                )
            continue
        block = Block(pending[:end], first_row, tell())
        first_row += block.text.count(b"\n")
        pending = pending[end:]
        yield block
    if pending:
        yield Block(pending, first_row, tell())
    elif first_row == 1:
        raise InputError("is empty", path=path)


def _end_of_rows(text: bytes) -> int:
    """Return the end of the last whole row, outside quotes (0: no row ends yet)."""
    # Go back from the last line break until the quotes before it are balanced.
    last = end = text.rfind(b"\n") + 1
    if end == 0:
        return 0
    quotes = text.count(b'"', 0, end)
    for _ in range(MAX_ROW_LINES):
        if quotes % 2 == 0:
            return end
        before = text.rfind(b"\n", 0, end - 1) + 1
        if before == 0:
            return 0
        quotes -= text.count(b'"', before, end)
        end = before
    # Some quote was never closed, so quotes cannot tell where rows end.
    return last


def read_header(path: Path, *, delimiter: str) -> list[str]:
    """Return the names in the first row of a delimited file."""
    line = peek(path, header=False).text.partition(b"\n")[0]
    if b"\r" in line.rstrip(b"\r"):
        raise InputError("its rows end in a carriage return only", path=path, hint="Save it with line feeds")
    try:
        names = next(csv.reader([line.decode().rstrip("\r")], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        raise InputError("the header is not UTF-8 text", path=path, row=1, hint="Save the file as UTF-8") from None
    if len(names) > MAX_COLUMNS:
        raise InputError(
            f"the header has more than {MAX_COLUMNS:,} columns",
            path=path,
            row=1,
            hint="Check the file and the delimiter",
        )
    return [name.strip() for name in names]


def peek(path: Path, *, header: bool) -> Block:
    """Return the first rows of a file."""
    return next(read_blocks(path, header=header, block_bytes=1 << 20))


def read_cells(block: Block, *, width: int, wanted: Mapping[str, int], delimiter: str) -> Cells:
    """Split a block of a file with `width` columns into cells; `wanted` gives the columns to keep and their positions.

    Polars reads a block of clean rows. If it finds a fault, which may stop it anywhere, the block is read again row by
    row, so that a bad row costs no other row.
    """
    frame = _read_quickly(block.text, width, delimiter)
    if frame is None:
        return _read_row_by_row(block, width, wanted, delimiter)
    row = pl.int_range(block.first_row, block.first_row + frame.height, dtype=pl.Int64)
    kept = [pl.nth(position).replace("", None).alias(name) for name, position in wanted.items()]
    return Cells(frame.select(*kept, row.alias("row")), [])


def _read_quickly(text: bytes, width: int, delimiter: str) -> pl.DataFrame | None:
    """Return all cells as text, or None if some line is not a record of the right width."""
    if b"\0" in text or text.startswith(UNPACKED_BY_POLARS):
        return None
    schema = {f"column {position}": pl.String() for position in range(width)}
    try:
        frame = pl.read_csv(text, has_header=False, schema=schema, separator=delimiter)
    except pl.exceptions.PolarsError:
        return None
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if frame.height != lines:
        return None
    # Polars refuses long records, but fills short ones (and empty lines) with nulls: count the delimiters.
    if frame.to_series(-1).null_count():
        inside = frame.select(pl.all().str.count_matches(delimiter, literal=True).sum()).sum_horizontal().item()
        if text.count(delimiter.encode()) - inside != frame.height * (width - 1):
            return None
    return frame


def _read_row_by_row(block: Block, width: int, wanted: Mapping[str, int], delimiter: str) -> Cells:
    csv.field_size_limit(MAX_ROW_BYTES)  # the default limit is shorter than a long polyline
    lines = block.text.decode(errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()
    columns: list[list[str | None]] = [[] for _ in wanted]
    rows: list[int] = []
    malformed: list[tuple[int, str]] = []
    at = 0
    while at < len(lines):
        row = block.first_row + at
        cells, used = _record(lines, at, width, delimiter)
        at += used
        if cells is None:
            malformed.append((row, WRONG_COLUMNS))
        elif cells:
            kept = [cells[position] or None for position in wanted.values()]
            if any(cell and ("\ufffd" in cell or "\0" in cell) for cell in kept):
                malformed.append((row, NOT_UTF8))
                continue
            rows.append(row)
            for column, cell in zip(columns, kept, strict=True):
                column.append(cell)
    frame = pl.DataFrame(
        {**dict(zip(wanted, columns, strict=True)), "row": rows},
        schema={**dict.fromkeys(wanted, pl.String()), "row": pl.Int64()},
    )
    return Cells(frame, malformed)


def _record(lines: list[str], at: int, width: int, delimiter: str) -> tuple[list[str] | None, int]:
    """Return the cells of the record that begins at a line (None: malformed; []: empty line), and its number of lines.

    A record of several lines counts only if it has the right width. Otherwise a quote was never closed, and reading
    goes on at the next line.
    """
    line = lines[at].removesuffix("\r")
    if not line:
        return [], 1
    several = line.count('"') % 2 == 1
    following = (text + "\n" for text in lines[at : at + MAX_ROW_LINES]) if several else [line]
    reader = csv.reader(following, delimiter=delimiter)
    try:
        cells = next(reader)
    except csv.Error:
        return None, 1
    return (cells, reader.line_num) if len(cells) == width else (None, 1)
